package commitlog

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

func TestSequencesOfIdempotentProducers(t *testing.T) {
	type step struct {
		epoch int16
		seq   int32
		n     int
		want  cluster.ErrorCode
		dup   int64 // first offset of the batch it repeats, -1 none
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"an unknown producer may start anywhere", []step{{0, 17, 1, cluster.None, -1}, {0, 18, 1, cluster.None, -1}}},
		{"a gap is out of order", []step{{0, 0, 1, cluster.None, -1}, {0, 2, 1, cluster.OutOfOrderSequenceNumber, -1}, {0, 1, 1, cluster.None, -1}}},
		{"a new epoch starts at 0", []step{{0, 0, 1, cluster.None, -1}, {1, 1, 1, cluster.OutOfOrderSequenceNumber, -1}, {1, 0, 1, cluster.None, -1}}},
		{"an old epoch is fenced", []step{{3, 0, 1, cluster.None, -1}, {2, 1, 1, cluster.InvalidProducerEpoch, -1}}},
		{"sequences wrap after 2^31-1", []step{{0, math.MaxInt32 - 1, 2, cluster.None, -1}, {0, 0, 1, cluster.None, -1}, {0, math.MaxInt32 - 1, 2, cluster.None, 0}}},
		{"a batch may span the wrap", []step{{0, math.MaxInt32, 3, cluster.None, -1}, {0, 2, 1, cluster.None, -1}, {0, math.MaxInt32, 3, cluster.None, 0}}},
		{"the last five batches are known as duplicates", []step{
			{0, 0, 1, cluster.None, -1}, {0, 1, 2, cluster.None, -1}, {0, 3, 1, cluster.None, -1}, {0, 4, 1, cluster.None, -1}, {0, 5, 1, cluster.None, -1}, {0, 6, 1, cluster.None, -1},
			{0, 1, 2, cluster.None, 1}, {0, 6, 1, cluster.None, 6}, {0, 0, 1, cluster.OutOfOrderSequenceNumber, -1}, {0, 1, 1, cluster.OutOfOrderSequenceNumber, -1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBroker(t).open()
			l := b.log("t", 0)
			for i, s := range tt.steps {
				end := l.LogEndOffset()
				info, err := l.AppendAsLeader(batchOf(s.n, 5, nowMs, idempotent(9, s.epoch, s.seq)), AppendOptions{})
				if Code(err) != s.want {
					t.Fatalf("step %d: %v, want %v", i, err, s.want)
				}
				if err != nil {
					if l.LogEndOffset() != end {
						t.Fatalf("step %d: a refused batch was appended", i)
					}
					continue
				}
				wantFirst, wantEnd := end, end+int64(s.n)
				if s.dup >= 0 {
					wantFirst, wantEnd = s.dup, end
				}
				if info.FirstOffset != wantFirst || info.LastOffset != wantFirst+int64(s.n)-1 || info.Duplicate != (s.dup >= 0) || l.LogEndOffset() != wantEnd {
					t.Fatalf("step %d: %+v, end %d; want first %d, end %d", i, info, l.LogEndOffset(), wantFirst, wantEnd)
				}
			}
		})
	}
}

func TestProducerStateSurvivesRestarts(t *testing.T) {
	for _, how := range []string{"clean", "kill"} {
		t.Run(how, func(t *testing.T) {
			b := newBroker(t)
			b.cfg.SegmentBytes = 5000
			b.open()
			l := b.log("t", 0)
			for seq := range int32(60) {
				mustAppend(t, l, batchOf(1, 200, nowMs, idempotent(1, 0, seq)))
				mustAppend(t, l, batchOf(1, 10, nowMs, idempotent(2, 4, seq)))
			}
			if l.Segments() < 3 {
				t.Fatal("too few segments")
			}
			before := l.ActiveProducers()
			if how == "clean" {
				b.close()
			} else {
				b.kill()
			}
			b.open()
			l, _ = b.Get(tp("t", 0))
			if d := cmp.Diff(before, l.ActiveProducers()); d != "" {
				t.Errorf("producers (-before +after):\n%s", d)
			}
			info := mustAppend(t, l, batchOf(1, 200, nowMs, idempotent(1, 0, 59)))
			if !info.Duplicate || info.FirstOffset != 118 {
				t.Errorf("the last batch again: %+v", info)
			}
			if _, err := l.AppendAsLeader(batchOf(1, 200, nowMs, idempotent(1, 0, 61)), AppendOptions{}); Code(err) != cluster.OutOfOrderSequenceNumber {
				t.Errorf("a gap after restart: %v", err)
			}
			mustAppend(t, l, batchOf(1, 200, nowMs, idempotent(1, 0, 60)))
		})
	}
}

func marker(t *testing.T, l *Log, pid int64, kind record.ControlType) {
	t.Helper()
	m := record.EndTxnMarker{ProducerID: pid, Type: kind, TimestampMs: nowMs}
	if _, err := l.AppendAsLeader(m.Batch(), AppendOptions{Origin: Coordinator}); err != nil {
		t.Fatal(err)
	}
}

