package commitlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

func keyed(ts int64, kv []string, o ...func(*record.BuilderOptions)) []byte {
	var opts record.BuilderOptions
	for _, f := range o {
		f(&opts)
	}
	b := record.NewBuilder(opts)
	for i := 0; i < len(kv); i += 2 {
		var value []byte
		if kv[i+1] != "" {
			value = []byte(kv[i+1])
		}
		b.Append(ts, []byte(kv[i]), value, record.Header{Key: "h", Value: []byte(kv[i])})
	}
	out, err := b.Build()
	if err != nil {
		panic(err)
	}
	return out
}

// table reads a log from its start as a compacted topic is read; deleted keys are "". Headers must be those of the key.
func table(t *testing.T, l *Log) map[string]string {
	t.Helper()
	out := map[string]string{}
	for from := l.LogStartOffset(); from < l.LogEndOffset(); {
		r, err := l.Read(from, ReadOptions{MaxBytes: 1 << 20, Isolation: LogEnd, MinOneMessage: true})
		if err != nil {
			t.Fatal(err)
		}
		aborted := map[int64]bool{}
		buf := make([]byte, r.Records.Len())
		if _, err := r.Records.ReadInto(buf); err != nil {
			t.Fatal(err)
		}
		r.Records.Release()
		if len(buf) == 0 {
			t.Fatalf("nothing at %d of %d", from, l.LogEndOffset())
		}
		for len(buf) > 0 {
			b, rest, err := record.NextBatch(buf)
			if err == nil {
				err = b.Validate()
			}
			if err != nil {
				t.Fatal(err)
			}
			if !b.IsControl() && !aborted[b.ProducerID] {
				err = b.ForEach(0, func(r *record.Record) error {
					out[string(r.Key)] = string(r.Value)
					if h, err := r.Headers(); err != nil || len(h) != 1 || string(h[0].Value) != string(r.Key) {
						return fmt.Errorf("headers %v, %v", h, err)
					}
					return nil
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			buf, from = rest, b.NextOffset()
		}
	}
	return out
}

func compactedBroker(t *testing.T, fsys vfs.FS) *broker {
	b := newBroker(t, fsys)
	b.opts.Log, b.opts.CleanerEnable = quiet, true
	b.cfg.Compact, b.cfg.Delete = true, false
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes, b.cfg.DeleteRetention = 2000, 200, time.Hour
	b.cfg.MinCleanableDirtyRatio = 0.01
	return b
}

func fillTable(t *testing.T, l *Log, rounds int) {
	t.Helper()
	ts := time.Now().UnixMilli()
	for i := range rounds {
		kv := []string{fmt.Sprint("k", i%7), fmt.Sprint("v", i), fmt.Sprint("u", i%3), fmt.Sprint("w", i)}
		if i%10 == 9 {
			kv[1] = "" // a tombstone
		}
		codec := func(o *record.BuilderOptions) { o.Compression.Codec = record.Codec(i % 5) }
		if _, err := l.AppendAsLeader(keyed(ts, kv, codec), AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.MaybeIncrementHighWatermark(l.LogEndOffset())
}

func cleanOnce(t *testing.T, b *broker) bool {
	t.Helper()
	l, job := b.dirtiest()
	if l == nil {
		return false
	}
	if err := l.clean(context.Background(), job, 1<<20); err != nil {
		t.Fatal(err)
	}
	return true
}

func TestCompactionKeepsTheLastRecordOfEachKey(t *testing.T) {
	b := compactedBroker(t, vfs.NewMem()).open()
	l := b.log("t", 0)
	fillTable(t, l, 200)
	want, end, size := table(t, l), l.LogEndOffset(), l.Size()
	for cleanOnce(t, b) {
	}
	if d := cmp.Diff(want, table(t, l)); d != "" {
		t.Errorf("table (-before +after):\n%s", d)
	}
	if l.LogEndOffset() != end || l.Size() > size/3 {
		t.Errorf("end %d (%d), %d bytes of %d", l.LogEndOffset(), end, l.Size(), size)
	}
	fillTable(t, l, 30) // the next round joins what the first made small
	want, end = table(t, l), l.LogEndOffset()
	segments := l.Segments()
	for cleanOnce(t, b) {
	}
	if d := cmp.Diff(want, table(t, l)); d != "" || l.Segments() >= segments {
		t.Errorf("%d segments, before %d: %s", l.Segments(), segments, d)
	}
	if err := b.checkpointCleaned(b.Manager.dirs[0], b.Logs()); err != nil {
		t.Fatal(err)
	}
	b.kill().open()
	l = b.log("t", 0)
	if d := cmp.Diff(want, table(t, l)); d != "" || l.LogEndOffset() != end || l.cleaned.Load() == 0 {
		t.Errorf("after a kill: end %d, cleaned to %d: %s", l.LogEndOffset(), l.cleaned.Load(), d)
	}
}

func TestTombstonesGoAfterTheirRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := compactedBroker(t, vfs.NewMem())
		b.opts.CleanerBackoff = func() time.Duration { return time.Minute }
		b.open().run()
		l := b.log("t", 0)
		ts := time.Now().UnixMilli()
		put := func(kv ...string) {
			mustAppend(t, l, keyed(ts, kv))
			l.MaybeIncrementHighWatermark(l.LogEndOffset())
		}
		filler := func() {
			for i := range 40 {
				put(fmt.Sprint("filler", i%2), "a value that fills segments up")
			}
		}
		put("a", "1", "b", "2")
		put("a", "")
		filler()
		advance(2 * time.Minute)
		if v, ok := table(t, l)["a"]; !ok || v != "" {
			t.Errorf("the tombstone is gone before its time: %q %v", v, ok)
		}
		<-time.After(2 * time.Hour)
		filler()
		advance(2 * time.Minute)
		got := table(t, l)
		if _, ok := got["a"]; ok || got["b"] != "2" {
			t.Errorf("after delete.retention.ms: %v", got)
		}
	})
}

func TestCompactionDropsAbortedTransactionsAndKeepsProducers(t *testing.T) {
	b := compactedBroker(t, vfs.NewMem()).open()
	l := b.log("t", 0)
	ts := time.Now().UnixMilli()
	mustAppend(t, l, keyed(ts, []string{"a", "kept"}))
	mustAppend(t, l, keyed(ts, []string{"a", "aborted"}, transactional(1, 0, 0)))
	marker(t, l, 1, record.Abort)
	mustAppend(t, l, keyed(ts, []string{"b", "committed"}, transactional(2, 0, 0)))
	marker(t, l, 2, record.Commit)
	mustAppend(t, l, keyed(ts, []string{"c", "old"}, idempotent(3, 0, 7)))
	fillTable(t, l, 60)
	mustAppend(t, l, keyed(ts, []string{"c", "new"}))
	fillTable(t, l, 30)
	producers := l.ActiveProducers()
	for cleanOnce(t, b) {
	}
	got := table(t, l)
	if got["a"] != "kept" || got["b"] != "committed" || got["c"] != "new" {
		t.Errorf("a %q b %q c %q", got["a"], got["b"], got["c"])
	}
	b.kill().open()
	l = b.log("t", 0)
	if d := cmp.Diff(producers, l.ActiveProducers()); d != "" {
		t.Errorf("producers after compaction and a kill (-before +after):\n%s", d)
	}
	if info := mustAppend(t, l, keyed(ts, []string{"c", "old"}, idempotent(3, 0, 7))); !info.Duplicate {
		t.Errorf("the last batch of a producer whose records are gone: %+v", info)
	}
}

func TestAPowerCutDuringCompactionLosesNothing(t *testing.T) {
	mem := vfs.NewMem()
	armed := false
	n, seen := uint64(0), 0
	var want map[string]string
	var end int64
	b := compactedBroker(t, vfs.NewFault(mem, func(op vfs.Op) error {
		n++
		if !armed || op.Kind == vfs.OpRead || op.Kind == vfs.OpOpen {
			return nil
		}
		for cut := range uint64(3) {
			after := compactedBroker(t, mem.CrashClone(3*n+cut)).open()
			l := after.log("t", 0)
			got := table(t, l)
			maps.DeleteFunc(got, func(_, v string) bool { return v == "" })
			if d := cmp.Diff(want, got); d != "" || l.LogEndOffset() != end {
				t.Fatalf("operation %d (%v): end %d of %d: %s", n, op, l.LogEndOffset(), end, d)
			}
			seen++
		}
		return nil
	})).open()
	l := b.log("t", 0)
	fillTable(t, l, 100)
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	want, end = table(t, l), l.LogEndOffset()
	maps.DeleteFunc(want, func(_, v string) bool { return v == "" })
	armed = true
	for cleanOnce(t, b) {
	}
	armed = false
	if seen < 60 {
		t.Errorf("only %d cuts", seen)
	}
}

// A compacted topic is deleted while its log is being cleaned: cleaner and deletion do not hold each other up, and the name can be
// used again.
func TestACompactedLogIsDeletedWhileTheCleanerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := compactedBroker(t, vfs.NewMem())
		b.opts.CleanerBackoff = func() time.Duration { return time.Second }
		b.open().run()
		for round := range 20 {
			l := b.log("t", 0)
			fillTable(t, l, 60)
			<-time.After(time.Duration(round) * 100 * time.Millisecond) // of fake time: the cleaner looks once a second
			if failed := b.Delete([]cluster.TopicPartition{l.TopicPartition()}); len(failed) > 0 {
				t.Fatalf("round %d: %v", round, failed)
			}
			if _, known := b.Get(l.TopicPartition()); known {
				t.Fatalf("round %d: the log is still known", round)
			}
		}
		advance(2 * time.Minute)
		if pending := b.PendingDeletes(); len(pending) > 0 {
			t.Errorf("not removed: %v", pending)
		}
		l := b.log("t", 0)
		fillTable(t, l, 30)
		want := table(t, l)
		advance(5 * time.Second)
		if d := cmp.Diff(want, table(t, l)); d != "" || l.cleaned.Load() == 0 {
			t.Errorf("the next log of the name is cleaned to %d: %s", l.cleaned.Load(), d)
		}
	})
}

