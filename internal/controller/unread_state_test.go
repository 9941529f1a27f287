package controller

import (
	"slices"
	"testing"

	"klamm/internal/cluster"
)

// A partition can have a state that the controller does not know: the write of the first one was applied and seemed to fail, or an earlier term wrote
// it and it could not be read. Moving the partition away at once, as one that never had a leader, would lose what its replicas have.
func TestAPartitionWhoseStateIsNotKnownIsNotMovedAwayFromItsData(t *testing.T) {
	written := cluster.LeaderAndISR{Leader: 1, ISR: ids(1), ControllerEpoch: 4}
	for _, c := range []struct {
		name    string
		node    ItemResult
		answer  cluster.ErrorCode
		replica []cluster.BrokerID // the assignment afterwards
		leader  cluster.BrokerID
	}{
		{"it is read", ItemResult{Status: ItemOK, State: written, HasState: true}, cluster.None, ids(2, 3, 1), 1},
		{"it cannot be read", ItemResult{Status: ItemFailed, Err: "simulated"}, cluster.UnknownServerError, ids(1), cluster.NoBroker},
		{"there is none", ItemResult{Status: ItemNoNode}, cluster.None, ids(2, 3), cluster.NoBroker},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 2, 3)
			p := r.topic("t", ids(1), nil)
			p.state = NewPartition
			p.setReplicaState(1, OnlineReplica, 0)
			r.answer = func(s Store) StoreResult {
				switch op := s.Op.(type) {
				case ReadPartitionStates:
					return StoreResult{Token: s.Token, Outcome: Applied, Value: StatesRead{[]ItemResult{c.node}}}
				case SetTopics:
					return StoreResult{Token: s.Token, Outcome: Applied, Value: Written{itemsOK(len(op.Topics))}}
				case CreatePartitionStates:
					return StoreResult{Token: s.Token, Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemFailed, Err: "simulated"}}}}
				}
				return r.accept(s)
			}
			got, _ := r.request(AlterPartitionReassignments{Reply: 1, Partitions: []PartitionReassignment{{p.TopicPartition, ids(2, 3)}}})
			if a := got.(AlterPartitionReassignmentsResult).Partitions[0]; a.Err != c.answer {
				t.Errorf("answer %s %s", a.Err, a.Message)
			}
			if !slices.Equal(p.assignment.Replicas, c.replica) {
				t.Errorf("the partition is on %v, not %v", p.assignment.Replicas, c.replica)
			}
			if led := p.leadership != nil && p.leadership.Leader == c.leader; led != (c.leader != cluster.NoBroker) {
				t.Errorf("leadership %v", p.leadership)
			}
		})
	}
}

// The same when a reassignment that was on its way is taken up.
func TestAReassignmentIsNotTakenUpAsDoneWhileTheStateCannotBeRead(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	p := r.topic("t", ids(2, 3, 1), nil)
	p.assignment.Adding, p.assignment.Removing = ids(2, 3), ids(1)
	p.state = NewPartition
	for _, id := range p.assignment.Replicas {
		p.setReplicaState(id, OnlineReplica, 0)
	}
	r.answer = func(s Store) StoreResult {
		if _, ok := s.Op.(ReadPartitionStates); ok {
			return StoreResult{Token: s.Token, Outcome: Applied, Value: StatesRead{[]ItemResult{{Status: ItemFailed, Err: "simulated"}}}}
		}
		return r.accept(s)
	}
	if err := r.do(r.c.resumeReassignments); err != nil {
		t.Fatal(err)
	}
	if !p.assignment.BeingReassigned() || len(effectsOf[SendStopReplica](r)) != 0 {
		t.Errorf("the partition is on %v, sent %v", p.assignment, effectsOf[SendStopReplica](r))
	}
	if timers := effectsOf[StartTimer](r); len(timers) == 0 || timers[0].Timer != TimerPartitionRetry {
		t.Errorf("it is not tried again: %v", timers)
	}
}
