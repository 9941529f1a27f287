package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/quota"
	"klamm/internal/record"
)

// The tests below show R24 and KIP-219: a client over its quota is answered at once with the time it is throttled for, and
// nothing more is taken from its connection until then.

// limit sets a quota for the client id of the test's connections.
func (b *testBroker) limit(key string, v float64) {
	b.t.Helper()
	b.quota(quotaEntity("client-id", "tester"), quotaOp(key, v))
}

func value(bytes int) string { return string(make([]byte, bytes)) }

func produceThrottle(b *testBroker, acks int16, bytes int) time.Duration {
	b.t.Helper()
	resp := b.do(9, produceRequest("t", acks, batch(b.t, record.BuilderOptions{}, value(bytes)))).(*kmsg.ProduceResponse)
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		b.t.Errorf("produce: %v", cluster.ErrorCode(code))
	}
	return time.Duration(resp.ThrottleMillis) * time.Millisecond
}

func TestAProducerOverItsQuotaIsAnsweredAtOnceAndMuted(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.limit("producer_byte_rate", 1000)
		if d := produceThrottle(b, 1, 5000); d != 0 {
			t.Errorf("throttled %v within what the windows take", d)
		}
		began := time.Now()
		throttle := produceThrottle(b, -1, 7000)
		if throttle < 2*second || throttle > 3*second {
			t.Errorf("throttle %v, want what brings 12 kB and a little in 10 s down to 1 kB/s", throttle)
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("answered after %v", waited)
		}
		b.do(12, kmsg.NewPtrMetadataRequest())
		if waited := time.Since(began); waited != throttle {
			t.Errorf("the next request was served after %v, want %v", waited, throttle)
		}
		// Another client is not concerned.
		other := b.dial("b0:9092", "other")
		b.closers = append(b.closers, other)
		began = time.Now()
		resp := b.doOn(other, 9, produceRequest("t", 1, batch(t, record.BuilderOptions{}, value(50_000)))).(*kmsg.ProduceResponse)
		if resp.ThrottleMillis != 0 || time.Since(began) != 0 {
			t.Errorf("another client is throttled %d ms", resp.ThrottleMillis)
		}
	})
}

func TestAProducerWithoutAcksOverItsQuotaIsMuted(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.limit("producer_byte_rate", 1000)
		began := time.Now()
		req := produceRequest("t", 0, batch(t, record.BuilderOptions{}, value(15_000)))
		b.do(9, req)
		b.do(12, kmsg.NewPtrMetadataRequest())
		if waited := time.Since(began); waited < 5*second || waited > 6*second {
			t.Errorf("the next request was served after %v, want 5 s and a little", waited)
		}
	})
}

func TestAConsumerOverItsQuotaGetsNothingUntilTheThrottleIsOver(t *testing.T) {
	inBubble(t, map[string]string{"log.retention.ms": "-1"}, func(b *testBroker) {
		b.lead("t", 1)
		for range 20 {
			b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, value(1000)))
		}
		b.limit("consumer_byte_rate", 1000)
		fetch := func(offset int64) (bytes int, throttle time.Duration) {
			resp := b.do(12, fetchRequest(12, "t", cluster.TopicID{}, 0, offset)).(*kmsg.FetchResponse)
			if resp.ErrorCode != 0 {
				t.Fatalf("fetch: %v", cluster.ErrorCode(resp.ErrorCode))
			}
			for _, topic := range resp.Topics {
				bytes += len(topic.Partitions[0].RecordBatches)
			}
			return bytes, time.Duration(resp.ThrottleMillis) * time.Millisecond
		}
		bytes, throttle := fetch(0)
		if bytes == 0 || bytes > 10_000 || throttle != 0 {
			t.Errorf("the first fetch gave %d bytes and throttle %v, want what the windows take and none", bytes, throttle)
		}
		sent := b.h.d.Replicas.TopicMetrics(10)[0].BytesOut
		began := time.Now()
		again, throttle := fetch(9)
		if again != 0 || throttle == 0 || time.Since(began) != 0 {
			t.Errorf("the second fetch gave %d bytes, throttle %v, after %v", again, throttle, time.Since(began))
		}
		if now := b.h.d.Replicas.TopicMetrics(10)[0].BytesOut; now != sent {
			t.Errorf("%d bytes count as sent that were not", now-sent)
		}
		for offset := int64(9); offset < 20 && time.Since(began) < time.Minute; {
			n, _ := fetch(offset)
			bytes += n
			offset += int64(n / 1000)
		}
		if took := time.Since(began).Seconds(); float64(bytes)/(took+10) > 1050 || bytes < 20_000 {
			t.Errorf("%d bytes in %v s and ten before", bytes, took)
		}
	})
}

// A batch larger than all windows take: Kafka would give nothing for ever.
func TestAConsumerGetsPastABatchThatIsLargerThanItsQuota(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, value(30_000)))
		b.limit("consumer_byte_rate", 1000)
		resp := b.do(12, fetchRequest(12, "t", cluster.TopicID{}, 0, 0)).(*kmsg.FetchResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions[0].RecordBatches) < 30_000 {
			t.Fatal("nothing came")
		}
		if d := resp.ThrottleMillis; d < 20_000 || d > 21_000 {
			t.Errorf("throttle %d ms, want what 30 kB take at 1 kB/s but ten seconds", d)
		}
	})
}

