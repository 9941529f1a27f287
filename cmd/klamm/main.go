// Command klamm is a Kafka-protocol broker and its controller in one binary.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"klamm/internal/admin"
)

func main() {
	args := os.Args[1:]
	if name := filepath.Base(os.Args[0]); name == "kafka-topics.sh" || name == "kafka-topics" {
		args = append([]string{name}, args...) // called through a link of that name
	}
	os.Exit(run(args, os.Stdout, os.Stderr))
}

// run picks the command. Exit codes: 0 fine, 1 failure, 2 usage; those of doctor differ, see its help.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return 2
	}
	switch cmd, rest := args[0], args[1:]; cmd {
	case "serve":
		return serve(rest, stdout, stderr)
	case "dev":
		return dev(rest, stdout, stderr)
	case "topics", "kafka-topics.sh", "kafka-topics":
		return admin.TopicsMain(context.Background(), rest, stdout, stderr)
	case "cluster":
		return clusterMain(rest, stdout, stderr)
	case "deletion":
		return admin.DeletionMain(context.Background(), rest, stdout, stderr)
	case "doctor":
		return doctorMain(rest, os.Stdin, stdout, stderr)
	case "migrate":
		return migrateMain(rest, stdout, stderr)
	case "version", "--version":
		fmt.Fprintln(stdout, "klamm", version())
		return 0
	case "help", "--help", "-h":
		usage(stdout)
		return 0
	default:
		fmt.Fprintf(stderr, "klamm: %q is not a command; `klamm help` lists them\n", cmd)
		return 2
	}
}

// version names the build: the module version where there is one, else the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}

func usage(w io.Writer) {
	fmt.Fprint(w, `klamm: a Kafka broker and its controller in one binary

Usage:
  klamm serve [server.properties] [--override key=value ...]
        Run a broker. Without a file: broker 1 on 127.0.0.1:9092, embedded
        etcd, data in ./klamm-data. Takes a Kafka broker's own file and keys.
  klamm dev [--brokers 3] [--dir DIR] [-- COMMAND]
        Run a whole cluster in one process, for development and CI.
  klamm topics --bootstrap-server host:port --list | --create | ...
        Manage topics, with the options of kafka-topics.sh; also under that
        name: klamm kafka-topics.sh, or a link kafka-topics.sh to klamm.
  klamm cluster members list | add | remove --config server.properties
        Show and change the etcd members that brokers run (etcd.cluster).
  klamm deletion list | why TOPIC | watch
        Show deletions that run or wait, and why, from any broker.
  klamm doctor --zookeeper host:2181[/chroot] [--bootstrap-server host:port]
        Examine a cluster in ZooKeeper mode, of Kafka or klamm, from outside.
  klamm migrate zookeeper-to-etcd | etcd-to-zookeeper --zookeeper host:2181 ...
        Copy the state of a stopped cluster to the other engine.
  klamm version
  klamm help

`+"`klamm COMMAND --help` lists all options of a command.\n")
}
