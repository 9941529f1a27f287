package replica

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/record"
)

// withCluster runs fn with n running brokers under fake time.
func withCluster(t *testing.T, n int, shape func(*testCluster), fn func(t *testing.T, c *testCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, n)
		if shape != nil {
			shape(c)
		}
		for i := 1; i <= n; i++ {
			c.boot(cluster.BrokerID(i))
		}
		fn(t, c)
		c.stopAll()
	})
}

// pass lets fake time go by until everything has come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *testCluster) produce(tp cluster.TopicPartition, acks int16, values ...string) *answer[AppendResult] {
	a := &answer[AppendResult]{}
	if m := c.leader(tp); m != nil {
		m.Append(AppendRequest{Acks: acks, Timeout: 30 * time.Second, Partitions: []AppendPartition{{TP: tp, Records: testBatch(values...)}}}, a.set)
	}
	return a
}

// log reads all of a broker's log of the partition.
func (c *testCluster) log(id cluster.BrokerID, tp cluster.TopicPartition) []string {
	c.t.Helper()
	log, known := c.brokers[id].logs.Get(tp)
	if !known {
		return nil
	}
	return readAll(c.t, log)
}

func TestFollowersCopyTheirLeaders(t *testing.T) {
	withCluster(t, 3, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2, 3)
		a := c.produce(tpT, -1, "a", "b")
		pass(2 * time.Second)
		if r, done := a.result(); !done || r.Err != cluster.None {
			t.Fatalf("answered %v: %+v", done, r)
		}
		for id := cluster.BrokerID(1); id <= 3; id++ {
			p, _ := c.brokers[id].m.Partition(tpT)
			if s := p.State(); s.HighWatermark != 2 || !slices.Equal(c.log(id, tpT), []string{"a", "b"}) {
				t.Errorf("broker %d: %+v, log %v", id, s, c.log(id, tpT))
			}
		}
	})
}

func TestNewPartitionsDoNotWaitForAFetchersPoll(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		pass(10*time.Second + 100*time.Millisecond) // the follower is in the middle of a poll
		for i := 1; i < 4; i++ {
			start := time.Now()
			c.create(testTP(i), 1, 2)
			a := &answer[AppendResult]{}
			acked := make(chan time.Time, 1)
			c.leader(testTP(i)).Append(AppendRequest{Acks: -1, Timeout: time.Minute, Partitions: []AppendPartition{{TP: testTP(i), Records: testBatch("x")}}}, func(rs []AppendResult) {
				a.set(rs)
				acked <- time.Now()
			})
			if took := (<-acked).Sub(start); took > 2*expressWait {
				t.Errorf("acked after %v", took)
			}
		}
		pass(time.Minute)
		m := c.brokers[2].m
		if got := m.Metrics(); got.Fetchers != 1 {
			t.Errorf("%d fetchers are left, want the main one", got.Fetchers)
		}
		// Sessions of fetchers that have ended would keep those of consumers out.
		if got := c.brokers[1].sessions.Stats(); got.Sessions != 1 {
			t.Errorf("%d fetch sessions are left at the leader, want the main fetcher's", got.Sessions)
		}
	})
}

func TestAFollowerThatHeardFirstDoesNotWaitLong(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		pass(10 * time.Second)
		tp := testTP(1)
		c.mu.Lock()
		c.truth[tp] = &partitionTruth{replicas: []int32{1, 2}, fresh: true, state: cluster.LeaderAndISR{Leader: 1, ISR: []cluster.BrokerID{1, 2}}}
		follower, leader := c.leaderAndISRLocked(2, []cluster.TopicPartition{tp}), c.leaderAndISRLocked(1, []cluster.TopicPartition{tp})
		c.mu.Unlock()
		c.brokers[2].m.HandleLeaderAndISR(follower, 0)
		pass(100 * time.Millisecond)
		c.brokers[1].m.HandleLeaderAndISR(leader, 0)
		start := time.Now()
		acked := make(chan time.Time, 1)
		c.leader(tp).Append(AppendRequest{Acks: -1, Timeout: time.Minute, Partitions: []AppendPartition{{TP: tp, Records: testBatch("x")}}}, func([]AppendResult) { acked <- time.Now() })
		if took := (<-acked).Sub(start); took > 200*time.Millisecond {
			t.Errorf("acked after %v", took)
		}
	})
}

func TestFollowerCutsWhatItsNewLeaderLacks(t *testing.T) {
	for _, versions := range []Versions{DefaultVersions(), {Fetch: 11, ListOffsets: 5, OffsetForLeaderEpoch: 3, AlterPartition: 3}} {
		name := "by fetching"
		if !versions.TruncationOnFetch {
			name = "by asking for epochs"
		}
		t.Run(name, func(t *testing.T) {
			withCluster(t, 3, func(c *testCluster) { c.versions = versions }, func(t *testing.T, c *testCluster) {
				c.create(tpT, 1, 2, 3)
				c.produce(tpT, -1, "a")
				pass(time.Second)
				c.kill(2, "kill", 0)
				c.kill(3, "kill", 0)
				c.produce(tpT, 1, "lost1", "lost2") // broker 1 is the only ISR member now
				p, _ := c.brokers[1].m.Partition(tpT)
				if got := p.State().LogEndOffset; got != 3 {
					t.Fatalf("log end %d", got)
				}
				// An unclean election, which the controller of this test does not make by itself.
				c.kill(1, "kill", 0)
				c.mu.Lock()
				c.truth[tpT].state.ISR = []cluster.BrokerID{2}
				c.mu.Unlock()
				c.boot(2)
				c.produce(tpT, 1, "b")
				c.boot(3)
				c.boot(1)
				pass(5 * time.Second)
				for id := cluster.BrokerID(1); id <= 3; id++ {
					if got := c.log(id, tpT); !slices.Equal(got, []string{"a", "b"}) {
						t.Errorf("broker %d has %v", id, got)
					}
				}
				if isr := c.isr(tpT); len(isr) != 3 {
					t.Errorf("ISR %v", isr)
				}
			})
		})
	}
}

