package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/group"
	"klamm/internal/record"
	"klamm/internal/replica"
)

func TestPartitionsAreThoseOfKafka(t *testing.T) {
	// From Java: Utils.abs(s.hashCode()) % 50.
	for id, want := range map[string]int32{
		"": 0, "g1": 42, "test": 48, "polygenelubricants": 0, "console-consumer-12345": 6, "connect-sink": 22, "grüppe-😀": 14, "Aa": 12,
		"a-group-with-a-rather-long-name-0123456789": 48,
	} {
		if got := partitionFor(id, 50); got != want {
			t.Errorf("%q is in partition %d, want %d", id, got, want)
		}
	}
}

func TestPartitionCountIsTheTopicsOnceItExists(t *testing.T) {
	inBubble(t, map[string]string{"offsets.topic.num.partitions": "50"}, func(b *testBroker) {
		if got := b.PartitionFor("g1"); got != 42 {
			t.Errorf("before the topic exists: partition %d", got)
		}
		b.announce(topicState(cluster.GroupOffsetsTopic, 7, 1))
		if got := b.PartitionFor("g1"); got != 3242%7 {
			t.Errorf("of 7 partitions: %d", got)
		}
	})
}

func TestGroupsAreServedWhileTheirPartitionIsLed(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.wantCode("before", b.commit("g", 1), cluster.NotCoordinator)
		b.lead([]int32{1})
		b.wantCode("commit", b.commit("g", 1), cluster.None)
		b.wantCommitted("g", 1)
		j := b.member("m")
		waiting := begin[group.JoinResult](b, join("other", ""))
		if !waiting.open() {
			t.Error("a first join was answered before the initial delay")
		}
		b.follow()
		b.wantCode("waiting join", waiting.wait().Err, cluster.NotCoordinator)
		b.wantCode("after", b.heartbeat("m", j), cluster.NotCoordinator)

		b.lead([]int32{1})
		b.wantCommitted("g", 1)
		b.wantCode("heartbeat of a loaded member", b.heartbeat("m", j), cluster.None)
		d := ask[group.Description](b, group.Describe{Group: "m"})
		if d.State != "Stable" || len(d.Members) != 1 || string(d.Members[0].Assignment) != "p" {
			t.Errorf("loaded group: %+v", d)
		}
		time.Sleep(11 * second) // fake time
		if d := ask[group.Description](b, group.Describe{Group: "m"}); d.State != "Empty" {
			t.Errorf("a loaded member that is silent for its session stays: %+v", d)
		}
	})
}

func TestStaleLeadershipIsIgnored(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead([]int32{1})
		b.lead([]int32{1}) // a new epoch of the same leader: the groups stay
		j := b.member("g")
		b.LeadershipChanged(nil, []replica.PartitionEpoch{{TP: offsetsTopic, LeaderEpoch: 0}})
		b.wantCode("after an old resignation", b.heartbeat("g", j), cluster.None)
		b.LeadershipChanged([]replica.PartitionEpoch{{TP: offsetsTopic, LeaderEpoch: 1}}, nil)
		b.wantCode("after an old election", b.heartbeat("g", j), cluster.None)
		b.LeadershipChanged(nil, []replica.PartitionEpoch{{TP: cluster.TopicPartition{Topic: cluster.TransactionStateTopic}, LeaderEpoch: 9}})
		b.wantCode("after a resignation of another topic", b.heartbeat("g", j), cluster.None)
		b.follow()
		b.LeadershipChanged([]replica.PartitionEpoch{{TP: offsetsTopic, LeaderEpoch: 2}}, nil)
		b.wantCode("an old election after the resignation", b.heartbeat("g", j), cluster.NotCoordinator)
		b.LeadershipChanged(nil, []replica.PartitionEpoch{{TP: offsetsTopic, LeaderEpoch: -1}})
		b.LeadershipChanged([]replica.PartitionEpoch{{TP: offsetsTopic, LeaderEpoch: 0}}, nil)
		synctest.Wait()
		if _, code := b.committed("g"); code == cluster.NotCoordinator {
			t.Error("a topic that was deleted and made again is not served in epoch 0")
		}
	})
}

