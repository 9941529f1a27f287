package sim

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Int64("sim.seed", -1, "run this one seed and print its trace")
	seedsFlag = flag.Int("sim.seeds", 300, "how many random schedules to run")
	stepsFlag = flag.Int("sim.steps", 400, "steps of a random schedule before everything is repaired")
)

var (
	keepFlag  = flag.String("sim.keep", "", "of the seed only these steps, as a shrunk schedule names them: 3,17,40")
	quietFlag = flag.Bool("sim.quiet", false, "no faults of store, links and deletions, as a shrunk schedule may say")
	firstFlag = flag.Uint64("sim.first", 0, "the first of the seeds")
)

// runSchedule plays a schedule, ends the disturbance, then repairs everything, and lets the checkers look at what came of each.
func runSchedule(s Schedule, o Options) *World {
	o.Seed = s.Seed
	w := New(o)
	w.Run(s)
	w.tracef(nil, "calm")
	w.Calm()
	w.SettleFor(2000)
	w.Degraded()
	w.Heal()
	w.Settle()
	w.CatchUp()
	if len(w.failures) == 0 {
		w.Final()
	}
	w.Close()
	return w
}

// Its checks hold W7, W20 and W23 in every schedule: no reassignment outlives its topic, no replica stays where it was moved away, every write is fenced.
func TestRandomSchedulesEndInAConsistentCluster(t *testing.T) {
	if *seedFlag >= 0 {
		s := NewSchedule(uint64(*seedFlag), *stepsFlag)
		s.Quiet = *quietFlag
		if *keepFlag != "" {
			s.Steps = parseSteps(t, *keepFlag)
		}
		verify(t, runSchedule(s, Options{Trace: func(s string) { fmt.Println(s) }}))
		return
	}
	events, began := 0, time.Now()
	for i := range uint64(*seedsFlag) {
		s := NewSchedule(*firstFlag+i, *stepsFlag)
		w := runSchedule(s, Options{})
		events += w.steps
		if f := w.Failures(); len(f) > 0 {
			t.Errorf("seed %d: %s\n%s", s.Seed, f[0], explainFailure(s, Options{}))
		}
		if *seedsFlag > 1000 && (i+1)%500 == 0 {
			fmt.Printf("%d seeds of %d, %d events, %.0f seeds/s\n", i+1, *seedsFlag, events, float64(i+1)/time.Since(began).Seconds())
		}
	}
	t.Logf("%d seeds, %d events", *seedsFlag, events)
}

// Where leaders write their ISRs themselves the controller's picture is behind, and some changes it is never told of.
func TestSchedulesWhereLeadersWriteTheirISR(t *testing.T) {
	runSchedules(t, Options{LeadersWriteISR: true})
}

// While the protocol version is being rolled, leaders that write their ISRs are beside others that ask, and the controller may be either.
func TestSchedulesWhereSomeLeadersWriteTheirISR(t *testing.T) {
	runSchedules(t, Options{ProtocolRolls: true})
}

func runSchedules(t *testing.T, o Options) {
	for i := range uint64(*seedsFlag) {
		s := NewSchedule(*firstFlag+i, *stepsFlag)
		if f := runSchedule(s, o).Failures(); len(f) > 0 {
			t.Errorf("seed %d: %s\n%s", s.Seed, f[0], explainFailure(s, o))
		}
	}
}
