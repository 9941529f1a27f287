package commitlog

import (
	"errors"
	"os"
	"slices"
	"time"

	"klamm/internal/vfs"
)

// rollLocked seals the active segment and starts a new one at an offset. The sealed one is flushed in the background. With mu held.
func (l *Log) rollLocked(base int64) (*segment, error) {
	list := *l.segments.Load()
	old := list[len(list)-1]
	if old.size.Load() == 0 {
		// An empty segment cannot be where an offset out of its range goes: the new one takes its place.
		if old.base == base {
			return old, nil
		}
		list = list[:len(list)-1]
		if err := l.discard([]*segment{old}); err != nil {
			return nil, err
		}
	} else {
		if err := old.seal(); err != nil {
			return nil, err
		}
		l.producers.mapEnd = base
		if err := l.takeSnapshot(); err != nil {
			return nil, err
		}
	}
	s := l.newSegment(base)
	if l.onDisk.Load() {
		if _, err := s.file(logSuffix, true); err != nil {
			return nil, err
		}
	}
	l.namesDirty.Store(true)
	l.touch(time.Now().UnixMilli())
	l.setSegments(append(slices.Clone(list), s))
	end := l.EndOffsetMetadata()
	l.setEnd(OffsetMetadata{Offset: end.Offset, SegmentBase: base})
	l.m.flushSoon(l, base)
	return s, nil
}

// Flush makes everything appended so far durable.
func (l *Log) Flush() error {
	if err := l.usable(); err != nil {
		return err
	}
	return l.ioError(l.flushTo(l.LogEndOffset()))
}

// flushTo makes everything below an offset durable and raises the recovery point to it. It takes no lock of the log, so that appends go
// on meanwhile; it may also be called with mu held.
func (l *Log) flushTo(offset int64) error {
	from := l.recovery.Load()
	truncations := l.truncations.Load()
	list := *l.segments.Load()
	i := max(floorSegment(list, from), 0)
	// A segment whose records were durable before it was sealed, by a flush or by the shutdown before, still has indexes that are not.
	for i > 0 && !list[i-1].synced.Load() {
		i--
	}
	if offset <= from && (i == len(list)-1 || list[i].synced.Load()) {
		return nil
	}
	for ; i < len(list) && list[i].base < offset; i++ {
		if err := l.flushSegment(list[i], i < len(list)-1, from); err != nil {
			return err
		}
	}
	// The epochs must be durable before the recovery point passes the batches that tell them, and the names before either.
	if err := l.saveEpochs(true); err != nil {
		return err
	}
	if err := l.syncNames(); err != nil {
		return err
	}
	l.flushedMs.Store(time.Now().UnixMilli())
	l.marks.Lock()
	defer l.marks.Unlock()
	if l.truncations.Load() == truncations {
		l.recovery.Store(max(l.recovery.Load(), min(offset, l.marks.end.Offset)))
	}
	return nil
}

func (l *Log) flushSegment(s *segment, sealed bool, from int64) error {
	if s.synced.Load() || s.size.Load() == 0 {
		return nil
	}
	if err := s.acquire(); err != nil {
		return nil // deleted by retention or truncation: nothing to keep
	}
	defer s.release()
	if err := s.sync(sealed); err != nil {
		return err
	}
	if sealed {
		s.synced.Store(true)
	}
	if s.base < from {
		return nil
	}
	return l.syncFile(fileName(s.base, snapshotSuffix))
}

// syncFile syncs a file of the partition's directory if it exists.
func (l *Log) syncFile(name string) error {
	f, err := l.dir.fs.OpenFile(l.path(name), os.O_RDWR, 0)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	_ = f.Close() // synced: nothing left to report
	return err
}

// syncNames makes the names of the partition's files, and once its own and partition.metadata, durable.
func (l *Log) syncNames() error {
	if l.namesDirty.Swap(false) {
		if err := l.dir.fs.SyncDir(*l.name.Load()); err != nil {
			l.namesDirty.Store(true)
			return err
		}
	}
	if l.metaSynced.Load() {
		return nil
	}
	if err := l.syncFile(partitionMetaFile); err != nil {
		return err
	}
	if err := l.dir.fs.SyncDir("."); err != nil {
		return err
	}
	l.metaSynced.Store(true)
	return nil
}