func TestRequestsDuringALoadAreToBeRepeated(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead([]int32{1})
		b.wantCode("commit", b.commit("g", 7), cluster.None)
		b.follow()
		for range loadsAtOnce {
			b.loads <- struct{}{} // hold all loads up
		}
		b.beginToLead([]int32{1})
		_, code := b.committed("g")
		b.wantCode("fetch", code, cluster.CoordinatorLoadInProgress)
		b.wantCode("commit", b.commit("g", 8), cluster.CoordinatorLoadInProgress)
		b.wantCode("heartbeat", b.heartbeat("g", group.JoinResult{}), cluster.None)
		b.wantCode("sync", ask[group.SyncResult](b, group.Sync{Group: "g"}).Err, cluster.RebalanceInProgress)
		var list group.ListResult
		b.List(nil, func(r group.ListResult) { list = r })
		synctest.Wait()
		b.wantCode("list", list.Err, cluster.CoordinatorLoadInProgress)
		for range loadsAtOnce {
			<-b.loads
		}
		synctest.Wait()
		b.wantCommitted("g", 7)
		if m := b.Metrics(b.ctx); m.Loads != 2 || m.Partitions != 1 || m.Offsets != 1 {
			t.Errorf("metrics: %+v", m)
		}
	})
}

func TestEmptyGroupIDsAreForOffsetsAlone(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.wantCode("join", ask[group.JoinResult](b, join("", "")).Err, cluster.InvalidGroupID)
		b.wantCode("sync", ask[group.SyncResult](b, group.Sync{}).Err, cluster.InvalidGroupID)
		b.wantCode("heartbeat", ask[group.ErrorResult](b, group.Heartbeat{}).Err, cluster.InvalidGroupID)
		b.wantCode("leave", ask[group.LeaveResult](b, group.Leave{}).Err, cluster.InvalidGroupID)
		b.wantCode("delete offsets", ask[group.DeleteOffsetsResult](b, group.DeleteOffsets{}).Err, cluster.InvalidGroupID)
		b.lead([]int32{1})
		b.wantCode("commit", b.commit("", 5), cluster.None)
		b.wantCommitted("", 5)
		b.wantCode("delete group", ask[group.ErrorResult](b, group.DeleteGroup{}).Err, cluster.None)
	})
}

func TestACommitThatIsNotReplicatedIsNotAcknowledged(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead([]int32{1, 2}) // broker 2 is in the ISR and does not fetch
		start := time.Now()
		b.wantCode("commit", b.commit("g", 1), cluster.CoordinatorNotAvailable)
		if waited := time.Since(start); waited != 5*second {
			t.Errorf("waited %v, want offsets.commit.timeout.ms", waited)
		}
		b.wantCommitted("g", -1)
	})
}

func TestACoordinatorThatMayLeadNoMoreSendsMembersAway(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead([]int32{1})
		j := b.member("m")
		b.lead([]int32{1, 2}) // broker 2 does not fetch
		b.wantCode("with a session", b.heartbeat("m", j), cluster.None)
		b.expired.Store(true)
		time.Sleep(2 * second) // fake time
		b.wantCode("without", b.heartbeat("m", j), cluster.NotCoordinator)
		b.wantCode("commit without", b.commit("g", 1), cluster.NotCoordinator)
		b.lead([]int32{1, 2}) // by a controller, which knows of a new session
		b.wantCode("when it leads again", b.heartbeat("m", j), cluster.None)
	})
}

func TestR21OffsetsExpire(t *testing.T) {
	inBubble(t, map[string]string{"offsets.retention.minutes": "60", "offsets.retention.check.interval.ms": "60000"}, func(b *testBroker) {
		b.lead([]int32{1})
		b.wantCode("commit", b.commit("simple", 1), cluster.None)
		time.Sleep(59 * time.Minute) // fake time
		b.wantCommitted("simple", 1)
		time.Sleep(2 * time.Minute) // fake time
		b.wantCommitted("simple", -1)
		b.follow()
		b.lead([]int32{1})
		b.wantCommitted("simple", -1) // the tombstone is in the log
	})
}

