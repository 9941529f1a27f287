package controller

import (
	"slices"
	"testing"

	"klamm/internal/cluster"
)

// W24: a live broker that changes its rack is announced; Kafka looks at endpoints and features only.
func TestAChangedRackIsAnnounced(t *testing.T) {
	r := newRig(t, 1, 2)
	r.answer = func(s Store) StoreResult {
		return StoreResult{Outcome: Applied, Value: BrokersRead{Brokers: []cluster.Broker{r.c.ctx.brokers[1], {ID: 2, Epoch: 102, Rack: "b"}}}}
	}
	if err := r.do(func() error { return r.c.handleBrokerModifications(2) }); err != nil {
		t.Fatal(err)
	}
	sent := effectsOf[SendUpdateMetadata](r)
	if len(sent) != 2 || sent[0].Update.LiveBrokers[1].Rack != "b" || r.c.ctx.brokers[2].Rack != "b" {
		t.Errorf("sent %+v", sent)
	}
}

// W21: everything about a topic goes with it: offline dirs, states, reassignments, the id.
func TestNothingOfARemovedTopicIsLeft(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	p := r.topic("t", ids(1, 2), &cluster.LeaderAndISR{Leader: 1, ISR: ids(1)})
	p.assignment.Adding = ids(2)
	p.state = OnlinePartition
	p.setReplicaState(1, OnlineReplica, 0)
	p.setReplicaState(2, OfflineReplica, 0)
	p.replica(2).offlineDir = true
	r.queue(p)
	id := p.topic.ID
	r.c.ctx.removeTopic(p.topic)
	if _, known := r.c.ctx.topicNames[id]; known || r.c.ctx.partition(p.TopicPartition) != nil || len(r.c.ctx.replicasOn(ids(1, 2))) > 0 {
		t.Error("the context still has something of the topic")
	}
	again := r.topic("t", ids(1, 2), nil)
	if again.state != NonExistentPartition || len(again.replicas) > 0 || again.isReassigned() || again.inOfflineDir(2) || again.queued() {
		t.Errorf("the next topic of the name begins with %+v", *again)
	}
}

// W9: a topic node that somebody changed meanwhile is read again, and a partition that was added to it stays.
func TestAReassignmentKeepsPartitionsAddedMeanwhile(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	p := r.topic("t", ids(1, 2), &cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2)})
	p.state = OnlinePartition
	for _, id := range ids(1, 2) {
		p.setReplicaState(id, OnlineReplica, 0)
	}
	added := PartitionAssignment{1, cluster.ReplicaAssignment{Replicas: ids(2, 3)}}
	var written []TopicWrite
	r.answer = func(s Store) StoreResult {
		switch op := s.Op.(type) {
		case SetTopics:
			if op.Topics[0].Version != 4 {
				return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemConflict}}}}
			}
			written = append(written, op.Topics...)
			return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemOK, Version: 5}}}}
		case ReadTopics:
			return StoreResult{Outcome: Applied, Value: TopicsRead{[]TopicRead{{Name: "t", Exists: true, Czxid: p.topic.czxid, Version: 4, ID: p.topic.ID,
				Partitions: []PartitionAssignment{{0, cluster.ReplicaAssignment{Replicas: ids(1, 2)}}, added}}}}}
		}
		return r.accept(s)
	}
	if err := r.do(func() error { return r.c.reassign([]*reassignment{{p: p, to: reassignTo(p.assignment, ids(1, 3))}}) }); err != nil {
		t.Fatal(err)
	}
	if len(written) != 1 || len(written[0].Partitions) != 2 || !slices.Equal(written[0].Partitions[1].Assignment.Replicas, ids(2, 3)) ||
		!slices.Equal(written[0].Partitions[0].Assignment.Replicas, ids(1, 3, 2)) {
		t.Errorf("written %+v", written)
	}
}
