package api

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/quota"
)

// The tests below show the behaviours of Kafka's ControllerMutationQuotaTest. A client may begin with a full bucket of
// 11 seconds' worth.

const mutationRate = 2 // per second: 22 at once

func limitMutations(b *testBroker) {
	b.t.Helper()
	b.quota(quotaEntity("client-id", "tester"), quotaOp("controller_mutation_rate", mutationRate))
}

// inTurn asks for n topics of 22 partitions each, one after another in one request.
func inTurn(n int) (topics []kmsg.CreateTopicsRequestTopic) {
	for i := range n {
		topics = append(topics, newTopic(fmt.Sprint("t", i), 22, 1))
	}
	return topics
}

func createCodes(resp kmsg.Response) (codes []cluster.ErrorCode, throttle time.Duration) {
	r := resp.(*kmsg.CreateTopicsResponse)
	for _, t := range r.Topics {
		codes = append(codes, cluster.ErrorCode(t.ErrorCode))
	}
	return codes, time.Duration(r.ThrottleMillis) * time.Millisecond
}

func wantCodes(t *testing.T, got []cluster.ErrorCode, want ...cluster.ErrorCode) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("codes %v, want %v", got, want)
	}
}

func wantThrottle(t *testing.T, got, want time.Duration) {
	t.Helper()
	if got != want {
		t.Errorf("throttle %v, want %v", got, want)
	}
}

const exceeded = cluster.ThrottlingQuotaExceeded

func TestCreateTopicsBeyondAStrictMutationQuotaIsRefusedPerTopic(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		limitMutations(b)
		began := time.Now()
		codes, throttle := createCodes(b.do(6, createRequest(30_000, inTurn(3)...)))
		wantCodes(t, codes, 0, 0, exceeded) // 22, 0: still not below zero, -22: refused
		wantThrottle(t, throttle, 11*second)
		if _, ok := b.inStore("t2"); ok {
			t.Error("the refused topic was created")
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("answered after %v, not at once", waited)
		}
		// The connection is muted for the throttle, and then the bucket is at zero again.
		codes, throttle = createCodes(b.do(7, createRequest(30_000, newTopic("t2", 1, 1))))
		wantCodes(t, codes, 0)
		wantThrottle(t, throttle, 0)
		if waited := time.Since(began); waited != 11*second {
			t.Errorf("served after %v, want after the throttle", waited)
		}
	})
}

func TestARefusalOfTheMutationQuotaHasKafkasTextAndLeavesTheRestOfTheRequestAlone(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		limitMutations(b)
		resp := b.do(7, createRequest(30_000, newTopic("a", 23, 1), newTopic("b", 1, 1), newTopic("..", 1, 1))).(*kmsg.CreateTopicsResponse)
		same(t, failedTopic("b", exceeded, "The throttling quota has been exceeded."), resp.Topics[1])
		if resp.Topics[0].ErrorCode != 0 || cluster.ErrorCode(resp.Topics[2].ErrorCode) != cluster.InvalidTopicException {
			t.Errorf("the others have %d and %d", resp.Topics[0].ErrorCode, resp.Topics[2].ErrorCode)
		}
	})
}

func TestCreateTopicsBeyondAPermissiveMutationQuotaIsDoneAndThrottled(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		limitMutations(b)
		codes, throttle := createCodes(b.do(5, createRequest(30_000, inTurn(3)...)))
		wantCodes(t, codes, 0, 0, 0)
		wantThrottle(t, throttle, 22*second)
	})
}

func TestCreateTopicsOfAClientWithoutMutationQuotaIsUnbounded(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.quota(quotaEntity("client-id", "somebody else"), quotaOp("controller_mutation_rate", mutationRate))
		codes, throttle := createCodes(b.do(7, createRequest(30_000, inTurn(5)...)))
		wantCodes(t, codes, 0, 0, 0, 0, 0)
		wantThrottle(t, throttle, 0)
	})
}

func TestValidateOnlyIsNotChargedToTheMutationQuota(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		limitMutations(b)
		req := createRequest(30_000, inTurn(3)...)
		req.ValidateOnly = true
		codes, throttle := createCodes(b.do(7, req))
		wantCodes(t, codes, 0, 0, 0)
		wantThrottle(t, throttle, 0)
		if u := b.h.d.Quotas.Usage(time.Now()); len(u) != 0 {
			t.Errorf("used: %+v", u)
		}
	})
}

func TestTheMutationThrottleIsShortenedByTheTimeTheRequestWaited(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		limitMutations(b)
		b.ctl.announces.Store(false)
		codes, throttle := createCodes(b.do(6, createRequest(4_000, inTurn(3)...)))
		wantCodes(t, codes, cluster.RequestTimedOut, cluster.RequestTimedOut, exceeded)
		wantThrottle(t, throttle, 7*second)
	})
}

// three makes the topics t0, t1 and t2 of 22 partitions each.
func three(b *testBroker) {
	var partitions [][]cluster.BrokerID
	for range 22 {
		partitions = append(partitions, []cluster.BrokerID{0})
	}
	for i := range 3 {
		b.topic(fmt.Sprint("t", i), partitions...)
	}
	synctest.Wait()
}