func TestOffsetsOfDeletedPartitionsGo(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.announce(topicState("t", 1, 1))
		b.lead([]int32{1})
		b.wantCode("commit", b.commit("g", 3), cluster.None)
		b.announce(topicState("t", 1, int32(cluster.LeaderDuringDelete)))
		b.wantCommitted("g", -1)
	})
}

// A load that begins, or begins anew, forgets what it had read, not which partitions were deleted meanwhile: the topic may be there again
// when it ends.
func TestOffsetsOfPartitionsDeletedDuringALoadGo(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.announce(topicState("t", 1, 1))
		b.lead([]int32{1})
		b.wantCode("commit", b.commit("g", 3), cluster.None)
		b.follow()
		for range loadsAtOnce {
			b.loads <- struct{}{} // hold all loads up
		}
		b.beginToLead([]int32{1})
		b.announce(topicState("t", 1, int32(cluster.LeaderDuringDelete)))
		b.announce(topicState("t", 1, 1))
		synctest.Wait()
		for range loadsAtOnce {
			<-b.loads
		}
		synctest.Wait()
		b.wantCommitted("g", -1)
	})
}

// However many offsets go at once, and however long the names of groups are, the tombstones fit into batches that the log takes.
func TestAnyNumberOfOffsetsGoesAtOnce(t *testing.T) {
	const partitions, atOnce = 12_000, 4_000
	usual := strings.Repeat("g", 80)
	commitAll := func(b *testBroker, id string, partitions, atOnce int) {
		t.Helper()
		for from := 0; from < partitions; from += atOnce {
			c := commit(id, cluster.TopicPartition{Topic: "t"}, 1)
			one := c.Offsets[0]
			c.Offsets = nil
			for p := range atOnce {
				one.Partition = int32(from + p)
				c.Offsets = append(c.Offsets, one)
			}
			b.wantCode("commit", ask[group.CommitResult](b, c).Errs[0], cluster.None)
		}
	}
	for name, tc := range map[string]struct {
		remove func(b *testBroker)
	}{
		"a group is deleted": {func(b *testBroker) {
			b.wantCode("delete group", ask[group.ErrorResult](b, group.DeleteGroup{Group: usual}).Err, cluster.None)
		}},
		"offsets are deleted": {func(b *testBroker) {
			e := group.DeleteOffsets{Group: usual}
			for p := range partitions {
				e.Partitions = append(e.Partitions, cluster.TopicPartition{Topic: "t", Partition: int32(p)})
			}
			b.wantCode("delete offsets", ask[group.DeleteOffsetsResult](b, e).Err, cluster.None)
		}},
		"a topic is deleted, of which a group with a long name has offsets, too": {func(b *testBroker) {
			commitAll(b, strings.Repeat("a", 1<<15-1), 40, 10)
			b.announce(topicState("t", partitions, int32(cluster.LeaderDuringDelete)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				b.announce(topicState("t", partitions, 1))
				b.lead([]int32{1})
				commitAll(b, usual, partitions, atOnce)
				tc.remove(b)
				synctest.Wait()
				b.follow()
				b.lead([]int32{1})
				left := ask[group.FetchOffsetsResult](b, group.FetchOffsets{Group: usual, All: true})
				if left.Err != cluster.None || len(left.Offsets) > 0 {
					t.Errorf("%d offsets are back after the next load (%v)", len(left.Offsets), left.Err)
				}
			})
		})
	}
}

