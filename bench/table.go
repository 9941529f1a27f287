package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// figure is one measured quantity; smaller is better unless more is set.
type figure struct {
	name string
	unit string
	more bool
}

// The figures, by the names the table shows.
const (
	startFigure     = "start on an empty folder to first acknowledged record"
	exitEmptyFigure = "SIGTERM to exit, one topic"
	idleRSSFigure   = "RSS, idle"
	idleCPUFigure   = "CPU of one core, idle"
	createFigure    = "create a topic of 1 partition, response"
	deleteFigure    = "delete it, response"
	p50Figure       = "one 100 B record at a time, acks=all, p50"
	p99Figure       = "one 100 B record at a time, acks=all, p99"
	kibRateFigure   = "produce 1 KiB, acks=1, one client"
	kibCPUFigure    = "produce 1 KiB, server CPU per record"
	readRateFigure  = "consume 1 KiB, one client"
	readCPUFigure   = "consume 1 KiB, server CPU per record"
	smallRateFigure = "produce 100 B, acks=all, one client"
	smallCPUFigure  = "produce 100 B, server CPU per record"
	loadRSSFigure   = "RSS after the load"
	manyUseFigure   = "1,000 topics in one request: each takes a record"
	manyRespFigure  = "1,000 topics in one request: response"
	manyGoneFigure  = "delete 1,000 topics: gone, directories renamed, names free"
	bigRespFigure   = "topic of 2,000 partitions: response"
	bigUseFigure    = "topic of 2,000 partitions: each takes a record"
	bigGoneFigure   = "delete 2,000 partitions: gone, directories renamed, name free"
	bigRSSFigure    = "RSS with 2,000 partitions"
	bigCPUFigure    = "CPU of one core, idle with 2,000 partitions"
	exitBigFigure   = "SIGTERM to exit, 2,000 partitions"
)

var figures = []figure{
	{startFigure, "ms", false}, {exitEmptyFigure, "ms", false}, {idleRSSFigure, "MiB", false}, {idleCPUFigure, "%", false},
	{createFigure, "ms", false}, {deleteFigure, "ms", false},
	{bigRespFigure, "ms", false}, {bigUseFigure, "ms", false}, {bigGoneFigure, "ms", false},
	{manyRespFigure, "ms", false}, {manyUseFigure, "ms", false}, {manyGoneFigure, "ms", false},
	{bigRSSFigure, "MiB", false}, {bigCPUFigure, "%", false}, {exitBigFigure, "ms", false},
	{kibRateFigure, "rec/s", true}, {kibCPUFigure, "µs", false}, {readRateFigure, "rec/s", true}, {readCPUFigure, "µs", false},
	{smallRateFigure, "rec/s", true}, {smallCPUFigure, "µs", false}, {p50Figure, "ms", false}, {p99Figure, "ms", false},
	{loadRSSFigure, "MiB", false},
}

// column holds one system's measurements by figure name.
type column struct {
	name    string
	system  system        // for steps of one broker
	cluster clusterSystem // for steps of three
	srv     *server       // the one that every step after the starts uses; nil before and after
	dead    bool          // could not be started, which is not tried again
	values  map[string][]float64
	fresh   []string // names of what was added since the last flush
}

func newColumn(name string) *column { return &column{name: name, values: map[string][]float64{}} }

func (c *column) add(name string, v float64) {
	c.values[name] = append(c.values[name], v)
	c.fresh = append(c.fresh, name)
}

// flush gives what was added since the last time, printed: a figure that was added several times as the median of those.
func (c *column) flush() []string {
	var out []string
	for i, name := range c.fresh {
		if slices.Index(c.fresh, name) != i {
			continue
		}
		n := 0
		for _, f := range c.fresh {
			if f == name {
				n++
			}
		}
		all := c.values[name]
		out = append(out, fmt.Sprintf("%s = %s", name, number(median(all[len(all)-n:]))))
	}
	c.fresh = nil
	return out
}

func (c *column) median(name string) (float64, bool) {
	v := c.values[name]
	if len(v) == 0 {
		return 0, false
	}
	return median(v), true
}

// median of one value or more.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// printTable prints medians side by side as a Markdown table, and how klamm compares: "3.1x" is three times better.
func printTable(w io.Writer, figures []figure, table []*column) {
	rows := [][]string{{"median (rounds)"}}
	for _, c := range table {
		rows[0] = append(rows[0], c.name)
		if c != table[0] {
			rows[0] = append(rows[0], "klamm is")
		}
	}
	for _, f := range figures {
		row := []string{fmt.Sprintf("%s, %s", f.name, f.unit)}
		n := 0
		for _, c := range table {
			n = max(n, len(c.values[f.name]))
		}
		if n == 0 {
			continue
		}
		row[0] += fmt.Sprintf(" (%d)", n)
		ours, have := table[0].median(f.name)
		for _, c := range table {
			v, ok := c.median(f.name)
			cell := "-"
			if ok {
				cell = number(v)
			}
			row = append(row, cell)
			if c != table[0] {
				row = append(row, ratio(f, ours, v, have && ok && strings.HasPrefix(table[0].name, "klamm")))
			}
		}
		rows = append(rows, row)
	}
	writeRows(w, rows)
}

func writeRows(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	fmt.Fprintln(w)
	for i, row := range rows {
		for j, cell := range row {
			pad := strings.Repeat(" ", widths[j]-len([]rune(cell)))
			if j == 0 {
				fmt.Fprintf(w, "| %s%s ", cell, pad)
			} else {
				fmt.Fprintf(w, "| %s%s ", pad, cell)
			}
		}
		fmt.Fprintln(w, "|")
		if i == 0 {
			for j, n := range widths {
				if j == 0 {
					fmt.Fprintf(w, "|%s", strings.Repeat("-", n+2))
				} else {
					fmt.Fprintf(w, "|%s:", strings.Repeat("-", n+1))
				}
			}
			fmt.Fprintln(w, "|")
		}
	}
}

func number(v float64) string {
	switch {
	case v >= 100:
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
		return number(ours/theirs) + "x"
	}
	return number(theirs/ours) + "x"
}
