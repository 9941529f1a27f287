package replica

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

var moving = cluster.TopicPartition{Topic: "t", Partition: 0}

// places writes the replicas of the log dirs short: dir, partition, "future" and its lag.
func (b *testBroker) places() []string {
	var out []string
	for _, dir := range b.DescribeLogDirs(nil) {
		for _, r := range dir.Replicas {
			s := dir.Path + " " + r.TP.String()
			if r.Future {
				s += fmt.Sprint(" future, behind by ", r.OffsetLag)
			}
			out = append(out, s)
		}
	}
	return out
}

func (b *testBroker) moveTo(dir string, tps ...cluster.TopicPartition) []cluster.ErrorCode {
	var want []ReplicaLogDir
	for _, tp := range tps {
		want = append(want, ReplicaLogDir{tp, dir})
	}
	return b.AlterReplicaLogDirs(want)
}

func (b *testBroker) wantPlaces(want ...string) {
	b.t.Helper()
	if d := cmp.Diff(want, b.places()); d != "" {
		b.t.Error(d)
	}
}

func TestAReplicaMovesToAnotherLogDirWhileItIsWrittenTo(t *testing.T) {
	b := newTestBroker(t, brokerOptions{disk2: vfs.NewMem(), plainDisk: true})
	defer b.start()()
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}})
	b.wantPlaces("/disk1 t-0")
	var writers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := range 200 {
				if r, done := b.produce(-1, moving, fmt.Sprint(w, "-", i)).result(); !done || r.Err != cluster.None {
					t.Errorf("append: %v", r.Err)
				}
			}
		})
	}
	for i := range 6 { // to and fro
		if codes := b.moveTo([]string{"/disk2", "/disk1"}[i%2], moving); codes[0] != cluster.None {
			t.Fatal(codes)
		}
		for len(b.logs.Futures()) > 0 {
			if r, _ := b.follow(2, moving, 0).result(); r.Err != cluster.None && r.Err != cluster.NotLeaderOrFollower {
				t.Errorf("read: %v", r.Err)
			}
		}
	}
	writers.Wait()
	b.wantPlaces("/disk1 t-0")
	next := map[byte]int{}
	for offset := int64(0); offset < 600; {
		r, _ := b.consume(0, FetchPartition{TP: moving, CurrentLeaderEpoch: -1, FetchOffset: offset, LastFetchedEpoch: -1, MaxBytes: 1 << 20}).result()
		for _, v := range values(t, r) {
			var n int
			if _, err := fmt.Sscanf(v[2:], "%d", &n); err != nil || n != next[v[0]] {
				t.Fatalf("record %q where %d is next: %v", v, next[v[0]], err)
			}
			next[v[0]]++
			offset++
		}
	}
}

func TestAMoveBetweenLogDirsKeepsToItsRateAndCanBeGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t, brokerOptions{disk2: vfs.NewMem(), plainDisk: true, moveRate: func() int64 { return 1 << 20 }})
		defer b.start()()
		b.alive(1)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}})
		for range 50 {
			b.produce(1, moving, strings.Repeat("x", 200_000))
		}
		b.moveTo("/disk2", moving)
		<-time.After(3500 * time.Millisecond)
		synctest.Wait()
		if moved := b.logs.Futures()[0].Size(); moved < 3<<20 || moved > 4<<20 {
			t.Errorf("%d bytes moved in 3.5 s at 1 MiB/s", moved)
		}
		if m := b.Metrics(); m.LogDirMoves != 1 || m.LogDirMovesMaxLag < 25 || m.LogDirMovesMaxLag > 40 || m.LogDirMovesFailed != 0 {
			t.Errorf("metrics %d, %d, %d", m.LogDirMoves, m.LogDirMovesMaxLag, m.LogDirMovesFailed)
		}
		b.moveTo("/disk1", moving) // where it is
		b.wantPlaces("/disk1 t-0")
		<-time.After(20 * time.Second)
		synctest.Wait()
		b.wantPlaces("/disk1 t-0")
		b.moveTo("/disk2", moving)
		<-time.After(20 * time.Second)
		synctest.Wait()
		b.wantPlaces("/disk2 t-0")
	})
}