// A topic is deleted while nobody serves the group: who serves it next asks whether the topics exist that he has not heard of.
func TestOffsetsOfTopicsDeletedUnseenGoWithTheNextLoad(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.announce(topicState("known", 1, 1))
		b.lead([]int32{1})
		known := cluster.TopicPartition{Topic: "known"}
		for _, c := range []group.Commit{commit("g", cluster.TopicPartition{Topic: "t"}, 7), commit("g", cluster.TopicPartition{Topic: "t", Partition: 1}, 8),
			commit("g", cluster.TopicPartition{Topic: "lives"}, 9), commit("g", known, 10)} {
			b.wantCode("commit", ask[group.CommitResult](b, c).Errs[0], cluster.None)
		}
		reload := func(answer []string, err error) {
			t.Helper()
			var asked []string
			b.gone = func(topics []string) ([]string, error) { asked = topics; return answer, err }
			b.follow()
			b.lead([]int32{1})
			if want := []string{"lives", "t"}; !slices.Equal(asked, want) {
				t.Errorf("asked about %v", asked)
			}
		}
		want := func(when string, want map[cluster.TopicPartition]int64) {
			t.Helper()
			got := map[cluster.TopicPartition]int64{}
			for _, o := range ask[group.FetchOffsetsResult](b, group.FetchOffsets{Group: "g", All: true}).Offsets {
				got[o.TopicPartition] = o.Offset
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		all := map[cluster.TopicPartition]int64{{Topic: "t"}: 7, {Topic: "t", Partition: 1}: 8, {Topic: "lives"}: 9, known: 10}
		reload(nil, errors.New("no answer"))
		want("the store does not answer", all)
		reload(nil, nil)
		want("all exist", all)
		reload([]string{"t"}, nil)
		left := map[cluster.TopicPartition]int64{{Topic: "lives"}: 9, known: 10}
		want("t is gone", left)
		b.gone = nil
		b.follow()
		b.lead([]int32{1})
		want("and stays so for the next", left)
	})
}

func TestRecordsAreCompressedAndReadAgain(t *testing.T) {
	for codec, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(name, func(t *testing.T) {
			// zstd's shared encoder and decoder make channels at their first use; those must not belong to a bubble.
			packed, err := record.Compress(nil, []byte("x"), record.Compression{Codec: record.Codec(codec)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := record.Decompress(nil, packed, record.Codec(codec), 0); err != nil {
				t.Fatal(err)
			}
			inBubble(t, map[string]string{"offsets.topic.compression.codec": fmt.Sprint(codec), "offsets.load.buffer.size": "200"}, func(b *testBroker) {
				b.lead([]int32{1})
				for i := range 20 {
					b.wantCode("commit", b.commit(fmt.Sprint("g", i), int64(i)), cluster.None)
				}
				if first := b.batches(0)[0]; first.Codec() != record.Codec(codec) {
					t.Errorf("stored with %v", first.Codec())
				}
				b.follow()
				b.lead([]int32{1})
				for i := range 20 {
					b.wantCommitted(fmt.Sprint("g", i), int64(i))
				}
			})
		})
	}
}

// batches reads a partition of __consumer_offsets.
func (b *testBroker) batches(partition int32) (out []record.Batch) {
	b.t.Helper()
	log, _, code := b.replicas.LeaderLog(cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic, Partition: partition})
	b.wantCode("open the log", code, cluster.None)
	r, err := log.Read(0, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOneMessage: true})
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Records.Release()
	data := make([]byte, r.Records.Len())
	if _, err := r.Records.ReadInto(data); err != nil {
		b.t.Fatal(err)
	}
	for len(data) > 0 {
		var batch record.Batch
		if batch, data, err = record.NextBatch(data); err != nil {
			b.t.Fatal(err)
		}
		out = append(out, batch)
	}
	return out
}

