package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/config"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// segment is a run of a log's batches: <base>.log and its indexes (Kafka: LogSegment). Its files are opened when first needed and stay
// open until the segment is dropped and the last reader has released it, so a slice of a deleted segment stays readable.
//
// Appending, sealing and truncating belong to the holder of the log's mutex. Reading needs acquire and release around it.
type segment struct {
	log  *Log
	base int64
	size atomic.Int64 // bytes of whole batches in the .log file
	// created is when the segment was created in this process or loaded, in ms; retention and rolling of segments without timestamps use it.
	createdMs int64
	jitterMs  int64

	offsets index
	times   index

	// Guarded by the log's mutex.
	aborted         txnIndex
	maxTimestamp    int64 // -1 none; largest timestamp so far
	maxTimestampAt  int64 // last offset of the batch that has it
	firstTimestamp  int64 // of the first batch, noFirstTimestamp until read: rolling by time counts from it
	bytesSinceIndex int
	synced          atomic.Bool // sealed by a roll and durable with its indexes

	files struct {
		sync.Mutex // guards what follows; files are opened under it
		open       [4]vfs.File
		made       [4]bool // the file is known to exist
		users      int
		dropped    bool   // close when users is 0
		suffix     string // appended to every file name: "", or that of a compaction's or deletion's stage
	}
}

const noFirstTimestamp = math.MinInt64

func newSegment(l *Log, base int64) *segment {
	s := &segment{log: l, base: base, createdMs: time.Now().UnixMilli(), maxTimestamp: -1, maxTimestampAt: base, firstTimestamp: noFirstTimestamp}
	s.offsets = index{width: offsetEntryWidth, name: indexSuffix, seg: s}
	s.times = index{width: timeEntryWidth, name: timeIndexSuffix, seg: s}
	s.aborted.seg = s
	return s
}

// path gives a file's name below the log dir, where the partition's directory is now.
func (s *segment) path(suffix string) string {
	return s.log.path(fileName(s.base, suffix+s.files.suffix))
}

// acquire keeps the segment's files open until release. errLogGone when they are closed already.
func (s *segment) acquire() error {
	s.files.Lock()
	defer s.files.Unlock()
	if s.files.dropped {
		return errLogGone
	}
	s.files.users++
	return nil
}

func (s *segment) release() {
	s.files.Lock()
	s.files.users--
	last := s.files.dropped && s.files.users == 0
	s.files.Unlock()
	if last {
		s.closeFiles()
	}
}

// drop lets the files be closed once the last user is done. Idempotent.
func (s *segment) drop() {
	s.files.Lock()
	first := !s.files.dropped
	s.files.dropped = true
	idle := s.files.users == 0
	s.files.Unlock()
	if first && idle {
		s.closeFiles()
	}
}

func (s *segment) closeFiles() {
	for i, f := range s.files.open {
		if f != nil {
			_ = f.Close() // written data was synced or handed to the kernel before; a close adds nothing
			s.files.open[i] = nil
		}
	}
}

func fileSlot(suffix string) int {
	switch suffix {
	case logSuffix:
		return 0
	case indexSuffix:
		return 1
	case timeIndexSuffix:
		return 2
	case txnIndexSuffix:
		return 3
	}
	panic("no slot for " + suffix)
}

// file returns one of the segment's files, opening it if need be.
func (s *segment) file(suffix string, create bool) (vfs.File, error) {
	slot := fileSlot(suffix)
	s.files.Lock()
	defer s.files.Unlock()
	if f := s.files.open[slot]; f != nil {
		return f, nil
	}
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := s.log.dir.fs.OpenFile(s.path(suffix), flag, vfs.FilePerm)
	if err != nil {
		return nil, err
	}
	s.files.open[slot], s.files.made[slot] = f, true
	return f, nil
}

// briefly calls use with one of the segment's files and closes it again, unless it was open before. Indexes are written this way: a
// broker with many partitions must not keep a descriptor for each index that it once wrote to.
func (s *segment) briefly(suffix string, create bool, use func(vfs.File) error) error {
	s.files.Lock()
	defer s.files.Unlock()
	slot := fileSlot(suffix)
	if f := s.files.open[slot]; f != nil {
		return use(f)
	}
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := s.log.dir.fs.OpenFile(s.path(suffix), flag, vfs.FilePerm)
	if err != nil {
		return err
	}
	s.files.made[slot] = true
	return errors.Join(use(f), f.Close())
}

