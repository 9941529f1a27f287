package controller_test

import (
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/sim"
)

// idCluster is a settled cluster with one topic that has no id.
func idCluster(t *testing.T, o sim.Options) *sim.World {
	w := sim.New(o)
	t.Cleanup(w.Close)
	w.StartAll()
	w.Settle()
	w.CreateWithoutID("t", ids(1, 2), ids(2, 3))
	w.Settle()
	return w
}

func ids(list ...cluster.BrokerID) []cluster.BrokerID { return list }

// endWell demands that brokers, caches and store agree, and that the topic has the id.
func endWell(t *testing.T, w *sim.World, when string, want cluster.TopicID) {
	t.Helper()
	w.CatchUp()
	w.Final()
	for _, f := range w.Failures() {
		t.Errorf("%s: %s", when, f)
	}
	if got := w.TopicID("t"); got != want {
		t.Errorf("%s: the topic has id %s, want %s", when, got, want)
	}
}

func restartAll(w *sim.World) {
	for _, n := range w.Nodes() {
		w.Kill(n.ID())
	}
	w.ExpireDead()
	w.StartAll()
	w.Settle()
}

func TestATopicWithoutAnIDGetsOneAndKeepsItOverFailoversAndRestarts(t *testing.T) {
	w := idCluster(t, sim.Options{})
	id := w.TopicID("t")
	if id.IsZero() {
		t.Fatal("the topic has no id")
	}
	endWell(t, w, "created", id)
	w.Bounce(w.Active().ID())
	w.Settle()
	endWell(t, w, "the controller's session expired", id)
	restartAll(w)
	endWell(t, w, "all brokers restarted", id)
	w.DeleteTopic("t", true)
	w.Settle()
	w.CreateTopic("t", ids(1, 2))
	w.Settle()
	if again := w.TopicID("t"); again == id || again.IsZero() {
		t.Errorf("the next topic of the name has id %s, the one before had %s", again, id)
	}
}

// A topic whose node the store refuses to change for a while gets its id afterwards, and with it a broker that has the log of an earlier topic of
// the name gets rid of that.
func TestATopicThatCannotBeGivenItsIDGetsItLater(t *testing.T) {
	w := sim.New(sim.Options{})
	t.Cleanup(w.Close)
	w.StartAll()
	w.Settle()
	w.CreateTopic("t", ids(2, 1), ids(3))
	w.Settle()
	w.Kill(2)
	w.Kill(3)
	w.ExpireDead()
	w.Settle()
	w.RemoveByHand("t")
	w.Settle()
	w.RefuseItems(100)
	w.CreateWithoutID("t", ids(1, 2), ids(2, 3))
	w.SettleFor(1000)
	if id := w.TopicID("t"); !id.IsZero() {
		t.Fatalf("the topic has id %s", id)
	}
	w.RefuseItems(0)
	w.StartAll()
	w.Settle()
	id := w.TopicID("t")
	if id.IsZero() {
		t.Error("the topic has no id")
	}
	endWell(t, w, "in the end", id)
}

func TestBeforeTheProtocolHasTopicIDsNobodyGetsOne(t *testing.T) {
	none := cluster.TopicID{}
	w := idCluster(t, sim.Options{NoTopicIDs: true})
	endWell(t, w, "created", none)
	w.Bounce(w.Active().ID())
	w.Settle()
	endWell(t, w, "the controller's session expired", none)
	w.AddPartition("t", ids(3, 1))
	w.Settle()
	endWell(t, w, "a partition added", none)
	w.DeleteTopic("t", false)
	w.Settle()
	endWell(t, w, "deleted", none)
}

func TestTopicIDsComeWithTheProtocolOneBrokerAfterTheOther(t *testing.T) {
	w := idCluster(t, sim.Options{NoTopicIDs: true})
	w.UseTopicIDs(true)
	for _, id := range ids(2, 3, 1) { // the controller last: until then nobody gives ids
		if !w.TopicID("t").IsZero() {
			t.Errorf("before broker %d is restarted the topic has an id", id)
		}
		w.Kill(id)
		w.ExpireDead()
		w.Settle()
		w.Start(id)
		w.Settle()
	}
	id := w.TopicID("t")
	if id.IsZero() {
		t.Fatal("the topic has no id")
	}
	endWell(t, w, "the protocol version is raised", id)
}

func TestAControllerWithoutTopicIDsKeepsThoseThatAreThere(t *testing.T) {
	w := idCluster(t, sim.Options{})
	id := w.TopicID("t")
	w.UseTopicIDs(false)
	restartAll(w)
	endWell(t, w, "the protocol version is lowered", id)
	w.Request(1, func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
		return controller.AlterPartitionReassignments{Reply: token, Partitions: []controller.PartitionReassignment{
			{TopicPartition: cluster.TopicPartition{Topic: "t"}, Target: ids(3, 2)}}}
	})
	w.Settle()
	w.CatchUp()
	endWell(t, w, "reassigned", id)
	w.UseTopicIDs(true)
	restartAll(w)
	endWell(t, w, "the protocol version is raised again", id)
}

// A marker that is void and that the store will not remove now is tried again: nothing else would look at it.
func TestAVoidMarkerThatCannotBeRemovedIsTriedAgain(t *testing.T) {
	w := idCluster(t, sim.Options{})
	w.RefuseItems(100)
	w.MarkForIncarnation("t", cluster.TopicID{0: 0xff})
	w.SettleFor(1000)
	w.RefuseItems(0)
	w.Settle()
	endWell(t, w, "the store takes writes again", w.TopicID("t"))
}
