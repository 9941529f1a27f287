package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"klamm/internal/loglevel"
	"klamm/internal/node"
)

const devHelp = `Run a cluster of klamm brokers in one process, for development and CI.

Usage: klamm dev [options] [-- COMMAND [ARGUMENTS]]

  --brokers N            how many brokers (default 3)
  --dir DIR              keep the data there; without it the data goes with the
                         cluster
  --port P               port of the first broker, the others have the next ones
                         (default 9092; 0 takes free ones)
  --web HOST:PORT        web address of the first broker (default 127.0.0.1:8080, or
                         a free port if that is taken; "" turns it off)
  --override KEY=VALUE   set a broker's key, at all of them; repeatable
  --log-level LEVEL      debug, info, warn (default) or error; to standard error
  --help

Once all brokers serve, a line "bootstrap.servers=..." says where. With a COMMAND
it runs then, with that value in BOOTSTRAP; the cluster ends with it, and the exit
code is the command's.
`

type devOptions struct {
	node.DevOptions
	web      string
	webGiven bool
	logLevel slog.Level
	command  []string
	help     bool
}

func parseDev(args []string) (devOptions, error) {
	o := devOptions{web: "127.0.0.1:8080", logLevel: slog.LevelWarn}
	o.Brokers, o.Port, o.Settings = 3, 9092, map[string]string{}
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			o.command = args[i+1:]
			if len(o.command) == 0 {
				return o, errors.New("there is no command after --")
			}
			return o, nil
		}
		if args[i] == "--help" || args[i] == "-h" {
			o.help = true
			continue
		}
		name, value, inline := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "--") {
			return o, fmt.Errorf("%q: a command to run goes after --", args[i])
		}
		if !inline {
			if i++; i == len(args) {
				return o, fmt.Errorf("%s is not an option or needs a value; `klamm dev --help` lists them", name)
			}
			value = args[i]
		}
		if err := o.set(name, value); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o *devOptions) set(name, value string) error {
	var err error
	switch name {
	case "--brokers":
		if o.Brokers, err = strconv.Atoi(value); err != nil || o.Brokers < 1 || o.Brokers > 100 {
			return fmt.Errorf("--brokers %q: want a number from 1 to 100", value)
		}
	case "--dir":
		o.Dir = value
	case "--port":
		if o.Port, err = strconv.Atoi(value); err != nil || o.Port < 0 || o.Port > 65535 {
			return fmt.Errorf("--port %q: want a port", value)
		}
	case "--web":
		o.web, o.webGiven = value, true
	case "--override":
		key, v, ok := strings.Cut(value, "=")
		if !ok {
			return fmt.Errorf("--override %q: want key=value", value)
		}
		o.Settings[strings.TrimSpace(key)] = strings.TrimSpace(v)
	case "--log-level":
		if o.logLevel.UnmarshalText([]byte(value)) != nil {
			return fmt.Errorf("--log-level %q: want debug, info, warn or error", value)
		}
	default:
		return fmt.Errorf("%s is not an option; `klamm dev --help` lists them", name)
	}
	return nil
}

// dev runs `klamm dev`. It returns the command's exit code, or 0 fine, 1 failure, 2 usage.
func dev(args []string, stdout, stderr io.Writer) int {
	o, err := parseDev(args)
	if err != nil {
		fmt.Fprintf(stderr, "klamm dev: %v\n", err)
		return 2
	}
	if o.help {
		fmt.Fprint(stdout, devHelp)
		return 0
	}
	code, err := runDev(o, node.RunDev, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "klamm dev: %v\n", err)
		return max(code, 1)
	}
	return code
}

// runDev runs the cluster, which run is until its context ends or a broker fails, and the command beside it.
func runDev(o devOptions, run func(context.Context, node.DevOptions) error, stdout, stderr io.Writer) (code int, err error) {
	began := time.Now()
	place := o.Dir
	if o.Dir == "" {
		if o.Dir, err = os.MkdirTemp("", "klamm-dev-"); err != nil {
			return 0, err
		}
		place = "in a temporary directory, removed at the end"
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	}
	var level slog.LevelVar
	level.Set(loglevel.Trace) // the brokers' own levels decide
	o.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: &level}))
	o.LogLevel = o.logLevel
	o.Version, o.Web = version(), o.webAddress()
	ctx, stop := stopOnSignal()
	defer stop()
	ctx, end := context.WithCancel(ctx)
	defer end()
	if o.logLevel == slog.LevelWarn {
		// Brokers that stop together lose each other, which is nothing to warn of.
		context.AfterFunc(ctx, func() { level.Set(slog.LevelError) })
	}
	ready := make(chan node.DevCluster, 1)
	o.Ready = func(c node.DevCluster) { ready <- c }
	ran := make(chan error, 1)
	go func() {
		defer end() // the command is of no use without the cluster
		ran <- run(ctx, o.DevOptions)
	}()
	select {
	case err := <-ran:
		return 0, devHint(err)
	case c := <-ready:
		if o.command == nil {
			printDev(stdout, c, o, place, time.Since(began))
			return 0, <-ran
		}
		code, err = runCommand(ctx, o.command, c)
		end()
		return code, errors.Join(err, <-ran)
	}
}

// webAddress is the wanted one, or a free one when it is the default and taken.
func (o devOptions) webAddress() string {
	if o.webGiven || o.web == "" {
		return o.web
	}
	l, err := net.Listen("tcp", o.web)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close() // it was only tried
	return o.web
}

// devHint adds what helps against the commonest failure.
func devHint(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (for `klamm dev`: choose other ports by --port, or --port 0 for free ones)", err)
	}
	return err
}

func printDev(w io.Writer, c node.DevCluster, o devOptions, place string, took time.Duration) {
	noun := "brokers are"
	if o.Brokers == 1 {
		noun = "broker is"
	}
	fmt.Fprintf(w, "klamm %s: %d %s ready after %v\n", o.Version, o.Brokers, noun, took.Round(time.Millisecond))
	fmt.Fprintf(w, "bootstrap.servers=%s\n", c.BootstrapServers())
	fmt.Fprintf(w, "  data  %s\n", place)
	if c.Web != "" {
		fmt.Fprintf(w, "  web   %s\n", c.Web)
	}
	fmt.Fprintf(w, "  try   klamm topics --bootstrap-server %s --create --topic test --partitions 3\n", c.Bootstrap[0])
	fmt.Fprintf(w, "  stop  Ctrl-C\n")
}

// runCommand runs the command to its end. When the cluster ends first, by a signal or a failure, the command is asked to
// stop.
func runCommand(ctx context.Context, command []string, c node.DevCluster) (int, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "BOOTSTRAP="+c.BootstrapServers(), "BOOTSTRAP_SERVERS="+c.BootstrapServers())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode(), nil
	case err != nil:
		return 1, fmt.Errorf("run %s: %w", command[0], err)
	}
	return 0, nil
}
