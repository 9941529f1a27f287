// Command bench prints klamm's figures beside Apache Kafka's, taken in one run on one machine by one load program.
// Absolute figures depend on the machine and on what else runs on it; the ratios are what counts, so the systems take
// turns: every figure is taken from each of them, one right after the other, before the next figure's turn comes.
//
//	go run ./bench                  klamm, Kafka 3.9.1 (ZooKeeper mode), Kafka 4.1.0 (KRaft): five to six minutes
//	go run ./bench -quick           the same with one round of small loads
//	go run ./bench -only klamm      without Kafka
//	go run ./bench -steps topics,load
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
	flag.StringVar(&o.only, "only", "", "measure these systems, comma-separated: klamm, kafka-3.9, kafka-4.1")
	flag.StringVar(&o.steps, "steps", "", "take these steps, comma-separated: "+strings.Join(stepNames(), ", "))
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
	if o.bin == "" {
		if o.bin, err = buildKlamm(ctx, work); err != nil {
			return fmt.Errorf("build klamm: %w", err)
		}
	}
	var columns []*column
	for _, s := range systems(o) {
		if o.only == "" || listed(o.only, s.name()) {
			columns = append(columns, newColumn(s))
		}
	}
	if len(columns) == 0 {
		return fmt.Errorf("-only %s names no system", o.only)
	}
	began := time.Now()
	r := &runner{opts: o, work: work, columns: columns, deadline: began.Add(o.budget)}
	err = errors.Join(r.run(ctx), r.stopAll())
	printTable(os.Stdout, columns)
	fmt.Printf("\ntook %v\n", time.Since(began).Round(time.Second))
	return err
}

func listed(list, name string) bool {
	for _, l := range strings.Split(list, ",") {
		if strings.TrimSpace(l) == name {
			return true
		}
	}
	return false
}