func TestTransactionalOffsetsWaitForTheirMarker(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead([]int32{1})
		for pid, decision := range map[int64]record.ControlType{7: record.Commit, 8: record.Abort} {
			id := fmt.Sprint("g", pid)
			c := commit(id, cluster.TopicPartition{Topic: "t"}, pid)
			c.Txn = &group.Producer{ID: pid, Epoch: 3}
			b.wantCode("commit", ask[group.CommitResult](b, c).Errs[0], cluster.None)
			b.wantCommitted(id, -1)
			marker := record.EndTxnMarker{ProducerID: pid, ProducerEpoch: 3, Type: decision, TimestampMs: time.Now().UnixMilli()}
			b.replicas.Append(replica.AppendRequest{Acks: -1, Timeout: second, Origin: record.Coordinator, InternalTopicsAllowed: true,
				Partitions: []replica.AppendPartition{{TP: offsetsTopic, Records: marker.Batch()}}}, func(r []replica.AppendResult) {
				b.wantCode("marker", r[0].Err, cluster.None)
			})
			b.TxnEnded(0, pid, decision == record.Commit)
		}
		open := commit("open", cluster.TopicPartition{Topic: "t"}, 9)
		open.Txn = &group.Producer{ID: 9}
		b.wantCode("commit", ask[group.CommitResult](b, open).Errs[0], cluster.None)
		for range 2 {
			b.wantCommitted("g7", 7)
			b.wantCommitted("g8", -1)
			r := ask[group.FetchOffsetsResult](b, group.FetchOffsets{Group: "open", RequireStable: true, Partitions: []cluster.TopicPartition{{Topic: "t"}}})
			b.wantCode("open transaction", r.Offsets[0].Err, cluster.UnstableOffsetCommit)
			b.follow()
			b.lead([]int32{1})
		}
	})
}

// The disk fails under another partition's write. Who only sends heartbeats and reads offsets must look for the coordinator, too: the groups
// go on elsewhere.
func TestAFailedDiskGivesTheGroupsUpAtOnce(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead([]int32{1})
		b.wantCode("commit", b.commit("g", 3), cluster.None)
		j := b.member("g")
		b.wantCode("heartbeat", b.heartbeat("g", j), cluster.None)
		b.replicas.OnLogDirFailure("/data", errors.New("the disk is gone"))
		b.wantCode("heartbeat", b.heartbeat("g", j), cluster.NotCoordinator)
		_, code := b.committed("g")
		b.wantCode("fetch", code, cluster.NotCoordinator)
	})
}

func TestAFailedDiskGivesTheGroupsUp(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead([]int32{1})
		j := b.member("g")
		b.disk.breakNow()
		b.wantCode("commit", b.commit("g2", 1), cluster.NotCoordinator)
		synctest.Wait()
		b.wantCode("heartbeat", b.heartbeat("g", j), cluster.NotCoordinator)
	})
}

// Clients choose how long their timers run. Those of members and groups that are gone do not pile up until then.
func TestTimersOfWhatIsGoneDoNotPileUp(t *testing.T) {
	const cycles = 5 * timersKept
	inBubble(t, map[string]string{"group.initial.rebalance.delay.ms": "0", "offsets.retention.check.interval.ms": "60000"}, func(b *testBroker) {
		b.lead([]int32{1})
		running := func() int {
			synctest.Wait()
			return len(b.mu.shards[0].timers.byName)
		}
		leave := func(id, member string) {
			r := ask[group.LeaveResult](b, group.Leave{Group: id, Members: []group.MemberIdentity{{MemberID: member}}})
			b.wantCode("leave", r.Members[0], cluster.None)
		}
		for i := range cycles {
			e := join("pending", "")
			e.NewMemberID, e.RequireKnownMember, e.SessionTimeoutMs = fmt.Sprint("m", i), true, 1_800_000
			leave("pending", ask[group.JoinResult](b, e).MemberID)
		}
		if n := running(); n > 2*timersKept {
			t.Errorf("%d timers run for members that gave their ids back", n)
		}
		for i := range cycles {
			e := join(fmt.Sprint("g", i), "")
			e.RebalanceTimeoutMs = math.MaxInt32
			leave(e.Group, ask[group.JoinResult](b, e).MemberID)
		}
		time.Sleep(2 * time.Minute) // fake time: the groups, empty now, go
		e := join("last", "")
		e.RequireKnownMember = true
		b.wantCode("join", ask[group.JoinResult](b, e).Err, cluster.MemberIDRequired)
		if n := running(); n > 2*timersKept {
			t.Errorf("%d timers run for groups that are gone", n)
		}
	})
}

