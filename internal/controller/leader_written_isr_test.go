package controller

import (
	"slices"
	"testing"

	"klamm/internal/cluster"
)

// stored answers reads of states with what leaders have written meanwhile, and conditional writes by it.
func (r *rig) stored(states map[cluster.TopicPartition]*cluster.LeaderAndISR) {
	r.answer = func(s Store) StoreResult {
		res := StoreResult{Token: s.Token, Outcome: Applied}
		switch op := s.Op.(type) {
		case ReadPartitionStates:
			v := StatesRead{}
			for _, tp := range op.Partitions {
				v.States = append(v.States, ItemResult{Status: ItemOK, State: *states[tp], HasState: true})
			}
			res.Value = v
		case SetPartitionStates:
			items := itemsOK(len(op.States))
			for i, w := range op.States {
				now := states[w.TopicPartition]
				if w.State.PartitionEpoch != now.PartitionEpoch {
					items[i] = ItemResult{Status: ItemConflict, State: *now, HasState: true}
					continue
				}
				*now = w.State
				now.PartitionEpoch++
				items[i].State = *now
			}
			res.Value = Written{items}
		case SetTopics:
			res.Value = Written{itemsOK(len(op.Topics))}
		case ReadReassignments:
			res.Value = ReassignmentsRead{}
		default:
			return r.accept(s)
		}
		return res
	}
}

// The controller knows of no follower in the ISR; the leader has written one, and dies before it could say so.
func TestAnElectionSeesTheISRThatTheLeaderWrote(t *testing.T) {
	r := newRig(t, 1, 2)
	r.c.cfg.LeadersWriteISR = true
	p := r.topic("t", ids(3, 2), &cluster.LeaderAndISR{Leader: 3, LeaderEpoch: 4, ISR: ids(3), PartitionEpoch: 7, ControllerEpoch: 5})
	p.state = OfflinePartition
	r.stored(map[cluster.TopicPartition]*cluster.LeaderAndISR{
		p.TopicPartition: {Leader: 3, LeaderEpoch: 4, ISR: ids(3, 2), PartitionEpoch: 8, ControllerEpoch: 5},
	})
	var n int
	if err := r.do(func() (err error) {
		n, err = r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, OfflineStrategy)
		return err
	}); err != nil || n != 1 || p.leadership.Leader != 2 || p.leadership.LeaderEpoch != 5 {
		t.Errorf("%v, %d elected, known {%s}", err, n, p.leadership)
	}
}

// A broker that the leader took into the ISR unsaid leaves it when it dies.
func TestADeadBrokerLeavesTheISRThatTheLeaderWrote(t *testing.T) {
	r := newRig(t, 1, 2)
	r.c.cfg.LeadersWriteISR = true
	p := r.topic("t", ids(2, 3), &cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 4, ISR: ids(2), PartitionEpoch: 7, ControllerEpoch: 5})
	stored := &cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 4, ISR: ids(2, 3), PartitionEpoch: 8, ControllerEpoch: 5}
	r.stored(map[cluster.TopicPartition]*cluster.LeaderAndISR{p.TopicPartition: stored})
	if err := r.do(func() error {
		_, err := r.c.removeFromISR(3, []replicaRef{{p, 3}})
		return err
	}); err != nil || !slices.Equal(stored.ISR, ids(2)) {
		t.Errorf("%v, stored {%s}", err, stored)
	}
}

// The end of a reassignment does not wait for the notification: the state node is watched meanwhile.
func TestAReassignmentEndsWhenTheLeaderHasWrittenTheISR(t *testing.T) {
	r := newRig(t, 1, 2)
	r.c.cfg.LeadersWriteISR = true
	p := r.topic("t", ids(1), &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 4, ISR: ids(1), PartitionEpoch: 7, ControllerEpoch: 5})
	p.state = OnlinePartition
	p.replicas = []replicaContext{{id: 1, state: OnlineReplica}}
	stored := *p.leadership
	r.stored(map[cluster.TopicPartition]*cluster.LeaderAndISR{p.TopicPartition: &stored})
	r.request(AlterPartitionReassignments{Reply: 8, Partitions: []PartitionReassignment{{p.TopicPartition, ids(2)}}})
	watch := Watched{Kind: WatchPartition, Topic: "t"}
	if w := effectsOf[Watch](r); len(w) != 1 || w[0].Watched != watch || !p.isReassigned() {
		t.Fatalf("watches %v, assignment %v", w, p.assignment)
	}
	stored.ISR, stored.PartitionEpoch = ids(1, 2), stored.PartitionEpoch+1
	if err := r.do(func() error { r.c.dispatch(ReassignmentISRChange{p.TopicPartition}); return nil }); err != nil {
		t.Fatal(err)
	}
	if w := effectsOf[Unwatch](r); len(w) != 1 || w[0].Watched != watch || !slices.Equal(p.assignment.Replicas, ids(2)) || p.isReassigned() || stored.Leader != 2 {
		t.Errorf("unwatched %v, assignment %v, stored {%s}", w, p.assignment, &stored)
	}
}

