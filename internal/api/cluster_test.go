package api

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/metadata"
)

// benchImage is an image with 100 topics of 100 partitions.
func benchImage(tb testing.TB) *metadata.Image {
	tb.Helper()
	c := &testController{cache: metadata.New(slog.New(slog.NewTextHandler(io.Discard, nil)))}
	c.brokers.Store(&[]cluster.BrokerID{0, 1, 2})
	var states []kmsg.UpdateMetadataRequestTopicState
	for i := range 100 {
		topic := coord.Topic{ID: cluster.NewTopicID(), Partitions: map[int32]cluster.ReplicaAssignment{}}
		for p := range int32(100) {
			topic.Partitions[p] = cluster.ReplicaAssignment{Replicas: []cluster.BrokerID{0, 1, 2}}
		}
		states = append(states, c.state(fmt.Sprintf("topic-%d", i), topic, false))
	}
	c.announce(states)
	return c.cache.Image()
}

func TestDescribeCluster(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		for version := int16(0); version <= 2; version++ {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.IncludeClusterAuthorizedOperations = version == 1
			want := kmsg.NewPtrDescribeClusterResponse()
			want.Version, want.ClusterID, want.ControllerID = version, "test-cluster", 0
			if version == 1 {
				want.ClusterAuthorizedOperations = 8096
			}
			for id := range int32(3) {
				want.Brokers = append(want.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: id, Host: fmt.Sprintf("b%d", id), Port: 9092})
			}
			same(t, want, b.do(version, req).(*kmsg.DescribeClusterResponse))
		}
		for endpoint, code := range map[int8]cluster.ErrorCode{2: cluster.MismatchedEndpointType, 7: cluster.UnsupportedEndpointType} {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType = endpoint
			if got := b.do(1, req).(*kmsg.DescribeClusterResponse); got.ErrorCode != int16(code) || len(got.Brokers) > 0 {
				t.Errorf("endpoint type %d: %+v", endpoint, got)
			}
		}
	})
}

func describePartitions(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) *kmsg.DescribeTopicPartitionsRequest {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit, req.Cursor = limit, cursor
	for _, n := range names {
		req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: n})
	}
	return req
}

// listed prints what an answer holds: topic:partitions or topic!code, and where it goes on.
func listed(resp kmsg.Response) (out []string) {
	r := resp.(*kmsg.DescribeTopicPartitionsResponse)
	for _, topic := range r.Topics {
		if topic.ErrorCode != 0 {
			out = append(out, fmt.Sprintf("%s!%v", *topic.Topic, cluster.ErrorCode(topic.ErrorCode)))
			continue
		}
		ids := []int32{}
		for _, p := range topic.Partitions {
			ids = append(ids, p.Partition)
		}
		out = append(out, fmt.Sprintf("%s:%v", *topic.Topic, ids))
	}
	if c := r.NextCursor; c != nil {
		out = append(out, fmt.Sprintf("next %s-%d", c.Topic, c.Partition))
	}
	return out
}

func TestDescribeTopicPartitionsGoesOnAtTheCursor(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		one := []cluster.BrokerID{0}
		b.topic("a", one, one, one)
		b.topic("b", one, one)
		b.topic("c", one)
		at := func(topic string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
			return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: partition}
		}
		for _, c := range []struct {
			name string
			req  *kmsg.DescribeTopicPartitionsRequest
			want []string
		}{
			{"all", describePartitions(2000, nil), []string{"a:[0 1 2]", "b:[0 1]", "c:[0]"}},
			{"a limit within a topic", describePartitions(2, nil), []string{"a:[0 1]", "next a-2"}},
			{"on from there", describePartitions(2, at("a", 2)), []string{"a:[2]", "b:[0]", "next b-1"}},
			{"a limit at the end of a topic", describePartitions(3, nil), []string{"a:[0 1 2]", "next b-0"}},
			{"to the end", describePartitions(3, at("b", 0)), []string{"b:[0 1]", "c:[0]"}},
			{"no limit counts as one", describePartitions(0, nil), []string{"a:[0]", "next a-1"}},
			{"by name, sorted, unknown ones with an error", describePartitions(2000, nil, "c", "nosuch", "a", "bad name"),
				[]string{"a:[0 1 2]", "bad name!INVALID_TOPIC_EXCEPTION", "c:[0]", "nosuch!UNKNOWN_TOPIC_OR_PARTITION"}},
			{"a cursor whose topic is not asked for", describePartitions(2000, at("b", 0), "a"), []string{"a!INVALID_REQUEST"}},
			{"a negative cursor", describePartitions(2000, at("a", -1), "a"), []string{"a!INVALID_REQUEST"}},
			{"a cursor on a topic that is gone", describePartitions(2000, at("aa", 1)), []string{"b:[0 1]", "c:[0]"}},
			{"a cursor behind the last partition", describePartitions(2000, at("b", 9)), []string{"b:[]", "c:[0]"}},
		} {
			if got := listed(b.do(0, c.req)); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s: got %v, want %v", c.name, got, c.want)
			}
		}
	})
}

