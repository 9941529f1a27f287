package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"klamm/internal/admin"
	"klamm/internal/config"
	"klamm/internal/doctor"
	"klamm/internal/node"
)

const doctorHelp = `Examine a cluster in ZooKeeper mode, of Kafka's brokers or klamm's, from outside: which
topics are stuck in deletion and why, partitions without leader, brokers and
replicas that are missed, nodes that are left over or cannot be read, a controller
that does not stay or cannot write. Each finding has its evidence and the safe next
step; docs/doctor.md lists all. Nothing is written.

Usage: klamm doctor        --zookeeper HOST:PORT[,..][/CHROOT] [options]
       klamm doctor repair --zookeeper HOST:PORT[,..][/CHROOT] [--yes] [options]

  --zookeeper LIST       where ZooKeeper is, as in zookeeper.connect
  --config FILE          a broker's server.properties, for zookeeper.connect and for
                         zookeeper.sasl.*, zookeeper.ssl.*
  --bootstrap-server LIST
                         also ask the brokers: what differs from the store, failed
                         log dirs, replicas that nothing names, who hangs or is cut off
  --command-config FILE  how to connect to the brokers, as for Kafka's tools:
                         security.protocol, ssl.*, sasl.*
  --log-dirs LIST        also look into these log dirs, on the machine that has them:
                         directories whose removal is overdue, replicas that nothing
                         names, those of former topics
  --pause DURATION       the store is read twice, that long apart, and only what was
                         wrong both times is reported (default 2s); elections
                         between the two are counted
  --deletion-grace DURATION
                         a deletion without a visible obstacle is stuck when it is
                         older (default 1m)
  -o, --output FORMAT    text (default) or json
  --yes                  repair without asking
  --help

repair shows what it would write, which is little: markers and configs of topics that
do not exist, and entries of election and reassignment requests that name such topics.
Each write is made only if nothing changed meanwhile, under the controller's epoch.

Exit codes: 0 nothing but information found, 1 warnings, 2 errors,
            64 wrong usage, 69 the store or the brokers could not be asked.
            repair: 0 all done or nothing to do, 1 not all done or not wanted.
`

// Exit codes of the doctor; 64 and 69 are those of sysexits.h, since 1 and 2 rank what was found.
const (
	exitUsage       = 64
	exitUnavailable = 69
)

type doctorOptions struct {
	zookeeper, config, bootstrap, commandConfig, logDirs, output, pauseText, graceText string
	yes, help, repair                                                                  bool
	pause, grace                                                                       time.Duration
}

func parseDoctor(args []string) (doctorOptions, error) {
	o := doctorOptions{output: "text", pauseText: "2s", graceText: doctor.DefaultDeletionGrace.String()}
	words, err := options{
		command: "doctor",
		values: map[string]*string{"--zookeeper": &o.zookeeper, "--config": &o.config, "--bootstrap-server": &o.bootstrap, "--command-config": &o.commandConfig, "--log-dirs": &o.logDirs,
			"-o": &o.output, "--output": &o.output, "--pause": &o.pauseText, "--deletion-grace": &o.graceText},
		flags: map[string]*bool{"--yes": &o.yes, "--help": &o.help, "-h": &o.help},
	}.parse(args)
	if err != nil || o.help {
		return o, err
	}
	if len(words) > 0 && words[0] == "repair" {
		o.repair, words = true, words[1:]
	}
	o.pause, err = time.ParseDuration(o.pauseText)
	grace, graceErr := time.ParseDuration(o.graceText)
	o.grace = grace
	switch {
	case len(words) > 0:
		return o, fmt.Errorf("%q: the only word there is is repair", words[0])
	case o.zookeeper == "" && o.config == "":
		return o, errors.New("name the cluster by --zookeeper or --config")
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("--output %q: want text or json", o.output)
	case err != nil || o.pause < 0:
		return o, fmt.Errorf("--pause %q: want a duration such as 2s", o.pauseText)
	case graceErr != nil || o.grace <= 0:
		return o, fmt.Errorf("--deletion-grace %q: want a duration such as 1m", o.graceText)
	case o.commandConfig != "" && o.bootstrap == "":
		return o, errors.New("--command-config goes with --bootstrap-server")
	case o.yes && !o.repair:
		return o, errors.New("--yes goes with repair")
	case o.repair && o.output == "json":
		return o, errors.New("repair speaks text only: take the plan from `klamm doctor -o json`")
	}
	return o, nil
}