func deleteCodes(resp kmsg.Response) (codes []cluster.ErrorCode, throttle time.Duration) {
	r := resp.(*kmsg.DeleteTopicsResponse)
	for _, t := range r.Topics {
		codes = append(codes, cluster.ErrorCode(t.ErrorCode))
	}
	return codes, time.Duration(r.ThrottleMillis) * time.Millisecond
}

func TestDeleteTopicsBeyondAStrictMutationQuotaIsRefusedPerTopic(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		three(b)
		limitMutations(b)
		codes, throttle := deleteCodes(b.do(5, deleteByName(5, 30_000, "t0", "t1", "t2")))
		wantCodes(t, codes, 0, 0, exceeded)
		wantThrottle(t, throttle, 11*second)
		if _, ok := b.inStore("t2"); !ok {
			t.Error("the refused topic was deleted")
		}
		codes, throttle = deleteCodes(b.do(6, deleteByName(6, 30_000, "t2")))
		wantCodes(t, codes, 0)
		wantThrottle(t, throttle, 0)
	})
}

func TestDeleteTopicsBeyondAPermissiveMutationQuotaIsDoneAndThrottled(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		three(b)
		limitMutations(b)
		codes, throttle := deleteCodes(b.do(4, deleteByName(4, 30_000, "t0", "t1", "t2")))
		wantCodes(t, codes, 0, 0, 0)
		wantThrottle(t, throttle, 22*second)
	})
}

func TestDeleteTopicsOfAClientWithoutMutationQuotaIsUnbounded(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		three(b)
		codes, throttle := deleteCodes(b.do(6, deleteByName(6, 30_000, "t0", "t1", "t2")))
		wantCodes(t, codes, 0, 0, 0)
		wantThrottle(t, throttle, 0)
	})
}

func partitionsCodes(resp kmsg.Response) (codes []cluster.ErrorCode, throttle time.Duration) {
	r := resp.(*kmsg.CreatePartitionsResponse)
	for _, t := range r.Topics {
		codes = append(codes, cluster.ErrorCode(t.ErrorCode))
	}
	return codes, time.Duration(r.ThrottleMillis) * time.Millisecond
}

func add22(b *testBroker, version int16) ([]cluster.ErrorCode, time.Duration) {
	return partitionsCodes(b.do(version, partitionsRequest(30_000, morePartitions("t0", 44), morePartitions("t1", 44), morePartitions("t2", 44))))
}

func TestCreatePartitionsBeyondAStrictMutationQuotaIsRefusedPerTopic(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		three(b)
		limitMutations(b)
		codes, throttle := add22(b, 3)
		wantCodes(t, codes, 0, 0, exceeded)
		wantThrottle(t, throttle, 11*second)
		if topic, _ := b.inStore("t2"); len(topic.Partitions) != 22 {
			t.Errorf("the refused topic has %d partitions", len(topic.Partitions))
		}
	})
}

func TestCreatePartitionsBeyondAPermissiveMutationQuotaIsDoneAndThrottled(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		three(b)
		limitMutations(b)
		codes, throttle := add22(b, 2)
		wantCodes(t, codes, 0, 0, 0)
		wantThrottle(t, throttle, 22*second)
	})
}

func TestCreatePartitionsOfAClientWithoutMutationQuotaIsUnbounded(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		three(b)
		codes, throttle := add22(b, 3)
		wantCodes(t, codes, 0, 0, 0)
		wantThrottle(t, throttle, 0)
	})
}

func TestTheMutationQuotaIsMeasuredForTheClientThatHasIt(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		limitMutations(b)
		b.do(7, createRequest(30_000, newTopic("a", 11, 1)))
		usage := b.h.d.Quotas.Usage(time.Now())
		want := quota.Usage{Kind: quota.Mutations, Who: quota.Client{ID: "tester"}, Rate: 1.1, Tokens: 11}
		if len(usage) != 1 || usage[0] != want {
			t.Errorf("usage %+v, want %+v", usage, want)
		}
	})
}

func TestAMutationQuotaIsSetAndUnsetWhileTheBrokerRuns(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		who := quota.Client{User: "ANONYMOUS", ID: "tester"}
		for _, rate := range []float64{10, 15} {
			b.quota(quotaEntity("client-id", "tester"), quotaOp("controller_mutation_rate", rate))
			if got, ok := b.h.d.Quotas.Limit(quota.Mutations, who); !ok || got != rate {
				t.Errorf("limit %v, %v, want %v", got, ok, rate)
			}
		}
		b.quota(quotaEntity("client-id", "tester"), quotaRemoval("controller_mutation_rate"))
		if got, ok := b.h.d.Quotas.Limit(quota.Mutations, who); ok {
			t.Errorf("limit %v is left", got)
		}
		if _, err := b.ctl.store.Get(b.ctx, coord.ConfigEntityPath(coord.ClientConfigs, "tester")); err == nil {
			t.Error("the node is left")
		}
	})
}
