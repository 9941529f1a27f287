package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"klamm/internal/controller"
)

// shrink leaves steps of a failing schedule out as long as it fails, or lets the cluster settle in their place, larger pieces
// first; then it leaves the faults out.
func shrink(s Schedule, fails func(Schedule) bool) Schedule {
	for size := max(len(s.Steps)/2, 1); size > 0; size /= 2 {
		for at := 0; at < len(s.Steps); {
			end := min(at+size, len(s.Steps))
			without, settled := s, s
			without.Steps = slices.Concat(s.Steps[:at], s.Steps[end:])
			settled.Steps = slices.Concat(s.Steps[:at], []int{Settles}, s.Steps[end:])
			switch {
			case fails(without):
				s = without
			case end > at+1 && fails(settled), s.Steps[at] != Settles && fails(settled):
				s, at = settled, at+1
			default:
				at = end
			}
		}
	}
	quiet := s
	quiet.Quiet = true
	if !s.Quiet && fails(quiet) {
		return shrink(quiet, fails)
	}
	return s
}

// shrinkFailure shrinks a schedule to one that fails in the same way: the message may differ in its numbers.
func shrinkFailure(s Schedule, o Options) Schedule {
	kind := func(w *World) string {
		if len(w.failures) == 0 {
			return ""
		}
		return fmt.Sprintf("%.50s", numbers.ReplaceAllString(w.failures[0], ""))
	}
	want := kind(runSchedule(s, o))
	for range 4 {
		n := len(s.Steps)
		if s = shrink(s, func(s Schedule) bool { return kind(runSchedule(s, o)) == want }); len(s.Steps) == n {
			break
		}
	}
	return s
}

var numbers = regexp.MustCompile("0x[0-9a-f]+|[0-9]+")

// explainFailure shrinks a schedule and tells it as a script, with the flags that repeat it.
func explainFailure(s Schedule, o Options) string {
	short := shrinkFailure(s, o)
	var script []string
	calm, settles := false, false
	o.Trace = func(line string) {
		switch {
		case line == "- calm":
			calm = true
		case line == "- settles":
			settles = true
			script = append(script, "  settles")
			return
		case strings.HasPrefix(line, "- step"):
			settles = false
			return
		}
		if !calm && !settles || strings.Contains(line, "FAILED") {
			script = append(script, "  "+line)
		}
	}
	runSchedule(short, o)
	steps := make([]string, len(short.Steps))
	for i, n := range short.Steps {
		steps[i] = strconv.Itoa(n)
	}
	return fmt.Sprintf("%d steps are enough; repeat with -sim.seed=%d -sim.quiet=%v -sim.keep=%s\n%s",
		len(short.Steps), short.Seed, short.Quiet, strings.Join(steps, ","), strings.Join(script, "\n"))
}

func parseSteps(t *testing.T, list string) []int {
	t.Helper()
	var out []int
	for f := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("-sim.keep: %q is not a step", f)
		}
		out = append(out, n)
	}
	return out
}

// A failing seed becomes a script that a person can read.
func TestAFailingScheduleShrinksToAShortScript(t *testing.T) {
	o := Options{Filter: plantedFaults["requests are answered twice"]}
	for seed := range uint64(100) {
		s := NewSchedule(seed, *stepsFlag)
		if len(runSchedule(s, o).failures) == 0 {
			continue
		}
		short := shrinkFailure(s, o)
		if n := len(short.Steps); n == 0 || n > 12 {
			t.Errorf("seed %d shrinks to %d steps", seed, n)
		}
		if !strings.Contains(explainFailure(short, o), "answered twice") {
			t.Errorf("the script does not tell what failed:\n%s", explainFailure(short, o))
		}
		return
	}
	t.Error("no seed fails")
}

// The same seed is the same schedule, and a step does not depend on those that are left out.
func TestASeedIsAlwaysTheSameSchedule(t *testing.T) {
	tell := func(s Schedule) string {
		var out strings.Builder
		runSchedule(s, Options{Trace: func(line string) { out.WriteString(line + "\n") }})
		return out.String()
	}
	s := NewSchedule(5, 300)
	if first, second := tell(s), tell(s); first != second {
		t.Error("two runs of a seed differ")
	}
	for _, number := range []int{17, 40} {
		w := New(Options{Seed: 5})
		w.Run(Schedule{Seed: 5, Steps: []int{number}})
		first := w.now
		w.Close()
		w = New(Options{Seed: 5})
		w.Run(Schedule{Seed: 5, Steps: []int{number}})
		if w.now != first || first < controller.Time(0) {
			t.Errorf("step %d differs", number)
		}
		w.Close()
	}
}