// zooKeeperOptions is where ZooKeeper is and how to get in: by address, and by a broker's configuration.
func zooKeeperOptions(connect, file string) (config.ZooKeeper, error) {
	z := config.ZooKeeper{SessionTimeout: 18 * time.Second, ConnectionTimeout: 15 * time.Second}
	if file != "" {
		c, _, err := config.Load(file, nil, os.Environ())
		if err != nil {
			return z, err
		}
		z = c.ZooKeeper
	}
	if connect != "" {
		z.Connect = connect
	}
	if z.Connect == "" {
		return z, fmt.Errorf("%s sets no zookeeper.connect", file)
	}
	return z, nil
}

// doctorMain runs `klamm doctor`; see doctorHelp for the exit codes.
func doctorMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parseDoctor(args)
	if err != nil {
		fmt.Fprintf(stderr, "klamm doctor: %v\n", err)
		return exitUsage
	}
	if o.help {
		fmt.Fprint(stdout, doctorHelp)
		return 0
	}
	ctx, stop := stopOnSignal()
	defer stop()
	code, err := runDoctor(ctx, o, stdin, stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "klamm doctor: %v\n", err)
	}
	return code
}

func runDoctor(ctx context.Context, o doctorOptions, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	z, err := zooKeeperOptions(o.zookeeper, o.config)
	if err != nil {
		return exitUsage, err
	}
	c, err := node.ExamineZooKeeper(ctx, z, slog.New(slog.DiscardHandler))
	if err != nil {
		return exitUnavailable, err
	}
	defer func() { _ = c.Close() }() // nothing is lost with it
	ask, err := brokersToAsk(o.bootstrap, o.commandConfig)
	if err != nil {
		return exitUsage, err
	}
	observed, err := doctor.Observe(ctx, c.Store, o.pause, ask, progress(stderr, "reading"))
	if err != nil {
		return exitUnavailable, err
	}
	observed.DeletionGrace = o.grace
	if o.logDirs != "" {
		observed.LogDirs = doctor.ReadLogDirs(strings.Split(o.logDirs, ","))
	}
	report := doctor.NewReport(c.Name, observed)
	if o.repair {
		return repair(ctx, c, report, o.yes, stdin, stdout, stderr)
	}
	write := report.WriteText
	if o.output == "json" {
		write = report.WriteJSON
	}
	if err := write(stdout); err != nil {
		return exitUnavailable, err
	}
	return map[doctor.Severity]int{doctor.Warning: 1, doctor.Error: 2}[doctor.Worst(report.Findings)], nil
}

// brokersToAsk gives the question to the brokers; nil when there are none to ask.
func brokersToAsk(bootstrap, commandConfig string) (func(context.Context) (*doctor.Answers, error), error) {
	if bootstrap == "" {
		return nil, nil
	}
	opts, err := admin.ClientOptions(commandConfig)
	if err != nil {
		return nil, fmt.Errorf("--command-config: %w", err)
	}
	connect := func(addr string) (*kgo.Client, error) {
		return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.ClientID("klamm-doctor"), kgo.RequestRetries(1), kgo.DisableClientMetrics()}, opts...)...)
	}
	servers := strings.Split(bootstrap, ",")
	for i := range servers {
		servers[i] = strings.TrimSpace(servers[i])
		client, err := connect(servers[i])
		if err != nil {
			return nil, fmt.Errorf("--bootstrap-server %s: %w", bootstrap, err)
		}
		client.Close()
	}
	return func(ctx context.Context) (*doctor.Answers, error) { return doctor.Ask(ctx, connect, servers) }, nil
}

// repair shows the plan, asks, and carries it out.
func repair(ctx context.Context, c *node.Coordination, report doctor.Report, yes bool, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	plan := doctor.Plan(report.Findings)
	if len(plan) == 0 {
		fmt.Fprintf(stdout, "%s: there is nothing to repair.\n", c.Name)
		return 0, nil
	}
	fmt.Fprintf(stdout, "%s: the plan\n", c.Name)
	doctor.WritePlan(stdout, plan)
	if !yes {
		fmt.Fprint(stdout, "Carry it out? [y/N] ")
		answer, err := bufio.NewReader(stdin).ReadString('\n')
		if word := strings.ToLower(strings.TrimSpace(answer)); word != "y" && word != "yes" {
			if errors.Is(err, io.EOF) {
				fmt.Fprintln(stdout)
			}
			fmt.Fprintln(stdout, "Nothing was written.")
			return 1, nil
		}
	}
	done, err := doctor.Apply(ctx, c.Store, plan, slog.New(slog.NewTextHandler(stderr, nil)))
	fmt.Fprintf(stdout, "%d of %d done.\n", done, len(plan))
	if err != nil || done < len(plan) {
		return 1, err
	}
	return 0, nil
}
