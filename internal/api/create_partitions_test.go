package api

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

func morePartitions(topic string, count int32, lists ...[]int32) kmsg.CreatePartitionsRequestTopic {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = topic, count
	for _, l := range lists {
		t.Assignment = append(t.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: l})
	}
	return t
}

func partitionsRequest(timeoutMs int32, topics ...kmsg.CreatePartitionsRequestTopic) *kmsg.CreatePartitionsRequest {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Topics, req.TimeoutMillis = topics, timeoutMs
	return req
}

func partitionsAnswer(version int16, results ...kmsg.CreatePartitionsResponseTopic) *kmsg.CreatePartitionsResponse {
	resp := kmsg.NewPtrCreatePartitionsResponse()
	resp.Version, resp.Topics = version, results
	return resp
}

func partitionsResult(topic string, code cluster.ErrorCode, message string) kmsg.CreatePartitionsResponseTopic {
	t := kmsg.NewCreatePartitionsResponseTopic()
	t.Topic, t.ErrorCode, t.ErrorMessage = topic, int16(code), answerError{code, message}.message()
	return t
}

func TestCreatePartitionsRefusesInKafkasOrderAndWords(t *testing.T) {
	for _, c := range []struct {
		name string
		req  kmsg.CreatePartitionsRequestTopic
		code cluster.ErrorCode
		text string
	}{
		{"an unknown topic", morePartitions("nosuch", 5), cluster.UnknownTopicOrPartition, "The topic 'nosuch' does not exist."},
		{"a topic queued for deletion", morePartitions("queued", 5), cluster.InvalidTopicException, "The topic is queued for deletion."},
		{"a topic marked for deletion", morePartitions("marked", 5), cluster.InvalidTopicException, "The topic is queued for deletion."},
		{"a topic being reassigned", morePartitions("moving", 1), cluster.ReassignmentInProgress, "A partition reassignment is in progress for the topic 'moving'."},
		{"fewer partitions", morePartitions("t", 1), cluster.InvalidPartitions, "Topic currently has 2 partitions, which is higher than the requested 1."},
		{"as many partitions", morePartitions("t", 2, []int32{99}), cluster.InvalidPartitions, "Topic already has 2 partitions."},
		{"an absurd number", morePartitions("t", 1<<30), cluster.InvalidPartitions, "One request can create at most 100000 partitions."},
		{"unknown brokers come before the number of lists", morePartitions("t", 3, []int32{9, 0}, []int32{8, 9}), cluster.InvalidReplicaAssignment,
			"Unknown broker(s) in replica assignment: 9, 8."},
		{"too few lists", morePartitions("t", 4, []int32{0, 1}), cluster.InvalidReplicaAssignment,
			"Increasing the number of partitions by 2 but 1 assignments provided."},
		{"an empty list", morePartitions("t", 3, []int32{}), cluster.InvalidReplicaAssignment, "Cannot have replication factor of 0 for partition id 2."},
		{"a broker twice", morePartitions("t", 3, []int32{1, 1}), cluster.InvalidReplicaAssignment,
			"Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 2."},
		{"another replication factor", morePartitions("t", 4, []int32{0}, []int32{0, 1, 2}), cluster.InvalidReplicaAssignment,
			"Inconsistent replication factor between partitions, partition 0 has 2 while partitions [2, 3] have replication factors [1, 3], respectively."},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				for _, name := range []string{"t", "queued", "marked"} {
					b.topic(name, []cluster.BrokerID{0, 1}, []cluster.BrokerID{1, 2})
				}
				b.ctl.announces.Store(false)
				b.ctl.queued.Store("queued", true)
				b.put(coord.Create(coord.DeleteTopicPath("marked"), nil))
				b.put(coord.Create(coord.TopicPath("moving"), coord.EncodeTopic(coord.Topic{Partitions: map[int32]cluster.ReplicaAssignment{
					0: {Replicas: []cluster.BrokerID{0, 1}, Adding: []cluster.BrokerID{1}}}})))
				same(t, partitionsAnswer(3, partitionsResult(c.req.Topic, c.code, c.text)), b.do(3, partitionsRequest(1000, c.req)))
			})
		})
	}
}

