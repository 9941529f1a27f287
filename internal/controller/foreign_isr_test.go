package controller_test

import (
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/sim"
)

// A state node can name a broker that is not assigned: somebody wrote it, or the topic was replaced by hand. Such a broker must not be elected one day, so
// a controller that takes office takes it out, and tells the leader.
func TestAFailoverTakesBrokersThatAreNotAssignedOutOfTheISR(t *testing.T) {
	w := sim.New(sim.Options{})
	t.Cleanup(w.Close)
	w.StartAll()
	w.Settle()
	w.CreateTopic("t", ids(2, 3))
	w.Settle()
	w.WriteStateByHand(cluster.TopicPartition{Topic: "t"}, ids(2, 3, 1)...)
	w.Bounce(w.Active().ID())
	w.Settle()
	endWell(t, w, "after the failover", w.TopicID("t"))
}
