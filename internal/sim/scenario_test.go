package sim

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

var completeFlag = flag.Bool("sim.complete", false, "let every scenario meet every crash, every pair of crashes and every store fault (an hour); else a part of them is drawn by -sim.draw")
var scenarioFlag = flag.String("sim.scenario", "", "play this scenario with -sim.crashes and print its trace")
var crashesFlag = flag.String("sim.crashes", "", "after:victim:kind,... for -sim.scenario; kinds count from 0")
var drawFlag = flag.Int("sim.draw", 1, "which part of crashes, pairs of crashes and store faults is drawn")

// scenario is a named course of things. Before the first act, and after every act, the cluster runs until it has settled.
// Controllers may be crashed from the first act on, so an act can make no assumption about who is in office.
type scenario struct {
	name   string
	opts   Options
	before func(w *World)
	acts   []func(w *World)
	after  func(w *World)        // once everything is repaired
	expect func(w *World) string // what is wrong at the end, beyond what the checkers see
}

// scenarios are all of them, by what they are about.
func scenarios() []scenario {
	return slices.Concat(creations(), deletions(), deletionsMeet(), elections(), reassignments(), brokerLives(), controllerLives())
}

// crashes are the ways in which a controller loses its office.
var crashes = []struct {
	name string
	do   func(w *World, n *Node)
}{
	{"its process dies", func(w *World, n *Node) {
		w.Kill(n.id)
		w.ExpireDead()
	}},
	{"its process dies and starts before the session expires", func(w *World, n *Node) {
		w.Kill(n.id)
		w.Start(n.id)
	}},
	{"its session expires", func(w *World, n *Node) { n.expire() }},
	{"its session expires unnoticed", func(w *World, n *Node) {
		w.store.expire(n.session)
		n.frozen = true
	}},
	{"it is suspended", func(w *World, n *Node) {
		w.store.expire(n.session)
		n.frozen, n.paused = true, true
	}},
}

// crash is one loss of office: after a number of effects since the crash before it, or since the first act.
type crash struct {
	after  int
	victim cluster.BrokerID
	kind   int
}

func (c crash) String() string {
	return fmt.Sprintf("broker %d after %d effects: %s", c.victim, c.after, crashes[c.kind].name)
}

// run plays the scenario with crashes, repairs everything, and lets the checkers look. The world's carriers are those
// since the last crash.
func (s scenario) run(o Options, faults map[int]fault, cs ...crash) *World {
	w := New(o)
	w.StartAll()
	w.SettleFor(settleMs)
	if s.before != nil {
		s.before(w)
		w.SettleFor(settleMs)
	}
	if faults != nil {
		w.faultAt = map[int]fault{}
		for at, f := range faults {
			w.faultAt[w.carried+at] = f
		}
	}
	w.Record()
	w.crashNext(cs)
	for _, act := range s.acts {
		act(w)
		w.SettleFor(settleMs)
		w.CheckMetrics()
	}
	for range len(cs) + 1 {
		w.Heal()
		w.SettleFor(settleMs)
	}
	w.carriers = slices.Clone(w.carriers) // what follows is not part of the scenario
	w.interrupts = nil
	for _, tp := range slices.Sorted(maps.Keys(w.unanswered)) {
		w.unanswered[tp]()
		w.SettleFor(settleMs)
	}
	if s.after != nil {
		s.after(w)
		w.SettleFor(settleMs)
	}
	w.CatchUp()
	if len(w.failures) == 0 {
		w.Final()
	}
	if s.expect != nil && len(w.failures) == 0 {
		if wrong := s.expect(w); wrong != "" {
			w.failf("%s", wrong)
		}
	}
	return w
}

func (w *World) crashNext(cs []crash) {
	if len(cs) == 0 {
		return
	}
	w.InterruptAfter(cs[0].after, func() {
		if n := w.nodes[cs[0].victim]; n.up && n.session != 0 && !n.frozen {
			crashes[cs[0].kind].do(w, n)
		}
		w.Record()
		w.crashNext(cs[1:])
	})
}