func TestFollowerBehindTheLeadersStartBeginsAnew(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		c.produce(tpT, -1, "a", "b")
		pass(time.Second)
		c.kill(2, "clean", 0)
		for _, v := range []string{"c", "d", "e"} {
			c.produce(tpT, 1, v)
		}
		c.leader(tpT).DeleteRecords(time.Second, false, []DeleteRecordsPartition{{tpT, 4}}, func([]DeleteRecordsResult) {})
		c.boot(2)
		pass(5 * time.Second)
		p, _ := c.brokers[2].m.Partition(tpT)
		s := p.State()
		if s.LogStartOffset != 4 || s.LogEndOffset != 5 || s.HighWatermark != 5 {
			t.Errorf("state %+v", s)
		}
		if got := c.log(2, tpT); !slices.Equal(got, []string{"e"}) {
			t.Errorf("log %v", got)
		}
	})
}

func TestConsumersMayReadFromFollowers(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		pass(time.Second)
		a := &answer[FetchResult]{}
		c.brokers[2].m.Fetch(FetchRequest{ReplicaID: -1, FollowersToo: true, MinBytes: 1, MaxBytes: 1000, MaxWait: time.Minute, Partitions: []FetchPartition{fetchPart(tpT, 0)}}, a.set)
		c.produce(tpT, -1, "x")
		pass(2 * time.Second)
		r, done := a.result()
		if got := values(t, r); !done || !slices.Equal(got, []string{"x"}) {
			t.Errorf("answered %v: %v", done, got)
		}
	})
}

func TestFetchersChangeInNumber(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		for i := range 16 {
			c.create(testTP(i), 1, 2)
		}
		pass(time.Second)
		m := c.brokers[2].m
		m.SetNumFetchers(4)
		for i := range 16 {
			c.produce(testTP(i), -1, "x")
		}
		pass(time.Second)
		for i := range 16 {
			if got := c.log(2, testTP(i)); !slices.Equal(got, []string{"x"}) {
				t.Errorf("partition %d has %v", i, got)
			}
		}
		if got := m.Metrics().Fetchers; got != 4 {
			t.Errorf("%d fetchers", got)
		}
		m.SetNumFetchers(1)
		pass(time.Second)
		if got := m.Metrics(); got.Fetchers != 1 || got.MaxLag != 0 {
			t.Errorf("metrics %+v", got)
		}
	})
}

func TestStoppedPartitionsAreNotFollowed(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		pass(time.Second)
		c.brokers[2].m.HandleStopReplica(stopRequest(3, false, stop{tp: tpT, epoch: -2, delete: true}), 0)
		pass(time.Second)
		if got := c.brokers[2].m.Metrics(); got.Fetchers != 0 || got.PartitionCount != 0 {
			t.Errorf("metrics %+v", got)
		}
		if diff := cmp.Diff([]cluster.BrokerID{1, 2}, c.isr(tpT)); diff != "" {
			t.Errorf("ISR (-want +got):\n%s", diff)
		}
		pass(time.Second)
	})
}

// Logs of brokers whose cluster state was restored from an old copy may have epochs that the leader never had. Such a follower cannot go
// on, and must not ask without a pause.
func TestAFollowerWithAnEpochThatItsLeaderNeverHadPauses(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		c.produce(tpT, -1, "a")
		pass(2 * time.Second)
		c.produce(tpT, -1, "b")
		pass(2 * time.Second)
		p, _ := c.brokers[2].m.Partition(tpT)
		later := testBatch("b")
		record.Assign(later, 1, 10, -1)
		if err := p.asFollower(p.State().LeaderEpoch, func(log *commitlog.Log) error {
			_, err := log.TruncateTo(1)
			if err == nil {
				_, err = log.AppendAsFollower(later)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.truth[tpT].bump()
		c.tellLocked([]cluster.TopicPartition{tpT})
		c.mu.Unlock()
		before := c.brokers[1].m.Metrics().FetchRequests
		pass(10 * time.Second)
		if n := c.brokers[1].m.Metrics().FetchRequests - before; n < 5 || n > 30 {
			t.Errorf("%d fetches in ten seconds", n)
		}
	})
}

// A leader that is about to stop lets no fetch wait. Its followers do not ask as fast as they can until it is gone: it has its logs to close.
func TestFollowersPauseWhenTheirLeaderAnswersAtOnce(t *testing.T) {
	withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
		c.create(tpT, 1, 2)
		c.produce(tpT, -1, "a")
		pass(2 * time.Second)
		leader := c.brokers[1].m
		leader.AnswerFetches()
		before := leader.Metrics().FetchRequests
		pass(time.Second)
		if n := leader.Metrics().FetchRequests - before; n < 10 || n > 100 {
			t.Errorf("%d fetches in a second", n)
		}
		// What is new still comes at once.
		a := c.produce(tpT, -1, "b")
		pass(2 * firstBackoff)
		if r, done := a.result(); !done || r.Err != cluster.None {
			t.Errorf("answered %t: %+v", done, r)
		}
	})
}
