package sim

import (
	"flag"
	"fmt"
	"testing"

	"klamm/internal/controller"
)

var depthFlag = flag.Int("sim.stride", 11, "how many crash points the second crash of a pair skips")

// threeDeletions is a settled cluster in which the deletion of three topics has just been asked for.
func threeDeletions(t *testing.T, o Options) *World {
	w := New(o)
	w.StartAll()
	w.Settle()
	w.CreateTopic("a", brokers(1, 2), brokers(2, 3))
	w.CreateTopic("b", brokers(3, 1, 2))
	w.CreateTopic("c", brokers(2))
	w.CreateTopic("keep", brokers(1, 2, 3))
	w.Settle()
	w.Final()
	w.DeleteTopic("a", true)
	w.DeleteTopic("b", false)
	w.DeleteTopic("c", true)
	if len(w.Failures()) > 0 {
		t.Fatal(w.Failures())
	}
	return w
}

// effectsToEnd counts the effects until the cluster has settled.
func effectsToEnd(w *World) int {
	base := w.carried
	w.Settle()
	return w.carried - base
}

func runToEffect(w *World, n int) {
	end := w.carried + n
	w.SettleUntil(func() bool { return w.carried >= end })
}

// finish lets the cluster recover by itself first, then repairs what is broken, and checks.
func finish(w *World) []string {
	w.Settle()
	w.Heal()
	w.Settle()
	w.CatchUp()
	if len(w.failures) == 0 {
		w.Final()
	}
	return w.failures
}

func TestDeletionsEndWhereverTheControllerLosesOffice(t *testing.T) {
	w := threeDeletions(t, Options{})
	total := effectsToEnd(w)
	w.Close()
	t.Logf("%d effects", total)
	for _, kind := range crashes {
		t.Run(kind.name, func(t *testing.T) {
			for k := range total + 1 {
				w := threeDeletions(t, Options{})
				runToEffect(w, k)
				kind.do(w, w.Active())
				if f := finish(w); len(f) > 0 {
					t.Errorf("crash after %d effects: %s", k, f[0])
				}
				w.Close()
			}
		})
	}
}

func TestDeletionsEndWhereverTwoControllersLoseOffice(t *testing.T) {
	w := threeDeletions(t, Options{})
	total := effectsToEnd(w)
	w.Close()
	crash := crashes[0].do
	for k := range total + 1 {
		for j := k % *depthFlag; ; j += *depthFlag {
			w := threeDeletions(t, Options{})
			runToEffect(w, k)
			crash(w, w.Active())
			end := w.carried + j
			w.SettleUntil(func() bool { return w.carried >= end })
			recovered := w.carried < end
			if second := w.Active(); second != nil {
				crash(w, second)
			}
			if f := finish(w); len(f) > 0 {
				t.Errorf("crash after %d effects, again after %d: %s", k, j, f[0])
			}
			w.Close()
			if recovered {
				break
			}
		}
	}
}

func TestDeletionsEndWhateverBecomesOfEachStoreOperation(t *testing.T) {
	w := threeDeletions(t, Options{})
	total := effectsToEnd(w)
	w.Close()
	for _, f := range []fault{unavailable, lostBefore, lostAfter, lostMiddle} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprintf("fault %d, crash after it: %v", f, crash), func(t *testing.T) {
				for k := 1; k <= total; k++ {
					w := threeDeletions(t, Options{Seed: uint64(k)})
					w.faultAt = map[int]fault{w.carried + k: f}
					runToEffect(w, k)
					if crash {
						crashes[0].do(w, w.Active())
					}
					if f := finish(w); len(f) > 0 {
						t.Errorf("fault at effect %d: %s", k, f[0])
					}
					w.Close()
				}
			})
		}
	}
}

// W15: the deletion ends without the dead broker, and nothing is left on it once it is back.
func TestDeletionWithoutADeadBrokerEndsWhereverTheControllerDies(t *testing.T) {
	setup := func() *World {
		w := New(Options{Brokers: 4})
		w.StartAll()
		w.Settle()
		w.CreateTopic("a", brokers(2, 4), brokers(4, 3))
		w.CreateTopic("b", brokers(4))
		w.Settle()
		w.Kill(4)
		w.ExpireDead()
		w.Settle()
		w.DeleteTopic("a", true)
		w.DeleteTopic("b", true)
		return w
	}
	w := setup()
	total := effectsToEnd(w)
	if len(w.store.markers) > 0 || len(w.store.leftovers[4]) != 2 {
		t.Errorf("with broker 4 absent: markers %v, left to it %v", w.store.markers, w.store.leftovers[4])
	}
	w.CreateTopic("a", brokers(4, 2)) // the name is free
	w.Start(4)
	w.Settle()
	w.Final()
	verify(t, w)
	w.Close()
	for _, kind := range crashes {
		for k := range total + 1 {
			w := setup()
			runToEffect(w, k)
			if n := w.Active(); n != nil {
				kind.do(w, n)
			}
			if k%2 == 0 {
				w.Start(4) // in the middle of it
			}
			if f := finish(w); len(f) > 0 {
				t.Errorf("crash after %d effects, %s: %s", k, kind.name, f[0])
			}
			w.Close()
		}
	}
}

func TestDeletionWithADeadBrokerEndsWhereverTheControllerDies(t *testing.T) {
	setup := func() *World {
		w := New(Options{Brokers: 4, OfflineReplicas: controller.OfflineReplicasWait})
		w.StartAll()
		w.Settle()
		w.CreateTopic("a", brokers(2, 4), brokers(4, 3))
		w.CreateTopic("b", brokers(4))
		w.Settle()
		w.Kill(4)
		w.ExpireDead()
		w.Settle()
		w.DeleteTopic("a", true)
		w.DeleteTopic("b", true)
		return w
	}
	w := setup()
	total := effectsToEnd(w)
	for _, topic := range []string{"a", "b"} {
		if _, waits := w.store.markers[topic]; !waits {
			t.Errorf("the deletion of %s does not wait for broker 4", topic)
		}
	}
	w.Start(4)
	total += effectsToEnd(w)
	w.Final()
	verify(t, w)
	w.Close()
	for k := range total + 1 {
		w := setup()
		runToEffect(w, k)
		if w.progress() == nil {
			w.Start(4) // the first part ends with the wait for broker 4
			runToEffect(w, k/2)
		}
		if n := w.Active(); n != nil {
			crashes[0].do(w, n)
		}
		if f := finish(w); len(f) > 0 {
			t.Errorf("crash after %d effects: %s", k, f[0])
		}
		w.Close()
	}
}