func TestAFullInboxRefuses(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		s := newShard(b.Coordinator, 0, nil) // nobody works on it
		answers := 0
		for range inboxRequestsMax {
			s.ask(group.Heartbeat{Group: "g"}, func(any) { answers++ })
		}
		s.ask(group.Heartbeat{Group: "g"}, func(v any) {
			b.wantCode("one too many", v.(group.ErrorResult).Err, cluster.CoordinatorNotAvailable)
		})
		s.end()
		s.run(b.ctx)
		if answers != inboxRequestsMax {
			t.Errorf("%d of %d requests answered at the end", answers, inboxRequestsMax)
		}
		s.ask(group.Heartbeat{Group: "g"}, func(v any) { b.wantCode("after the end", v.(group.ErrorResult).Err, cluster.NotCoordinator) })
	})
}

func TestTheEndAnswersEverything(t *testing.T) {
	inBubble(t, map[string]string{"offsets.topic.num.partitions": "4"}, func(b *testBroker) {
		b.lead([]int32{1}, 0, 1, 2, 3)
		var waiting []answer[group.JoinResult]
		for i := range 20 {
			waiting = append(waiting, begin[group.JoinResult](b, join(fmt.Sprint("g", i), "")))
		}
		synctest.Wait()
		b.stop()
		for _, a := range waiting {
			b.wantCode("waiting join", a.wait().Err, cluster.NotCoordinator)
		}
		b.wantCode("after the end", b.commit("g", 1), cluster.CoordinatorNotAvailable)
		b.List(nil, func(r group.ListResult) { b.wantCode("list", r.Err, cluster.CoordinatorNotAvailable) })
		b.LeadershipChanged([]replica.PartitionEpoch{{TP: offsetsTopic, LeaderEpoch: 99}}, nil)
	})
}

func TestListsGatherAllPartitions(t *testing.T) {
	inBubble(t, map[string]string{"offsets.topic.num.partitions": "4"}, func(b *testBroker) {
		b.lead([]int32{1}, 0, 1, 2, 3)
		for _, id := range []string{"d", "a", "c", "b"} {
			b.wantCode("commit", b.commit(id, 1), cluster.None)
		}
		b.member("m")
		list := func(states ...string) string {
			ch := make(chan group.ListResult, 1)
			b.List(states, func(r group.ListResult) { ch <- r })
			r := <-ch
			return fmt.Sprint(r.Err, r.Groups)
		}
		if got, want := list(), "NONE [{a  Empty} {b  Empty} {c  Empty} {d  Empty} {m consumer Stable}]"; got != want {
			t.Errorf("all: %s", got)
		}
		if got, want := list("stable"), "NONE [{m consumer Stable}]"; got != want {
			t.Errorf("stable: %s", got)
		}
		m := b.Metrics(b.ctx)
		if m.Groups[group.Empty] != 4 || m.Groups[group.Stable] != 1 || m.Members != 1 || m.Offsets != 4 {
			t.Errorf("metrics: %+v", m)
		}
	})
}

// TestOffsetsNeverGoBackWhileLeadershipMoves commits from several clients while the leadership comes and goes: what was
// acknowledged is there, always, and every request is answered.
func TestOffsetsNeverGoBackWhileLeadershipMoves(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				rnd := rand.New(rand.NewPCG(seed, 2))
				over := make(chan struct{})
				var clients sync.WaitGroup
				for i := range 4 {
					clients.Go(func() { b.commitUpwards(fmt.Sprint("g", i), over) })
				}
				for range 60 {
					if rnd.IntN(2) == 0 {
						b.beginToLead([]int32{1})
					} else {
						b.follow()
					}
					time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond) // fake time
				}
				close(over)
				clients.Wait()
			})
		})
	}
}

// commitUpwards commits rising offsets, and reads them back, until the end.
func (b *testBroker) commitUpwards(id string, over chan struct{}) {
	acknowledged := int64(-1)
	for offset := int64(0); ; offset++ {
		select {
		case <-over:
			return
		case <-time.After(time.Millisecond):
		}
		if b.commit(id, offset) == cluster.None {
			acknowledged = offset
		}
		if got, code := b.committed(id); code == cluster.None && got < acknowledged {
			b.t.Errorf("%s was committed at %d and is at %d", id, acknowledged, got)
			return
		}
	}
}
