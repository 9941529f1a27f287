package sim

import (
	"strings"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// TestEveryCheckerCanFail shows each checker a history that breaks its rule. A checker that cannot fail shows nothing.
func TestEveryCheckerCanFail(t *testing.T) {
	tp := partition("a", 0)
	state := func(leader cluster.BrokerID, le cluster.LeaderEpoch, isr ...cluster.BrokerID) cluster.LeaderAndISR {
		return cluster.LeaderAndISR{Leader: leader, LeaderEpoch: le, ISR: isr, ControllerEpoch: 1}
	}
	old := state(1, 3, 1, 2)
	for _, c := range []struct {
		rule    string
		history func(w *World)
		want    string
	}{
		{"a deleted topic does not return", func(w *World) {
			w.DeleteTopic("a", true)
			id := w.TopicID("a")
			w.Settle()
			w.checks.logCreated(w.nodes[1], tp, id)
		}, "creates a log of a-0, which is deleted"},
		{"a broker does not keep what was deleted", func(w *World) {
			log := w.nodes[1].logs[tp]
			w.DeleteTopic("a", true)
			w.Settle()
			w.nodes[1].logs[tp] = log
			w.Final()
		}, "has a-0 of a deleted topic"},
		{"nobody touches the data of a topic that is wanted", func(w *World) {
			w.DeleteTopic("a", true)
			w.Settle()
			w.CreateTopic("a", brokers(1, 2)) // again
			w.Settle()
			w.nodes[1].stopReplica(tp, controller.StopReplicaPartition{LeaderEpoch: cluster.LeaderEpochDuringDelete, Delete: true})
		}, "deletes a-0 of a topic that nobody asked to delete"},
		{"a reassignment deletes no replica that is in sync", func(w *World) {
			w.checks.logDeleted(w.nodes[2], tp, w.TopicID("a"))
		}, "deletes a-0"},
		{"a topic's nodes stay while nobody asks for its deletion", func(w *World) { w.checks.treeRemoved("a", w.store.topics["a"]) }, "nobody asked for it"},
		{"a topic's nodes stay while a broker has its data", func(w *World) {
			w.DeleteTopic("a", true)
			w.checks.treeRemoved("a", w.store.topics["a"])
		}, "broker 1 still has a-0"},
		{"the marker goes last", func(w *World) {
			w.DeleteTopic("a", true)
			w.checks.markerRemoved(w.store.markers["a"])
		}, "before the topic"},
		{"the marker goes after the configuration", func(w *World) {
			delete(w.store.topics, "a")
			w.checks.markerRemoved(controller.Marker{Topic: "a"})
		}, "before its configuration"},
		{"a topic keeps its id", func(w *World) { w.checks.topicID("a", w.TopicID("a"), cluster.TopicID{9}) }, "changes its id"},
		{"wanted topics exist", func(w *World) { delete(w.store.topics, "a"); w.Final() }, "exists: false, wanted: true"},
		{"configurations go with their topic", func(w *World) { w.SetUnclean("ghost", true); w.Final() }, "configuration of topic ghost is left"},
		{"the ISR is assigned", func(w *World) { w.checks.state(tp, w.store.topics["a"], &old, state(1, 4, 1, 9)) }, "has 9 in its ISR, which is not assigned"},
		{"the ISR is assigned in the end", func(w *World) { w.store.topics["a"].states[0] = state(1, 0, 1, 9); w.Final() }, "has 9 in its ISR"},
		{"the ISR is not empty", func(w *World) { w.checks.state(tp, w.store.topics["a"], &old, state(-1, 4)) }, "leader outside of its ISR"},
		{"the leader is in the ISR", func(w *World) { w.checks.state(tp, w.store.topics["a"], &old, state(2, 4, 1)) }, "leader outside of its ISR"},
		{"no leader from outside of the ISR that nobody allowed", func(w *World) {
			s := state(2, 4, 2)
			s.Recovery = cluster.Recovering
			w.checks.state(tp, w.store.topics["a"], &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: brokers(1), ControllerEpoch: 1}, s)
		}, "nobody allowed it"},
		{"an unclean leader recovers", func(w *World) {
			w.uncleanAsked = true
			w.checks.state(tp, w.store.topics["a"], &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: brokers(1), ControllerEpoch: 1}, state(2, 4, 2))
		}, "has an unclean leader"},
		{"the leader counts whoever joins the ISR", func(w *World) {
			alone := cluster.LeaderAndISR{Leader: 1, ISR: brokers(1), ControllerEpoch: 1}
			w.nodes[1].hosted[tp].state = alone
			w.checks.state(tp, w.store.topics["a"], &alone, state(1, 0, 1, 2))
		}, "gets 2 into its ISR, and its leader 1 does not know"},
		{"no leader in a failed log dir", func(w *World) {
			w.nodes[1].badDirs[w.nodes[1].logs[tp].dir] = true
			w.checks.noLeaderInFailedDir()
		}, "lies in a failed log dir"},
		{"leader epochs do not go back", func(w *World) { w.checks.state(tp, w.store.topics["a"], &old, state(1, 2, 1, 2)) }, "goes back"},
		{"leader epochs begin with 0", func(w *World) { w.checks.state(tp, w.store.topics["a"], nil, state(1, 1, 1, 2)) }, "begins with"},
		{"states have the controller epoch of now", func(w *World) {
			s := state(1, 4, 1, 2)
			s.ControllerEpoch = 7
			w.checks.state(tp, w.store.topics["a"], &old, s)
		}, "is written with controller epoch 7"},
		{"the controller epoch grows by one", func(w *World) { w.checks.elected(4, controller.Elect{Epoch: 6}) }, "election from epoch 4 to 6"},
		{"writes are fenced", func(w *World) { w.checks.write(w.Active(), controller.Store{Op: controller.EnsureFeatures{}}) }, "fenced: false"},
		{"who is not in office has no write applied", func(w *World) {
			w.checks.write(w.nodes[3], controller.Store{Fenced: true, Op: controller.EnsureFeatures{}})
		}, "broker 3 of epoch 0"},
		{"one process writes in an epoch", func(w *World) {
			w.checks.writers[w.store.epoch] = w.nodes[3].core
			w.checks.write(w.Active(), controller.Store{Fenced: true, Op: controller.EnsureFeatures{}})
		}, "another process had writes applied"},
		{"one controller is in office", func(w *World) {
			for _, n := range w.Nodes() {
				w.Kill(n.id)
			}
			w.checks.oneController()
		}, "0 controllers are active"},
		{"caches have what the store has", func(w *World) { delete(w.nodes[3].cache, tp); w.Final() }, "broker 3 caches a-0 as"},
		{"caches have nothing else", func(w *World) {
			w.nodes[3].cache[partition("ghost", 0)] = controller.UpdateMetadataPartition{}
			w.Final()
		}, "broker 3 caches ghost-0, which does not exist"},
		{"disks have what is assigned", func(w *World) { delete(w.nodes[2].logs, tp); w.Final() }, "broker 2 has no log of a-0"},
		{"disks have nothing else", func(w *World) { w.nodes[3].logs[tp] = w.nodes[1].logs[tp]; w.Final() }, "broker 3 has a-0, which is on"},
		{"brokers remove what deletions left", func(w *World) {
			w.store.recordLeftover(controller.Leftover{Broker: 3, TopicRef: controller.TopicRef{Name: "old", ID: cluster.TopicID{8}}, Partitions: []int32{0}})
			w.Final()
		}, "broker 3 has not removed what deletions left"},
		{"deletions end", func(w *World) { w.store.markers["ghost"] = controller.Marker{Topic: "ghost"}; w.Final() }, "still marked for deletion"},
		{"reassignments end", func(w *World) {
			w.store.topics["a"].partitions[0] = cluster.ReplicaAssignment{Replicas: brokers(1, 2), Removing: brokers(2)}
			w.Final()
		}, "has not ended"},
		{"old tools' elections end", func(w *World) { w.store.preferred = []cluster.TopicPartition{tp}; w.Final() }, "preferred elections is left"},
		{"old tools' reassignments end", func(w *World) { w.store.reassign = []controller.ReassignmentTarget{{}}; w.Final() }, "reassignments is left"},
		{"notifications are worked off", func(w *World) { w.store.isrChanges["x"] = controller.ISRChange{}; w.Final() }, "notifications are left"},
		{"requests are answered", func(w *World) { w.requests[99] = request{1, controller.ElectLeaders{Reply: 99}}; w.Final() }, "is not answered"},
		{"requests are answered once", func(w *World) { w.answered(controller.Reply{Token: 99}) }, "answered twice, or never asked"},
		{"everything asked for is answered", func(w *World) {
			w.checks.answer(controller.ElectLeaders{Partitions: []cluster.TopicPartition{tp}}, controller.ElectLeadersResult{})
		}, "asked for a-0, which was answered 0 times"},
		{"nothing else is answered", func(w *World) {
			w.checks.answer(controller.AlterPartitionReassignments{}, controller.AlterPartitionReassignmentsResult{Partitions: []controller.ReassignmentOutcome{{TopicPartition: tp}}})
		}, "did not ask for a-0"},
		{"ISR changes are answered in order", func(w *World) {
			w.checks.answer(controller.AlterPartition{Topics: []controller.AlterPartitionTopic{{Name: "a", Partitions: make([]controller.AlterPartitionPartition, 1)}}},
				controller.AlterPartitionResult{Topics: make([]controller.AlterPartitionTopicResult, 1)})
		}, "AlterPartition for a-0 was not answered"},
		{"producer ids follow each other", func(w *World) { w.checks.blockWritten(controller.ProducerIDBlock{Start: 5, End: 9}) }, "starts at 5 after -1"},
		{"producer ids are handed out once", func(w *World) {
			w.checks.blockWritten(controller.ProducerIDBlock{Start: 0, End: 9})
			w.checks.blockAnswered(controller.AllocateProducerIDsResult{Start: 0, Len: 10})
			w.checks.blockAnswered(controller.AllocateProducerIDsResult{Start: 0, Len: 10})
		}, "handed out twice"},
		{"producer ids are written first", func(w *World) { w.checks.blockAnswered(controller.AllocateProducerIDsResult{Start: 0, Len: 10}) }, "and not written"},
		{"leaders know that they lead", func(w *World) {
			delete(w.nodes[w.Leader(partition("a", 0))].hosted, partition("a", 0))
			w.checks.leaders()
		}, "leads a-0 and does not know of it"},
		{"leaders know what they lead", func(w *World) {
			w.nodes[w.Leader(partition("a", 0))].hosted[partition("a", 0)].state.PartitionEpoch++
			w.checks.leaders()
		}, "the store has"},
		{"metrics equal a recount", func(w *World) {
			w.store.topics["b"] = &topicNode{czxid: 999, partitions: map[int32]cluster.ReplicaAssignment{}, states: map[int32]cluster.LeaderAndISR{}}
			w.CheckMetrics()
		}, "a recount gives"},
		{"metrics are quiet in the end", func(w *World) {
			w.Kill(3)
			w.ExpireDead()
			w.Settle()
			w.checks.finalMetrics()
		}, "metrics do not match"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			w := New(Options{})
			w.StartAll()
			w.CreateTopic("a", brokers(1, 2))
			w.Settle()
			if w.Final(); len(w.failures) > 0 {
				t.Fatalf("it fails before: %v", w.failures)
			}
			c.history(w)
			if all := strings.Join(w.failures, "\n"); !strings.Contains(all, c.want) {
				t.Errorf("want %q, failures: %s", c.want, all)
			}
		})
	}
}

// The core's own invariants are checked after every step.
func TestTheCoreIsCheckedAfterEveryStep(t *testing.T) {
	w := New(Options{})
	defer w.Close()
	w.StartAll()
	w.Settle()
	other := w.nodes[2]
	first := w.Active()
	if first == nil || first == other {
		t.Fatalf("active: %v", first)
	}
	core := other.core
	other.core = first.core // two brokers with the same office
	w.checks.core(first)
	other.core = core
	if f := strings.Join(w.failures, "\n"); !strings.Contains(f, "both active in epoch 1") {
		t.Errorf("failures: %s", f)
	}
}