// points lists the crashes that a run could have met: before and after every effect, the broker whose effect it is.
func points(carriers []cluster.BrokerID, kind int) []crash {
	var out []crash
	for i := range len(carriers) + 1 {
		var victims []cluster.BrokerID
		if i > 0 {
			victims = append(victims, carriers[i-1])
		}
		if i < len(carriers) {
			victims = append(victims, carriers[i])
		}
		for _, v := range slices.Compact(victims) {
			out = append(out, crash{i, v, kind})
		}
	}
	return out
}

// draws says whether one of several things is drawn in a run that is not complete.
func draws(index, oneIn int) bool { return *completeFlag || (index+*drawFlag)%oneIn == 0 }

// runs counts what has been played.
var runs int

func (s scenario) check(t *testing.T, faults map[int]fault, cs ...crash) (carriers []cluster.BrokerID) {
	t.Helper()
	w := s.run(s.opts, faults, cs...)
	w.Close()
	runs++
	if f := w.Failures(); len(f) > 0 {
		t.Errorf("crashes %v, store faults %v: %s", cs, faults, f[0])
	}
	return w.Carriers()
}

// TestScenariosEndWell plays every scenario without any crash.
func TestScenariosEndWell(t *testing.T) {
	all := scenarios()
	if len(all) < 36 {
		t.Errorf("%d scenarios", len(all))
	}
	for i, s := range all {
		t.Run(s.name, func(t *testing.T) {
			if slices.ContainsFunc(all[:i], func(o scenario) bool { return o.name == s.name }) {
				t.Error("the name is taken")
			}
			s.check(t, nil)
		})
	}
}

// TestScenariosEndWellWhereverTheControllerLosesOffice crashes the controller before and after every effect.
func TestScenariosEndWellWhereverTheControllerLosesOffice(t *testing.T) {
	before := runs
	defer func() { t.Logf("%d runs", runs-before) }()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			carriers := s.check(t, nil)
			for kind := range crashes {
				for i, c := range points(carriers, kind) {
					if draws(i+kind, len(crashes)) {
						s.check(t, nil, c)
					}
				}
			}
		})
	}
}

// TestScenariosEndWellWhereverTwoControllersLoseOffice crashes the controller before and after every effect, and the next one
// before and after every effect of the crash's own recovery.
func TestScenariosEndWellWhereverTwoControllersLoseOffice(t *testing.T) {
	before := runs
	for index, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			pairs := runs
			for i, first := range points(s.check(t, nil), 0) {
				if !draws(i+index, 8) {
					continue
				}
				for j, second := range points(s.check(t, nil, first), 0) {
					if draws(i+j, 29) {
						s.check(t, nil, first, second)
					}
				}
			}
			if *completeFlag {
				t.Logf("%d runs", runs-pairs)
			}
		})
	}
	t.Logf("%d runs", runs-before)
}

// TestScenariosEndWellWhateverBecomesOfEachStoreOperation has every store operation fail in every way, without and with a
// crash right after it.
func TestScenariosEndWellWhateverBecomesOfEachStoreOperation(t *testing.T) {
	before := runs
	defer func() { t.Logf("%d runs", runs-before) }()
	for index, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			carriers := s.check(t, nil)
			for i, by := range carriers {
				for _, f := range []fault{unavailable, lostBefore, lostAfter, lostMiddle} {
					if draws(i+int(f)+index, 8) {
						s.check(t, map[int]fault{i + 1: f})
					}
					if draws(i+int(f)+index+1, 8) {
						s.check(t, map[int]fault{i + 1: f}, crash{i + 1, by, 0})
					}
				}
			}
		})
	}
}

// TestOneScenario repeats what a failure names: -sim.scenario="topics are deleted" -sim.crashes=12:1:0,30:2:0.
func TestOneScenario(t *testing.T) {
	for _, s := range scenarios() {
		if s.name != *scenarioFlag {
			continue
		}
		s.opts.Trace = func(line string) { fmt.Println(line) }
		var cs []crash
		for _, f := range strings.FieldsFunc(*crashesFlag, func(r rune) bool { return r == ',' }) {
			var c crash
			if _, err := fmt.Sscanf(f, "%d:%d:%d", &c.after, &c.victim, &c.kind); err != nil {
				t.Fatalf("-sim.crashes: %q: %v", f, err)
			}
			cs = append(cs, c)
		}
		s.check(t, nil, cs...)
	}
}

