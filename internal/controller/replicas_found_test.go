package controller

import (
	"testing"

	"klamm/internal/cluster"
)

// foundAgain is a partition on brokers 2 and 3 whose replica on 3 is offline with its log dir, and the answer of 3 that it has it all the same.
func foundAgain(r *rig) (*partitionContext, LeaderAndISRReply) {
	p := r.topic("t", ids(3, 2), &cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 3, ISR: ids(2), PartitionEpoch: 7, ControllerEpoch: 5})
	p.state = OnlinePartition
	p.setReplicaState(2, OnlineReplica, 0)
	p.setReplicaState(3, OfflineReplica, 0)
	p.replica(3).offlineDir = true
	req := SendLeaderAndISR{Target: Target{Broker: 3, BrokerEpoch: 103, Controller: 1, ControllerEpoch: 5}, Topics: []LeaderAndISRTopic{{TopicRef: p.topic.TopicRef}}}
	return p, LeaderAndISRReply{Request: req, Partitions: []PartitionError{{TopicPartition: p.TopicPartition}}}
}

// A broker that refused a replica for its failed log dir makes it in another when it is told that the replica is new.
func TestAReplicaThatIsMadeInAnotherLogDirServesAgain(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	p, answer := foundAgain(r)
	if err := r.do(func() error { return r.c.handleLeaderAndISRReply(answer) }); err != nil {
		t.Fatal(err)
	}
	if state := p.replicaState(3); state != OnlineReplica || p.inOfflineDir(3) {
		t.Errorf("the replica is %s, its dir offline: %v", state, p.inOfflineDir(3))
	}
}

func TestThePartitionOfAReplicaThatIsMadeInAnotherLogDirIsLedAgain(t *testing.T) {
	r := newRig(t, 1, 3)
	p, answer := foundAgain(r)
	p.state, p.leadership = OfflinePartition, &cluster.LeaderAndISR{Leader: cluster.NoBroker, LeaderEpoch: 3, ISR: ids(3), PartitionEpoch: 7, ControllerEpoch: 5}
	if err := r.do(func() error { return r.c.handleLeaderAndISRReply(answer) }); err != nil {
		t.Fatal(err)
	}
	if p.state != OnlinePartition || p.leadership.Leader != 3 {
		t.Errorf("the partition is %s, {%s}", p.state, p.leadership)
	}
}

// The deletion of its topic has been waiting for it.
func TestADeletionGoesOnWithAReplicaThatIsMadeInAnotherLogDir(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	p, answer := foundAgain(r)
	r.queue(p)
	p.topic.deletion.started, p.topic.deletion.ineligible = true, true
	p.state = NonExistentPartition
	p.setReplicaState(2, ReplicaDeletionSuccessful, 0)
	if err := r.do(func() error { return r.c.handleLeaderAndISRReply(answer) }); err != nil {
		t.Fatal(err)
	}
	stops := effectsOf[SendStopReplica](r)
	if p.replicaState(3) != ReplicaDeletionStarted || len(stops) == 0 || !stops[len(stops)-1].Topics[0].Partitions[0].Delete {
		t.Errorf("the replica is %s, sent %v", p.replicaState(3), stops)
	}
}
