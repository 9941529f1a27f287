package replica

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/config"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

var tpT = cluster.TopicPartition{Topic: "t"}

// withBroker runs fn with a running broker under fake time.
func withBroker(t *testing.T, o brokerOptions, fn func(t *testing.T, b *testBroker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t, o)
		stop := b.start()
		fn(t, b)
		stop()
	})
}

func minISR(n int) func(*config.LogConfig) {
	return func(c *config.LogConfig) { c.MinInSyncReplicas = n }
}

func TestProduceAnswers(t *testing.T) {
	ok := AppendResult{BaseOffset: 0, LogAppendTime: -1, LogStartOffset: 0}
	failed := func(code cluster.ErrorCode) AppendResult {
		return AppendResult{Err: code, BaseOffset: -1, LogAppendTime: -1, LogStartOffset: -1}
	}
	withLeader := func(r AppendResult, leader cluster.BrokerID, epoch cluster.LeaderEpoch) AppendResult {
		r.CurrentLeader = &LeaderIDAndEpoch{leader, epoch}
		return r
	}
	internal := cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic}
	for _, tc := range []struct {
		name    string
		states  []leadState
		acks    int16
		tp      cluster.TopicPartition
		allowed bool
		minISR  int
		records []byte
		want    AppendResult
		waits   bool // for followers: not answered yet
	}{
		{name: "acks 0", acks: 0, tp: tpT, want: ok},
		{name: "acks 1", acks: 1, tp: tpT, want: ok},
		{name: "acks -1 with one replica", acks: -1, tp: tpT, want: ok},
		{name: "acks -1 with one replica and a larger min.insync.replicas", acks: -1, tp: tpT, minISR: 2, want: ok},
		{name: "acks 2", acks: 2, tp: tpT, want: failed(cluster.InvalidRequiredAcks)},
		{name: "unknown partition", acks: 1, tp: testTP(7), want: failed(cluster.UnknownTopicOrPartition)},
		{name: "follower", acks: 1, tp: tpT, states: []leadState{{topic: "t", leader: 2, le: 3, isr: []int32{1, 2}, isNew: true}}, want: withLeader(failed(cluster.NotLeaderOrFollower), 2, 3)},
		{name: "internal topic", acks: 1, tp: internal, states: []leadState{{topic: internal.Topic, leader: 1, isr: []int32{1}, isNew: true}}, want: failed(cluster.InvalidTopicException)},
		{name: "internal topic, allowed", acks: 1, tp: internal, allowed: true, states: []leadState{{topic: internal.Topic, leader: 1, isr: []int32{1}, isNew: true}}, want: ok},
		{name: "too few in sync before the append", acks: -1, minISR: 2, tp: tpT, states: []leadState{{topic: "t", leader: 1, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true}}, want: AppendResult{Err: cluster.NotEnoughReplicas, BaseOffset: -1, LogAppendTime: -1}},
		{name: "too few in sync do not matter to acks 1", acks: 1, minISR: 2, tp: tpT, states: []leadState{{topic: "t", leader: 1, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true}}, want: ok},
		{name: "followers in sync are waited for", acks: -1, tp: tpT, states: []leadState{{topic: "t", leader: 1, isr: []int32{1, 2}, isNew: true}}, waits: true},
		{name: "garbage", acks: 1, tp: tpT, records: make([]byte, 80), want: failed(cluster.CorruptMessage)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{logConfig: minISR(max(tc.minISR, 1))})
			b.alive(1, 2)
			if tc.states == nil {
				tc.states = []leadState{{topic: "t", leader: 1, isr: []int32{1}, isNew: true}}
			}
			b.lead(tc.states...)
			a := &answer[AppendResult]{}
			if tc.records == nil {
				tc.records = testBatch("a", "b")
			}
			b.Append(AppendRequest{Acks: tc.acks, Timeout: time.Hour, InternalTopicsAllowed: tc.allowed, Partitions: []AppendPartition{{TP: tc.tp, Records: tc.records}}}, a.set)
			got, done := a.result()
			if done == tc.waits {
				t.Fatalf("answered: %v", done)
			}
			got.ErrMessage = ""
			if diff := cmp.Diff(tc.want, got); done && diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAcksFromAllInSyncReplicasCompleteAProduce(t *testing.T) {
	withBroker(t, brokerOptions{}, func(t *testing.T, b *testBroker) {
		b.alive(1, 2, 3)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2, 3}, isNew: true})
		a := b.produce(-1, tpT, "x", "y")
		b.follow(2, tpT, 2)
		if _, done := a.result(); done {
			t.Fatal("answered with one follower's ack")
		}
		b.follow(3, tpT, 2)
		if r, done := a.result(); !done || r.Err != cluster.None || r.BaseOffset != 0 {
			t.Fatalf("answered %v: %+v", done, r)
		}
		late := b.produce(-1, tpT, "z")
		<-time.After(31 * time.Second)
		synctest.Wait()
		if r, done := late.result(); !done || r.Err != cluster.RequestTimedOut || r.BaseOffset != 2 {
			t.Fatalf("answered %v: %+v", done, r)
		}
		if !b.produces.empty() {
			t.Error("purgatory is not empty")
		}
	})
}