// ---- words that scenarios are written in

func does(acts ...func(w *World)) []func(w *World) { return acts }

func creates(name string, assignment ...[]cluster.BrokerID) func(w *World) {
	return func(w *World) { w.CreateTopic(name, assignment...) }
}

func deletes(names ...string) func(w *World) {
	return func(w *World) {
		for _, name := range names {
			w.DeleteTopic(name, true)
		}
	}
}

// all does several things at once.
func all(acts ...func(w *World)) func(w *World) {
	return func(w *World) {
		for _, act := range acts {
			act(w)
		}
	}
}

// inTurn does several things, and lets the cluster settle after each.
func inTurn(acts ...func(w *World)) func(w *World) {
	return func(w *World) {
		for _, act := range acts {
			act(w)
			w.SettleFor(settleMs)
		}
	}
}

func dies(id cluster.BrokerID) func(w *World) {
	return func(w *World) {
		if w.nodes[id].up {
			w.Kill(id)
		}
		w.ExpireDead()
	}
}

func starts(id cluster.BrokerID) func(w *World) {
	return func(w *World) {
		if !w.nodes[id].up {
			w.Start(id)
		}
	}
}

func bounces(id cluster.BrokerID) func(w *World) {
	return func(w *World) {
		if n := w.nodes[id]; n.up && n.session != 0 {
			w.Bounce(id)
		}
	}
}

// half lets only a part of what is under way happen, so that the next act comes in the middle.
func half(effects int) func(w *World) {
	return func(w *World) {
		end := w.carried + effects
		w.SettleUntil(func() bool { return w.carried >= end })
	}
}

func catchesUp(w *World) { w.CatchUp() }

func partition(topic string, n int32) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: topic, Partition: n}
}

// reassigns asks for a new assignment of one partition; without replicas it cancels. Where it is refused, or its answer is lost, it is
// asked for again when everything is repaired. A wish that was granted must come true by itself.
func reassigns(topic string, n int32, to ...cluster.BrokerID) func(w *World) {
	tp := partition(topic, n)
	ask := func(w *World) bool {
		v := w.Request(w.anyUp(), func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
			return controller.AlterPartitionReassignments{Reply: token, Partitions: []controller.PartitionReassignment{{TopicPartition: tp, Target: to}}}
		})
		r, answered := v.(controller.AlterPartitionReassignmentsResult)
		return answered && len(r.Partitions) == 1 && r.Partitions[0].Err == cluster.None
	}
	return func(w *World) {
		delete(w.unanswered, tp.String())
		if !ask(w) {
			w.unanswered[tp.String()] = func() { ask(w) }
		}
	}
}

func elects(kind controller.ElectionType, tps ...cluster.TopicPartition) func(w *World) {
	return func(w *World) {
		w.Request(w.anyUp(), func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
			return controller.ElectLeaders{Reply: token, Type: kind, Partitions: tps}
		})
	}
}

func (w *World) anyUp() cluster.BrokerID {
	for _, n := range w.Nodes() {
		if n.up {
			return n.id
		}
	}
	return w.Nodes()[0].id
}

func isOn(topic string, n int32, replicas ...cluster.BrokerID) func(w *World) string {
	return func(w *World) string {
		t := w.store.topics[topic]
		if t == nil {
			return "topic " + topic + " does not exist"
		}
		if a := t.partitions[n]; !slices.Equal(a.Replicas, replicas) {
			return fmt.Sprintf("%s-%d is on %v, not %v", topic, n, a.Replicas, replicas)
		}
		return ""
	}
}

func isThere(topics ...string) func(w *World) string {
	return func(w *World) string {
		for _, name := range topics {
			if w.store.topics[name] == nil {
				return "topic " + name + " does not exist"
			}
		}
		return ""
	}
}