// registered has the controller find these brokers in the store, of which some write their ISRs.
func (r *rig) registered(writers []cluster.BrokerID, all ...cluster.BrokerID) {
	r.t.Helper()
	answer := r.answer
	r.answer = func(s Store) StoreResult {
		if _, ok := s.Op.(ReadBrokers); !ok {
			return answer(s)
		}
		v := BrokersRead{}
		for _, id := range all {
			v.Brokers = append(v.Brokers, cluster.Broker{ID: id, Epoch: cluster.BrokerEpoch(100 + id), WritesISR: slices.Contains(writers, id)})
		}
		return StoreResult{Token: s.Token, Outcome: Applied, Value: v}
	}
	if err := r.do(r.c.handleBrokerChange); err != nil {
		r.t.Fatal(err)
	}
	r.answer = answer
}

// The controller's protocol has AlterPartition. That of broker 3 does not yet: it takes 2 into the ISR, and dies before it could say so.
// Once it is gone states are not read any more.
func TestAnElectionSeesTheISRThatALeaderOfAnOlderProtocolWrote(t *testing.T) {
	r := newRig(t, 1, 2)
	p := r.topic("t", ids(3, 2), &cluster.LeaderAndISR{Leader: 3, LeaderEpoch: 4, ISR: ids(3), PartitionEpoch: 7, ControllerEpoch: 5})
	p.state = OnlinePartition
	p.replicas = []replicaContext{{id: 3, state: OnlineReplica}, {id: 2, state: OnlineReplica}}
	stored := *p.leadership
	r.stored(map[cluster.TopicPartition]*cluster.LeaderAndISR{p.TopicPartition: &stored})
	r.registered(ids(3), 1, 2, 3)
	stored.ISR, stored.PartitionEpoch = ids(3, 2), stored.PartitionEpoch+1
	r.registered(nil, 1, 2)
	if p.leadership.Leader != 2 || !slices.Equal(stored.ISR, ids(2)) {
		t.Errorf("known {%s}, stored {%s}", p.leadership, &stored)
	}
	r.effects = nil
	r.request(AlterPartitionReassignments{Reply: 8, Partitions: []PartitionReassignment{{p.TopicPartition, ids(2)}}})
	for _, s := range effectsOf[Store](r) {
		if op, ok := s.Op.(ReadPartitionStates); ok {
			t.Errorf("states are read: %v", op)
		}
	}
}

// Broker 1 has taken 2 out of the ISR and has not said so: 3, the only other one that has all records, must stay until 2 is back.
func TestAReassignmentDoesNotEndByAnISRThatALeaderOfAnOlderProtocolHasChanged(t *testing.T) {
	r := newRig(t)
	p := r.topic("t", ids(1, 2, 3), &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 4, ISR: ids(1, 2, 3), PartitionEpoch: 7, ControllerEpoch: 5})
	p.state = OnlinePartition
	p.replicas = []replicaContext{{id: 1, state: OnlineReplica}, {id: 2, state: OnlineReplica}, {id: 3, state: OnlineReplica}}
	stored := *p.leadership
	r.stored(map[cluster.TopicPartition]*cluster.LeaderAndISR{p.TopicPartition: &stored})
	r.registered(ids(1), 1, 2, 3)
	stored.ISR, stored.PartitionEpoch = ids(1, 3), stored.PartitionEpoch+1
	r.request(AlterPartitionReassignments{Reply: 8, Partitions: []PartitionReassignment{{p.TopicPartition, ids(1, 2)}}})
	if !p.isReassigned() || !slices.Equal(stored.ISR, ids(1, 3)) {
		t.Fatalf("assignment %v, stored {%s}", p.assignment, &stored)
	}
	stored.ISR, stored.PartitionEpoch = ids(1, 3, 2), stored.PartitionEpoch+1
	if err := r.do(func() error { r.c.dispatch(ReassignmentISRChange{p.TopicPartition}); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.assignment.Replicas, ids(1, 2)) || !slices.Equal(stored.ISR, ids(1, 2)) {
		t.Errorf("assignment %v, stored {%s}", p.assignment, &stored)
	}
}
