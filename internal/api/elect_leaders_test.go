package api

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// elections is how the test's controller answers: per partition a code, and with no code the leader elected.
type elections struct {
	codes   map[cluster.TopicPartition]cluster.ErrorCode
	leaders map[cluster.TopicPartition]cluster.BrokerID
	asked   *kmsg.ElectLeadersRequest
}

func (c *testController) ElectLeaders(_ context.Context, req *kmsg.ElectLeadersRequest,
	done func(*kmsg.ElectLeadersResponse, map[cluster.TopicPartition]cluster.BrokerID)) {
	c.elections.asked = req
	elected := map[cluster.TopicPartition]cluster.BrokerID{}
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	for _, t := range req.Topics {
		rt := kmsg.ElectLeadersResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p}
			rt.Partitions = append(rt.Partitions, kmsg.ElectLeadersResponseTopicPartition{Partition: p, ErrorCode: int16(c.elections.codes[tp])})
			if leader, ok := c.elections.leaders[tp]; ok {
				elected[tp] = leader
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	done(resp, elected)
}

func electionCodes(resp *kmsg.ElectLeadersResponse) map[cluster.TopicPartition]cluster.ErrorCode {
	out := map[cluster.TopicPartition]cluster.ErrorCode{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out[cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = cluster.ErrorCode(p.ErrorCode)
		}
	}
	return out
}

func TestElectLeadersAnswersWhenTheMetadataShowsTheLeaders(t *testing.T) {
	for version := range int16(3) {
		inBubble(t, nil, func(b *testBroker) {
			b.topic("a", []cluster.BrokerID{0, 1}, []cluster.BrokerID{1, 0}, []cluster.BrokerID{2, 0})
			a := func(p int32) cluster.TopicPartition { return cluster.TopicPartition{Topic: "a", Partition: p} }
			b.ctl.elections.codes = map[cluster.TopicPartition]cluster.ErrorCode{a(0): cluster.ElectionNotNeeded, a(2): cluster.PreferredLeaderNotAvailable}
			b.ctl.elections.leaders = map[cluster.TopicPartition]cluster.BrokerID{a(1): 1}
			req := kmsg.NewPtrElectLeadersRequest()
			req.TimeoutMillis = 1000
			req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0, 1, 2}}}
			began := time.Now()
			got := electionCodes(b.do(version, req).(*kmsg.ElectLeadersResponse))
			same(t, map[cluster.TopicPartition]cluster.ErrorCode{a(0): cluster.ElectionNotNeeded, a(1): cluster.None, a(2): cluster.PreferredLeaderNotAvailable}, got)

			// All partitions: those that need no election are left out.
			req.Topics = nil
			got = electionCodes(b.do(version, req).(*kmsg.ElectLeadersResponse))
			same(t, map[cluster.TopicPartition]cluster.ErrorCode{a(1): cluster.None, a(2): cluster.PreferredLeaderNotAvailable}, got)
			if waited := time.Since(began); waited >= time.Second {
				t.Errorf("v%d: waited %v for leaders that the metadata shows", version, waited)
			}

			// The metadata never shows the leader.
			b.ctl.elections.leaders[a(1)] = 2
			got = electionCodes(b.do(version, req).(*kmsg.ElectLeadersResponse))
			same(t, map[cluster.TopicPartition]cluster.ErrorCode{a(1): cluster.RequestTimedOut, a(2): cluster.PreferredLeaderNotAvailable}, got)
		})
	}
}

func TestElectLeadersRefusesTypesThatDoNotExist(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType = 2
		if resp := b.do(2, req).(*kmsg.ElectLeadersResponse); cluster.ErrorCode(resp.ErrorCode) != cluster.InvalidRequest {
			t.Errorf("answer %+v", resp)
		}
	})
}
