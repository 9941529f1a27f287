package controller

import (
	"fmt"
	"testing"

	"klamm/internal/cluster"
)

// bigTopic is a topic as the store returns it: n partitions with the given replication factor over the brokers.
func bigTopic(name string, n, rf, brokers int) TopicRead {
	r := TopicRead{Name: name, Exists: true, Czxid: 77, ID: cluster.TopicID{7}}
	for p := range n {
		var replicas []cluster.BrokerID
		for k := range rf {
			replicas = append(replicas, cluster.BrokerID(1+(p+k)%brokers))
		}
		r.Partitions = append(r.Partitions, PartitionAssignment{int32(p), cluster.ReplicaAssignment{Replicas: replicas}})
	}
	return r
}

// bigStore answers what the creation and deletion of one big topic ask for.
func (r *rig) bigStore(topic TopicRead) {
	r.answer = func(s Store) StoreResult {
		res := StoreResult{Outcome: Applied}
		switch s.Op.(type) {
		case ReadTopicNames:
			res.Value = TopicNamesRead{[]string{topic.Name}}
		case ReadTopics:
			res.Value = TopicsRead{[]TopicRead{topic}}
		case ReadDeletionMarkers:
			res.Value = MarkersRead{[]Marker{{Topic: topic.Name, Czxid: 78, ID: topic.ID}}}
		case DeleteTopicTrees, DeleteTopicConfigs, DeleteMarkers:
			res.Value = Written{itemsOK(1)}
		case ReadBrokers:
			v := BrokersRead{}
			for _, id := range r.c.ctx.brokerIDs()[1:] {
				v.Brokers = append(v.Brokers, r.c.ctx.brokers[id])
			}
			res.Value = v
		default:
			return r.accept(s)
		}
		return res
	}
}

// count sums up the effects by kind and clears them.
func (r *rig) count() (stores int, sends map[string]int) {
	sends = map[string]int{}
	for _, e := range r.effects {
		switch e := e.(type) {
		case Store:
			stores++
		case SendLeaderAndISR:
			sends[fmt.Sprintf("LeaderAndIsr to %d", e.Target.Broker)]++
		case SendUpdateMetadata:
			sends[fmt.Sprintf("UpdateMetadata to %d", e.Target.Broker)]++
		case SendStopReplica:
			sends[fmt.Sprintf("StopReplica to %d", e.Target.Broker)]++
		}
	}
	r.effects = nil
	return stores, sends
}

// answerStops feeds the answers to all StopReplica and UpdateMetadata requests sent so far.
func (r *rig) answerStops() {
	effects := r.effects
	r.effects = nil
	for _, e := range effects {
		switch e := e.(type) {
		case SendStopReplica:
			reply := StopReplicaReply{Request: e}
			for _, t := range e.Topics {
				for _, p := range t.Partitions {
					reply.Partitions = append(reply.Partitions, PartitionError{TopicPartition: cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}})
				}
			}
			r.must(func() error { return r.c.handle(reply) })
		case SendUpdateMetadata:
			r.must(func() error { return r.c.handle(UpdateMetadataReply{Request: e}) })
		}
	}
}

func (r *rig) must(f func() error) {
	if err := r.do(f); err != nil {
		panic(err)
	}
}

// W25: the operations of one event are bounded.
func TestABigTopicIsAHandfulOfStoreEffectsAndOneRequestOfAKindPerBroker(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	r.bigStore(bigTopic("big", 2000, 3, 3))
	r.must(func() error { return r.c.handle(TopicChange{}) })
	stores, sends := r.count()
	if stores != 3 {
		t.Errorf("creation takes %d store effects, want names, topic, states", stores)
	}
	for what, n := range sends {
		if n != 1 {
			t.Errorf("creation: %d times %s", n, what)
		}
	}
	r.must(func() error { return r.c.handle(TopicDeletion{}) })
	effects := r.effects
	if stores, sends = r.count(); stores != 4 {
		t.Errorf("the start of the deletion takes %d store effects, want markers and one per broker", stores)
	}
	for id := 1; id <= 3; id++ {
		if n := sends[fmt.Sprintf("StopReplica to %d", id)]; n != 2 {
			t.Errorf("deletion: %d StopReplica to %d", n, id)
		}
	}
	r.effects = effects
	r.answerStops()
	if stores, _ = r.count(); stores != 3 || len(r.c.ctx.topics) != 0 || len(r.c.ctx.deletions) != 0 {
		t.Errorf("the end of the deletion takes %d store effects, %d topics are left", stores, len(r.c.ctx.topics))
	}
}

func BenchmarkCreateAndDelete2000Partitions(b *testing.B) {
	topic := bigTopic("big", 2000, 3, 3)
	for b.Loop() {
		r := newRig(nil, 1, 2, 3)
		r.bigStore(topic)
		r.must(func() error { return r.c.handle(TopicChange{}) })
		r.effects = nil
		r.must(func() error { return r.c.handle(TopicDeletion{}) })
		r.answerStops()
	}
}

// BenchmarkBrokerDeath100000Partitions is the death of one broker of five, with 1000 topics of 100 partitions.
func BenchmarkBrokerDeath100000Partitions(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		r := newRig(nil, 1, 2, 3, 4, 5)
		r.serving(othersOf(1000, 5)...)
		r.bigStore(TopicRead{})
		b.StartTimer()
		r.must(func() error { return r.c.handle(BrokerChange{}) })
	}
}
