// Command klamm is a Kafka-protocol broker and its controller in one binary.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run picks the command. Exit codes: 0 fine, 1 failure, 2 usage.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return 2
	}
	switch cmd, rest := args[0], args[1:]; cmd {
	case "serve":
		return serve(rest, stdout, stderr)
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
  klamm version
  klamm help

`+"`klamm serve --help` lists all options.\n")
}
