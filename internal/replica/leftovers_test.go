package replica

import (
	"errors"
	"testing"

	"klamm/internal/cluster"
)

// W15: a broker removes what a deletion left on it, known by topic id. Kafka would keep it for ever, or take it for the
// later topic's.
func TestLeftoversAreRemovedByTopicID(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	logOf := func(topic string, id cluster.TopicID) cluster.TopicPartition {
		tp := cluster.TopicPartition{Topic: topic}
		if _, err := b.logs.GetOrCreate(tp, id, true); err != nil {
			t.Fatal(err)
		}
		return tp
	}
	gone, again := logOf("gone", cluster.TopicID{1}), logOf("again", cluster.TopicID{2})
	b.lead(leadState{topic: "again", id: cluster.TopicID{2}, leader: 1, isr: []int32{1}, isNew: true})
	if n, err := b.RemoveLeftovers("gone", cluster.TopicID{1}, []int32{0, 1}, nil); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if _, there := b.logs.Get(gone); there {
		t.Error("the log of the deleted topic is still there")
	}
	if n, err := b.RemoveLeftovers("again", cluster.TopicID{9}, []int32{0}, nil); n != 0 || err != nil {
		t.Errorf("of the earlier topic: removed %d, %v", n, err)
	}
	if _, state := b.Partition(again); state != HostedOnline {
		t.Errorf("the later topic's replica is %v", state)
	}
	// A broker that was only thought to be gone still serves the topic.
	if n, err := b.RemoveLeftovers("again", cluster.TopicID{2}, []int32{0}, nil); n != 1 || err != nil {
		t.Errorf("of a hosted topic: removed %d, %v", n, err)
	}
	if _, state := b.Partition(again); state != HostedNone {
		t.Errorf("the deleted topic's replica is %v", state)
	}
}

// W20: a replica that was moved away goes also when a late request has made this broker follow it; one that a controller has given back
// since the assignment was read stays.
func TestAMovedReplicaGoesUnlessItWasGivenBack(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	tp, id := cluster.TopicPartition{Topic: "t"}, cluster.TopicID{1}
	b.lead(leadState{topic: "t", id: id, leader: 1, isr: []int32{1}, isNew: true})
	before := b.Hosted("t", []int32{0, 1})
	b.lead(leadState{topic: "t", id: id, leader: 1, isr: []int32{1}, le: 5})
	if n, err := b.RemoveLeftovers("t", id, []int32{0}, before); n != 0 || !errors.Is(err, ErrGivenBack) {
		t.Errorf("given back: removed %d, %v", n, err)
	}
	if n, err := b.RemoveLeftovers("t", id, []int32{0}, Hosted{}); n != 0 || !errors.Is(err, ErrGivenBack) {
		t.Errorf("given for the first time: removed %d, %v", n, err)
	}
	if n, err := b.RemoveLeftovers("t", id, []int32{0, 1}, b.Hosted("t", []int32{0, 1})); n != 1 || err != nil {
		t.Errorf("as it was: removed %d, %v", n, err)
	}
	if _, state := b.Partition(tp); state != HostedNone {
		t.Errorf("the replica is %v", state)
	}
}

func TestLeftoversThatMayLieInAFailedDirAreAskedForAgain(t *testing.T) {
	b := newTestBroker(t, brokerOptions{offlineDir: true})
	if n, err := b.RemoveLeftovers("gone", cluster.TopicID{1}, []int32{0}, nil); n != 0 || !errors.Is(err, ErrMayLieOffline) {
		t.Errorf("removed %d, %v", n, err)
	}
}

// R03: while a log dir is away a later topic of a name gets its replica in another dir, the earlier one's is not taken for it, and the record of
// what the deletion left stays until the dir is back. Kafka refuses the later topic's replica until a restart.
func TestALaterTopicIsNotHeldUpByAFailedDir(t *testing.T) {
	b := newTestBroker(t, brokerOptions{offlineDir: true})
	b.alive(1)
	tp := cluster.TopicPartition{Topic: "t"}
	old, next := cluster.TopicID{1}, cluster.TopicID{2}
	if code := b.leadCode(leadState{topic: "t", id: old, leader: 1, isr: []int32{1}}); code != cluster.KafkaStorageError {
		t.Fatalf("the replica that may lie in the failed dir: %s", code)
	}
	if code := b.leadCode(leadState{topic: "t", id: old, leader: 1, isr: []int32{1}, isNew: true}); code != cluster.KafkaStorageError {
		t.Errorf("the same topic, called new: %s", code)
	}
	if code := b.leadCode(leadState{topic: "t", id: next, leader: 1, isr: []int32{1}}); code != cluster.KafkaStorageError {
		t.Errorf("a later topic that may have been here before: %s", code)
	}
	b = newTestBroker(t, brokerOptions{offlineDir: true})
	b.alive(1)
	b.leadCode(leadState{topic: "t", id: old, leader: 1, isr: []int32{1}})
	if code := b.leadCode(leadState{topic: "t", id: next, leader: 1, isr: []int32{1}, isNew: true}); code != cluster.None {
		t.Errorf("a later topic that is new: %s", code)
	}
	if _, state := b.Partition(tp); state != HostedOnline {
		t.Errorf("its replica is %v", state)
	}
	if n, err := b.RemoveLeftovers("t", old, []int32{0}, nil); n != 0 || !errors.Is(err, ErrMayLieOffline) {
		t.Errorf("removed %d of the earlier topic, %v", n, err)
	}
	if log, ok := b.logs.Get(tp); !ok || log.TopicID() != next {
		t.Error("the later topic's log is gone")
	}
}

// leadCode sends one partition's LeaderAndIsr with its topic id and gives the partition's code.
func (b *testBroker) leadCode(s leadState) cluster.ErrorCode {
	b.t.Helper()
	resp := b.HandleLeaderAndISR(leaderAndISRRequest(7, s))
	return cluster.ErrorCode(resp.Topics[0].Partitions[0].ErrorCode)
}
