package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

func metadataRequest(autoCreate bool, names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = autoCreate
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, n := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &n})
	}
	return req
}

// metadataAnswerOf is the answer of the three-broker cluster on the listener's port, with the topics.
func metadataAnswerOf(version int16, port int32, topics ...kmsg.MetadataResponseTopic) *kmsg.MetadataResponse {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = version
	for id := range int32(3) {
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Host: fmt.Sprintf("b%d", id), Port: port})
	}
	if version >= 1 {
		resp.ControllerID = 0
	}
	if version >= 2 {
		resp.ClusterID = ptr("test-cluster")
	}
	resp.Topics = topics
	return resp
}

func metadataTopic(name string, id cluster.TopicID, partitions ...kmsg.MetadataResponseTopicPartition) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID, t.Partitions = &name, id, partitions
	return t
}

func metadataError(name string, code cluster.ErrorCode) kmsg.MetadataResponseTopic {
	t := metadataTopic(name, cluster.TopicID{})
	t.ErrorCode = int16(code)
	return t
}

// TestMetadataOfTopics asks for a topic, an unknown and an illegal one in every version (R18: errors spoil nothing).
func TestMetadataOfTopics(t *testing.T) {
	for version := int16(0); version <= 13; version++ {
		inBubble(t, map[string]string{"auto.create.topics.enable": "false"}, func(b *testBroker) {
			id := b.topic("t", []cluster.BrokerID{0, 1})
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Leader, p.Replicas, p.ISR = 0, []int32{0, 1}, []int32{0, 1}
			if version >= 7 {
				p.LeaderEpoch = 0
			}
			if version < 10 {
				id = cluster.TopicID{}
			}
			got := b.do(version, metadataRequest(true, "t", "nosuch", "bad name", "t"))
			same(t, metadataAnswerOf(version, 9092, metadataTopic("t", id, p),
				metadataError("nosuch", cluster.UnknownTopicOrPartition), metadataError("bad name", cluster.InvalidTopicException)), got.(*kmsg.MetadataResponse))
		})
	}
}

func TestMetadataOfAllOrNoTopics(t *testing.T) { // R18
	inBubble(t, nil, func(b *testBroker) {
		b.topic("a", []cluster.BrokerID{0})
		b.topic("b", []cluster.BrokerID{0})
		names := func(version int16, topics []kmsg.MetadataRequestTopic) (out []string) {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = topics
			for _, topic := range b.do(version, req).(*kmsg.MetadataResponse).Topics {
				out = append(out, *topic.Topic)
			}
			return out
		}
		same(t, []string{"a", "b"}, names(0, []kmsg.MetadataRequestTopic{}))
		for version := int16(1); version <= 13; version++ {
			same(t, []string{"a", "b"}, names(version, nil))
			same(t, []string(nil), names(version, []kmsg.MetadataRequestTopic{}))
		}
	})
}

func TestMetadataByTopicID(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		id := b.topic("t", []cluster.BrokerID{0})
		for _, version := range []int16{12, 13} {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{{TopicID: id}, {TopicID: [16]byte{9}}}
			got := b.do(version, req).(*kmsg.MetadataResponse)
			if len(got.Topics) != 2 || got.Topics[0].ErrorCode != int16(cluster.UnknownTopicID) || got.Topics[0].Topic != nil ||
				*got.Topics[1].Topic != "t" || got.Topics[1].TopicID != id || got.Topics[1].ErrorCode != 0 {
				t.Errorf("version %d: %+v", version, got.Topics)
			}
		}
		for _, version := range []int16{10, 11} { // ids are in the schema and not allowed
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{{TopicID: id, Topic: ptr("t")}}
			got := b.do(version, req).(*kmsg.MetadataResponse)
			if len(got.Topics) != 1 || got.Topics[0].ErrorCode != int16(cluster.InvalidRequest) || got.Topics[0].TopicID != id {
				t.Errorf("version %d: %+v", version, got.Topics)
			}
		}
	})
}