func TestWaitingProduceEndsWithTheLeadership(t *testing.T) {
	for _, tc := range []struct {
		name string
		act  func(b *testBroker)
		want cluster.ErrorCode
	}{
		{"another leader", func(b *testBroker) { b.lead(leadState{topic: "t", leader: 2, le: 1, isr: []int32{1, 2}}) }, cluster.NotLeaderOrFollower},
		{"deletion", func(b *testBroker) {
			b.HandleStopReplica(stopRequest(3, false, stop{tp: tpT, epoch: -2, delete: true}))
		}, cluster.UnknownTopicOrPartition},
		{"deletion and creation of the same name", func(b *testBroker) {
			b.HandleStopReplica(stopRequest(3, false, stop{tp: tpT, epoch: -2, delete: true}))
			b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2}, isNew: true})
		}, cluster.UnknownTopicOrPartition},
		{"ISR below min.insync.replicas after the append", func(b *testBroker) {
			b.lead(leadState{topic: "t", leader: 1, le: 1, pe: 1, isr: []int32{1}, replicas: []int32{1, 2}})
			p, _ := b.Partition(tpT)
			p.mu.log.MaybeIncrementHighWatermark(1) // a watermark that moved before the ISR shrank
			b.wakeAll(tpT)
		}, cluster.NotEnoughReplicasAfterAppend},
		{"failed disk", func(b *testBroker) { b.OnLogDirFailure("/disk1", errDisk) }, cluster.KafkaStorageError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{logConfig: minISR(2)})
			b.alive(1, 2)
			b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2}, isNew: true})
			a := b.produce(-1, tpT, "x")
			if _, done := a.result(); done {
				t.Fatal("answered at once")
			}
			tc.act(b)
			if r, done := a.result(); !done || r.Err != tc.want {
				t.Errorf("answered %v: %v, want %v", done, r.Err, tc.want)
			}
		})
	}
}

func TestFailedDiskTakesItsPartitionsOffline(t *testing.T) {
	withBroker(t, brokerOptions{}, func(t *testing.T, b *testBroker) {
		b.alive(1)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
		b.faults.set(true)
		if r, _ := b.produce(1, tpT, "x").result(); r.Err != cluster.KafkaStorageError {
			t.Errorf("produce on a failing disk: %v", r.Err)
		}
		<-time.After(time.Second)
		synctest.Wait()
		if _, hosted := b.Partition(tpT); hosted != HostedOffline || !cmp.Equal(b.dirs, []string{"/disk1"}) {
			t.Errorf("hosted %v, failed dirs told %v", hosted, b.dirs)
		}
		if r, _ := b.produce(1, tpT, "x").result(); r.Err != cluster.KafkaStorageError {
			t.Errorf("produce to an offline partition: %v", r.Err)
		}
		if m := b.Metrics(); m.OfflineReplicaCount != 1 || m.LeaderCount != 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

func TestProduceOfOneBatchAllocatesLittle(t *testing.T) {
	b := newTestBroker(t, brokerOptions{plainDisk: true, logConfig: func(c *config.LogConfig) { c.SegmentBytes = 1 << 30 }})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
	batch := testBatch("value")
	sent := append([]byte(nil), batch...)
	parts := []AppendPartition{{TP: tpT, Records: sent}}
	var failed cluster.ErrorCode
	done := func(rs []AppendResult) { failed = rs[0].Err }
	got := testing.AllocsPerRun(200, func() {
		copy(sent, batch)
		b.Append(AppendRequest{Acks: -1, Timeout: time.Second, Partitions: parts}, done)
	})
	if failed != cluster.None || got > 2 {
		t.Errorf("%v allocations, code %v; want at most 2", got, failed)
	}
}

// What holds the high watermark may end without a fetch, an append or a request of the controller: the time in which a follower out of sync
// counts as caught up, or a setting. Then there need not be another append.
func TestTheHighWatermarkGoesOnByItself(t *testing.T) {
	for name, tc := range map[string]struct {
		isr     []int32
		minISR  int
		prepare func(b *testBroker)
		end     func(b *testBroker)
	}{
		"a follower that was about to join has stopped": {[]int32{1, 2}, 1, func(b *testBroker) {
			b.follow(3, tpT, 0)
			synctest.Wait() // the controller refuses it
			b.produce(1, tpT, "x")
			b.follow(2, tpT, 1)
		}, func(*testBroker) {}},
		"min.insync.replicas is lowered": {[]int32{1}, 2, func(b *testBroker) {
			b.produce(1, tpT, "x")
		}, func(b *testBroker) { b.configure(minISR(1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			c := &scriptedController{answers: []func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error){answerAll(cluster.IneligibleReplica)}}
			withBroker(t, brokerOptions{logConfig: minISR(tc.minISR), controller: c}, func(t *testing.T, b *testBroker) {
				b.alive(1, 2, 3)
				b.lead(leadState{topic: "t", leader: 1, isr: tc.isr, replicas: []int32{1, 2, 3}, isNew: true})
				tc.prepare(b)
				if s := b.state(tpT); s.HighWatermark != 0 {
					t.Fatalf("high watermark %d, though it is held", s.HighWatermark)
				}
				consumer := b.consume(time.Hour, fetchPart(tpT, 0))
				tc.end(b)
				pass(time.Minute)
				if s := b.state(tpT); s.HighWatermark != 1 {
					t.Errorf("high watermark %d after a minute", s.HighWatermark)
				}
				if r, done := consumer.result(); !done || !slices.Equal(values(t, r), []string{"x"}) {
					t.Errorf("the consumer was answered %t", done)
				}
			})
		})
	}
}

func TestAcksGoOnWhenAFollowerThatWasAboutToJoinIsGone(t *testing.T) {
	// The controller does not let a broker that is about to stop back into the ISR.
	c := &scriptedController{answers: []func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error){answerAll(cluster.IneligibleReplica)}}
	withBroker(t, brokerOptions{logConfig: minISR(2), controller: c}, func(t *testing.T, b *testBroker) {
		b.alive(1, 2, 3)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2, 3}, isNew: true})
		b.follow(2, tpT, 0)
		// A controlled shutdown takes broker 3 out of the ISR; it is alive and was caught up a moment ago.
		b.lead(leadState{topic: "t", leader: 1, le: 1, pe: 1, isr: []int32{1, 2}, replicas: []int32{1, 2, 3}})
		b.follow(3, tpT, 0)
		synctest.Wait()
		a := b.produce(-1, tpT, "x")
		b.follow(2, tpT, 1)
		if r, done := a.result(); done {
			t.Fatalf("answered while a live follower was expected to join: %+v", r)
		}
		b.alive(1, 2)
		if r, done := a.result(); !done || r.Err != cluster.None {
			t.Errorf("answered %v: %+v", done, r)
		}
	})
}

