package controller

import (
	"reflect"
	"slices"
	"testing"

	"klamm/internal/cluster"
)

func TestReassignToPutsTheTargetFirstAndKeepsTheOrigin(t *testing.T) {
	of := func(replicas, adding, removing []cluster.BrokerID) cluster.ReplicaAssignment {
		return cluster.ReplicaAssignment{Replicas: replicas, Adding: adding, Removing: removing}
	}
	for _, c := range []struct {
		name   string
		from   cluster.ReplicaAssignment
		target []cluster.BrokerID
		want   cluster.ReplicaAssignment
	}{
		{"to itself", of(ids(1, 2, 3), nil, nil), ids(1, 2, 3), of(ids(1, 2, 3), nil, nil)},
		{"to others", of(ids(1, 2, 3), nil, nil), ids(4, 5, 6), of(ids(4, 5, 6, 1, 2, 3), ids(4, 5, 6), ids(1, 2, 3))},
		{"to the same target again", of(ids(4, 5, 6, 1, 2, 3), ids(4, 5, 6), ids(1, 2, 3)), ids(4, 5, 6), of(ids(4, 5, 6, 1, 2, 3), ids(4, 5, 6), ids(1, 2, 3))},
		{"to the same target, one stays", of(ids(4, 2, 3, 1), ids(4), ids(1)), ids(4, 2, 3), of(ids(4, 2, 3, 1), ids(4), ids(1))},
		{"to another target meanwhile", of(ids(4, 5, 6, 1, 2, 3), ids(4, 5, 6), ids(1, 2, 3)), ids(7, 8, 9), of(ids(7, 8, 9, 1, 2, 3), ids(7, 8, 9), ids(1, 2, 3))},
		{"back to the origin", of(ids(4, 5, 6, 1, 2, 3), ids(4, 5, 6), ids(1, 2, 3)), ids(1, 2, 3), of(ids(1, 2, 3), nil, nil)},
		{"fewer replicas", of(ids(1, 2, 3), nil, nil), ids(2), of(ids(2, 1, 3), nil, ids(1, 3))},
		{"another order", of(ids(1, 2, 3), nil, nil), ids(3, 1, 2), of(ids(3, 1, 2), nil, nil)},
	} {
		got := reassignTo(c.from, c.target)
		if !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if again := reassignTo(got, targetOf(got)); !again.Equal(got) {
			t.Errorf("%s: %v, once more %v", c.name, got, again)
		}
		if !slices.Equal(targetOf(got), c.target) || got.BeingReassigned() != (len(got.Adding)+len(got.Removing) > 0) {
			t.Errorf("%s: %v has target %v, is being reassigned: %v", c.name, got, targetOf(got), got.BeingReassigned())
		}
	}
}

func TestTheContextAnswersForWhatItKnowsOnly(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	p := r.topic("t", ids(1, 2), nil)
	p.topic.addPartition(PartitionAssignment{4, cluster.ReplicaAssignment{Replicas: ids(3, 1), Adding: ids(3)}})
	x := r.c.ctx
	for _, tp := range []cluster.TopicPartition{{Topic: "other", Partition: 0}, {Topic: "t", Partition: 7}} {
		if got := x.partition(tp); got != nil {
			t.Errorf("%s: %v", tp, got.assignment)
		}
	}
	if got := x.partitionOf(TopicRef{Name: "t", ID: cluster.TopicID{9}}, 0); got != nil {
		t.Error("a partition of another incarnation is found")
	}
	want := []PartitionAssignment{{0, cluster.ReplicaAssignment{Replicas: ids(1, 2)}}, {4, cluster.ReplicaAssignment{Replicas: ids(3, 1), Adding: ids(3)}}}
	if got := p.topic.assignments(); !slices.EqualFunc(got, want, func(a, b PartitionAssignment) bool {
		return a.Partition == b.Partition && a.Assignment.Equal(b.Assignment)
	}) {
		t.Errorf("assignments %v, want %v", got, want)
	}
	x.partition(p.TopicPartition).assignment = cluster.ReplicaAssignment{Replicas: ids(2, 3), Adding: ids(3)}
	if a := x.partition(p.TopicPartition).assignment; !slices.Equal(a.Replicas, ids(2, 3)) || !a.BeingReassigned() {
		t.Errorf("assignment %v", a)
	}
}

// A partition whose removed replica cannot leave the ISR stays in its reassignment, in the topic's node too, which another partition's end
// writes whole.
func TestAReassignmentThatCannotEndStaysInTheNodeThatAnotherOneWrites(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	moving := cluster.ReplicaAssignment{Replicas: ids(1, 2, 3), Removing: ids(3)}
	topic := r.c.ctx.addTopic(TopicRead{Name: "t", Exists: true, Czxid: 1, ID: cluster.TopicID{1},
		Partitions: []PartitionAssignment{{0, moving.Clone()}, {1, moving.Clone()}}})
	for _, p := range topic.partitions {
		p.state = OnlinePartition
		p.leadership = &cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2, 3), ControllerEpoch: 4}
		for _, id := range ids(1, 2, 3) {
			p.setReplicaState(id, OnlineReplica, 0)
		}
	}
	var written []TopicWrite
	r.answer = func(s Store) StoreResult {
		switch op := s.Op.(type) {
		case SetTopics:
			written = append(written, op.Topics...)
			return StoreResult{Token: s.Token, Outcome: Applied, Value: Written{itemsOK(len(op.Topics))}}
		case ReadReassignments:
			return StoreResult{Token: s.Token, Outcome: Applied, Value: ReassignmentsRead{}}
		}
		res := r.accept(s)
		if op, ok := s.Op.(SetPartitionStates); ok {
			for i := range op.States {
				if op.States[i].Partition == 0 {
					res.Value.(Written).Items[i] = ItemResult{Status: ItemFailed, Err: "no"}
				}
			}
		}
		return res
	}
	if err := r.do(func() error { return r.c.completeReassignments(topic.partitions) }); err != nil {
		t.Fatal(err)
	}
	if len(written) != 1 {
		t.Fatalf("the topic's node is written %d times", len(written))
	}
	want := []PartitionAssignment{{0, moving}, {1, cluster.ReplicaAssignment{Replicas: ids(1, 2)}}}
	if got := written[0].Partitions; !reflect.DeepEqual(got, want) {
		t.Errorf("the node has %v, want %v", got, want)
	}
	if p := topic.partitions[0]; !p.assignment.Equal(moving) {
		t.Errorf("the partition that could not end is assigned %v", p.assignment)
	}
}
