package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/record"
)

// values reads the record values out of a result and releases it.
func values(t testing.TB, r FetchResult) []string {
	t.Helper()
	if r.Records == nil {
		return nil
	}
	raw := make([]byte, r.Records.Len())
	if _, err := r.Records.ReadInto(raw); err != nil {
		t.Fatal(err)
	}
	r.Records.Release()
	var out []string
	for len(raw) > 0 {
		batch, rest, err := record.NextBatch(raw)
		if err != nil {
			break
		}
		raw = rest
		if err := batch.ForEach(0, func(rec *record.Record) error {
			out = append(out, string(rec.Value))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func fetchPart(tp cluster.TopicPartition, offset int64) FetchPartition {
	return FetchPartition{TP: tp, CurrentLeaderEpoch: -1, FetchOffset: offset, LastFetchedEpoch: -1, LogStartOffset: -1, MaxBytes: 1 << 20}
}

func (b *testBroker) consume(wait time.Duration, parts ...FetchPartition) *answer[FetchResult] {
	a := &answer[FetchResult]{}
	b.Fetch(FetchRequest{ReplicaID: -1, MaxWait: wait, MinBytes: 1, MaxBytes: 1 << 20, Partitions: parts}, a.set)
	return a
}

func TestFetchAnswers(t *testing.T) {
	id := cluster.NewTopicID()
	none := func(code cluster.ErrorCode) FetchResult {
		return FetchResult{Err: code, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1}
	}
	withLeader := func(r FetchResult, leader cluster.BrokerID, epoch cluster.LeaderEpoch) FetchResult {
		r.CurrentLeader = &LeaderIDAndEpoch{leader, epoch}
		return r
	}
	at := func(hw int64) FetchResult {
		return FetchResult{HighWatermark: hw, LastStableOffset: hw, PreferredReadReplica: -1}
	}
	led := leadState{topic: "t", id: id, leader: 1, le: 5, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true}
	uncommitted := led
	uncommitted.isr = []int32{1, 2}
	for _, tc := range []struct {
		name    string
		state   leadState // default led: broker 2 is a replica out of sync
		replica cluster.BrokerID
		follow  bool // consumers may read from followers
		part    func(*FetchPartition)
		want    FetchResult
		values  []string
	}{
		{name: "consumer", want: at(2), values: []string{"a", "b"}},
		{name: "consumer with the right epoch and id", part: func(p *FetchPartition) { p.CurrentLeaderEpoch, p.TopicID = 5, id }, want: at(2), values: []string{"a", "b"}},
		{name: "at the end", part: func(p *FetchPartition) { p.FetchOffset = 2 }, want: at(2)},
		{name: "beyond the end", part: func(p *FetchPartition) { p.FetchOffset = 3 }, want: none(cluster.OffsetOutOfRange)},
		{name: "old leader epoch", part: func(p *FetchPartition) { p.CurrentLeaderEpoch = 4 }, want: withLeader(none(cluster.FencedLeaderEpoch), 1, 5)},
		{name: "future leader epoch", part: func(p *FetchPartition) { p.CurrentLeaderEpoch = 6 }, want: none(cluster.UnknownLeaderEpoch)},
		{name: "another topic id", part: func(p *FetchPartition) { p.TopicID = cluster.NewTopicID() }, want: none(cluster.InconsistentTopicID)},
		{name: "unknown topic id", part: func(p *FetchPartition) { p.TopicID, p.TP.Topic = cluster.NewTopicID(), "" }, want: none(cluster.UnknownTopicID)},
		{name: "unknown partition", part: func(p *FetchPartition) { p.TP.Partition = 9 }, want: none(cluster.UnknownTopicOrPartition)},
		{name: "consumer at a follower", state: leadState{topic: "t", id: id, leader: 2, le: 5, isr: []int32{1, 2}, isNew: true}, want: withLeader(none(cluster.NotLeaderOrFollower), 2, 5)},
		{name: "consumer that may read from followers", follow: true, state: leadState{topic: "t", id: id, leader: 2, le: 5, isr: []int32{1, 2}, isNew: true}, want: at(0)},
		{name: "debugger", replica: -2, want: at(2), values: []string{"a", "b"}},
		{name: "debugger where nothing is committed", replica: -2, state: uncommitted, want: at(0)},
		{name: "follower where nothing is committed", replica: 2, state: uncommitted, want: at(0), values: []string{"a", "b"}},
		{name: "debugger at a follower", replica: -2, state: leadState{topic: "t", id: id, leader: 2, le: 5, isr: []int32{1, 2}, isNew: true}, want: withLeader(none(cluster.NotLeaderOrFollower), 2, 5)},
		{name: "follower", replica: 2, want: at(2), values: []string{"a", "b"}},
		{name: "follower that is no replica", replica: 3, want: withLeader(none(cluster.NotLeaderOrFollower), 1, 5)},
		{name: "follower that is no replica but knows the epoch", replica: 3, part: func(p *FetchPartition) { p.CurrentLeaderEpoch = 5 }, want: none(cluster.UnknownLeaderEpoch)},
		{name: "follower at a follower", replica: 3, state: leadState{topic: "t", id: id, leader: 2, le: 5, isr: []int32{1, 2}, isNew: true}, want: withLeader(none(cluster.NotLeaderOrFollower), 2, 5)},
		{name: "last fetched epoch agrees", replica: 2, part: func(p *FetchPartition) { p.LastFetchedEpoch = 5 }, want: at(2), values: []string{"a", "b"}},
		{name: "last fetched epoch is before the first here", replica: 2, part: func(p *FetchPartition) { p.LastFetchedEpoch = 3 }, want: at(2), values: []string{"a", "b"}},
		{name: "last fetched epoch is later than any here", replica: 2, part: func(p *FetchPartition) { p.LastFetchedEpoch = 7 }, want: none(cluster.OffsetOutOfRange)},
		{name: "last fetched epoch ends before the offset", replica: 2, part: func(p *FetchPartition) { p.LastFetchedEpoch, p.FetchOffset = 5, 9 }, want: FetchResult{
			HighWatermark: 2, LastStableOffset: 2, PreferredReadReplica: -1, Diverging: &EpochEndOffset{LeaderEpoch: 5, EndOffset: 2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{})
			b.alive(1, 2, 3)
			if tc.state.topic == "" {
				tc.state = led
			}
			b.HandleLeaderAndISR(leaderAndISRRequest(7, tc.state))
			b.produce(1, tpT, "a", "b")
			part := fetchPart(tpT, 0)
			if tc.part != nil {
				tc.part(&part)
			}
			if tc.replica == 0 {
				tc.replica = -1
			}
			a := &answer[FetchResult]{}
			b.Fetch(FetchRequest{ReplicaID: tc.replica, FollowersToo: tc.follow, MaxBytes: 1000, Partitions: []FetchPartition{part}}, a.set)
			got, _ := a.result()
			if diff := cmp.Diff(tc.values, values(t, got)); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			got.Records = nil
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(FetchResult{})); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFetchFindsAnEpochThatTheLeaderNeverHad(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1, 2)
	b.lead(leadState{topic: "t", leader: 1, le: 3, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true})
	b.produce(1, tpT, "a")
	b.lead(leadState{topic: "t", leader: 1, le: 6, pe: 1, isr: []int32{1}, replicas: []int32{1, 2}})
	part := fetchPart(tpT, 1)
	part.LastFetchedEpoch = 5
	a := &answer[FetchResult]{}
	b.Fetch(FetchRequest{ReplicaID: 2, MaxWait: time.Hour, MinBytes: 1, MaxBytes: 1000, Partitions: []FetchPartition{part}}, a.set)
	want := FetchResult{HighWatermark: 1, LastStableOffset: 1, PreferredReadReplica: -1, Diverging: &EpochEndOffset{LeaderEpoch: 3, EndOffset: 1}}
	got, _ := a.result()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(FetchResult{})); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if p, _ := b.Partition(tpT); p.Followers()[0].EndOffset != -1 {
		t.Errorf("a diverging fetch was noted as progress: %+v", p.Followers())
	}
}

func TestFetchLimitsGivePartitionsInOrder(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	var states []leadState
	for i := range int32(4) {
		states = append(states, leadState{topic: "t", partition: i, leader: 1, isr: []int32{1}, isNew: true})
	}
	b.lead(states...)
	size := int32(len(testBatch("a")))
	for i := 1; i < 4; i++ {
		b.produce(1, testTP(i), "a")
		b.produce(1, testTP(i), "b")
	}
	for _, tc := range []struct {
		name         string
		max, partMax int32
		want         []int // batches of partitions 0 to 3
	}{
		{"room for all", 100 * size, 100 * size, []int{0, 2, 2, 2}},
		{"the first batch comes whatever the limits", 1, 1, []int{0, 1, 0, 0}},
		{"partition limit", 100 * size, size, []int{0, 1, 1, 1}},
		{"request limit", 3 * size, 100 * size, []int{0, 2, 1, 0}},
		{"partition limit below a batch starves all but the first", 100 * size, size - 1, []int{0, 1, 0, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var parts []FetchPartition
			for i := range 4 {
				p := fetchPart(testTP(i), 0)
				p.MaxBytes = tc.partMax
				parts = append(parts, p)
			}
			var got []int
			b.Fetch(FetchRequest{ReplicaID: -1, MinBytes: 1, MaxBytes: tc.max, Partitions: parts}, func(rs []FetchResult) {
				for _, r := range rs {
					got = append(got, len(values(t, r)))
				}
			})
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(FetchResult{})); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaitingFetchEndsWhenThereIsNews(t *testing.T) {
	ok := func(values ...string) []string { return values }
	for _, tc := range []struct {
		name   string
		minISR int
		act    func(b *testBroker)
		after  time.Duration // of fake time, before the answer is there
		want   cluster.ErrorCode
		values []string
	}{
		{name: "new records", act: func(b *testBroker) { b.produce(1, testTP(1), "x") }, values: ok("x")},
		{name: "time", act: func(*testBroker) {}, after: time.Minute},
		{name: "another leader", act: func(b *testBroker) {
			b.lead(leadState{topic: "t", partition: 1, leader: 2, le: 1, isr: []int32{1, 2}})
		}, want: cluster.NotLeaderOrFollower},
		{name: "deletion", act: func(b *testBroker) {
			b.HandleStopReplica(stopRequest(3, false, stop{tp: testTP(1), epoch: -2, delete: true}))
		}, want: cluster.UnknownTopicOrPartition},
		{name: "failed disk", act: func(b *testBroker) { b.OnLogDirFailure("/disk1", errDisk) }, want: cluster.KafkaStorageError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withBroker(t, brokerOptions{}, func(t *testing.T, b *testBroker) {
				b.alive(1, 2)
				b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true}, leadState{topic: "t", partition: 1, leader: 1, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true})
				a := b.consume(time.Minute, fetchPart(testTP(1), 0), fetchPart(tpT, 0))
				if _, done := a.result(); done {
					t.Fatal("answered without news")
				}
				tc.act(b)
				if tc.after > 0 {
					<-time.After(tc.after)
					synctest.Wait()
				}
				r, done := a.result()
				if !done || r.Err != tc.want {
					t.Fatalf("answered %v: %v, want %v", done, r.Err, tc.want)
				}
				if diff := cmp.Diff(tc.values, values(t, r)); diff != "" {
					t.Errorf("values (-want +got):\n%s", diff)
				}
				if !b.fetches.empty() {
					t.Error("purgatory is not empty")
				}
			})
		})
	}
}

func TestConsumersSeeRecordsOnceTheHighWatermarkPassedThem(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1, 2)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2}, isNew: true})
	consumer := b.consume(time.Hour, fetchPart(tpT, 0))
	follower := &answer[FetchResult]{}
	b.Fetch(FetchRequest{ReplicaID: 2, MaxWait: time.Hour, MinBytes: 1, MaxBytes: 1000, Partitions: []FetchPartition{fetchPart(tpT, 0)}}, follower.set)
	b.produce(1, tpT, "x")
	r, done := follower.result()
	if got := values(t, r); !done || !cmp.Equal(got, []string{"x"}) || r.HighWatermark != 0 {
		t.Fatalf("follower answered %v: %v, high watermark %d", done, got, r.HighWatermark)
	}
	if _, done := consumer.result(); done {
		t.Fatal("consumer answered before the record was replicated")
	}
	b.follow(2, tpT, 1)
	r, done = consumer.result()
	if got := values(t, r); !done || !cmp.Equal(got, []string{"x"}) || r.HighWatermark != 1 {
		t.Errorf("consumer answered %v: %v, high watermark %d", done, got, r.HighWatermark)
	}
}

func TestFetchWaitsForMinBytesOverAllPartitions(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true}, leadState{topic: "t", partition: 1, leader: 1, isr: []int32{1}, isNew: true})
	size := int32(len(testBatch("a")))
	a := &answer[FetchResult]{}
	b.Fetch(FetchRequest{ReplicaID: -1, MaxWait: time.Hour, MinBytes: 3 * size, MaxBytes: 1 << 20, Partitions: []FetchPartition{fetchPart(tpT, 0), fetchPart(testTP(1), 0)}}, a.set)
	for i, tp := range []cluster.TopicPartition{tpT, testTP(1), tpT} {
		if _, done := a.result(); done {
			t.Fatalf("answered after %d batches", i)
		}
		b.produce(1, tp, "a")
	}
	r, done := a.result()
	if got := values(t, r); !done || len(got) != 2 {
		t.Errorf("answered %v: %v", done, got)
	}
}

