package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/vfs"
)

func TestListOffsets(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1, 2)
	b.lead(leadState{topic: "t", leader: 1, le: 3, isr: []int32{1, 2}, isNew: true}, leadState{topic: "f", leader: 2, le: 3, isr: []int32{1, 2}, isNew: true})
	b.produce(1, tpT, "a", "b")
	b.follow(2, tpT, 2)
	b.produce(1, tpT, "c") // not replicated
	found := func(ts, offset int64, e cluster.LeaderEpoch) ListOffsetsResult {
		return ListOffsetsResult{Timestamp: ts, Offset: offset, LeaderEpoch: e}
	}
	for _, tc := range []struct {
		name    string
		replica cluster.BrokerID
		part    ListOffsetsPartition
		want    ListOffsetsResult
	}{
		{"latest is the high watermark", -1, ListOffsetsPartition{tpT, -1, LatestTimestamp}, found(-1, 2, 3)},
		{"latest for a broker is the log end", 2, ListOffsetsPartition{tpT, -1, LatestTimestamp}, found(-1, 3, 3)},
		{"earliest", -1, ListOffsetsPartition{tpT, 3, EarliestTimestamp}, found(-1, 0, 3)},
		{"a timestamp", -1, ListOffsetsPartition{tpT, -1, 999}, found(1000, 0, 3)},
		{"a timestamp after all records", -1, ListOffsetsPartition{tpT, -1, 1001}, noOffset(cluster.None)},
		{"old leader epoch", -1, ListOffsetsPartition{tpT, 2, LatestTimestamp}, noOffset(cluster.FencedLeaderEpoch)},
		{"future leader epoch", -1, ListOffsetsPartition{tpT, 4, LatestTimestamp}, noOffset(cluster.UnknownLeaderEpoch)},
		{"follower", -1, ListOffsetsPartition{cluster.TopicPartition{Topic: "f"}, -1, LatestTimestamp}, noOffset(cluster.NotLeaderOrFollower)},
		{"follower, for a debugger", -2, ListOffsetsPartition{cluster.TopicPartition{Topic: "f"}, -1, LatestTimestamp}, found(-1, 0, 3)},
		{"unknown partition", -1, ListOffsetsPartition{testTP(9), -1, LatestTimestamp}, noOffset(cluster.UnknownTopicOrPartition)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := b.ListOffsets(tc.replica, ReadUncommitted, []ListOffsetsPartition{tc.part})
			if diff := cmp.Diff([]ListOffsetsResult{tc.want}, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
	// A re-election starts the leadership at the log's end, which the high watermark has not reached.
	b.lead(leadState{topic: "t", leader: 1, le: 4, pe: 1, isr: []int32{1, 2}})
	want := []ListOffsetsResult{noOffset(cluster.OffsetNotAvailable), found(-1, 0, 3), noOffset(cluster.OffsetNotAvailable), found(1000, 0, 3)}
	got := b.ListOffsets(-1, ReadUncommitted, []ListOffsetsPartition{{tpT, -1, LatestTimestamp}, {tpT, -1, EarliestTimestamp}, {tpT, -1, 1001}, {tpT, -1, 5}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after an election (-want +got):\n%s", diff)
	}
	b.follow(2, tpT, 3)
	if got := b.ListOffsets(-1, ReadUncommitted, []ListOffsetsPartition{{tpT, -1, LatestTimestamp}}); got[0].Offset != 3 {
		t.Errorf("after the watermark caught up: %+v", got)
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1, 2)
	b.lead(leadState{topic: "t", leader: 1, le: 3, isr: []int32{1}, isNew: true}, leadState{topic: "f", leader: 2, le: 3, isr: []int32{1, 2}, isNew: true})
	b.produce(1, tpT, "a", "b")
	b.lead(leadState{topic: "t", leader: 1, le: 6, pe: 1, isr: []int32{1}})
	b.produce(1, tpT, "c")
	undefined := func(code cluster.ErrorCode) EpochEndOffset {
		return EpochEndOffset{Err: code, LeaderEpoch: -1, EndOffset: -1}
	}
	for _, tc := range []struct {
		name  string
		query EpochQuery
		want  EpochEndOffset
	}{
		{"current epoch ends at the log's end", EpochQuery{tpT, -1, 6}, EpochEndOffset{LeaderEpoch: 6, EndOffset: 3}},
		{"earlier epoch", EpochQuery{tpT, 6, 3}, EpochEndOffset{LeaderEpoch: 3, EndOffset: 2}},
		{"epoch without records", EpochQuery{tpT, -1, 5}, EpochEndOffset{LeaderEpoch: 3, EndOffset: 2}},
		{"epoch before the first", EpochQuery{tpT, -1, 2}, EpochEndOffset{LeaderEpoch: 2, EndOffset: 0}},
		{"epoch after the last", EpochQuery{tpT, -1, 7}, undefined(cluster.None)},
		{"old current epoch", EpochQuery{tpT, 5, 3}, undefined(cluster.FencedLeaderEpoch)},
		{"future current epoch", EpochQuery{tpT, 7, 3}, undefined(cluster.UnknownLeaderEpoch)},
		{"follower", EpochQuery{cluster.TopicPartition{Topic: "f"}, -1, 3}, undefined(cluster.NotLeaderOrFollower)},
		{"unknown partition", EpochQuery{testTP(9), -1, 3}, undefined(cluster.UnknownTopicOrPartition)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff([]EpochEndOffset{tc.want}, b.OffsetForLeaderEpoch([]EpochQuery{tc.query})); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeleteRecords(t *testing.T) {
	for _, tc := range []struct {
		name   string
		tp     cluster.TopicPartition
		offset int64
		config func(*config.LogConfig)
		want   DeleteRecordsResult
	}{
		{"up to an offset", tpT, 2, nil, DeleteRecordsResult{LowWatermark: 2}},
		{"up to the high watermark", tpT, -1, nil, DeleteRecordsResult{LowWatermark: 3}},
		{"nothing new", tpT, 0, nil, DeleteRecordsResult{LowWatermark: 0}},
		{"beyond the high watermark", tpT, 4, nil, DeleteRecordsResult{Err: cluster.OffsetOutOfRange, LowWatermark: -1}},
		{"below -1", tpT, -5, nil, DeleteRecordsResult{Err: cluster.OffsetOutOfRange, LowWatermark: -1}},
		{"compacted only", tpT, 2, func(c *config.LogConfig) { c.Delete, c.Compact = false, true }, DeleteRecordsResult{Err: cluster.PolicyViolation, LowWatermark: -1}},
		{"unknown partition", testTP(9), 2, nil, DeleteRecordsResult{Err: cluster.UnknownTopicOrPartition, LowWatermark: -1}},
		{"internal topic", cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic}, 0, nil, DeleteRecordsResult{Err: cluster.InvalidTopicException, LowWatermark: -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{})
			b.alive(1)
			b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
			b.produce(1, tpT, "a", "b", "c")
			if tc.config != nil {
				p, _ := b.Partition(tpT)
				tc.config(p.Log().Config())
			}
			a := &answer[DeleteRecordsResult]{}
			b.DeleteRecords(time.Second, false, []DeleteRecordsPartition{{tc.tp, tc.offset}}, a.set)
			if got, _ := a.result(); got != tc.want {
				t.Errorf("answer %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestDeleteRecordsWaitsForLiveFollowers(t *testing.T) {
	withBroker(t, brokerOptions{}, func(t *testing.T, b *testBroker) {
		b.alive(1, 2)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2, 3}, isNew: true}) // broker 3 is dead
		b.produce(1, tpT, "a", "b")
		fetch := func(id cluster.BrokerID, start int64) {
			p := fetchPart(tpT, 2)
			p.LogStartOffset = start
			b.Fetch(FetchRequest{ReplicaID: id, MinBytes: 1, MaxBytes: 100, Partitions: []FetchPartition{p}}, func(rs []FetchResult) { releaseAll(rs) })
		}
		fetch(2, 0)
		fetch(3, 0)
		a, late := &answer[DeleteRecordsResult]{}, &answer[DeleteRecordsResult]{}
		b.DeleteRecords(time.Minute, false, []DeleteRecordsPartition{{tpT, 1}}, a.set)
		if _, done := a.result(); done {
			t.Fatal("answered before the follower deleted")
		}
		fetch(2, 1)
		if r, done := a.result(); !done || r != (DeleteRecordsResult{LowWatermark: 1}) {
			t.Fatalf("answered %v: %+v", done, r)
		}
		b.DeleteRecords(time.Minute, false, []DeleteRecordsPartition{{tpT, 2}}, late.set)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if r, done := late.result(); !done || r.Err != cluster.RequestTimedOut {
			t.Errorf("answered %v: %+v", done, r)
		}
	})
}

// The last follower that was waited for dies: nothing is waited for then.
func TestDeleteRecordsGoesOnWhenItsFollowerIsGone(t *testing.T) {
	withBroker(t, brokerOptions{}, func(t *testing.T, b *testBroker) {
		b.alive(1, 2)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true})
		b.produce(1, tpT, "a", "b")
		a := &answer[DeleteRecordsResult]{}
		b.DeleteRecords(time.Minute, false, []DeleteRecordsPartition{{tpT, 1}}, a.set)
		if _, done := a.result(); done {
			t.Fatal("answered before the follower deleted")
		}
		b.alive(1)
		if r, done := a.result(); !done || r != (DeleteRecordsResult{LowWatermark: 1}) {
			t.Errorf("answered %v: %+v", done, r)
		}
	})
}

func TestDescribeLogDirs(t *testing.T) {
	b := newTestBroker(t, brokerOptions{offlineDir: true})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true}, leadState{topic: "u", leader: 1, isr: []int32{1}, isNew: true})
	b.produce(1, tpT, "a")
	got := b.DescribeLogDirs(func(tp cluster.TopicPartition) bool { return tp.Topic == "t" })
	for i := range got {
		if got[i].Err == cluster.None {
			got[i].TotalBytes, got[i].UsableBytes = 0, 0
		}
	}
	want := []LogDirInfo{
		{Path: "/disk1", Replicas: []LogDirReplica{{TP: tpT, Size: int64(len(testBatch("a")))}}},
		{Path: "/disk2", Err: cluster.KafkaStorageError, TotalBytes: -1, UsableBytes: -1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log dirs (-want +got):\n%s", diff)
	}
	if !cmp.Equal(b.OfflineLogDirs(), []string{"/disk2"}) {
		t.Errorf("offline dirs %v", b.OfflineLogDirs())
	}
}

func TestDescribeProducersOfFollowersToo(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1, 2)
	b.lead(leadState{topic: "f", leader: 2, isr: []int32{1, 2}, isNew: true})
	if _, code := b.DescribeProducers(cluster.TopicPartition{Topic: "f"}); code != cluster.None {
		t.Errorf("follower: %v", code)
	}
	if _, code := b.DescribeProducers(testTP(9)); code != cluster.UnknownTopicOrPartition {
		t.Errorf("unknown partition: %v", code)
	}
}

// W20: Kafka keeps them without a word.
func TestStrayReplicasAreNamedWithTheReason(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	ids := map[string]cluster.TopicID{"hosted": {1}, "gone": {2}, "again": {3}, "moved": {4}, "coming": {5}}
	for topic, id := range ids {
		if _, err := b.logs.GetOrCreate(cluster.TopicPartition{Topic: topic}, id, true); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.StrayReplicas(); got != nil {
		t.Errorf("before any request: %+v", got)
	}
	update := func(topic string, id cluster.TopicID, replicas ...int32) {
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.Version, req.ControllerEpoch, req.BrokerEpoch = 8, 1, -1
		ts := kmsg.NewUpdateMetadataRequestTopicState()
		ts.Topic, ts.TopicID = topic, id
		p := kmsg.NewUpdateMetadataRequestTopicPartition()
		p.Leader, p.Replicas = replicas[0], replicas
		ts.PartitionStates = append(ts.PartitionStates, p)
		req.TopicStates = append(req.TopicStates, ts)
		b.HandleUpdateMetadata(req)
	}
	update("hosted", ids["hosted"], 1)
	update("again", cluster.TopicID{33}, 1)
	update("moved", ids["moved"], 2, 3)
	update("coming", ids["coming"], 2, 1)
	b.HandleLeaderAndISR(leaderAndISRRequest(7, leadState{topic: "hosted", id: ids["hosted"], leader: 1, isr: []int32{1}}))
	want := []StrayReplica{
		{TP: cluster.TopicPartition{Topic: "again"}, TopicID: ids["again"], Dir: "/disk1", Reason: "the topic was deleted and created again"},
		{TP: cluster.TopicPartition{Topic: "gone"}, TopicID: ids["gone"], Dir: "/disk1", Reason: "the partition does not exist"},
		{TP: cluster.TopicPartition{Topic: "moved"}, TopicID: ids["moved"], Dir: "/disk1", Reason: "this broker is not a replica of the partition"},
	}
	if diff := cmp.Diff(want, b.StrayReplicas()); diff != "" {
		t.Errorf("strays (-want +got):\n%s", diff)
	}
}

func TestTopicMetricsSumUpWhatIsOverTheLimit(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	size := int64(len(testBatch("x")))
	for i, topic := range []string{"busy", "calm", "idle"} {
		tp := cluster.TopicPartition{Topic: topic}
		b.lead(leadState{topic: topic, leader: 1, isr: []int32{1}, isNew: true})
		for range 2 - i {
			b.produce(1, tp, "x")
		}
		a := b.consume(0, fetchPart(tp, 0))
		if r, _ := a.result(); r.Records != nil {
			r.CountSent()
			r.Records.Release()
		}
	}
	want := []TopicMetrics{{Topic: "busy", BytesIn: 2 * size, BytesOut: 2 * size, MessagesIn: 2}, {BytesIn: size, BytesOut: size, MessagesIn: 1}}
	if diff := cmp.Diff(want, b.TopicMetrics(1)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	b.HandleStopReplica(stopRequest(3, false, stop{tp: cluster.TopicPartition{Topic: "busy"}, epoch: -2, delete: true}))
	if got := b.TopicMetrics(-1); len(got) != 2 || got[0].Topic != "calm" {
		t.Errorf("after a deletion: %+v", got)
	}
	if got := b.Metrics(); got.BytesIn != 3*size || got.BytesOut != 3*size || got.MessagesIn != 3 {
		t.Errorf("the broker's counters after a deletion: in %d and out %d bytes, %d messages; want %d, %d, 3", got.BytesIn, got.BytesOut, got.MessagesIn, 3*size, 3*size)
	}
}

func TestHighWatermarksAreWrittenOncePartitionsAreKnown(t *testing.T) {
	disk := vfs.NewMem()
	withBroker(t, brokerOptions{disk: disk}, func(t *testing.T, b *testBroker) {
		pass(6 * time.Second)
		if _, err := vfs.ReadFile(disk, "replication-offset-checkpoint"); err == nil {
			t.Error("written before the first LeaderAndIsr request")
		}
		b.alive(1)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
		b.produce(1, tpT, "a", "b")
		pass(6 * time.Second)
		got, err := vfs.ReadFile(disk, "replication-offset-checkpoint")
		if want := "0\n1\nt 0 2\n"; err != nil || string(got) != want {
			t.Errorf("checkpoint %q, %v; want %q", got, err, want)
		}
	})
}