// A request to two partitions whose first one changes hands and comes back, with other records, while the disk holds up the
// append to the second: nobody has the request's records then, and they are not acknowledged.
func TestRecordsOfALostLeadershipAreNotAcknowledged(t *testing.T) {
	withBroker(t, brokerOptions{}, func(t *testing.T, b *testBroker) {
		tpU := cluster.TopicPartition{Topic: "u"}
		b.alive(1, 2)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2}, isNew: true}, leadState{topic: "u", leader: 1, isr: []int32{1}, isNew: true})
		var once sync.Once
		b.faults.before = func(op vfs.Op) {
			if !strings.HasPrefix(op.Name, "u-0") {
				return
			}
			once.Do(func() {
				b.lead(leadState{topic: "t", leader: 2, le: 1, pe: 1, isr: []int32{1, 2}})
				p, _ := b.Partition(tpT)
				if err := p.asFollower(1, func(log *commitlog.Log) error { _, err := log.TruncateTo(0); return err }); err != nil {
					t.Error(err)
				}
				theirs := testBatch("theirs")
				record.Assign(theirs, 0, 1, -1)
				_, err := p.appendAsFollower(&FetchPartition{CurrentLeaderEpoch: 1}, &kmsg.FetchResponseTopicPartition{RecordBatches: theirs})
				if err != nil {
					t.Error(err)
				}
				b.lead(leadState{topic: "t", leader: 1, le: 2, pe: 2, isr: []int32{1}, replicas: []int32{1, 2}})
			})
		}
		a := &answer[AppendResult]{}
		b.Append(AppendRequest{Acks: -1, Timeout: time.Minute, Partitions: []AppendPartition{{TP: tpT, Records: testBatch("ours")}, {TP: tpU, Records: testBatch("x")}}}, a.set)
		pass(time.Second)
		log := b.log(tpT)
		if r, done := a.result(); !done || r.Err != cluster.NotLeaderOrFollower || !slices.Equal(log, []string{"theirs"}) {
			t.Errorf("answered %t with %v, log %v; want %v and theirs", done, r.Err, log, cluster.NotLeaderOrFollower)
		}
	})
}

// log reads all of the broker's log of a partition.
func (b *testBroker) log(tp cluster.TopicPartition) []string {
	b.t.Helper()
	log, _, code := b.LeaderLog(tp)
	if code != cluster.None {
		b.t.Fatal(code)
	}
	return readAll(b.t, log)
}
