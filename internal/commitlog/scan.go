package commitlog

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"klamm/internal/record"
	"klamm/internal/vfs"
)

// batchAt is a batch's header and where it starts in its segment.
type batchAt struct {
	header   record.BatchHeader
	position int64
}

// headerChunk is how much is read at once to look for headers: an index interval's worth.
const headerChunk = 4096

var headerChunks = sync.Pool{New: func() any { return new([headerChunk]byte) }}

// headers calls fn for the batches that start at or after from and before upTo, until fn returns false. It reads headers only and
// trusts them: what lies below upTo was validated when it was written or recovered. The caller has acquired the segment.
func (s *segment) headers(from, upTo int64, fn func(batchAt) bool) error {
	if from >= upTo {
		return nil
	}
	f, err := s.file(logSuffix, false)
	if err != nil {
		return err
	}
	chunk := headerChunks.Get().(*[headerChunk]byte)
	defer headerChunks.Put(chunk)
	start, n := from, 0 // chunk[:n] holds the file's bytes from start
	for pos := from; pos < upTo; {
		if pos+record.HeaderSize > start+int64(n) {
			start = pos
			if n, err = f.ReadAt(chunk[:min(headerChunk, upTo-pos)], pos); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if n < record.HeaderSize {
				return nil // truncated meanwhile
			}
		}
		h, err := record.ParseHeader(chunk[pos-start : n])
		if err != nil {
			return fmt.Errorf("batch at byte %d of %s: %w", pos, s.path(logSuffix), err)
		}
		if !fn(batchAt{h, pos}) {
			return nil
		}
		pos += int64(h.Size())
	}
	return nil
}

// scanBuffer is the first size of the buffer that whole batches are read into; a larger batch gets a larger one.
const scanBuffer = 256 << 10

// errCorrupt ends a scan at bytes that are no valid batch. It is matched by errors.Is.
var errCorrupt = errors.New("corrupt batch")

// scanBatches calls fn with every whole batch from a position to the end of the file, verifying checksums if asked to. It returns the position
// after the last good batch; a torn or corrupt one ends the scan with errCorrupt. The raw bytes are valid until fn returns.
func scanBatches(f vfs.File, from, end int64, verify bool, fn func(pos int64, b record.Batch) error) (int64, error) {
	buf := make([]byte, min(scanBuffer, max(end-from, record.HeaderSize)))
	pos := from
	for pos < end {
		n, err := readFull(f, buf[:min(int64(len(buf)), end-pos)], pos)
		if err != nil {
			return pos, err
		}
		rest := buf[:n]
		for len(rest) > 0 {
			b, after, err := record.NextBatch(rest)
			if errors.Is(err, record.ErrShort) {
				break
			}
			if err == nil && verify {
				err = b.Validate()
			}
			if err != nil {
				return pos, fmt.Errorf("%w at byte %d: %w", errCorrupt, pos, err)
			}
			if err := fn(pos, b); err != nil {
				return pos, err
			}
			pos += int64(b.Size())
			rest = after
		}
		if len(rest) < n {
			continue // at least one batch: read on from the next
		}
		want := int64(len(buf)) * 2
		if n >= record.HeaderSize {
			if h, err := record.ParseHeader(rest); err == nil {
				want = int64(h.Size())
			}
		}
		if int64(n) >= end-pos || want > end-pos { // never allocates more than the file has
			return pos, fmt.Errorf("%w at byte %d: the file ends inside it", errCorrupt, pos)
		}
		buf = make([]byte, max(want, int64(len(buf))*2))
	}
	return pos, nil
}

// readFull reads b, or as much of it as the file has.
func readFull(f vfs.File, b []byte, pos int64) (int, error) {
	n, err := f.ReadAt(b, pos)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
