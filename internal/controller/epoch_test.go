package controller_test

import (
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/sim"
)

// The controller epoch is the cluster's: it grows by one with each term, and outlives all brokers.
func TestControllerEpochsGoOnWhereTheyWere(t *testing.T) {
	w := sim.New(sim.Options{Brokers: 2})
	defer w.Close()
	w.StartAll()
	w.Settle()
	for i, step := range []struct {
		name string
		do   func()
	}{
		{"the first term", func() {}},
		{"the controller's session expires", func() { w.Bounce(w.Active().ID()) }},
		{"the controller dies", func() { w.Kill(w.Active().ID()); w.ExpireDead() }},
		{"all brokers are down for a while", func() {
			for _, n := range w.Nodes() {
				if n.ID() == w.Active().ID() {
					w.Kill(n.ID())
					break
				}
			}
			w.ExpireDead()
			w.StartAll()
		}},
		{"a controller stops in order", func() { w.Shutdown(w.Active().ID()) }},
	} {
		step.do()
		w.Settle()
		if got, want := w.Active().Core().Epoch(), cluster.ControllerEpoch(i+1); got != want {
			t.Errorf("%s: epoch %d, want %d", step.name, got, want)
		}
	}
}