func TestAnswersToMovesThatCannotBe(t *testing.T) {
	b := newTestBroker(t, brokerOptions{disk2: vfs.NewMem()})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}})
	absent := cluster.TopicPartition{Topic: "absent", Partition: 3}
	long := cluster.TopicPartition{Topic: strings.Repeat("n", 230), Partition: 0}
	for _, tt := range []struct {
		dir  string
		tp   cluster.TopicPartition
		want cluster.ErrorCode
	}{
		{"/nowhere", moving, cluster.LogDirNotFound},
		{"/disk2", long, cluster.InvalidTopicException},
		{"/disk2", cluster.TopicPartition{Topic: "../etc"}, cluster.InvalidTopicException},
		{"/disk2", absent, cluster.ReplicaNotAvailable},
		{"/disk1", moving, cluster.None},
	} {
		if codes := b.moveTo(tt.dir, tt.tp); codes[0] != tt.want {
			t.Errorf("%s to %s: %v, want %v", tt.tp, tt.dir, codes[0], tt.want)
		}
	}
	// The log dirs that were named for replicas to come count when they do.
	b.lead(leadState{topic: "absent", partition: 3, leader: 1, isr: []int32{1}, isNew: true})
	b.wantPlaces("/disk1 t-0", "/disk2 absent-3")

	offline := newTestBroker(t, brokerOptions{offlineDir: true})
	offline.alive(1)
	offline.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
	if codes := offline.moveTo("/disk2", moving); codes[0] != cluster.KafkaStorageError {
		t.Errorf("to an offline dir: %v", codes)
	}
}

func TestAMoveBetweenLogDirsGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := int64(1000)
		o := brokerOptions{disk: vfs.NewMem(), disk2: vfs.NewMem(), plainDisk: true, moveRate: func() int64 { return rate }}
		lead := func(b *testBroker, epoch int32) {
			b.alive(1)
			b.lead(leadState{topic: "t", leader: 1, le: epoch, pe: epoch, isr: []int32{1}})
		}
		b := newTestBroker(t, o)
		stop := b.start()
		lead(b, 0)
		for range 5 {
			b.produce(1, moving, strings.Repeat("x", 600_000))
		}
		b.moveTo("/disk2", moving)
		synctest.Wait()
		b.wantPlaces("/disk1 t-0", "/disk2 t-0 future, behind by 4")
		stop()
		if err := b.logs.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		rate = 1 << 40
		b = newTestBroker(t, o)
		defer b.start()()
		synctest.Wait()
		b.wantPlaces("/disk1 t-0", "/disk2 t-0 future, behind by -1") // nobody has asked for the partition yet
		lead(b, 1)
		synctest.Wait()
		<-time.After(time.Second)
		synctest.Wait()
		b.wantPlaces("/disk2 t-0")
		if s := b.state(moving); s.LogEndOffset != 5 || !s.IsLeader {
			t.Errorf("afterwards %+v", s)
		}
	})
}

// R09 and its like: a deletion ends also while the replica is on its way.
func TestAReplicaThatMovesBetweenLogDirsIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t, brokerOptions{disk2: vfs.NewMem(), plainDisk: true, moveRate: func() int64 { return 1000 }})
		defer b.start()()
		b.alive(1)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}})
		for range 5 {
			b.produce(1, moving, strings.Repeat("x", 600_000))
		}
		b.moveTo("/disk2", moving)
		synctest.Wait()
		resp := b.HandleStopReplica(stopRequest(4, true, stop{tp: moving, epoch: cluster.LeaderEpochDuringDelete, delete: true}))
		if code := cluster.ErrorCode(resp.Partitions[0].ErrorCode); code != cluster.None {
			t.Errorf("stop replica: %v", code)
		}
		b.wantPlaces()
		<-time.After(time.Hour)
		synctest.Wait()
		b.wantPlaces()
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
		if s := b.state(moving); s.LogEndOffset != 0 {
			t.Errorf("created again it ends at %d", s.LogEndOffset)
		}
	})
}
