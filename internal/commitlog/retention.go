package commitlog

import (
	"slices"
	"time"

	"klamm/internal/cluster"
)

// MaybeIncrementLogStartOffset moves the log's start up (DeleteRecords, a leader's start); lower offsets change nothing. An offset beyond the
// high watermark is OFFSET_OUT_OF_RANGE.
func (l *Log) MaybeIncrementLogStartOffset(offset int64, reason string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if hw := l.HighWatermark(); offset > hw {
		return refuse(cluster.OffsetOutOfRange, "Cannot increment the log start offset to %d of partition %s since it is larger than the high watermark %d", offset, l.tp, hw)
	}
	l.raiseStart(offset, reason)
	return nil
}

// raiseStart is MaybeIncrementLogStartOffset for callers that hold mu and know the offset to be below the high watermark.
func (l *Log) raiseStart(offset int64, reason string) {
	if offset <= l.start.Load() {
		return
	}
	// Kafka raises the recovery point too, without having flushed: a power cut could then take the segment's end with it.
	l.start.Store(offset)
	l.epochs.truncateFromStart(offset)
	l.m.later(l)
	p := &l.producers
	p.replicated(offset)
	p.mapEnd = max(p.mapEnd, offset)
	l.updateUnstable()
	l.m.log.Debug("log start offset moved", "partition", l.tp.String(), "offset", offset, "reason", reason)
}

// applyRetention deletes the segments that retention by log start, size or time gives up; it returns how many.
func (l *Log) applyRetention(nowMs int64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.usable() != nil || !l.onDisk.Load() {
		return 0, nil
	}
	cfg := l.cfg.Load()
	deleted, err := l.deleteOldest("log start offset", func(_, next *segment) (bool, error) {
		return next != nil && next.base <= l.start.Load(), nil
	})
	if err != nil || !cfg.Delete {
		return deleted, l.ioError(err)
	}
	if excess := l.Size() - cfg.RetentionBytes; cfg.RetentionBytes >= 0 && excess >= 0 {
		n, err := l.deleteOldest("retention size", func(s, _ *segment) (bool, error) {
			size := s.size.Load()
			if excess < size {
				return false, nil
			}
			excess -= size
			return true, nil
		})
		deleted += n
		if err != nil {
			return deleted, l.ioError(err)
		}
	}
	if cfg.RetentionMs < 0 {
		return deleted, nil
	}
	n, err := l.deleteOldest("retention time", func(s, _ *segment) (bool, error) {
		largest, err := s.largestTimestamp()
		return err == nil && nowMs-largest > cfg.RetentionMs.Milliseconds(), err
	})
	return deleted + n, l.ioError(err)
}

// deleteOldest deletes segments from the oldest on as long as the predicate holds and all their records are below the high watermark
// (Kafka: UnifiedLog.deleteOldSegments). The active segment is rolled first if it is among them.
func (l *Log) deleteOldest(reason string, give func(s, next *segment) (bool, error)) (int, error) {
	list := *l.segments.Load()
	hw, end := l.HighWatermark(), l.LogEndOffset()
	n := 0
	for ; n < len(list); n++ {
		var next *segment
		upper := end
		if n+1 < len(list) {
			next = list[n+1]
			upper = next.base
		}
		if hw < upper || next == nil && list[n].size.Load() == 0 {
			break
		}
		ok, err := give(list[n], next)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
	}
	if n == 0 {
		return 0, nil
	}
	if n == len(list) {
		if _, err := l.rollLocked(end); err != nil {
			return 0, err
		}
		list = *l.segments.Load()
	}
	gone := list[:n]
	l.raiseStart(list[n].base, reason)
	l.setSegments(slices.Clone(list[n:]))
	if err := l.discard(gone); err != nil {
		return n, err
	}
	first := list[n].base
	return n, l.removeSnapshots(func(o int64) bool { return o < first })
}

// maybeFlushByTime flushes a log whose oldest unflushed record waited for flush.ms.
func (l *Log) maybeFlushByTime(nowMs int64) error {
	cfg := l.cfg.Load()
	if l.usable() != nil || time.Duration(nowMs-l.flushedMs.Load())*time.Millisecond < cfg.FlushMs {
		return nil
	}
	return l.ioError(l.flushTo(l.LogEndOffset()))
}