func TestDescribeTopicPartitionsGivesEmptyListsNotNull(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("a", []cluster.BrokerID{0})
		got := b.do(0, describePartitions(1, nil)).(*kmsg.DescribeTopicPartitionsResponse).Topics[0].Partitions[0]
		for name, list := range map[string][]int32{
			"eligible leader replicas": got.EligibleLeaderReplicas, "last known elr": got.LastKnownELR,
		} {
			if list == nil {
				t.Errorf("%s is null, which Java's admin client fails on", name)
			}
		}
	})
}

func TestProducerIDsAreUniqueAcrossBlocks(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		for want := range int64(2500) {
			req := kmsg.NewPtrInitProducerIDRequest()
			got := b.do(int16(want%6), req).(*kmsg.InitProducerIDResponse)
			if got.ErrorCode != 0 || got.ProducerID != want || got.ProducerEpoch != 0 {
				t.Fatalf("id %d: %+v", want, got)
			}
		}
		if n := b.ctl.blocks.Load(); n != 3 {
			t.Errorf("%d blocks were allocated", n)
		}
	})
}

func TestProducerIDsAreRefusedWhileTheControllerHasNone(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.refuse.Store(int32(cluster.NotController))
		req := kmsg.NewPtrInitProducerIDRequest()
		if got := b.do(4, req).(*kmsg.InitProducerIDResponse); got.ErrorCode != int16(cluster.CoordinatorLoadInProgress) || got.ProducerID != -1 || got.ProducerEpoch != -1 {
			t.Errorf("got %+v", got)
		}
		b.ctl.refuse.Store(0)
		if got := b.do(4, req).(*kmsg.InitProducerIDResponse); got.ErrorCode != 0 {
			t.Errorf("after the controller came back: %+v", got)
		}
	})
}

func TestProducerIDsForTransactionsAreRefusedForGood(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = ptr("tx")
		if got := b.do(4, req).(*kmsg.InitProducerIDResponse); got.ErrorCode != int16(cluster.TransactionalIDAuthorizationFailed) {
			t.Errorf("got %+v", got)
		}
		odd := kmsg.NewPtrInitProducerIDRequest()
		odd.ProducerID = 5
		if got := b.do(4, odd).(*kmsg.InitProducerIDResponse); got.ErrorCode != int16(cluster.InvalidRequest) {
			t.Errorf("an id without an epoch: %+v", got)
		}
	})
}

func TestInterBrokerRequestsAreForTheInterBrokerListener(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		inner := b.dial("b0:9093", "1")
		defer func() { _ = inner.Close() }()
		req := kmsg.NewPtrAllocateProducerIDsRequest()
		req.BrokerID, req.BrokerEpoch = 0, 7
		if got := b.doOn(inner, 0, req).(*kmsg.AllocateProducerIDsResponse); got.ErrorCode != 0 || got.ProducerIDLen != 1000 {
			t.Errorf("got %+v", got)
		}
		ap := kmsg.NewPtrAlterPartitionRequest()
		if got := b.doOn(inner, 3, ap).(*kmsg.AlterPartitionResponse); got.ErrorCode != int16(cluster.StaleBrokerEpoch) {
			t.Errorf("got %+v", got)
		}
		for _, req := range []kmsg.Request{kmsg.NewPtrAllocateProducerIDsRequest(), kmsg.NewPtrUpdateMetadataRequest(), kmsg.NewPtrLeaderAndISRRequest(),
			kmsg.NewPtrStopReplicaRequest(), kmsg.NewPtrAlterPartitionRequest()} {
			c := b.dial("b0:9092", "outsider")
			if _, err := c.Request(b.ctx, req); err == nil {
				t.Errorf("%T was served on a client listener", req)
			}
			_ = c.Close()
		}
	})
}