func TestAWaitingFetchCanBeHurried(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
	a := &answer[FetchResult]{}
	hurry := b.Fetch(FetchRequest{ReplicaID: -1, MinBytes: 1, MaxBytes: 100, MaxWait: time.Hour, Partitions: []FetchPartition{fetchPart(tpT, 0)}}, a.set)
	if _, done := a.result(); done || hurry == nil {
		t.Fatal("answered at once")
	}
	hurry()
	hurry()
	if r, done := a.result(); !done || r.Err != cluster.None || !b.fetches.empty() {
		t.Errorf("answered %v: %v, purgatory empty %v", done, r.Err, b.fetches.empty())
	}
	if b.Fetch(FetchRequest{ReplicaID: -1, Partitions: []FetchPartition{fetchPart(tpT, 0)}}, func([]FetchResult) {}) != nil {
		t.Error("an answered request can be hurried")
	}
}

// A broker that stops need not wait for requests that wait for records.
func TestABrokerThatLeavesLetsNoFetchWait(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
	before := b.consume(time.Hour, fetchPart(tpT, 0))
	if _, done := before.result(); done {
		t.Fatal("answered at once")
	}
	b.AnswerFetches()
	after := b.consume(time.Hour, fetchPart(tpT, 0))
	for what, a := range map[string]*answer[FetchResult]{"the fetch that waited": before, "a later one": after} {
		if r, done := a.result(); !done || r.Err != cluster.None {
			t.Errorf("%s: answered %v: %v", what, done, r.Err)
		}
	}
	if !b.fetches.empty() {
		t.Error("requests wait on")
	}
}

func TestFetchOfOnePartitionAllocatesLittle(t *testing.T) {
	b := newTestBroker(t, brokerOptions{plainDisk: true, logConfig: func(c *config.LogConfig) { c.IndexIntervalBytes = 1 << 20 }})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
	b.produce(1, tpT, "a")
	parts := []FetchPartition{fetchPart(tpT, 0)}
	done := func(rs []FetchResult) { releaseAll(rs) }
	if got := testing.AllocsPerRun(200, func() {
		b.Fetch(FetchRequest{ReplicaID: -1, MinBytes: 1, MaxBytes: 1 << 20, Partitions: parts}, done)
	}); got > 6 {
		t.Errorf("%v allocations, want at most 6", got)
	}
}
