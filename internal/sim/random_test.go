package sim

import (
	"flag"
	"fmt"
	"testing"
)

var (
	seedFlag  = flag.Int64("sim.seed", -1, "run this one seed and print its trace")
	seedsFlag = flag.Int("sim.seeds", 300, "how many random schedules to run")
	stepsFlag = flag.Int("sim.steps", 400, "steps of a random schedule before everything is repaired")
)

// runSeed runs one random schedule, ends the disturbance, then repairs everything, and lets the checkers look at what came of each.
func runSeed(o Options) *World {
	w := New(o)
	w.RunRandom(*stepsFlag)
	w.Calm()
	w.SettleFor(2000)
	w.Degraded()
	w.Heal()
	w.Settle()
	w.CatchUp()
	if len(w.failures) == 0 {
		w.Final()
	}
	return w
}

func TestRandomSchedulesEndInAConsistentCluster(t *testing.T) {
	if *seedFlag >= 0 {
		w := runSeed(Options{Seed: uint64(*seedFlag), Trace: func(s string) { fmt.Println(s) }})
		defer w.Close()
		verify(t, w)
		return
	}
	events := 0
	for seed := range uint64(*seedsFlag) {
		w := runSeed(Options{Seed: seed})
		w.Close()
		events += w.steps
		if f := w.Failures(); len(f) > 0 {
			t.Errorf("seed %d (repeat with -sim.seed=%d): %s", seed, seed, f[0])
		}
	}
	t.Logf("%d seeds, %d events", *seedsFlag, events)
}