func TestTransactionsHoldTheLastStableOffsetAndAbortsAreListed(t *testing.T) {
	b := newBroker(t)
	b.cfg.SegmentBytes = 2000
	b.open()
	l := b.log("t", 0)
	raise := func() { l.MaybeIncrementHighWatermark(l.LogEndOffset()) }

	mustAppend(t, l, batchOf(2, 100, nowMs))                         // 0-1
	mustAppend(t, l, batchOf(3, 100, nowMs, transactional(1, 0, 0))) // 2-4
	mustAppend(t, l, batchOf(2, 100, nowMs, transactional(2, 0, 0))) // 5-6
	mustAppend(t, l, batchOf(9, 100, nowMs))                         // 7-15
	raise()
	if got := l.LastStableOffset(); got != 2 {
		t.Errorf("last stable offset %d, want 2", got)
	}
	if !l.HasOngoingTransaction(1) || l.HasOngoingTransaction(3) {
		t.Error("ongoing transactions")
	}
	marker(t, l, 1, record.Abort) // 16
	if got := l.LastStableOffset(); got != 2 {
		t.Errorf("last stable offset %d before the marker is replicated, want 2", got)
	}
	raise()
	if got := l.LastStableOffset(); got != 5 {
		t.Errorf("last stable offset %d, want 5", got)
	}
	marker(t, l, 2, record.Commit) // 17
	raise()
	if got := l.LastStableOffset(); got != 18 {
		t.Errorf("last stable offset %d, want 18", got)
	}
	check := func(from int64, want []AbortedTxn) {
		t.Helper()
		r, err := l.Read(from, ReadOptions{MaxBytes: 1 << 20, Isolation: TxnCommitted, MinOneMessage: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Records.Release()
		if d := cmp.Diff(want, r.Aborted); d != "" {
			t.Errorf("aborted from %d (-want +got):\n%s", from, d)
		}
	}
	check(0, []AbortedTxn{{1, 2}})
	check(4, []AbortedTxn{{1, 2}})
	check(17, nil)
	if l.Segments() < 2 {
		t.Fatal("one segment")
	}
	b.kill()
	b.open()
	l, _ = b.Get(tp("t", 0))
	raise()
	check(0, []AbortedTxn{{1, 2}})
	if got := l.LastStableOffset(); got != 18 {
		t.Errorf("last stable offset %d after restart, want 18", got)
	}
}

// TestR22AProducerGoesOnAfterItsExpiry holds requirement R22: a producer that was idle for longer than producer.id.expiration.ms is forgotten
// and goes on with its next sequence, whichever that is; one with an open transaction is kept.
func TestR22AProducerGoesOnAfterItsExpiry(t *testing.T) {
	b := newBroker(t).open()
	l := b.log("t", 0)
	for seq := range int32(3) {
		mustAppend(t, l, batchOf(1, 5, nowMs, idempotent(1, 0, seq)))
	}
	mustAppend(t, l, batchOf(1, 5, nowMs, transactional(2, 0, 0)))
	l.expireProducers(nowMs+25*3600*1000, b.producerExpiry())
	var ids []int64
	for _, p := range l.ActiveProducers() {
		ids = append(ids, p.ProducerID)
	}
	if d := cmp.Diff([]int64{2}, ids); d != "" { // its transaction is undecided
		t.Error(d)
	}
	if info := mustAppend(t, l, batchOf(1, 5, nowMs, idempotent(1, 0, 3))); info.FirstOffset != 4 || info.Duplicate {
		t.Errorf("the next batch after the expiry: %+v", info)
	}
	if info := mustAppend(t, l, batchOf(1, 5, nowMs, idempotent(1, 0, 3))); !info.Duplicate {
		t.Errorf("the same batch again: %+v", info)
	}
	if _, err := l.AppendAsLeader(batchOf(1, 5, nowMs, idempotent(1, 0, 5)), AppendOptions{}); Code(err) != cluster.OutOfOrderSequenceNumber {
		t.Errorf("a gap after the expiry: %v", err)
	}
}

// A producer is idle when it sends nothing, however old its records say they are: one that copies the records of last year is known for
// as long as others, over a restart and a crash too.
func TestProducersOfOldRecordsAreNotForgottenWhileTheyAreBusy(t *testing.T) {
	const year = 365 * 24 * 3600 * 1000
	for how, restart := range map[string]func(b *broker){
		"running": nil,
		"stopped": func(b *broker) { b.close(); b.open() },
		"killed":  func(b *broker) { b.kill(); b.open() },
	} {
		t.Run(how, func(t *testing.T) {
			b := newBroker(t).open()
			l := b.log("t", 0)
			old := func(sequence int32) []byte { return batchOf(1, 5, nowMs-year, idempotent(1, 0, sequence)) }
			mustAppend(t, l, old(0))
			mustAppend(t, l, old(1))
			if restart != nil {
				restart(b)
				l, _ = b.Get(tp("t", 0))
			}
			l.expireProducers(time.Now().UnixMilli(), b.producerExpiry())
			if info := mustAppend(t, l, old(1)); !info.Duplicate || info.FirstOffset != 1 {
				t.Errorf("the last batch again: %+v", info)
			}
			l.expireProducers(time.Now().Add(b.producerExpiry()).UnixMilli(), b.producerExpiry())
			if got := l.ActiveProducers(); len(got) != 0 {
				t.Errorf("after the expiry there are %+v", got)
			}
		})
	}
}
