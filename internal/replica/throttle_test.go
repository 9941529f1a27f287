package replica

import (
	"strings"
	"testing"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/quota"
)

const (
	throttledRate  = 200_000 // bytes per second
	throttledValue = 400_000 // bytes of a record
	throttledCount = 10
)

// catchUpUnder has a follower come back to ten records of 400 kB under a throttle of 200 kB/s, which either side keeps, and
// returns how long it takes; one answer holds a megabyte.
func catchUpUnder(t *testing.T, replicas []string, side string) (took time.Duration) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		pass(2 * time.Second)
		c.kill(2, "clean", 0)
		pass(time.Second)
		value := strings.Repeat("x", throttledValue)
		for range throttledCount {
			c.produce(tpT, 1, value)
		}
		throttle := func(id int32) *quota.Replication {
			r := quota.NewReplication(quota.DefaultWindows, time.Now())
			r.SetRate(throttledRate)
			r.SetTopic(tpT.Topic, quota.ParseReplicas(replicas, id))
			return r
		}
		if side == "follower" {
			c.brokers[2].followerThrottle = throttle(2)
		} else {
			c.brokers[1].m.env.throttle = throttle(1)
		}
		began := time.Now()
		c.boot(2)
		for copied := 0; copied < throttledCount && time.Since(began) < 2*time.Minute; copied = len(c.log(2, tpT)) {
			pass(100 * time.Millisecond)
			most := int(time.Since(began).Seconds()*throttledRate) + 3*throttledValue // the first answer, and one for what is just free
			if got := copied * throttledValue; replicas != nil && got > most {
				t.Errorf("%d bytes copied after %v", got, time.Since(began))
			}
		}
		took = time.Since(began)
		// In sync again it is not held, however much was used.
		pass(2 * time.Second)
		if isr := c.isr(tpT); len(isr) != 2 {
			t.Fatalf("ISR %v", isr)
		}
		for range 5 {
			c.produce(tpT, -1, value)
		}
		pass(time.Second)
		if got := len(c.log(2, tpT)); got != throttledCount+5 {
			t.Errorf("a follower in sync has %d of %d records after a second", got, throttledCount+5)
		}
	})
	return took
}

// KIP-73. Kafka: ReplicationQuotasTest.shouldThrottleOldSegments and its siblings.
func TestThrottledReplicasCatchUpAtTheirRateAndNotSlower(t *testing.T) {
	const least, most = 12 * time.Second, 25 * time.Second // 4 MB at 200 kB/s, a megabyte of it at once
	for _, c := range []struct {
		name, side string
		replicas   []string
		throttled  bool
	}{
		{"the leader's, all", "leader", []string{"*"}, true},
		{"the leader's, by name", "leader", []string{"0:1"}, true},
		{"the follower's, by name", "follower", []string{"0:2"}, true},
		{"of another partition", "leader", []string{"1:1"}, false},
		{"of another broker", "follower", []string{"0:1"}, false},
		{"of none", "leader", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			took := catchUpUnder(t, c.replicas, c.side)
			if c.throttled && (took < least || took > most) || !c.throttled && took > 2*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Kafka: ReplicaManagerQuotasTest.testCompleteInDelayedFetchWithReplicaThrottling.
func TestAThrottledFollowersFetchWaitsWithItsOtherPartitions(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		other := cluster.TopicPartition{Topic: "other"}
		c.create(tpT, 1, 2)
		c.create(other, 1, 2)
		pass(2 * time.Second)
		c.kill(2, "clean", 0)
		pass(time.Second)
		c.produce(tpT, 1, "held")
		m := c.leader(tpT)
		m.env.throttle.SetTopic(tpT.Topic, quota.Replicas{All: true})
		m.env.throttle.SetRate(1)
		m.env.throttle.Record(1000, time.Now())
		a := &answer[FetchResult]{}
		m.Fetch(FetchRequest{ReplicaID: 2, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Minute, Partitions: []FetchPartition{fetchPart(tpT, 0), fetchPart(other, 0)}}, a.set)
		pass(5 * time.Second)
		if _, done := a.result(); done {
			t.Fatal("answered though the only data is held")
		}
		c.produce(other, 1, "free")
		pass(time.Millisecond)
		_, done := a.result()
		got := a.got
		if !done || got[0].Records != nil || got[0].HighWatermark < 0 || got[1].Records == nil {
			t.Errorf("answered %v: %+v", done, got)
		}
		releaseAll(got)
	})
}
