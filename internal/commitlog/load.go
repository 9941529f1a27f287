package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// loadState is what a log dir knows about a log before it is loaded.
type loadState struct {
	clean         bool  // the last shutdown left the clean mark
	recoveryPoint int64 // from the checkpoint; everything below is durable
	pointKnown    bool  // the recovery point checkpoint was readable
	start         int64 // from the checkpoint, 0 when it has none
	highWatermark int64
	cleaned       int64 // from the cleaner's checkpoint
}

// loader reads one partition's directory (Kafka: LogLoader). It owns the log: nobody else sees it yet.
type loader struct {
	l     *Log
	at    loadState
	files map[string]int64 // names and sizes
	// recoveredFrom is the base of the first segment that recovery rebuilt.
	recoveredFrom int64
}

// load opens the log from its files. After a clean shutdown it reads the ends of the indexes and the tail of the active segment; else it
// checks every batch from the recovery point on, cuts the log at the first bad one and rebuilds indexes, leader epochs and producer state.
func (l *Log) load(at loadState) error {
	ld := &loader{l: l, at: at}
	l.onDisk.Store(true)
	if err := ld.list(); err != nil {
		return err
	}
	if err := ld.finishSwaps(); err != nil {
		return err
	}
	if err := ld.readPartitionMeta(); err != nil {
		return err
	}
	if err := ld.openSegments(); err != nil {
		return err
	}
	end, err := ld.findEnd()
	if err != nil {
		return err
	}
	if end < at.start {
		l.m.log.Warn("log ends before its start, all segments are removed", "partition", l.tp.String(), "offset", end, "to", at.start)
		l.touch(time.Now().UnixMilli())
		if err := l.restartLocked(at.start); err != nil {
			return err
		}
		end = at.start
	}
	ld.publish(end)
	return nil
}