func TestCreatePartitionsBoundsTheWholeRequest(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.topic("u", []cluster.BrokerID{0})
		req := partitionsRequest(1000, morePartitions("t", 60_000), morePartitions("u", 60_000))
		req.ValidateOnly = true
		same(t, partitionsAnswer(3, partitionsResult("t", cluster.None, ""),
			partitionsResult("u", cluster.InvalidPartitions, "One request can create at most 100000 partitions.")), b.do(3, req))
	})
}

func TestCreatePartitionsAddsOnThePatternOfPartitionZero(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		id := b.topic("t", []cluster.BrokerID{1, 2})
		same(t, partitionsAnswer(3, partitionsResult("t", cluster.None, "")), b.do(3, partitionsRequest(1000, morePartitions("t", 4))))
		stored, _ := b.inStore("t")
		same(t, map[int32]cluster.ReplicaAssignment{
			0: {Replicas: []cluster.BrokerID{1, 2}}, 1: {Replicas: []cluster.BrokerID{2, 1}},
			2: {Replicas: []cluster.BrokerID{0, 2}}, 3: {Replicas: []cluster.BrokerID{1, 2}}}, stored.Partitions)
		if stored.ID != id || !hasLeaders(b.cache.Image(), "t", id, 4) {
			t.Error("the topic lost its id, or the answer came before the leaders")
		}
	})
}

func TestCreatePartitionsTakesAssignmentsByHand(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{1, 2})
		same(t, partitionsAnswer(0, partitionsResult("t", cluster.None, "")), b.do(0, partitionsRequest(1000, morePartitions("t", 2, []int32{2, 0}))))
		stored, _ := b.inStore("t")
		same(t, []cluster.BrokerID{2, 0}, stored.Partitions[1].Replicas)
	})
}

func TestCreatePartitionsElsewhereTwiceOrOnlyValidated(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{1})
		twice := partitionsRequest(1000, morePartitions("t", 2), morePartitions("t", 3))
		same(t, partitionsAnswer(3, partitionsResult("t", cluster.InvalidRequest, "Duplicate topic in request.")), b.do(3, twice))

		check := partitionsRequest(1000, morePartitions("t", 2))
		check.ValidateOnly = true
		same(t, partitionsAnswer(3, partitionsResult("t", cluster.None, "")), b.do(3, check))

		b.ctl.active.Store(false)
		same(t, partitionsAnswer(3, partitionsResult("t", cluster.NotController, "")), b.do(3, partitionsRequest(1000, morePartitions("t", 2))))
		if stored, _ := b.inStore("t"); len(stored.Partitions) != 1 {
			t.Errorf("%d partitions are stored", len(stored.Partitions))
		}
	})
}

func TestCreatePartitionsKeepsWhatAnotherWriterDid(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		id := b.topic("t", []cluster.BrokerID{1})
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Batch" { // a second request adds a partition between our read and our write
				b.store.SetHook(nil)
				b.put(coord.Set(coord.TopicPath("t"), coord.EncodeTopic(coord.Topic{ID: id, Partitions: map[int32]cluster.ReplicaAssignment{
					0: {Replicas: []cluster.BrokerID{1}}, 1: {Replicas: []cluster.BrokerID{0}}}}), coord.AnyVersion))
			}
			return memstore.Fault{}
		})
		same(t, partitionsAnswer(3, partitionsResult("t", cluster.RequestTimedOut, "")), b.do(3, partitionsRequest(0, morePartitions("t", 3))))
		stored, _ := b.inStore("t")
		if len(stored.Partitions) != 3 || stored.Partitions[1].Replicas[0] != 0 {
			t.Errorf("stored %v", stored.Partitions)
		}
	})
}
