package commitlog

import (
	"errors"

	"klamm/internal/cluster"
)

// Isolation bounds what a read may see.
type Isolation int8

// The isolations.
const (
	LogEnd        Isolation = iota // everything: followers
	HighWatermark                  // replicated records: consumers
	TxnCommitted                   // below the last stable offset: read_committed consumers
)

// ReadOptions says how much a read returns.
type ReadOptions struct {
	MaxBytes  int
	Isolation Isolation
	// MinOneMessage returns the first batch whole even if it is larger than MaxBytes.
	MinOneMessage bool
}

// ReadResult is what a read found. Records must be released.
type ReadResult struct {
	Records *FileSlice     // never nil
	Fetch   OffsetMetadata // the asked offset and where its batch starts
	// MaxOffset is the bound that applied at the time of the read.
	MaxOffset                                       int64
	LogStartOffset, HighWatermark, LastStableOffset int64
	// FirstEntryIncomplete tells that MaxBytes cut the first batch (only without MinOneMessage).
	FirstEntryIncomplete bool
	// Aborted lists the aborted transactions that the records touch; only for TxnCommitted.
	Aborted []AbortedTxn
}

// nothing is the slice of reads that find nothing.
var nothing FileSlice

// Read locates the batches from an offset on, without reading them: the slice does, into the caller's buffer. An offset below the log's
// start or beyond its end is OFFSET_OUT_OF_RANGE; one at or beyond the isolation's bound gives an empty slice.
func (l *Log) Read(offset int64, o ReadOptions) (ReadResult, error) {
	for {
		r, err := l.readOnce(offset, o)
		if err != errStaleSegments {
			return r, err
		}
		// A segment was taken away after its list was loaded. Compaction has put another one in its place, with records that must not be
		// passed over; what is under way is waited for.
		l.mu.Lock()
		err = l.usable()
		l.mu.Unlock()
		if err != nil {
			return ReadResult{}, err
		}
	}
}

// errStaleSegments tells that a list of segments is out of date: one of them is closed.
var errStaleSegments = errors.New("segment replaced")

func (l *Log) readOnce(offset int64, o ReadOptions) (ReadResult, error) {
	if err := l.usable(); err != nil {
		return ReadResult{}, err
	}
	l.marks.Lock()
	end, bound := l.marks.end, l.marks.hw
	l.marks.Unlock()
	r := ReadResult{Records: &nothing, LogStartOffset: l.start.Load(), HighWatermark: bound.Offset, LastStableOffset: bound.Offset}
	if u := l.unstable.Load(); u >= 0 && u < bound.Offset {
		r.LastStableOffset = u
	}
	switch o.Isolation {
	case LogEnd:
		bound = end
	case TxnCommitted:
		if r.LastStableOffset < bound.Offset {
			bound = OffsetMetadata{Offset: r.LastStableOffset, Position: -1}
		}
	}
	r.MaxOffset = bound.Offset
	r.Fetch = OffsetMetadata{Offset: offset, Position: -1}
	if offset < r.LogStartOffset || offset > end.Offset {
		return ReadResult{}, l.outOfRange(offset, r.LogStartOffset, end.Offset)
	}
	if offset >= bound.Offset {
		if offset == end.Offset {
			r.Fetch = end
		}
		return r, nil
	}
	list := *l.segments.Load()
	if bound.Position < 0 {
		if err := l.locate(list, &bound); err != nil {
			return ReadResult{}, err
		}
	}
	if err := l.readFrom(list, offset, bound, o, &r); err != nil {
		return ReadResult{}, err
	}
	if start := l.start.Load(); offset < start { // retention went past the offset meanwhile, and the slice may start after it
		r.Records.Release()
		return ReadResult{}, l.outOfRange(offset, start, end.Offset)
	}
	return r, nil
}

func (l *Log) outOfRange(offset, start, end int64) error {
	return refuse(cluster.OffsetOutOfRange, "Received request for offset %d for partition %s, but we only have log segments in the range %d to %d.", offset, l.tp, start, end)
}

// locate finds the position of a bound: the start of the batch that holds it, since no part of that batch may be read.
func (l *Log) locate(list []*segment, bound *OffsetMetadata) error {
	for i := max(floorSegment(list, bound.Offset), 0); i < len(list); i++ {
		s := list[i]
		if err := s.acquire(); err != nil {
			return errStaleSegments
		}
		at, found, err := s.find(bound.Offset, s.size.Load())
		s.release()
		if err != nil {
			return l.ioError(err)
		}
		if found {
			bound.SegmentBase, bound.Position = s.base, at.position
			l.rememberBound(*bound)
			return nil
		}
	}
	last := list[len(list)-1]
	bound.SegmentBase, bound.Position = last.base, last.size.Load()
	return nil
}

// rememberBound keeps a high watermark's position for the next read.
func (l *Log) rememberBound(bound OffsetMetadata) {
	l.marks.Lock()
	defer l.marks.Unlock()
	if l.marks.hw.Offset == bound.Offset && l.marks.hw.Position < 0 {
		l.marks.hw = bound
	}
}

// readFrom takes the slice out of the first segment that has a batch at or after the offset: the offset's own segment may end before it
// where compaction removed records.
func (l *Log) readFrom(list []*segment, offset int64, bound OffsetMetadata, o ReadOptions, r *ReadResult) error {
	for i := max(floorSegment(list, offset), 0); i < len(list) && list[i].base <= bound.SegmentBase; i++ {
		s := list[i]
		upTo := s.size.Load()
		if s.base == bound.SegmentBase {
			upTo = min(upTo, bound.Position)
		}
		if err := s.acquire(); err != nil {
			return errStaleSegments
		}
		at, found, err := s.find(offset, upTo)
		if err != nil || !found {
			s.release()
			if err != nil {
				return l.ioError(err)
			}
			continue
		}
		r.Fetch = OffsetMetadata{Offset: offset, SegmentBase: s.base, Position: at.position}
		size := at.header.Size()
		want := max(o.MaxBytes, 0)
		if want < size {
			r.FirstEntryIncomplete = !o.MinOneMessage
			if o.MinOneMessage {
				want = size
			}
		}
		n := int(min(int64(want), upTo-at.position))
		if o.Isolation == TxnCommitted {
			if err := l.collectAborted(list[i:], offset, at.position+int64(n), r); err != nil {
				s.release()
				return l.ioError(err)
			}
		}
		if n == 0 {
			s.release()
			return nil
		}
		r.Records = &FileSlice{seg: s, position: at.position, length: n}
		return nil
	}
	return nil
}

// collectAborted lists the aborted transactions with records between an offset and a position in the first segment of list
// (Kafka: LocalLog.addAbortedTransactions).
func (l *Log) collectAborted(list []*segment, offset, endPosition int64, r *ReadResult) error {
	upper := r.MaxOffset
	e, ok, err := list[0].offsets.ceilVal(int32(min(endPosition, 1<<31-1)))
	if err != nil {
		return err
	}
	if ok {
		upper = list[0].base + e.key
	} else if len(list) > 1 {
		upper = list[1].base
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range list {
		for _, a := range s.aborted.entries {
			if a.last >= offset && a.first < upper {
				r.Aborted = append(r.Aborted, AbortedTxn{a.producerID, a.first})
			}
			if a.lastStable >= upper {
				return nil
			}
		}
	}
	return nil
}