// Kafka: FetchSession.getThrottledResponse. What a throttled answer left out comes with the next one.
func TestAThrottledFetchLeavesItsSessionAsItWas(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		req := fetchRequest(12, "t", cluster.TopicID{}, 0, 0)
		req.SessionEpoch = 0
		first := b.do(12, req).(*kmsg.FetchResponse)
		if first.SessionID == 0 {
			t.Fatal("no session")
		}
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "v"))
		b.limit("consumer_byte_rate", 1000)
		b.h.d.Quotas.Charge(quota.Fetch, quota.Client{User: "ANONYMOUS", ID: "tester"}, 15_000, time.Now())
		next := func(epoch int32) *kmsg.FetchResponse {
			req := kmsg.NewPtrFetchRequest()
			req.ReplicaID, req.SessionID, req.SessionEpoch, req.MaxBytes = -1, first.SessionID, epoch, 1<<20
			return b.do(12, req).(*kmsg.FetchResponse)
		}
		throttled := next(1)
		if throttled.ThrottleMillis == 0 || throttled.SessionID != first.SessionID || len(throttled.Topics) != 0 || throttled.ErrorCode != 0 {
			t.Fatalf("throttled answer %+v", throttled)
		}
		// A rate that is younger than its windows is taken over all of them: one throttle is not enough.
		var got *kmsg.FetchResponse
		for epoch := int32(2); epoch < 10; epoch++ {
			if got = next(epoch); got.ThrottleMillis == 0 {
				break
			}
		}
		if got.ErrorCode != 0 || len(got.Topics) != 1 || got.Topics[0].Partitions[0].HighWatermark != 1 || len(got.Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Errorf("the next answer is %+v", got)
		}
	})
}

func TestAFollowerIsNotUnderClientQuotas(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		lists := [][]cluster.BrokerID{{0, 1}}
		b.sendLeadership("t", b.topic("t", lists...), 1, lists)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, value(30_000)))
		b.limit("consumer_byte_rate", 1)
		inter := b.dial("b0:9093", "tester")
		b.closers = append(b.closers, inter)
		req := fetchRequest(12, "t", cluster.TopicID{}, 0, 0)
		req.ReplicaID = 1
		resp := b.doOn(inter, 12, req).(*kmsg.FetchResponse)
		if resp.ThrottleMillis != 0 || len(resp.Topics[0].Partitions[0].RecordBatches) < 30_000 {
			t.Errorf("throttle %d ms, %d bytes", resp.ThrottleMillis, len(resp.Topics[0].Partitions[0].RecordBatches))
		}
	})
}

// What followers ask besides is not limited either: muted, they would fall out of the ISR.
func TestTheTimeOfAFollowersQuestionsIsNotCharged(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.limit("request_percentage", 1)
		b.h.d.Quotas.Charge(quota.Request, quota.Client{User: "ANONYMOUS", ID: "tester"}, 1000, time.Now())
		inter := b.dial("b0:9093", "tester")
		b.closers = append(b.closers, inter)
		epochs, offsets := kmsg.NewPtrOffsetForLeaderEpochRequest(), kmsg.NewPtrListOffsetsRequest()
		epochs.ReplicaID, offsets.ReplicaID = 1, 1
		if d := b.doOn(inter, 4, epochs).(*kmsg.OffsetForLeaderEpochResponse).ThrottleMillis; d != 0 {
			t.Errorf("OffsetForLeaderEpoch is throttled %d ms", d)
		}
		if d := b.doOn(inter, 5, offsets).(*kmsg.ListOffsetsResponse).ThrottleMillis; d != 0 {
			t.Errorf("ListOffsets is throttled %d ms", d)
		}
		offsets.ReplicaID = -1
		if d := b.doOn(inter, 5, offsets).(*kmsg.ListOffsetsResponse).ThrottleMillis; d == 0 {
			t.Error("a client's ListOffsets is not throttled")
		}
	})
}

func TestRequestTimeIsChargedToItsClientAndThrottledForOneWindowAtMost(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.limit("request_percentage", 1)
		began := time.Now()
		synctest.Wait()
		b.h.d.Quotas.Charge(quota.Request, quota.Client{User: "ANONYMOUS", ID: "tester"}, 1000, time.Now())
		resp := b.do(12, kmsg.NewPtrMetadataRequest()).(*kmsg.MetadataResponse)
		if resp.ThrottleMillis != 1000 || time.Since(began) != 0 {
			t.Errorf("throttle %d ms after %v", resp.ThrottleMillis, time.Since(began))
		}
		b.do(3, kmsg.NewPtrApiVersionsRequest())
		if waited := time.Since(began); waited != second {
			t.Errorf("the next request was served after %v", waited)
		}
	})
}
