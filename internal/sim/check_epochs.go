package sim

import (
	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Epochs never go back: the controller epoch grows by one with each election, the leader epoch of a partition never falls and begins with 0, a
// state is written with the controller epoch of now.

func (k *checks) elected(before cluster.ControllerEpoch, op controller.Elect) {
	if op.Epoch != before+1 {
		k.w.failf("election from epoch %d to %d", before, op.Epoch)
	}
}

func (k *checks) epochs(tp cluster.TopicPartition, old *cluster.LeaderAndISR, s cluster.LeaderAndISR) {
	if old != nil && (s.LeaderEpoch < old.LeaderEpoch || s.ControllerEpoch < old.ControllerEpoch) {
		k.w.failf("%s goes back from {%s} to {%s}", tp, old, s)
	}
	if old == nil && s.LeaderEpoch != 0 {
		k.w.failf("%s begins with {%s}", tp, s)
	}
	if s.ControllerEpoch != k.w.store.epoch {
		k.w.failf("%s is written with controller epoch %d in epoch %d", tp, s.ControllerEpoch, k.w.store.epoch)
	}
}
