package commitlog

import (
	"errors"
	"slices"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// TruncateTo drops every record at or after an offset; it reports whether there was any (Kafka: UnifiedLog.truncateTo).
func (l *Log) TruncateTo(offset int64) (bool, error) {
	if offset < 0 {
		return false, refuse(cluster.InvalidRequest, "cannot truncate partition %s to a negative offset (%d)", l.tp, offset)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	if end := l.LogEndOffset(); offset >= end {
		l.epochs.dropUnused(end)
		return false, nil
	}
	if first := (*l.segments.Load())[0].base; offset < first {
		return true, l.ioError(l.restartLocked(offset))
	}
	return true, l.ioError(l.truncateLocked(offset))
}

func (l *Log) truncateLocked(offset int64) error {
	list := *l.segments.Load()
	n := floorSegment(list, offset) + 1
	last := list[n-1]
	if err := l.lowerRecoveryPoint(offset); err != nil {
		return err
	}
	l.touch(time.Now().UnixMilli())
	l.setSegments(slices.Clone(list[:n]))
	// The later segments must be gone for good before this one is cut, or a power cut in between leaves a hole that looks like compaction's.
	if err := l.discardDurably(list[n:]); err != nil {
		return err
	}
	if err := last.truncateTo(offset); err != nil {
		return err
	}
	l.lowerEnd(OffsetMetadata{Offset: offset, SegmentBase: last.base, Position: last.size.Load()})
	if err := l.removeSnapshots(func(o int64) bool { return o > offset }); err != nil {
		return err
	}
	l.epochs.truncateFromEnd(offset)
	l.start.Store(min(l.start.Load(), offset))
	l.m.later(l)
	if err := l.rebuildProducers(offset); err != nil {
		return err
	}
	l.updateUnstable()
	return nil
}

// lowerRecoveryPoint takes back, durably and before the log is cut, that what lies above an offset needs no recovery. Else a crash after
// new records were appended there would leave them taken for durable. A flush under way will not raise it again.
func (l *Log) lowerRecoveryPoint(offset int64) error {
	l.marks.Lock()
	l.truncations.Add(1)
	lower := l.recovery.Load() > offset
	l.recovery.Store(min(l.recovery.Load(), offset))
	l.cleaned.Store(min(l.cleaned.Load(), offset))
	l.marks.cut = min(l.marks.cut, offset)
	l.marks.Unlock()
	if !lower || !l.onDisk.Load() {
		return nil
	}
	return l.m.checkpointRecoveryPoints(l.dir, l.m.logsIn(l.dir))
}

// lowerEnd sets the end after a truncation.
func (l *Log) lowerEnd(end OffsetMetadata) {
	l.setEnd(end)
	l.marks.Lock()
	defer l.marks.Unlock()
	if hw := l.marks.hw; hw.SegmentBase == end.SegmentBase && hw.Position > end.Position {
		l.marks.hw.Position = -1
	}
}

// TruncateFullyAndStartAt drops all records; the next one gets the offset.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	if offset < 0 {
		return refuse(cluster.InvalidRequest, "cannot start partition %s at a negative offset (%d)", l.tp, offset)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.ioError(l.restartLocked(offset))
}

func (l *Log) restartLocked(offset int64) error {
	old := *l.segments.Load()
	if err := l.lowerRecoveryPoint(offset); err != nil {
		return err
	}
	l.touch(time.Now().UnixMilli())
	if err := l.discardDurably(old); err != nil {
		return err
	}
	s := l.newSegment(offset)
	if l.onDisk.Load() {
		if _, err := s.file(logSuffix, true); err != nil {
			return err
		}
	}
	l.setSegments([]*segment{s})
	l.start.Store(offset)
	l.marks.Lock()
	l.marks.end = OffsetMetadata{Offset: offset, SegmentBase: offset}
	l.marks.hw = l.marks.end
	l.marks.Unlock()
	l.epochs.clear()
	l.m.later(l)
	l.producers.reset(offset)
	l.producers.snapEnd = 0
	l.unstable.Store(-1)
	return l.removeSnapshots(func(int64) bool { return true })
}

// rebuildProducers restores the producers' state as of an offset from the newest snapshot before it and the batches since (Kafka:
// UnifiedLog.rebuildProducerState). With mu held, or while loading.
func (l *Log) rebuildProducers(offset int64) error {
	if err := l.loadSnapshot(offset); err != nil {
		return err
	}
	p := &l.producers
	list := *l.segments.Load()
	for i := max(floorSegment(list, p.mapEnd), 0); i < len(list) && list[i].base < offset && p.mapEnd < offset; i++ {
		if err := l.replaySegment(list[i], offset); err != nil {
			return err
		}
	}
	p.mapEnd = offset
	return nil
}

func (l *Log) replaySegment(s *segment, below int64) error {
	size := s.size.Load()
	from, found, err := s.find(l.producers.mapEnd, size)
	if err != nil || !found {
		return err
	}
	f, err := s.file(logSuffix, false)
	if err != nil {
		return err
	}
	_, err = scanBatches(f, from.position, size, false, func(_ int64, b record.Batch) error {
		if b.BaseOffset >= below || b.NextOffset() <= l.producers.mapEnd {
			return nil
		}
		c, done, err := l.producers.replay(l.tp, b)
		if done {
			l.producers.complete(c)
		}
		return err
	})
	if errors.Is(err, errCorrupt) {
		l.m.log.Error("a segment below the recovery point is damaged", "partition", l.tp.String(), "dir", l.dir.path, "offset", l.producers.mapEnd, "err", err)
		return nil
	}
	return err
}
