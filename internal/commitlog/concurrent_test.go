package commitlog

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// TestReadersFollowAppendsAndRetention lets readers chase an appender while retention takes old segments away: every slice holds valid
// batches that follow one another, up to the high watermark of its read.
func TestReadersFollowAppendsAndRetention(t *testing.T) {
	b := osBroker(t)
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes, b.cfg.RetentionBytes, b.cfg.RetentionMs = 16<<10, 500, 64<<10, -1
	b.open()
	l := b.log("t", 0)
	const appends = 3000
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() { follow(t, l, done) })
	}
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := l.applyRetention(nowMs); err != nil {
				t.Error(err)
			}
			if _, _, err := l.OffsetForTimestamp(nowMs); err != nil && Code(err) != cluster.UnknownTopicOrPartition {
				t.Error(err)
			}
		}
	})
	for i := range appends {
		mustAppend(t, l, batchOf(1+i%3, 100, nowMs))
		if i%4 == 0 {
			l.MaybeIncrementHighWatermark(l.LogEndOffset() - 1)
		}
	}
	close(done)
	wg.Wait()
	if l.LogStartOffset() == 0 {
		t.Error("retention deleted nothing")
	}
}

func follow(t *testing.T, l *Log, done chan struct{}) {
	buf := make([]byte, 8<<10)
	next := int64(0)
	for {
		select {
		case <-done:
			return
		default:
		}
		r, err := l.Read(next, ReadOptions{MaxBytes: len(buf), Isolation: HighWatermark, MinOneMessage: true})
		if Code(err) == cluster.OffsetOutOfRange {
			next = l.LogStartOffset()
			continue
		}
		if err != nil {
			t.Errorf("read %d: %v", next, err)
			return
		}
		n, err := r.Records.ReadInto(buf[:r.Records.Len()])
		r.Records.Release()
		if err != nil {
			t.Errorf("slice at %d: %v", next, err)
			return
		}
		for rest := buf[:n]; len(rest) > 0; {
			batch, after, err := record.NextBatch(rest)
			if err == record.ErrShort {
				break
			}
			if err == nil {
				err = batch.Validate()
			}
			if err != nil || batch.BaseOffset > next || batch.LastOffset() < next || batch.NextOffset() > r.MaxOffset {
				t.Errorf("batch %d-%d at offset %d below %d: %v", batch.BaseOffset, batch.LastOffset(), next, r.MaxOffset, err)
				return
			}
			next, rest = batch.NextOffset(), after
		}
	}
}

// TestReadersMissNothingWhileALogIsCompacted reads a log whole at every stage of its compaction that the disk is to keep, and beside it.
// All keys differ, so compaction keeps every record; followers and consumers must get every one.
func TestReadersMissNothingWhileALogIsCompacted(t *testing.T) {
	var l *Log
	whole := func(when string) {
		if got, _ := readRecords(t, l, 0); !slices.Equal(got, offsets(0, 60)) {
			t.Errorf("%s: %d records: %v", when, len(got), got)
		}
	}
	var compacting atomic.Bool
	b := newBroker(t, vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		// A rename holds the segment; reads come here too.
		if op.Kind == vfs.OpSyncDir && compacting.CompareAndSwap(true, false) {
			whole(fmt.Sprint("before ", op.Kind, " ", op.Name))
			compacting.Store(true)
		}
		return nil
	}))
	b.opts.Log = quiet
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes, b.cfg.Compact = 300, 100, true
	b.open()
	l = b.log("t", 0)
	for i := range 60 {
		mustAppend(t, l, keyed(nowMs, []string{fmt.Sprint("key", i), "value"}))
	}
	l.MaybeIncrementHighWatermark(60)
	b.cfg.SegmentBytes = 3000 // groups of many segments
	for round := range 2 {
		job, _, err := l.cleanable(b.cfg, nowMs)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		var reading sync.WaitGroup
		if round == 1 {
			b.cfg.SegmentBytes = 6000
			job.dirty = 0
			for range 2 {
				reading.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
							whole("beside")
						}
					}
				})
			}
		}
		compacting.Store(round == 0)
		if err := l.clean(t.Context(), job, 1<<20); err != nil {
			t.Fatal(err)
		}
		compacting.Store(false)
		close(done)
		reading.Wait()
	}
	whole("after")
}