// makeIndexes creates the index files empty.
func (s *segment) makeIndexes() error {
	for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
		if s.has(suffix) {
			continue
		}
		if err := s.briefly(suffix, true, func(vfs.File) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a file is known to exist.
func (s *segment) has(suffix string) bool {
	s.files.Lock()
	defer s.files.Unlock()
	return s.files.made[fileSlot(suffix)]
}

// rename gives all existing files another suffix.
func (s *segment) rename(suffix string) error {
	s.files.Lock()
	defer s.files.Unlock()
	old := s.files.suffix
	for _, kind := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		from := s.log.path(fileName(s.base, kind+old))
		err := s.log.dir.fs.Rename(from, s.log.path(fileName(s.base, kind+suffix)))
		if err != nil && !isNotExist(err) {
			return err
		}
	}
	s.files.suffix = suffix
	return nil
}

// append writes whole batches at the end with a single write, then indexes them. Their offsets are final.
func (s *segment) append(b []byte, indexInterval int) error {
	f, err := s.file(logSuffix, true)
	if err != nil {
		return err
	}
	at, size := s.size.Load(), int64(len(b))
	if n, err := f.WriteAt(b, at); err != nil {
		return err
	} else if n < len(b) {
		return fmt.Errorf("write %s: %w", s.path(logSuffix), io.ErrShortWrite)
	}
	// The index is extended before the size is published: a reader that sees the bytes may use the entry.
	for pos := at; len(b) > 0; {
		h, err := record.ParseHeader(b)
		if err != nil {
			return err
		}
		if err := s.note(&h, pos, indexInterval); err != nil {
			return err
		}
		pos += int64(h.Size())
		b = b[h.Size():]
	}
	s.size.Store(at + size)
	return nil
}

// note takes a batch at a position into account: timestamps, and an index entry when the last one is an interval back.
func (s *segment) note(h *record.BatchHeader, position int64, indexInterval int) error {
	if position == 0 {
		s.firstTimestamp = h.MaxTimestamp
	}
	if h.MaxTimestamp > s.maxTimestamp {
		s.maxTimestamp, s.maxTimestampAt = h.MaxTimestamp, h.LastOffset()
	}
	if s.bytesSinceIndex > indexInterval {
		if err := s.index(h.LastOffset(), position); err != nil {
			return err
		}
	}
	s.bytesSinceIndex += h.Size()
	return nil
}

// index adds an entry to both indexes for the batches at a position.
func (s *segment) index(lastOffset, position int64) error {
	if err := s.offsets.append(indexEntry{lastOffset - s.base, int32(position)}); err != nil {
		return err
	}
	s.bytesSinceIndex = 0
	return s.indexTime()
}

// indexTime adds the largest timestamp so far if it is larger than the index's last.
func (s *segment) indexTime() error {
	if last, ok := s.times.last(); s.maxTimestamp < 0 || ok && s.maxTimestamp <= last.key {
		return nil
	}
	return s.times.append(indexEntry{s.maxTimestamp, int32(s.maxTimestampAt - s.base)})
}

// seal completes the indexes on disk. The segment stays appendable (a close may be followed by another open of the same files).
func (s *segment) seal() error {
	if err := s.indexTime(); err != nil {
		return err
	}
	return errors.Join(s.offsets.seal(), s.times.seal())
}

// fits reports whether an offset can be told relative to the base.
func (s *segment) fits(offset int64) bool {
	return offset-s.base >= 0 && offset-s.base <= math.MaxInt32
}

// shouldRoll decides whether n more bytes up to lastOffset want a new segment (Kafka: LogSegment.shouldRoll).
func (s *segment) shouldRoll(n int, lastOffset, maxTimestamp, nowMs int64, cfg *config.LogConfig) (bool, error) {
	size := s.size.Load()
	if size > int64(cfg.SegmentBytes-n) || s.offsets.full(cfg.SegmentIndexBytes) || s.times.full(cfg.SegmentIndexBytes) || !s.fits(lastOffset) {
		return true, nil
	}
	if size == 0 {
		return false, nil
	}
	if err := s.loadFirstTimestamp(); err != nil {
		return false, err
	}
	waited := nowMs - s.createdMs
	if s.firstTimestamp >= 0 {
		waited = maxTimestamp - s.firstTimestamp
	}
	return waited > max(cfg.SegmentMs.Milliseconds(), 0)-s.jitterMs, nil
}

// loadFirstTimestamp reads the first batch's largest timestamp of a loaded segment.
func (s *segment) loadFirstTimestamp() error {
	if s.firstTimestamp != noFirstTimestamp || s.size.Load() == 0 {
		return nil
	}
	f, err := s.file(logSuffix, false)
	if err != nil {
		return err
	}
	var b [record.HeaderSize]byte
	if _, err := f.ReadAt(b[:], 0); err != nil && err != io.EOF {
		return err
	}
	h, err := record.ParseHeader(b[:])
	if err != nil {
		return fmt.Errorf("first batch of %s: %w", s.path(logSuffix), err)
	}
	s.firstTimestamp = h.MaxTimestamp
	return nil
}

// largestTimestamp is the largest record timestamp, or the file's modification time when no record has one.
func (s *segment) largestTimestamp() (int64, error) {
	if s.maxTimestamp >= 0 {
		return s.maxTimestamp, nil
	}
	if s.size.Load() == 0 {
		return s.createdMs, nil
	}
	fi, err := s.log.dir.fs.Stat(s.path(logSuffix))
	if err != nil {
		return 0, err
	}
	return fi.ModTime().UnixMilli(), nil
}

// position finds where to read an offset: the first batch whose last offset is at or after it. found is false when no batch is.
// The caller has acquired the segment. upTo bounds the search in bytes.
func (s *segment) find(offset, upTo int64) (p batchAt, found bool, err error) {
	var from int64
	e, ok, err := s.offsets.floor(offset - s.base)
	if err != nil {
		return p, false, err
	}
	if ok {
		from = int64(e.val)
	}
	if from > upTo {
		return p, false, nil
	}
	err = s.headers(from, upTo, func(at batchAt) bool {
		if at.header.LastOffset() < offset {
			return true
		}
		p, found = at, true
		return false
	})
	return p, found, err
}

// truncateTo cuts the segment before an offset's batch and returns the offset after the last one left.
func (s *segment) truncateTo(offset int64) error {
	p, found, err := s.find(offset, s.size.Load())
	if err != nil {
		return err
	}
	if err := errors.Join(s.offsets.truncateBelow(offset-s.base), s.times.truncateBelow(offset-s.base), s.aborted.truncateTo(offset)); err != nil {
		return err
	}
	s.synced.Store(false)
	s.bytesSinceIndex = 0
	if !found {
		return nil
	}
	f, err := s.file(logSuffix, true)
	if err != nil {
		return err
	}
	s.size.Store(p.position)
	if err := f.Truncate(p.position); err != nil {
		return err
	}
	// The cut must be durable before anything is written in its place: after a power cut the block at the cut may still hold the old
	// batches while the blocks behind it have new ones, all of them valid (Kafka does not sync here).
	if err := f.Sync(); err != nil {
		return err
	}
	if p.position == 0 {
		s.createdMs, s.firstTimestamp = time.Now().UnixMilli(), noFirstTimestamp
	}
	return s.reloadMaxTimestamp()
}

// reloadMaxTimestamp reads the largest timestamp from the time index and the batches after its last entry.
func (s *segment) reloadMaxTimestamp() error {
	s.maxTimestamp, s.maxTimestampAt = -1, s.base
	if last, ok := s.times.last(); ok {
		s.maxTimestamp, s.maxTimestampAt = last.key, s.base+int64(last.val)
	}
	var from int64
	if e, ok := s.offsets.last(); ok {
		from = int64(e.val)
	}
	return s.headers(from, s.size.Load(), func(at batchAt) bool {
		if at.header.MaxTimestamp > s.maxTimestamp {
			s.maxTimestamp, s.maxTimestampAt = at.header.MaxTimestamp, at.header.LastOffset()
		}
		return true
	})
}

// sync makes the segment's data, and when it is sealed its indexes, durable. The caller has acquired the segment.
func (s *segment) sync(indexes bool) error {
	f, err := s.file(logSuffix, false)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	for _, kind := range []string{indexSuffix, timeIndexSuffix} {
		if !indexes {
			break
		}
		if err := s.briefly(kind, false, vfs.File.Sync); err != nil && !isNotExist(err) {
			return err
		}
	}
	if f, err := s.file(txnIndexSuffix, false); err == nil {
		return f.Sync()
	} else if !isNotExist(err) {
		return err
	}
	return nil
}
