#!/usr/bin/env bash
# Installs what the interop tests use, through the ordinary package clients, into a cache that later runs find again:
# kcat and iproute2 (Debian), a Python environment with confluent-kafka, kafka-python and aiokafka, Node modules with kafkajs and
# @platformatic/kafka (which wants Node.js 20.19 or later), Kafka's and ZooKeeper's jars (Maven).
# Prints the environment the tests read. Needs root for apt-get when one of them is missing, and for the network namespaces of the tests.
set -euo pipefail
cd "$(dirname "$0")"
cache=${KLAMM_CACHE:-$HOME/.cache/klamm}
mkdir -p "$cache"

if ! command -v kcat >/dev/null; then
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq kcat >&2
fi

if ! command -v ip >/dev/null; then
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iproute2 >&2
fi

venv=$cache/interop-venv
if [ ! -f "$venv/ok-4" ]; then
  python3 -m venv "$venv" >&2
  "$venv/bin/pip" install -q --disable-pip-version-check confluent-kafka==2.16.1 kafka-python==3.0.0 aiokafka==0.14.0 cramjam==2.14.0 lz4 python-snappy zstandard >&2
  touch "$venv/ok-4"
fi

if ! command -v npm >/dev/null; then
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nodejs npm >&2
fi

npm=$cache/interop-npm
if [ ! -f "$npm/ok-1" ]; then
  mkdir -p "$npm"
  echo '{"name":"interop","version":"1.0.0","private":true}' >"$npm/package.json"
  (cd "$npm" && npm install --silent --no-audit --no-fund --save-exact kafkajs@2.2.4 @platformatic/kafka@1.35.0) >&2
  touch "$npm/ok-1"
fi

dep() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }

fetch() { # FOLDER DEPENDENCIES: fetches jars once and prints their folder
  local dir=$cache/$1
  if [ ! -f "$dir/ok" ]; then
    mkdir -p "$dir"
    cat >"$dir/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>klamm</groupId><artifactId>jars</artifactId><version>1</version><dependencies>
$2
</dependencies></project>
POM
    (cd "$dir" && mvn -q -B dependency:copy-dependencies -DoutputDirectory="$dir/lib") >&2
    touch "$dir/ok"
  fi
  echo "$dir/lib"
}

jars() { # VERSION: Apache Kafka's own jars
  local logging= tools=
  case $1 in 2.* | 3.*) logging=$(dep org.slf4j slf4j-reload4j 1.7.36) ;; esac
  case $1 in 2.*) ;; *) tools=$(dep org.apache.kafka kafka-tools "$1") ;; esac
  fetch "kafka-$1" "$(dep org.apache.kafka kafka_2.13 "$1")$tools$logging"
}

classes() { # VERSION: keeps the classes that a broker and its ZooKeeper load, so that their JVMs start in half the time (interop/jvm)
  local dir=$cache/kafka-$1
  if [ ! -f "$dir/classes.jsa" ]; then
    java -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit="$dir/classes.part" -cp "$dir/lib/*" testdata/Archive.java >"$dir/classes.log" 2>&1 ||
      { tail -n 20 "$dir/classes.log" >&2; return 1; }
    mv "$dir/classes.part" "$dir/classes.jsa"
  fi
}

clients() { # VERSION: the Java client alone
  fetch "kafka-clients-$1" "$(dep org.apache.kafka kafka-clients "$1")"
}

# Assigned before they are printed, so that a failure ends the script.
jars24=$(jars 2.4.1)
jars28=$(jars 2.8.2)
jars34=$(jars 3.4.1)
jars39=$(jars 3.9.1)
jars41=$(jars 4.1.0)
jars44=$(jars 4.4.0)
zookeeper39=$(fetch zookeeper-3.9.5 "$(dep org.apache.zookeeper zookeeper 3.9.5)$(dep io.dropwizard.metrics metrics-core 4.1.12.1)$(dep org.xerial.snappy snappy-java 1.1.10.5)")
clients010=$(clients 0.10.2.2)
clients11=$(clients 1.1.1)
clients24=$(clients 2.4.1)
for release in 2.4.1 2.8.2 3.4.1 3.9.1; do classes $release; done
cat <<ENV
export INTEROP_PYTHON=$venv/bin/python
export INTEROP_NODE_MODULES=$npm
export KAFKA_JARS_2_4_1=$jars24
export KAFKA_JARS_2_8_2=$jars28
export KAFKA_JARS_3_4_1=$jars34
export KAFKA_JARS_3_9_1=$jars39
export KAFKA_JARS_4_1_0=$jars41
export KAFKA_JARS_4_4_0=$jars44
export ZOOKEEPER_JARS_3_9_5=$zookeeper39
export KAFKA_CLIENTS_0_10=$clients010
export KAFKA_CLIENTS_1_1=$clients11
export KAFKA_CLIENTS_2_4=$clients24
ENV
