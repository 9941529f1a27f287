package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheBrokerWithoutAFileRunsAtOnce(t *testing.T) {
	b := Default()
	want := []Endpoint{{"PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092}}
	if b.ID != 1 || !cmp.Equal(b.Listeners, want) || !cmp.Equal(b.AdvertisedListeners, want) || b.InterBrokerListener != "PLAINTEXT" ||
		!cmp.Equal(b.LogDirs, []string{"klamm-data/log"}) || b.EtcdDataDir != "klamm-data/etcd" || b.WebListen != "127.0.0.1:8080" ||
		b.OffsetsTopicReplicationFactor != 1 || b.BrokerSessionTimeout != 6*time.Second || b.InterBrokerProtocol.String() != "3.9-IV0" {
		t.Errorf("%+v", b)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOverridesBeatEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	path := write(t, "broker.id=7\nnum.partitions=2\nlog.retention.hours=1\nmin.insync.replicas=2\nlog.dirs=/data/a, /data/b\n")
	b, warnings, err := Load(path, []string{"num.partitions = 4"}, []string{
		"KAFKA_NUM_PARTITIONS=3", "KAFKA_MIN_INSYNC_REPLICAS=3", "KLAMM_WEB_LISTEN=", "CLUSTER_ID=abc", "KAFKA_HEAP_OPTS=-Xmx1G", "PATH=/bin",
	})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if b.ID != 7 || b.NumPartitions != 4 || b.MinInSyncReplicas != 3 || b.WebListen != "" || b.ClusterID != "abc" ||
		b.LogDefaults.RetentionMs != time.Hour || b.LogDefaults.MinInSyncReplicas != 3 || b.EtcdDataDir != "/data/a-etcd" ||
		!cmp.Equal(b.LogDirs, []string{"/data/a", "/data/b"}) {
		t.Errorf("%+v", b)
	}
}

func TestAFileGetsKafkasDefaultsNotTheOnesWithoutAFile(t *testing.T) {
	b, _, err := Load(write(t, "broker.id=0\n"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.OffsetsTopicReplicationFactor != 3 || !cmp.Equal(b.LogDirs, []string{"/tmp/kafka-logs"}) || b.Listeners[0].Host != "" || b.AdvertisedListeners[0].Host == "" {
		t.Errorf("%+v", b)
	}
}

func TestAllFaultsAreNamedAtOnceWithTheirPlace(t *testing.T) {
	_, _, err := Load(write(t, "num.partitions=0\nlog.cleanup.policy=squash\n"), []string{"log.retention.ms=soon", "nonsense"}, []string{"KAFKA_AUTO_CREATE_TOPICS_ENABLE=ja"})
	want := `5 faults in the configuration:
  nonsense (--override): must be of the form key=value
  auto.create.topics.enable = "ja" (environment KAFKA_AUTO_CREATE_TOPICS_ENABLE): Expected value to be either true or false
  log.cleanup.policy = "squash" (server.properties:2): String must be one of: compact, delete
  log.retention.ms = "soon" (--override): Not a number of type LONG
  num.partitions = "0" (server.properties:1): Value must be at least 1`
	if err == nil {
		t.Fatal("accepted")
	}
	if d := cmp.Diff(want, err.Error()); d != "" {
		t.Error(d)
	}
}

func TestUnknownKeysWarnWithTheNearestName(t *testing.T) {
	_, warnings, err := Load(write(t, "broker.id=1\nnum.partiton=3\nfoo=1\nnum.io.threads=3\nsuper.users=User:a\nlistener.name.x.ssl.keystore.location=/k\nssl.keystore.password=p\n"),
		nil, []string{"KAFKA_NUM_PARTITION=1"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range warnings {
		got = append(got, w.String())
	}
	want := []string{
		"environment variable KAFKA_NUM_PARTITION is ignored: there is no key num.partition; did you mean num.partitions?",
		"unknown key foo is ignored",
		"unknown key num.partiton is ignored; did you mean num.partitions?",
		"accepted, has no effect in klamm: listener.name.x.ssl.keystore.location, num.io.threads, ssl.keystore.password, super.users",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestSettingsThatCannotBeIgnoredAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // parts of the message
	}{
		{"two engines", "zookeeper.connect=zk:2181\netcd.endpoints=e:2379", []string{"not both"}},
		{"owned nodes without a login", "zookeeper.connect=zk:2181\nzookeeper.set.acl=true", []string{"zookeeper.sasl.jaas.config"}},
		{"another login at ZooKeeper", "zookeeper.connect=zk:2181\nzookeeper.sasl.jaas.config=Krb5LoginModule required password=geheim;", []string{"no other login"}},
		{"kraft", "process.roles=broker,controller", []string{"process.roles", "not KRaft"}},
		{"authorizer of one's own", "authorizer.class.name=com.example.Authorizer", []string{"kafka.security.authorizer.AclAuthorizer"}},
		{"authorizer of KRaft", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", []string{"kafka.security.authorizer.AclAuthorizer"}},
		{"super users", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=admin", []string{"User:admin"}},
		{"tiered storage", "remote.log.storage.system.enable=true", []string{"remote storage is not supported"}},
		{"throttle in the file", "leader.replication.throttled.rate=5", []string{"while brokers run only"}},
		{"protocol of the future", "inter.broker.protocol.version=4.0", []string{"must not be above 3.9"}},
		{"two ids", "broker.id=1\nnode.id=2", []string{"node.id", "same value"}},
		{"id in the generated range", "broker.id=5000", []string{"reserved.broker.max.id, 1000"}},
		{"no id and no generation", "broker.id=-1\nbroker.id.generation.enable=false", []string{"must be 0 or more"}},
		{"log dir twice", "log.dirs=/a,/b,/a/", []string{"names /a/ twice"}},
		{"etcd in a log dir", "log.dirs=/a\netcd.data.dir=/a", []string{"must not be one of log.dirs"}},
		{"retention of zero", "log.retention.hours=0", []string{"-1 for no limit, or 1 or more"}},
		{"session limits crossed", "group.max.session.timeout.ms=5", []string{"must not be smaller than group.min.session.timeout.ms, 6000"}},
		{"fetch wait over lag", "replica.fetch.wait.max.ms=40000", []string{"replica.socket.timeout.ms, 30000", "replica.lag.time.max.ms, 30000"}},
		{"request memory", "queued.max.request.bytes=10", []string{"at least socket.request.max.bytes, 104857600"}},
		{"password stays hidden", "sasl.login.refresh.buffer.seconds=x\ndelegation.token.secret.key=s\nssl.key.password=geheim", []string{"sasl.login.refresh.buffer.seconds"}},
	} {
		_, _, err := Load(write(t, c.text), nil, nil)
		if err == nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", c.name, err, part)
			}
		}
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: shows a password: %s", c.name, err)
		}
	}
}

func TestListenersAreJudgedTogether(t *testing.T) {
	for _, c := range []struct {
		name string
		set  map[string]string
		want string // part of the message; "" for none
	}{
		{"IPv6", map[string]string{"listeners": "PLAINTEXT://[::1]:9092"}, ""},
		{"two names", map[string]string{"listeners": "IN://:9092,OUT://:9093", "listener.security.protocol.map": "in:PLAINTEXT,OUT:plaintext", "inter.broker.listener.name": "in"}, ""},
		{"same port on two addresses", map[string]string{"listeners": "A://127.0.0.1:9092,B://[::1]:9092", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name": "A"}, ""},
		{"ports of the system's choice", map[string]string{"listeners": "A://127.0.0.1:0,B://127.0.0.1:0", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "inter.broker.listener.name": "A"}, ""},
		{"none", map[string]string{"listeners": ""}, "at least one listener"},
		{"no scheme", map[string]string{"listeners": "localhost:9092"}, `"localhost:9092" is not of the form NAME://host:port`},
		{"bare IPv6", map[string]string{"listeners": "PLAINTEXT://::1:9092"}, "IPv6 address in brackets"},
		{"port too large", map[string]string{"listeners": "PLAINTEXT://:99999"}, "no port between 0 and 65535"},
		{"name without protocol", map[string]string{"listeners": "X://:9092"}, "add X:PLAINTEXT to listener.security.protocol.map"},
		{"unknown protocol", map[string]string{"listener.security.protocol.map": "A:TLS"}, "names no security protocol"},
		{"name twice", map[string]string{"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "listener name PLAINTEXT is used twice"},
		{"port twice", map[string]string{"listeners": "PLAINTEXT://:9092,B://127.0.0.1:9092", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT"}, "both want port 9092"},
		{"port of the web", map[string]string{"listeners": "PLAINTEXT://:8080"}, `web.listen: port 8080 is already used by listener PLAINTEXT`},
		{"web without a port", map[string]string{"web.listen": "localhost"}, "must be host:port, or empty"},
		{"no inter-broker listener", map[string]string{"listeners": "A://:9092", "listener.security.protocol.map": "A:PLAINTEXT"}, "set inter.broker.listener.name to one of A"},
		{"wrong inter-broker listener", map[string]string{"inter.broker.listener.name": "B"}, "must be one of the names in listeners: PLAINTEXT"},
		{"inter-broker listener twice", map[string]string{"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"}, "only one of"},
		{"control plane on the same listener", map[string]string{"control.plane.listener.name": "PLAINTEXT"}, "must not be the inter-broker listener"},
		{"wildcard not advertised", map[string]string{"listeners": "PLAINTEXT://0.0.0.0:9092"}, "set advertised.listeners to the address they reach this broker by"},
		{"wildcard advertised beside another fault", map[string]string{"listeners": "PLAINTEXT://:99999", "advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot be advertised"},
		{"advertised without a port", map[string]string{"advertised.listeners": "PLAINTEXT://:0"}, "needs a port"},
		{"wildcard advertised", map[string]string{"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "cannot be advertised"},
		{"advertised without listener", map[string]string{"advertised.listeners": "PLAINTEXT://h:1,B://h:2"}, "B is not one of the names in listeners"},
		{"wildcard with another address advertised", map[string]string{"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://kafka:9092"}, ""},
		{"connection limits", map[string]string{"max.connections.per.ip.overrides": "host"}, `"host" is not of the form host:number`},
	} {
		_, _, err := FromProperties(c.set)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v lacks %q", c.name, err, c.want)
		}
	}
}

func TestAnUnreadableFileIsAnError(t *testing.T) {
	if _, _, err := Load(filepath.Join(t.TempDir(), "none"), nil, nil); err == nil || !strings.HasPrefix(err.Error(), "read the configuration: open ") {
		t.Error(err)
	}
	if _, _, err := Load(write(t, "a=\\u1"), nil, nil); err == nil || !strings.Contains(err.Error(), "server.properties: line 1: malformed") {
		t.Error(err)
	}
}