// saveEpochs writes leader-epoch-checkpoint if it is behind.
func (l *Log) saveEpochs(durably bool) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	data, version, want := l.epochs.pending(durably)
	if !want || !l.onDisk.Load() {
		return nil
	}
	name := l.path(leaderEpochFile)
	write := vfs.WriteFile
	if durably {
		write = vfs.WriteFileSync
	}
	if err := write(l.dir.fs, name+".tmp", data); err != nil {
		return err
	}
	if err := l.dir.fs.Rename(name+".tmp", name); err != nil {
		return err
	}
	l.namesDirty.Store(true)
	l.epochs.wrote(version, durably)
	return nil
}

// saveLater is the background's part: the epoch file, made durable once batches that tell the epochs need no recovery any more, and the
// index files. Those would otherwise appear with the first entries that are written, at the latest when the log is closed; two new
// files for each of thousands of logs would then hold up the broker's end.
func (l *Log) saveLater() error {
	if !l.onDisk.Load() || l.usable() != nil {
		return nil
	}
	if err := l.saveEpochs(l.recovery.Load() > 0); err != nil {
		return err
	}
	l.saving.Lock()
	defer l.saving.Unlock()
	s := l.active()
	if !l.onDisk.Load() || l.gone.Load() || s.has(indexSuffix) && s.has(timeIndexSuffix) {
		return nil
	}
	l.namesDirty.Store(true)
	return s.makeIndexes()
}

// discard takes segments out of use: their files get the ".deleted" suffix and are removed after file.delete.delay.ms.
func (l *Log) discard(list []*segment) error {
	delay := l.cfg.Load().FileDeleteDelay
	for _, s := range list {
		if l.onDisk.Load() {
			if err := s.rename(deletedSuffix); err != nil {
				return err
			}
			l.m.unlinkLater(l, s, delay)
		}
		s.drop()
	}
	l.namesDirty.Store(true)
	return nil
}

// discardDurably is discard for segments that must not come back after a power cut.
func (l *Log) discardDurably(list []*segment) error {
	if len(list) == 0 || !l.onDisk.Load() {
		return l.discard(list)
	}
	return errors.Join(l.discard(list), l.dir.fs.SyncDir(*l.name.Load()))
}

// complete ends the log's life at shutdown: it writes what appends left in memory, syncing nothing. A log to which nothing happened since
// the start, or since it was settled, costs nothing.
func (l *Log) complete() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone.Load() {
		return nil
	}
	if l.onDisk.Load() {
		if err := l.writeRest(); err != nil {
			return err
		}
	}
	l.gone.Store(true)
	return nil
}

// writeRest writes what appends left in memory. With mu held.
func (l *Log) writeRest() error {
	if l.touched {
		if err := l.active().seal(); err != nil {
			return err
		}
		l.namesDirty.Store(true)
		if len(l.producers.entries) > 0 || len(l.producers.snapshots) > 0 {
			if err := l.takeSnapshot(); err != nil {
				return err
			}
		}
		l.touched, l.unsynced = false, true
	}
	if err := l.saveEpochs(false); err != nil {
		return err
	}
	return l.writePartitionMeta()
}

// flushRest makes a completed log durable on its own.
func (l *Log) flushRest() error {
	if !l.onDisk.Load() {
		return nil
	}
	if l.unsynced {
		if s := l.active(); s.size.Load() > 0 {
			if err := s.sync(true); err != nil {
				return err
			}
		}
		if err := l.syncFile(fileName(l.producers.mapEnd, snapshotSuffix)); err != nil {
			return err
		}
	}
	if err := l.flushTo(l.LogEndOffset()); err != nil {
		return err
	}
	return l.saveEpochs(true)
}

// release closes the files of a completed log.
func (l *Log) release() {
	for _, s := range *l.segments.Load() {
		s.drop()
	}
}