func TestMetadataAnswersWithTheListenersAddresses(t *testing.T) { // R19
	inBubble(t, nil, func(b *testBroker) {
		c := b.dial("b0:9093", "x")
		defer func() { _ = c.Close() }()
		same(t, metadataAnswerOf(9, 9093), b.doOn(c, 9, metadataRequest(false)).(*kmsg.MetadataResponse))
	})
}

func TestMetadataOfPartitionsWhoseBrokersAreAway(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{1, 2}, []cluster.BrokerID{2, 1})
		b.brokersUp(0, 2)
		for version := int16(0); version <= 13; version++ {
			got := b.do(version, metadataRequest(false, "t")).(*kmsg.MetadataResponse)
			first, second := got.Topics[0].Partitions[0], got.Topics[0].Partitions[1]
			if first.ErrorCode != int16(cluster.LeaderNotAvailable) || first.Leader != -1 {
				t.Errorf("version %d, leader away: %+v", version, first)
			}
			want, replicas := cluster.None, 2
			if version == 0 {
				want, replicas = cluster.ReplicaNotAvailable, 1
			}
			if second.ErrorCode != int16(want) || second.Leader != 2 || len(second.Replicas) != replicas {
				t.Errorf("version %d, follower away: %+v", version, second)
			}
		}
	})
}

func TestMetadataOfALeaderWithoutTheListener(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{1})
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.Version = 8
		for id := range int32(2) {
			e := []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{{Port: 9093, Host: "b", ListenerName: "INTERNAL"}}
			if id == 0 {
				e = append(e, kmsg.UpdateMetadataRequestLiveBrokerEndpoint{Port: 9092, Host: "b0", ListenerName: "PLAINTEXT"})
			}
			req.LiveBrokers = append(req.LiveBrokers, kmsg.UpdateMetadataRequestLiveBroker{ID: id, Endpoints: e})
		}
		b.cache.Apply(req)
		for version, want := range map[int16]cluster.ErrorCode{0: cluster.LeaderNotAvailable, 5: cluster.LeaderNotAvailable, 6: cluster.ListenerNotFound, 13: cluster.ListenerNotFound} {
			got := b.do(version, metadataRequest(false, "t")).(*kmsg.MetadataResponse)
			if code := cluster.ErrorCode(got.Topics[0].Partitions[0].ErrorCode); code != want || len(got.Brokers) != 1 {
				t.Errorf("version %d: %v with brokers %+v", version, code, got.Brokers)
			}
		}
	})
}

func TestMetadataTellsAuthorizedOperationsWhenAsked(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		for version := int16(8); version <= 13; version++ {
			req := metadataRequest(false, "t")
			got := b.do(version, req).(*kmsg.MetadataResponse)
			if got.AuthorizedOperations != operationsNotAsked || got.Topics[0].AuthorizedOperations != operationsNotAsked {
				t.Errorf("version %d, not asked: %d, %d", version, got.AuthorizedOperations, got.Topics[0].AuthorizedOperations)
			}
			req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = version <= 10, true
			got = b.do(version, req).(*kmsg.MetadataResponse)
			if version <= 10 && got.AuthorizedOperations != 8096 || got.Topics[0].AuthorizedOperations != 3576 { // as Kafka without an authorizer
				t.Errorf("version %d, asked: %d, %d", version, got.AuthorizedOperations, got.Topics[0].AuthorizedOperations)
			}
		}
	})
}

