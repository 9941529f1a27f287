package sim

import "klamm/internal/cluster"

// interrupt is something that happens at once after a number of effects have been carried out.
type interrupt struct {
	at int // effects, as World.carried counts them
	do func()
}

// InterruptAfter has something happen when that many more effects have been carried out, between two steps of the
// cluster; with 0 it happens now. Several interrupts happen in the order in which they were asked for.
func (w *World) InterruptAfter(effects int, do func()) {
	if effects == 0 {
		do()
		return
	}
	w.interrupts = append(w.interrupts, interrupt{w.carried + effects, do})
}

// Record begins to note whose effects are carried out.
func (w *World) Record() { w.carriers = []cluster.BrokerID{} }

// Carriers lists whose effects were carried out since Record.
func (w *World) Carriers() []cluster.BrokerID { return w.carriers }

func (w *World) afterEffect(by cluster.BrokerID) {
	if w.carriers != nil {
		w.carriers = append(w.carriers, by)
	}
	for len(w.interrupts) > 0 && w.interrupts[0].at <= w.carried {
		do := w.interrupts[0].do
		w.interrupts = w.interrupts[1:]
		do()
	}
}
