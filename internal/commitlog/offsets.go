package commitlog

import (
	"errors"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// The special timestamps of ListOffsets.
const (
	LatestTimestamp        int64 = -1
	EarliestTimestamp      int64 = -2
	MaxTimestamp           int64 = -3
	EarliestLocalTimestamp int64 = -4
	LatestTieredTimestamp  int64 = -5
)

// TimestampOffset is a record's timestamp and offset, as ListOffsets answers them.
type TimestampOffset struct {
	Timestamp   int64 // -1 for the special timestamps
	Offset      int64
	LeaderEpoch cluster.LeaderEpoch // NoLeaderEpoch when unknown
}

// OffsetForTimestamp answers ListOffsets: the first record whose timestamp is at or after ts, or what a special timestamp names. found is
// false when there is no such record (Kafka: UnifiedLog.fetchOffsetByTimestamp).
func (l *Log) OffsetForTimestamp(ts int64) (found TimestampOffset, ok bool, err error) {
	if err := l.usable(); err != nil {
		return found, false, err
	}
	switch ts {
	case LatestTimestamp:
		e, _ := l.epochs.latest()
		return TimestampOffset{-1, l.LogEndOffset(), e.epoch}, true, nil
	case EarliestTimestamp, EarliestLocalTimestamp:
		start := l.start.Load()
		epoch := cluster.NoLeaderEpoch
		if e, ok := l.epochs.earliest(); ok && e.start <= start {
			epoch = e.epoch
		}
		return TimestampOffset{-1, start, epoch}, true, nil
	case LatestTieredTimestamp: // nothing is tiered
		return TimestampOffset{-1, -1, cluster.NoLeaderEpoch}, true, nil
	}
	for {
		l.mu.Lock()
		view, err := l.timestampView()
		l.mu.Unlock()
		if err != nil {
			return found, false, l.ioError(err)
		}
		if ts == MaxTimestamp {
			found, ok, err = l.maxTimestampRecord(view)
		} else {
			found, ok, err = l.searchTimestamp(view, ts)
		}
		if err == errLogGone && l.usable() == nil {
			continue // a segment was replaced or deleted meanwhile
		}
		return found, ok, l.ioError(err)
	}
}

// segmentTimes is a segment with its largest timestamp at one moment.
type segmentTimes struct {
	seg          *segment
	max, largest int64 // largest falls back to the file's age
	maxAt        int64
	size         int64
}

func (l *Log) timestampView() ([]segmentTimes, error) {
	list := *l.segments.Load()
	out := make([]segmentTimes, 0, len(list))
	for _, s := range list {
		largest, err := s.largestTimestamp()
		if err != nil {
			return nil, err
		}
		out = append(out, segmentTimes{s, s.maxTimestamp, largest, s.maxTimestampAt, s.size.Load()})
	}
	return out, nil
}

// searchTimestamp looks in each segment that may have the record. Kafka gives up after the first, which may lie below the log's start.
func (l *Log) searchTimestamp(view []segmentTimes, ts int64) (found TimestampOffset, ok bool, err error) {
	start := l.start.Load()
	for i, t := range view {
		if t.largest < ts || i+1 < len(view) && view[i+1].seg.base <= start {
			continue
		}
		if found, ok, err = t.search(ts, start); ok || err != nil {
			return found, ok, err
		}
	}
	return found, false, nil
}

func (t segmentTimes) search(ts, start int64) (found TimestampOffset, ok bool, err error) {
	s := t.seg
	if err := s.acquire(); err != nil {
		return found, false, err
	}
	defer s.release()
	at := start
	if e, ok, err := s.times.floor(ts); err != nil {
		return found, false, err
	} else if ok {
		at = max(at, s.base+int64(e.val))
	}
	var from int64
	if e, ok, err := s.offsets.floor(at - s.base); err != nil {
		return found, false, err
	} else if ok {
		from = int64(e.val)
	}
	return s.firstRecord(from, t.size, func(b *record.Batch) bool { return b.MaxTimestamp >= ts && b.LastOffset() >= start },
		func(r *record.Record) bool { return r.Timestamp >= ts && r.Offset >= start })
}

func (l *Log) maxTimestampRecord(view []segmentTimes) (found TimestampOffset, ok bool, err error) {
	best := view[0]
	for _, t := range view[1:] {
		if t.max > best.max {
			best = t
		}
	}
	if best.max < 0 {
		return found, false, nil
	}
	s := best.seg
	if err := s.acquire(); err != nil {
		return found, false, err
	}
	defer s.release()
	var from int64
	// maxAt is the last offset of the batch: the index entry at or before it starts no later than that batch.
	if e, ok, err := s.offsets.floor(best.maxAt - s.base); err != nil {
		return found, false, err
	} else if ok {
		from = int64(e.val)
	}
	return s.firstRecord(from, best.size, func(b *record.Batch) bool { return b.MaxTimestamp == best.max },
		func(r *record.Record) bool { return r.Timestamp == best.max })
}

var errStop = errors.New("stop")

// firstRecord scans from a position for the first record that matches, in batches that match. Under LogAppendTime the batch's first record
// stands for all. The caller has acquired the segment.
func (s *segment) firstRecord(from, size int64, inBatch func(*record.Batch) bool, match func(*record.Record) bool) (found TimestampOffset, ok bool, err error) {
	if from >= size {
		return found, false, nil // also of a log that was never appended to: it has no file
	}
	f, err := s.file(logSuffix, false)
	if err != nil {
		return found, false, err
	}
	_, err = scanBatches(f, from, size, false, func(_ int64, b record.Batch) error {
		if !inBatch(&b) {
			return nil
		}
		err := b.ForEach(0, func(r *record.Record) error {
			if !match(r) {
				return nil
			}
			found, ok = TimestampOffset{r.Timestamp, r.Offset, cluster.LeaderEpoch(b.PartitionLeaderEpoch)}, true
			return errStop
		})
		return err
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	return found, ok, err
}
