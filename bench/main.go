// Command bench prints klamm's figures beside Apache Kafka's, taken in one run on one machine by one load program.
// Absolute figures depend on the machine and on what else runs on it; the ratios are what counts, so the systems take
// turns: every figure is taken from each of them, one right after the other, before the next figure's turn comes.
//
//	go run ./bench                  klamm, Kafka 3.9.1 (ZooKeeper mode), Kafka 4.1.0 (KRaft): five to six minutes
//	go run ./bench -quick           the same with one round of small loads
//	go run ./bench -only klamm      without Kafka
//	go run ./bench -steps topics,load
//	go run ./bench -steps cluster   three brokers of each; -steps cluster-moves takes one of the steps of clusters
//	go run ./bench -steps cluster-10k -only klamm-zk,kafka-3.9
//	                                klamm with its state in ZooKeeper beside Kafka
//
// Kafka is started by the scripts of -kafka (default ../shared/kafka), which fetch it with Maven; Java is needed for it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type options struct {
	only    string
	steps   string
	quick   bool
	scripts string
	budget  time.Duration // no further rounds are begun after it
	records int
	bin     string // klamm's binary; built by the run unless given
	args    string // more arguments of klamm serve
	work    string // data goes here
	keep    bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure these systems, comma-separated: klamm, kafka-3.9, kafka-4.1; in clusters also klamm-zk, which is klamm on ZooKeeper")
	flag.StringVar(&o.steps, "steps", "", "take these steps, comma-separated: "+strings.Join(stepNames(), ", ")+"; cluster for all of clusters, which are taken only when named")
	flag.BoolVar(&o.quick, "quick", false, "small loads, one round of each")
	flag.StringVar(&o.scripts, "kafka", filepath.Join("..", "shared", "kafka"), "folder of the scripts that start Kafka")
	flag.DurationVar(&o.budget, "budget", 210*time.Second, "begin no further round after this long; every step is taken once")
	flag.IntVar(&o.records, "records", 500_000, "records of 1 KiB to produce and consume in a round")
	flag.StringVar(&o.bin, "bin", "", "klamm binary to measure instead of building one")
	flag.StringVar(&o.args, "args", "", "more arguments for klamm serve, as in -args '--pprof --override web.listen=127.0.0.1:18080'")
	flag.StringVar(&o.work, "dir", "", "folder for the data (default: a temporary one)")
	flag.BoolVar(&o.keep, "keep", false, "keep the data and the logs")
	flag.Parse()
	if o.quick {
		o.budget, o.records = 0, 200_000
	}
	// The first interrupt ends the run, stopping the servers; a second one ends the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	var err error
	if o.scripts, err = filepath.Abs(o.scripts); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(o.scripts, "kraft.sh")); err != nil && o.only != "klamm" {
		return fmt.Errorf("the scripts that start Kafka are not there: %w; name their folder by -kafka, or measure klamm alone by -only klamm", err)
	}
	work, err := os.MkdirTemp(o.work, "klamm-bench")
	if err != nil {
		return err
	}
	if !o.keep {
		defer os.RemoveAll(work)
	}
	spreadBelow(work)
	raiseOpenFiles()
	if o.bin == "" {
		if o.bin, err = buildKlamm(ctx, work); err != nil {
			return fmt.Errorf("build klamm: %w", err)
		}
	}
	columns, clusters := o.columns()
	if len(columns)+len(clusters) == 0 {
		return fmt.Errorf("-only %s names no system", o.only)
	}
	began := time.Now()
	if len(columns) > 0 {
		r := &runner{opts: o, work: work, columns: columns, deadline: began.Add(o.budget)}
		err = errors.Join(r.run(ctx), r.stopAll())
		printTable(os.Stdout, figures, columns)
	}
	if len(clusters) > 0 {
		r := &runner{opts: o, work: work, columns: clusters}
		err = errors.Join(err, r.runClusters(ctx))
		printTable(os.Stdout, clusterFigures, clusters)
	}
	fmt.Printf("\ntook %v; load average %s\n", time.Since(began).Round(time.Second), loadAverage())
	return err
}

// columns gives the systems that are asked for, as single brokers and as clusters, each where a step of that kind is asked for.
func (o options) columns() (single, clusters []*column) {
	one, three := o.steps == "", false
	for _, s := range steps {
		one = one || stepListed(o.steps, s.name)
	}
	for _, s := range clusterSteps {
		three = three || stepListed(o.steps, s.name)
	}
	for _, s := range systems(o) {
		if one && (o.only == "" || listed(o.only, s.name())) {
			c := newColumn(s.name())
			c.system = s
			single = append(single, c)
		}
	}
	for _, s := range clusterSystems(o) {
		if three && (o.only == "" && s.name() != "klamm-zk" || listed(o.only, s.name())) {
			c := newColumn(s.name())
			c.cluster = s
			clusters = append(clusters, c)
		}
	}
	return single, clusters
}

// stepListed reports whether a step is in a list, by its name or by the part before the dash.
func stepListed(list, name string) bool {
	kind, _, _ := strings.Cut(name, "-")
	return listed(list, name) || listed(list, kind)
}

// loadAverage is the machine's load over the last one, five and fifteen minutes, this program's included.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) > 2 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}

func listed(list, name string) bool {
	for _, l := range strings.Split(list, ",") {
		if strings.TrimSpace(l) == name {
			return true
		}
	}
	return false
}
