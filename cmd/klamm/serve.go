package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"klamm/internal/config"
	"klamm/internal/loglevel"
	"klamm/internal/node"
)

const serveHelp = `Run a klamm broker until SIGTERM or SIGINT (a second signal exits at once).

Usage: klamm serve [server.properties] [options]

  server.properties      a Kafka broker's configuration file; every key it knows
                         keeps its meaning. Without one: broker.id=1,
                         listeners=PLAINTEXT://127.0.0.1:9092, log.dirs=./klamm-data/log
  --override KEY=VALUE   set one key, over file and environment; repeatable
  --log-format FORMAT    text (default) or json; logs go to standard error
  --log-level LEVEL      debug, info (default), warn or error
  --pprof                profiles of the process at /debug/pprof/ of the web address
  --help

Environment: KAFKA_LOG_RETENTION_MS sets log.retention.ms, and so on, as in
Kafka's container image; it wins over the file.

klamm's own keys:
  etcd.data.dir              where the embedded etcd keeps its data
  etcd.cluster               brokers that run one etcd together: 1@host:2380,
                             2@host:2380,3@host:2380, alike at all brokers; also
                             etcd.listen, etcd.tls.ca, etcd.tls.cert, etcd.tls.key
  etcd.endpoints             an etcd that others run: https://host:2379,... ; also
                             etcd.tls.*, etcd.user, etcd.password
  zookeeper.connect          Kafka's key: keep the state in ZooKeeper instead; with a
                             login by zookeeper.sasl.jaas.config (Kafka has that in
                             a file) and zookeeper.max.in.flight.requests (1024)
  web.listen                 health, metrics and API (default 127.0.0.1:8080;
                             empty turns it off): /healthz /readyz /metrics /api/v1/
  broker.session.timeout.ms  how long a silent broker counts as alive (default 6000)
  topic.deletion.offline.replicas
                             whether a topic's deletion waits for a broker that is
                             gone: auto (default), complete or wait; and for how
                             long: topic.deletion.offline.replica.timeout.ms
`

type serveOptions struct {
	file      string
	overrides []string
	logFormat string
	logLevel  slog.Level
	pprof     bool
	help      bool
}

// serve runs a broker. It returns 0 after a clean stop, 1 when the broker could not start or failed, 2 for wrong usage.
func serve(args []string, stdout, stderr io.Writer) int {
	opts, err := parseServe(args)
	if err != nil {
		fmt.Fprintf(stderr, "klamm serve: %v\n", err)
		return 2
	}
	if opts.help {
		fmt.Fprint(stdout, serveHelp)
		return 0
	}
	levels := newLoggers(stderr, opts)
	log := levels.Logger(loglevel.Root)
	cfg, warnings, err := config.Load(opts.file, opts.overrides, os.Environ())
	for _, w := range warnings {
		log.Warn("configuration", "warning", w.String())
	}
	if err != nil {
		fmt.Fprintf(stderr, "klamm serve: %v\n", err)
		return 1
	}
	ctx, stop := stopOnSignal()
	defer stop()
	err = node.Run(ctx, node.Options{Config: cfg, LogLevels: levels, Banner: stdout, Version: version(), Pprof: opts.pprof})
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(stderr, "klamm serve: %v\n", err)
		return 1
	}
	return 0
}

func parseServe(args []string) (serveOptions, error) {
	o := serveOptions{logFormat: "text"}
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		takesValue := name == "--override" || name == "--log-format" || name == "--log-level"
		if takesValue && !inline {
			if i+1 == len(args) {
				return o, fmt.Errorf("%s needs a value", name)
			}
			i++
			value = args[i]
		}
		switch {
		case name == "--override":
			if !strings.Contains(value, "=") {
				return o, fmt.Errorf("--override %q: want key=value", value)
			}
			o.overrides = append(o.overrides, value)
		case name == "--log-format":
			if value != "text" && value != "json" {
				return o, fmt.Errorf("--log-format %q: want text or json", value)
			}
			o.logFormat = value
		case name == "--log-level":
			if err := o.logLevel.UnmarshalText([]byte(value)); err != nil {
				return o, fmt.Errorf("--log-level %q: want debug, info, warn or error", value)
			}
		case args[i] == "--help" || args[i] == "-h":
			o.help = true
		case args[i] == "--pprof":
			o.pprof = true
		case strings.HasPrefix(args[i], "-"):
			return o, fmt.Errorf("%s is not an option; `klamm serve --help` lists them", args[i])
		case o.file != "":
			return o, fmt.Errorf("%q: only one configuration file can be given, and %q is one already", args[i], o.file)
		default:
			o.file = args[i]
		}
	}
	return o, nil
}

// newLoggers gives loggers that write everything their levels let pass, which can be changed while the broker runs.
func newLoggers(w io.Writer, o serveOptions) *loglevel.Levels {
	everything := &slog.HandlerOptions{Level: loglevel.Trace}
	if o.logFormat == "json" {
		return loglevel.New(slog.NewJSONHandler(w, everything), o.logLevel)
	}
	return loglevel.New(slog.NewTextHandler(w, everything), o.logLevel)
}

// stopOnSignal gives a context that ends at the first SIGTERM or SIGINT; the second one exits the process at once.
func stopOnSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, ok := <-signals; !ok {
			return
		}
		cancel()
		if _, ok := <-signals; ok {
			os.Exit(130)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel()
	}
}
