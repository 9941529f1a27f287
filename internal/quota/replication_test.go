package quota

import (
	"testing"
	"time"
)

// Kafka: ReplicationQuotaManagerTest.shouldThrottleOnlyDefinedReplicas, shouldSupportWildcardThrottledReplicas.
func TestOnlyChosenReplicasOfThisBrokerAreThrottled(t *testing.T) {
	r := NewReplication(DefaultWindows, epoch)
	if r.Throttled("t", 0) || r.Active() {
		t.Error("throttled from the start")
	}
	r.SetTopic("t", ParseReplicas([]string{"0:1", "1:2", "2:1"}, 1))
	r.SetTopic("all", ParseReplicas([]string{"*"}, 1))
	for _, c := range []struct {
		topic     string
		partition int32
		want      bool
	}{{"t", 0, true}, {"t", 1, false}, {"t", 2, true}, {"all", 7, true}, {"other", 0, false}} {
		if got := r.Throttled(c.topic, c.partition); got != c.want {
			t.Errorf("%s-%d: %v", c.topic, c.partition, got)
		}
	}
	r.SetTopic("t", ParseReplicas(nil, 1))
	r.SetTopic("t", Replicas{})
	r.SetTopic("all", Replicas{})
	if r.Throttled("t", 0) || r.Active() {
		t.Error("throttled after the throttle was removed")
	}
}

// Kafka: ReplicationQuotaManagerTest.shouldExceedQuotaThenReturnBackBelowBoundAsTimePasses: 100 bytes per second over at
// most ten whole seconds and the current one.
func TestAReplicationThrottleIsExceededUntilTimeHasPassed(t *testing.T) {
	r := NewReplication(Windows{Samples: 10, Length: time.Second}, epoch)
	r.SetRate(100)
	r.Record(1, at(0))
	if r.Exceeded(at(0)) {
		t.Error("one byte exceeds")
	}
	r.Record(149, at(0))
	if !r.Exceeded(at(0)) {
		t.Error("150 bytes in the first second do not exceed")
	}
	if !r.Exceeded(at(1499*ms)) || r.Exceeded(at(1500*ms)) {
		t.Error("150 bytes are not 100 a second after one and a half seconds")
	}
	r.SetRate(NoReplicationLimit)
	r.Record(1<<40, at(1500*ms))
	if r.Exceeded(at(1500 * ms)) {
		t.Error("exceeded without a limit")
	}
}
