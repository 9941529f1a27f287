// Command bench prints klamm's figures beside Apache Kafka's, taken in one run on one machine by one load program.
// Absolute figures depend on the machine and on what else runs on it; the ratios are what counts.
//
//	go run ./bench                  klamm, Kafka 3.9.1 (ZooKeeper mode), Kafka 4.1.0 (KRaft)
//	go run ./bench -only klamm      without Kafka
//	go run ./bench -quick           one run of each, small loads
//
// Kafka is started by the scripts of -kafka (default ../shared/kafka), which fetch it with Maven; Java is needed for it.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

type options struct {
	only    string
	quick   bool
	scripts string
	runs    int
	records int
	bin     string // klamm's binary, built by the run
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure one system: klamm, kafka-3.9 or kafka-4.1")
	flag.BoolVar(&o.quick, "quick", false, "small loads, one run of each")
	flag.StringVar(&o.scripts, "kafka", filepath.Join("..", "shared", "kafka"), "folder of the scripts that start Kafka")
	flag.IntVar(&o.runs, "runs", 3, "runs of each figure; the median counts")
	flag.IntVar(&o.records, "records", 1_000_000, "records of 1 KiB to produce and consume")
	flag.Parse()
	if o.quick {
		o.runs, o.records = 1, 100_000
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	work, err := os.MkdirTemp("", "klamm-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if o.bin, err = buildKlamm(work); err != nil {
		return err
	}
	if o.scripts, err = filepath.Abs(o.scripts); err != nil {
		return err
	}
	var table []column
	for _, s := range systems(o) {
		if o.only != "" && o.only != s.name() {
			continue
		}
		fmt.Printf("measuring %s ...\n", s.name())
		c, err := measure(o, s, work)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		table = append(table, c)
	}
	printTable(table)
	return nil
}

// figure is one measured quantity; smaller is better unless more is set.
type figure struct {
	name string
	unit string
	more bool
}

// figures are the rows of the table, in order.
var figures = []figure{
	{"start to first acknowledged record", "ms", false},
	{"idle RSS", "MiB", false},
	{"idle CPU of one core", "%", false},
	{"2000-partition topic: request to all led", "ms", false},
	{"2000-partition topic: request to every partition took a record", "ms", false},
	{"2000-partition topic: delete request to gone and all dirs renamed", "ms", false},
	{"RSS with 2000 partitions", "MiB", false},
	{"one topic: create, response", "ms", false},
	{"one topic: delete, response", "ms", false},
	{"produce 1 KiB, acks=1, one client", "rec/s", true},
	{"produce 1 KiB: server CPU per record", "µs", false},
	{"consume 1 KiB, one client", "rec/s", true},
	{"consume 1 KiB: server CPU per record", "µs", false},
	{"produce 100 B, acks=all, one client", "rec/s", true},
	{"one record at a time, acks=all: p50", "ms", false},
	{"one record at a time, acks=all: p99", "ms", false},
	{"SIGTERM to exit", "ms", false},
}

// column holds one system's medians by figure name.
type column struct {
	system string
	values map[string][]float64
}

func (c column) add(name string, v float64) { c.values[name] = append(c.values[name], v) }

func (c column) median(name string) (float64, bool) {
	v := append([]float64(nil), c.values[name]...)
	if len(v) == 0 {
		return 0, false
	}
	sort.Float64s(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2, true
	}
	return v[len(v)/2], true
}

// printTable prints medians side by side, and how klamm compares: "3.1x" is three times better.
func printTable(table []column) {
	fmt.Printf("\n%-66s", "median of the runs")
	for i, c := range table {
		fmt.Printf("%16s", c.system)
		if i > 0 {
			fmt.Printf("%10s", "klamm is")
		}
	}
	fmt.Println()
	fmt.Println(strings.Repeat("-", 66+16*len(table)+10*max(0, len(table)-1)))
	for _, f := range figures {
		fmt.Printf("%-66s", f.name+" ("+f.unit+")")
		ours, have := 0.0, false
		for i, c := range table {
			v, ok := c.median(f.name)
			fmt.Printf("%16s", cell(v, ok))
			if i == 0 {
				ours, have = v, ok && c.system == "klamm"
				continue
			}
			fmt.Printf("%10s", ratio(f, ours, v, have && ok))
		}
		fmt.Println()
	}
}

func cell(v float64, ok bool) string {
	switch {
	case !ok:
		return "-"
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func ratio(f figure, ours, theirs float64, ok bool) string {
	if !ok || ours <= 0 || theirs <= 0 {
		return "-"
	}
	if f.more {
		return fmt.Sprintf("%.2fx", ours/theirs)
	}
	return fmt.Sprintf("%.2fx", theirs/ours)
}