func TestMetadataCreatesTopicsOnlyWhereAllowed(t *testing.T) { // R06
	for _, c := range []struct {
		version     int16
		enable      string
		allow, want bool
	}{
		{0, "true", false, true}, {3, "true", false, true}, // before v4 the request cannot say
		{4, "true", true, true}, {4, "true", false, false}, {13, "true", true, true},
		{3, "false", false, false}, {13, "false", true, false},
	} {
		inBubble(t, map[string]string{"auto.create.topics.enable": c.enable}, func(b *testBroker) {
			got := b.do(c.version, metadataRequest(c.allow, "t", "bad name")).(*kmsg.MetadataResponse)
			_, exists := b.inStore("t")
			want := cluster.None // R20: usable at once
			if !c.want {
				want = cluster.UnknownTopicOrPartition
			}
			codes := map[string]cluster.ErrorCode{}
			for _, topic := range got.Topics {
				codes[*topic.Topic] = cluster.ErrorCode(topic.ErrorCode)
			}
			same(t, map[string]cluster.ErrorCode{"t": want, "bad name": cluster.InvalidTopicException}, codes)
			if exists != c.want {
				t.Errorf("version %d, enabled %s, allowed %v: exists %v", c.version, c.enable, c.allow, exists)
			}
		})
	}
}

func TestMetadataRemembersWhoCreatedATopic(t *testing.T) { // R06
	inBubble(t, nil, func(b *testBroker) {
		b.do(1, metadataRequest(true, "t"))
		same(t, []AutoCreatedTopic{{Topic: "t", At: time.Now(), ClientID: "tester", Remote: "127.0.0.1", Principal: "User:ANONYMOUS"}}, b.h.AutoCreated())
		if n := b.h.AutoCreatedTotal(); n != 1 {
			t.Errorf("counted %d", n)
		}
	})
}

func TestMetadataOfATopicWhoseLeaderIsNotKnownInTime(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false)
		start := time.Now()
		got := b.do(9, metadataRequest(true, "t")).(*kmsg.MetadataResponse)
		same(t, metadataError("t", cluster.LeaderNotAvailable), got.Topics[0])
		if _, exists := b.inStore("t"); !exists || time.Since(start) != autoCreateWait {
			t.Errorf("exists %v, after %v", exists, time.Since(start))
		}
	})
}

func TestMetadataCreatesInternalTopicsWithTheirOwnSettings(t *testing.T) {
	inBubble(t, map[string]string{"offsets.topic.num.partitions": "5", "offsets.topic.replication.factor": "2", "offsets.topic.segment.bytes": "1000000"}, func(b *testBroker) {
		got := b.do(9, metadataRequest(true, cluster.GroupOffsetsTopic)).(*kmsg.MetadataResponse)
		stored, _ := b.inStore(cluster.GroupOffsetsTopic)
		if !got.Topics[0].IsInternal || len(stored.Partitions) != 5 || len(stored.Partitions[0].Replicas) != 2 {
			t.Errorf("answer %+v, stored %+v", got.Topics[0], stored)
		}
		same(t, map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "1000000"},
			b.storedConfig(coord.TopicConfigs, cluster.GroupOffsetsTopic))
	})
}

func TestMetadataTellsWhyATopicCannotBeCreated(t *testing.T) {
	inBubble(t, map[string]string{"default.replication.factor": "9"}, func(b *testBroker) {
		got := b.do(9, metadataRequest(true, "t")).(*kmsg.MetadataResponse)
		same(t, metadataError("t", cluster.InvalidReplicationFactor), got.Topics[0])
	})
}

func TestMetadataOfAllTopicsFollowsTheImage(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		req := kmsg.NewPtrMetadataRequest()
		for i := range 3 {
			for _, version := range []int16{0, 1, 9, 9} {
				if got := b.do(version, req).(*kmsg.MetadataResponse); len(got.Topics) != i {
					t.Errorf("version %d with %d topics: %d", version, i, len(got.Topics))
				}
			}
			b.topic(fmt.Sprintf("t%d", i), []cluster.BrokerID{0})
		}
	})
}

func BenchmarkMetadataOfTenThousandPartitions(bench *testing.B) {
	m := benchImage(bench)
	bench.ReportAllocs()
	for bench.Loop() {
		answer := metadataAnswer{im: m, listener: "PLAINTEXT", version: 9}
		var cache allTopicsCache
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version, resp.Topics = 9, cache.get(&answer)
		resp.AppendTo(nil)
	}
}