// list reads the directory, removing what a crash left half done.
func (ld *loader) list() error {
	entries, err := ld.l.dir.fs.ReadDir(*ld.l.name.Load())
	if err != nil {
		return err
	}
	ld.files = make(map[string]int64, len(entries))
	minCleaned := int64(math.MaxInt64)
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		name := e.Name()
		if name == movedHereFile {
			ld.l.movedHere = true
		}
		if strings.HasSuffix(name, cleanedSuffix) {
			if offset, _, ok := parseFileName(name); ok {
				minCleaned = min(minCleaned, offset)
			}
		}
		if strings.HasSuffix(name, deletedSuffix) || strings.HasSuffix(name, cleanedSuffix) || strings.HasSuffix(name, ".tmp") {
			if err := ld.remove(name); err != nil {
				return err
			}
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		ld.files[name] = fi.Size()
	}
	// A swap beside a later .cleaned belongs to a split that was not finished: the originals are still there.
	for name := range ld.files {
		if offset, _, ok := parseFileName(name); ok && strings.HasSuffix(name, swapSuffix) && offset >= minCleaned {
			if err := ld.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (ld *loader) remove(name string) error {
	delete(ld.files, name)
	return removeIfThere(ld.l.dir.fs.Remove(ld.l.path(name)))
}

// finishSwaps moves a finished compaction's output into the place of what it replaces.
func (ld *loader) finishSwaps() error {
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for name, size := range ld.files {
		offset, suffix, ok := parseFileName(name)
		if !ok || suffix != logSuffix+swapSuffix {
			continue
		}
		next, err := ld.nextOffset(name, offset, size)
		if err != nil {
			return err
		}
		low, high = min(low, offset), max(high, next)
	}
	for _, name := range slices.Sorted(maps.Keys(ld.files)) {
		offset, suffix, ok := parseFileName(name)
		if !ok || strings.HasSuffix(suffix, swapSuffix) || suffix == snapshotSuffix || offset < low || offset >= high {
			continue
		}
		if err := ld.remove(name); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ld.files)) {
		final, swap := strings.CutSuffix(name, swapSuffix)
		if !swap {
			continue
		}
		if err := ld.l.dir.fs.Rename(ld.l.path(name), ld.l.path(final)); err != nil {
			return err
		}
		ld.files[final] = ld.files[name]
		delete(ld.files, name)
	}
	return nil
}

// nextOffset reads a .log file to its end.
func (ld *loader) nextOffset(name string, base, size int64) (int64, error) {
	f, err := ld.l.dir.fs.OpenFile(ld.l.path(name), 0, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	next := base
	_, err = scanBatches(f, 0, size, false, func(_ int64, b record.Batch) error {
		next = b.NextOffset()
		return nil
	})
	if errors.Is(err, errCorrupt) {
		err = nil
	}
	return next, err
}

func (ld *loader) readPartitionMeta() error {
	if _, ok := ld.files[partitionMetaFile]; !ok {
		return nil
	}
	data, err := vfs.ReadFile(ld.l.dir.fs, ld.l.path(partitionMetaFile))
	if err != nil {
		return err
	}
	id, err := decodePartitionMeta(data)
	if err != nil && !ld.at.clean {
		// The file is written in place and made durable later: a power cut may leave a part of it.
		ld.l.m.log.Warn("topic id lost in a power cut, the next leader and isr request brings it", "partition", ld.l.tp.String(), "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s/%s: %w", ld.l.dir.path, ld.l.path(partitionMetaFile), err)
	}
	ld.l.topicID.Store(&id)
	ld.l.metaDone = !id.IsZero()
	return nil
}

// openSegments makes a segment of every .log file. One whose indexes are missing or corrupt lowers the recovery point to its base.
func (ld *loader) openSegments() error {
	l := ld.l
	var list []*segment
	for _, name := range slices.Sorted(maps.Keys(ld.files)) {
		offset, suffix, ok := parseFileName(name)
		if !ok {
			continue
		}
		switch suffix {
		case snapshotSuffix:
			l.producers.snapshots = append(l.producers.snapshots, offset)
		case indexSuffix, timeIndexSuffix, txnIndexSuffix:
			if _, ok := ld.files[fileName(offset, logSuffix)]; !ok {
				if err := ld.remove(name); err != nil {
					return err
				}
			}
		case logSuffix:
			s := l.newSegment(offset)
			s.size.Store(ld.files[name])
			if err := ld.openIndexes(s); err != nil {
				// After a crash the last segment's are missing as a rule: they are written when it is full.
				crashed := !ld.at.clean && errors.Is(err, errIndexMissing)
				if !crashed && (ld.at.clean || offset < ld.at.recoveryPoint) {
					l.m.log.Warn("index missing or corrupt, rebuilding from the segment", "partition", l.tp.String(), "offset", offset, "err", err)
				}
				ld.at.clean = false
				ld.at.recoveryPoint = min(ld.at.recoveryPoint, offset)
			}
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		list = []*segment{l.newSegment(ld.at.start)}
	}
	l.setSegments(list)
	l.start.Store(max(ld.at.start, list[0].base))
	slices.Sort(l.producers.snapshots)
	return nil
}

func (ld *loader) openIndexes(s *segment) error {
	if s.size.Load() == 0 {
		return nil
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		size, ok := ld.files[fileName(s.base, x.name)]
		if !ok {
			return fmt.Errorf("%s: %w", s.path(x.name), errIndexMissing)
		}
		if size == 0 && x == &s.times && !ld.at.clean {
			return fmt.Errorf("index %s is empty", s.path(x.name)) // made in advance; what was written since is lost
		}
		if err := x.load(size); err != nil {
			return err
		}
		s.files.made[fileSlot(x.name)] = true
	}
	if e, ok := s.offsets.last(); ok && int64(e.val) >= s.size.Load() {
		return fmt.Errorf("index %s points at byte %d of a log of %d", s.path(indexSuffix), e.val, s.size.Load())
	}
	if last, ok := s.times.last(); ok {
		s.maxTimestamp, s.maxTimestampAt = last.key, s.base+int64(last.val)
	} else if s.offsets.count() > 0 && s.size.Load() > 0 {
		if s.times.count() == 0 {
			s.maxTimestamp = -1 // records without timestamps
		}
	}
	if _, ok := ld.files[fileName(s.base, txnIndexSuffix)]; ok {
		return s.aborted.load()
	}
	return nil
}

// findEnd establishes the log end offset and the state that goes with it.
func (ld *loader) findEnd() (int64, error) {
	l := ld.l
	if err := ld.loadEpochs(); err != nil {
		return 0, err
	}
	end, sane := int64(0), false
	if ld.at.clean {
		var err error
		if end, sane, err = ld.readTail(l.active()); err != nil {
			return 0, err
		}
	}
	if sane {
		return end, ld.loadProducers(end)
	}
	if ld.at.clean {
		l.m.log.Warn("log does not end with a whole batch after a clean shutdown, recovering its last segment", "partition", l.tp.String())
		ld.at.clean = false
		ld.at.recoveryPoint = min(ld.at.recoveryPoint, l.active().base)
	}
	return ld.recover()
}

// readTail reads the headers after the active segment's last index entry. sane is false when they do not end where the file does.
func (ld *loader) readTail(s *segment) (end int64, sane bool, err error) {
	size := s.size.Load()
	end = s.base
	if size == 0 {
		return end, true, nil
	}
	var from int64
	if e, ok := s.offsets.last(); ok {
		from = int64(e.val)
	}
	pos := from
	err = s.headers(from, size, func(at batchAt) bool {
		pos = at.position + int64(at.header.Size())
		end = at.header.NextOffset()
		if at.header.MaxTimestamp > s.maxTimestamp {
			s.maxTimestamp, s.maxTimestampAt = at.header.MaxTimestamp, at.header.LastOffset()
		}
		return true
	})
	if err != nil && record.Code(err) == cluster.UnknownServerError {
		return 0, false, err
	}
	s.bytesSinceIndex = int(size - from)
	return end, err == nil && pos == size, nil
}

func (ld *loader) loadEpochs() error {
	l := ld.l
	if _, ok := ld.files[leaderEpochFile]; ok {
		data, err := vfs.ReadFile(l.dir.fs, l.path(leaderEpochFile))
		if err != nil {
			return err
		}
		entries, err := decodeEpochs(data)
		if err == nil && len(entries) > 0 {
			l.epochs.entries = entries
			return nil
		}
		if err != nil {
			l.m.log.Warn("leader-epoch-checkpoint is corrupt, rebuilding from the segments", "partition", l.tp.String(), "err", err)
		}
	}
	return ld.rebuildEpochs()
}

// rebuildEpochs reads the epochs out of the headers of what recovery will not read.
func (ld *loader) rebuildEpochs() error {
	for _, s := range *ld.l.segments.Load() {
		if !ld.at.clean && s.base >= ld.at.recoveryPoint {
			return nil
		}
		err := s.headers(0, s.size.Load(), func(at batchAt) bool {
			ld.noteEpoch(&at.header)
			return true
		})
		if err != nil && record.Code(err) == cluster.UnknownServerError {
			return err
		}
	}
	return nil
}

func (ld *loader) noteEpoch(h *record.BatchHeader) {
	if e := cluster.LeaderEpoch(h.PartitionLeaderEpoch); e >= 0 {
		ld.l.epochs.confirm(e, h.BaseOffset)
	}
}

// loadProducers restores the producers after a clean shutdown, which left a snapshot if there were any.
func (ld *loader) loadProducers(end int64) error {
	l := ld.l
	if err := l.removeStraySnapshots(end); err != nil {
		return err
	}
	if len(l.producers.snapshots) == 0 {
		l.producers.reset(end)
		return nil
	}
	return l.rebuildProducers(end)
}

// removeStraySnapshots keeps the newest snapshot at or below the end and those at segments' starts.
func (l *Log) removeStraySnapshots(end int64) error {
	bases := map[int64]bool{}
	for _, s := range *l.segments.Load() {
		bases[s.base] = true
	}
	newest := int64(-1)
	for _, o := range l.producers.snapshots {
		if o <= end {
			newest = max(newest, o)
		}
	}
	return l.removeSnapshots(func(o int64) bool { return o > end || o != newest && !bases[o] })
}

// publish sets the offsets of the loaded log.
func (ld *loader) publish(end int64) {
	l := ld.l
	active := l.active()
	l.start.Store(min(max(l.start.Load(), ld.at.start), end))
	if ld.at.clean {
		l.recovery.Store(end)
	} else {
		l.recovery.Store(min(ld.at.recoveryPoint, end))
		l.namesDirty.Store(true)
		l.touch(time.Now().UnixMilli())
		l.epochs.synced = -1 // the file was read, but may not be on the disk yet
	}
	l.metaSynced.Store(ld.at.clean)
	l.epochs.truncateFromEnd(end)
	l.epochs.truncateFromStart(l.start.Load())
	l.marks.end = OffsetMetadata{Offset: end, SegmentBase: active.base, Position: active.size.Load()}
	l.marks.hw = OffsetMetadata{Offset: min(max(ld.at.highWatermark, l.start.Load()), end), Position: -1}
	if l.marks.hw.Offset == end {
		l.marks.hw = l.marks.end
	}
	for _, s := range (*l.segments.Load())[:l.Segments()-1] {
		s.synced.Store(ld.at.clean || s.base < ld.recoveredFrom)
	}
	l.flushedMs.Store(time.Now().UnixMilli())
	l.cleaned.Store(min(ld.at.cleaned, end))
	l.updateUnstable()
}
