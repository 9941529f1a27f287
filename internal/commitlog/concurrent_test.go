package commitlog

import (
	"sync"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/record"
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
