package commitlog

import (
	"errors"
	"fmt"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// recover checks the segments from the recovery point on and cuts the log at the first bad batch. It returns the log end offset.
func (ld *loader) recover() (int64, error) {
	l := ld.l
	began := time.Now()
	list := *l.segments.Load()
	first := max(floorSegment(list, ld.at.recoveryPoint), 0)
	base := list[first].base
	ld.recoveredFrom = base
	// Snapshots after that point are not believed: they may not have reached the disk before the crash.
	doubtful := l.setAsideSnapshots(base)
	if err := l.rebuildProducers(max(base, l.start.Load())); err != nil {
		return 0, err
	}
	end := base
	for i := first; i < len(list); i++ {
		s := list[i]
		if ld.hole(end, s) {
			l.m.log.Warn("records between two segments were lost, dropping what follows", "partition", l.tp.String(), "from", end, "to", s.base)
			if err := ld.dropFrom(list, i); err != nil {
				return 0, err
			}
			break
		}
		if i > first {
			l.producers.mapEnd = s.base
			if err := l.takeSnapshot(); err != nil {
				return 0, err
			}
		}
		next, cut, err := ld.recoverSegment(s)
		if err != nil {
			return 0, fmt.Errorf("recover segment %s/%s: %w", l.dir.path, s.path(logSuffix), err)
		}
		end = next
		if cut > 0 {
			l.m.log.Warn("cut a segment at its first bad batch", "partition", l.tp.String(), "offset", end, "bytes", cut)
			if err := ld.dropFrom(list, i+1); err != nil {
				return 0, err
			}
			break
		}
		if i < len(list)-1 {
			if err := s.seal(); err != nil {
				return 0, err
			}
		}
	}
	l.producers.mapEnd = end
	if err := l.confirmSnapshots(doubtful); err != nil {
		return 0, err
	}
	l.m.log.Debug("recovered a log", "partition", l.tp.String(), "from", ld.at.recoveryPoint, "to", end, "duration", time.Since(began))
	return end, nil
}

// hole reports whether records are missing before a segment that recovery came to: a power cut may keep a segment and lose the end of the
// one before it. Kafka takes such a log for good; only where compaction leaves holes of its own, or where the recovery point is not known, is
// that done here.
func (ld *loader) hole(end int64, s *segment) bool {
	return s.base > end && ld.at.pointKnown && !ld.l.cfg.Load().Compact && !cluster.IsInternalTopic(ld.l.tp.Topic)
}

func (ld *loader) dropFrom(list []*segment, i int) error {
	ld.l.setSegments(list[:i:i])
	return ld.l.discard(list[i:])
}

// recoverSegment reads a whole segment, rebuilding its indexes, and truncates it after the last good batch (Kafka: LogSegment.recover).
func (ld *loader) recoverSegment(s *segment) (next, cut int64, err error) {
	l := ld.l
	next = s.base
	size := s.size.Load()
	if err := ld.resetAborted(s); err != nil {
		return 0, 0, err
	}
	s.offsets.reset()
	s.times.reset()
	s.maxTimestamp, s.maxTimestampAt, s.bytesSinceIndex, s.firstTimestamp = -1, s.base, 0, noFirstTimestamp
	if size == 0 {
		return next, 0, ld.finishIndexes(s)
	}
	f, err := s.file(logSuffix, true)
	if err != nil {
		return 0, 0, err
	}
	interval := l.cfg.Load().IndexIntervalBytes
	valid, err := scanBatches(f, 0, size, true, func(pos int64, b record.Batch) error {
		if b.BaseOffset < next || !s.fits(b.LastOffset()) {
			return fmt.Errorf("%w: offset %d after %d", errCorrupt, b.BaseOffset, next)
		}
		next = b.NextOffset()
		if err := s.note(&b.BatchHeader, pos, interval); err != nil {
			return err
		}
		ld.noteEpoch(&b.BatchHeader)
		return ld.replay(s, b)
	})
	if err != nil && !errors.Is(err, errCorrupt) {
		return 0, 0, err
	}
	s.size.Store(valid)
	if err := ld.finishIndexes(s); err != nil {
		return 0, 0, err
	}
	if valid == size {
		return next, 0, nil
	}
	return next, size - valid, f.Truncate(valid)
}

// finishIndexes completes the indexes that were filled from a segment's batches (Kafka: LogSegment.recover adds the largest timestamp
// too), and their files where they disagree.
func (ld *loader) finishIndexes(s *segment) error {
	if err := s.indexTime(); err != nil {
		return err
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		if err := x.rebuilt(ld.files[fileName(s.base, x.name)]); err != nil {
			return err
		}
	}
	return nil
}

func (ld *loader) resetAborted(s *segment) error {
	s.aborted.entries = nil
	if _, ok := ld.files[fileName(s.base, txnIndexSuffix)]; !ok {
		return nil
	}
	f, err := s.file(txnIndexSuffix, true)
	if err != nil {
		return err
	}
	return f.Truncate(0)
}

// replay updates producers and the transaction index with a recovered batch.
func (ld *loader) replay(s *segment, b record.Batch) error {
	p := &ld.l.producers
	if b.NextOffset() <= p.mapEnd {
		return nil // below the log's start
	}
	c, done, err := p.replay(ld.l.tp, b)
	if err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if !done {
		return nil
	}
	if c.aborted {
		if err := s.aborted.append(abortedEntry{c.producerID, c.first, c.last, p.stableAfter(c)}); err != nil {
			return err
		}
	}
	p.complete(c)
	return nil
}