// A disk error at any operation of a compaction costs no record: what was written last stays, or what it was made of.
func TestADiskErrorAnywhereInACompactionLosesNothing(t *testing.T) {
	failures := 0
	for at := 1; ; at++ {
		n, on := 0, false
		mem := vfs.NewMem()
		b := newBroker(t, vfs.NewFault(mem, func(vfs.Op) error {
			if !on {
				return nil
			}
			if n++; n == at {
				return errors.New("disk error")
			}
			return nil
		}))
		b.opts.Log = quiet
		b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes, b.cfg.Compact = 300, 100, true
		b.open()
		l := b.log("t", 0)
		for i := range 30 {
			mustAppend(t, l, keyed(nowMs, []string{fmt.Sprint("key", i), "value"}))
		}
		l.MaybeIncrementHighWatermark(30)
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		b.cfg.SegmentBytes = 1000
		job, _, err := l.cleanable(b.cfg, nowMs)
		if err != nil {
			t.Fatal(err)
		}
		on = true
		err = l.clean(t.Context(), job, 1<<20)
		on = false
		if err != nil {
			failures++
		}
		b.kill()
		after := newBroker(t, mem)
		after.opts.Log = quiet
		after.cfg = b.cfg
		after.open()
		if got, _ := after.Get(tp("t", 0)); got == nil {
			t.Errorf("error at operation %d (%v): no log", at, err)
		} else if d := cmp.Diff(offsets(0, 30), readAll(t, got, 0)); d != "" {
			t.Errorf("error at operation %d (%v): %s", at, err, d)
		}
		if n < at {
			break // beyond the last operation
		}
	}
	if failures < 20 {
		t.Errorf("only %d errors were met", failures)
	}
}
