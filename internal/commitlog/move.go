package commitlog

import (
	"errors"
	"io"
	"math"
	"slices"

	"klamm/internal/cluster"
)

// noCut is Log.marks.cut of a log that was not truncated.
const noCut = math.MaxInt64

// unflushedMax is how much of a copy may wait for its flush: a copy that ran ahead of the disk would push everybody's pages out.
const unflushedMax = 32 << 20

// Move copies a log into its future in another dir and puts that in the log's place. One goroutine uses a Move at a time, and there is one
// Move of a log at a time. Appends, truncations and retention of the log go on meanwhile; compaction waits: it could remove a record and
// later its tombstone between two looks of the copy, which then would keep the record for ever.
//
// What the copy holds was in the log when it was read. A truncation of the log is noted on it (marks.cut) before it happens and taken note
// of only after, under the log's mutex, so that the copy is cut as well before it grows on.
type Move struct {
	from, to  *Log
	compacted int64 // below it the log was compacted when the copy began
	unflushed int64 // bytes
	buf       []byte
}

// NewMove goes on with the copy of a log, wherever it was left. Where the two part, by their leader epochs, the copy is cut.
func NewMove(from, to *Log) (*Move, error) {
	mv := &Move{from: from, to: to, compacted: from.cleaned.Load()}
	from.takeCut()
	if err := mv.align(); err != nil {
		return nil, err
	}
	if to.LogEndOffset() > to.LogStartOffset() {
		mv.compacted = min(mv.compacted, to.cleaned.Load())
	}
	return mv, mv.follow()
}

// Behind is how many offsets the copy is short of the log.
func (mv *Move) Behind() int64 { return max(mv.from.LogEndOffset()-mv.to.LogEndOffset(), 0) }

// takeCut returns and forgets the lowest truncation. A truncation under way is waited for.
func (l *Log) takeCut() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks.Lock()
	defer l.marks.Unlock()
	cut := l.marks.cut
	l.marks.cut = noCut
	return cut
}

// align cuts a copy that was made by another Move, perhaps before a crash that cost either side its end. A record is told by offset and leader
// epoch, as between brokers (KIP-279).
func (mv *Move) align() error {
	if end := mv.from.LogEndOffset(); mv.to.LogEndOffset() > end {
		if _, err := mv.to.TruncateTo(end); err != nil {
			return err
		}
	}
	for mv.to.LogEndOffset() > mv.to.LogStartOffset() {
		epoch, known := mv.to.LatestEpoch()
		common, end := mv.from.OffsetForLeaderEpoch(epoch)
		if !known || end < 0 {
			return mv.to.TruncateFullyAndStartAt(mv.from.LogStartOffset()) // nothing tells what they have in common
		}
		own := mv.to.LogEndOffset()
		if common != epoch {
			if _, own = mv.to.OffsetForLeaderEpoch(common); own < 0 {
				own = mv.to.LogStartOffset()
			}
		}
		if _, err := mv.to.TruncateTo(min(own, end)); err != nil || common == epoch {
			return err
		}
	}
	return nil
}

// follow does to the copy what was done to the log: truncations, a new start.
func (mv *Move) follow() error {
	from, to := mv.from, mv.to
	if cut := from.takeCut(); cut < to.LogEndOffset() {
		if _, err := to.TruncateTo(cut); err != nil {
			return err
		}
	}
	start := from.LogStartOffset()
	if end := to.LogEndOffset(); end < start || to.LogStartOffset() == end && end != start {
		return to.TruncateFullyAndStartAt(start)
	}
	if _, err := to.SetHighWatermark(from.HighWatermark()); err != nil {
		return err
	}
	if start <= to.LogStartOffset() {
		return nil
	}
	if err := to.MaybeIncrementLogStartOffset(start, "the log that is moved starts there"); err != nil {
		return err
	}
	return to.dropBelowStart()
}

// dropBelowStart deletes the segments that lie before the log's start.
func (l *Log) dropBelowStart() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	_, err := l.deleteOldest("log start offset", func(_, next *segment) (bool, error) {
		return next != nil && next.base <= l.start.Load(), nil
	})
	return l.ioError(err)
}

// Step copies about that many bytes, at least one batch, and returns how many it copied. done tells that there was nothing to copy: the copy
// has every record. An error of the file system has failed the dir that it came from; after any other one the copy is as it was.
func (mv *Move) Step(limit int) (n int, done bool, err error) {
	if err := mv.follow(); err != nil {
		return 0, false, err
	}
	n, done, err = mv.read(limit)
	if err != nil || n == 0 {
		return 0, done, err
	}
	cuts := mv.from.truncations.Load()
	err = mv.append(mv.buf[:n])
	if Code(err) == cluster.CorruptMessage && mv.from.truncations.Load() != cuts {
		return 0, false, nil // the bytes changed while they were read
	}
	if err != nil {
		return 0, false, err
	}
	if mv.unflushed += int64(n); mv.unflushed >= unflushedMax {
		if err := mv.Flush(); err != nil {
			return 0, false, err
		}
	}
	return n, false, nil
}

// read fetches what comes next into buf. The log may be cut meanwhile, or age past the copy's end: then it has nothing, and is not done.
func (mv *Move) read(limit int) (n int, done bool, err error) {
	r, err := mv.from.Read(mv.to.LogEndOffset(), ReadOptions{MaxBytes: limit, Isolation: LogEnd, MinOneMessage: true})
	if Code(err) == cluster.OffsetOutOfRange {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer r.Records.Release()
	if n = r.Records.Len(); n == 0 {
		return 0, true, nil
	}
	if cap(mv.buf) < n {
		mv.buf = make([]byte, n)
	}
	_, err = r.Records.ReadInto(mv.buf[:n])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, false, nil
	}
	return n, false, err
}

func (mv *Move) append(b []byte) error {
	_, err := mv.to.AppendAsFollower(b)
	var unexpected *UnexpectedOffsetError
	if errors.As(err, &unexpected) && mv.to.LogStartOffset() == unexpected.Next {
		// The log starts inside its first batch.
		if err = mv.to.TruncateFullyAndStartAt(unexpected.First); err == nil {
			_, err = mv.to.AppendAsFollower(b)
		}
	}
	return err
}

// Flush makes what was copied durable, so that Finish has less to do.
func (mv *Move) Flush() error {
	mv.unflushed = 0
	return mv.to.Flush()
}

// Finish copies the rest and puts the copy in the log's place; the directory that was the log's is deleted after the delete delay. The
// caller keeps appends and truncations of the log away meanwhile, and has nobody start to use the log: From answers UNKNOWN_TOPIC_OR_PARTITION
// afterwards, To is the log. After an error the log is where it was, unless To no longer is a future.
func (mv *Move) Finish() error {
	for {
		_, done, err := mv.Step(1 << 20)
		if err != nil {
			return err
		}
		if done {
			return mv.swap()
		}
	}
}

// swap is the exchange itself. Everything about the copy is durable before its directory takes the name, and that is before the other
// directory gives it up: a crash at any point leaves the log, or both and movedHereFile in the one to keep.
func (mv *Move) swap() error {
	from, to, m := mv.from, mv.to, mv.from.m
	from.mu.Lock()
	defer from.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	if err := errors.Join(from.usable(), to.usable()); err != nil {
		return err
	}
	to.takeOver(from, mv.compacted)
	if err := mv.settle(); err != nil {
		return to.ioError(err)
	}
	if to.onDisk.Load() {
		if err := to.rename(to.tp.String()); err != nil && !sickDisk(err) {
			return &StorageError{Dir: to.dir.path, Err: err} // something is in the way
		} else if err != nil {
			return to.ioError(err)
		}
		if err := to.dir.fs.SyncDir("."); err != nil {
			return to.ioError(err)
		}
	} else {
		name := to.tp.String()
		to.name.Store(&name)
	}
	m.exchange(from, to)
	m.giveUp(from, to)
	return nil
}

// takeOver copies what batches do not tell. With both logs' mu held.
func (l *Log) takeOver(from *Log, compacted int64) {
	l.topicID.Store(from.topicID.Load())
	if end := from.LogEndOffset(); l.LogEndOffset() < end { // it was cut in a hole of compaction's: no record lies before its end
		s := l.active()
		l.setEnd(OffsetMetadata{Offset: end, SegmentBase: s.base, Position: s.size.Load()})
	}
	l.start.Store(max(l.start.Load(), from.start.Load()))
	l.epochs.copyOf(&from.epochs)
	p := &l.producers
	p.entries = make(map[int64]*producerEntry, len(from.producers.entries))
	for id, e := range from.producers.entries {
		copied := *e
		p.entries[id] = &copied
	}
	p.ongoing, p.unreplicated = slices.Clone(from.producers.ongoing), slices.Clone(from.producers.unreplicated)
	p.mapEnd, p.snapEnd = l.LogEndOffset(), -1
	l.cleaned.Store(min(compacted, from.cleaned.Load()))
	l.setHighWatermarkLocked(from.HighWatermark())
}

// settle makes the copy durable, files, checkpoints and movedHereFile. With both logs' mu held.
func (mv *Move) settle() error {
	from, to, m := mv.from, mv.to, mv.from.m
	if from.onDisk.Load() {
		if err := to.materialize(); err != nil {
			return err
		}
		if _, err := to.active().file(logSuffix, true); err != nil {
			return err
		}
	}
	if !to.onDisk.Load() {
		return nil
	}
	if err := to.writePartitionMeta(); err != nil {
		return err
	}
	if len(to.producers.entries) > 0 || len(to.producers.snapshots) > 0 {
		if err := to.takeSnapshot(); err != nil {
			return err
		}
		if err := to.syncFile(fileName(to.producers.mapEnd, snapshotSuffix)); err != nil {
			return err
		}
	}
	to.namesDirty.Store(true)
	if err := to.flushTo(to.LogEndOffset()); err != nil {
		return err
	}
	if err := errors.Join(to.saveEpochs(true), to.syncNames()); err != nil {
		return err
	}
	logs := m.logsIn(to.dir)
	if err := errors.Join(m.checkpointRecoveryPoints(to.dir, logs), m.checkpointLogStarts(to.dir, logs),
		m.checkpointHighWatermarks(to.dir, logs), m.checkpointCleaned(to.dir, logs)); err != nil {
		return err
	}
	return to.markMovedHere()
}

// rename gives the directory another name. With mu held.
func (l *Log) rename(name string) error {
	l.saving.Lock() // a leader-epoch file being written would find its directory gone half way
	defer l.saving.Unlock()
	if err := l.dir.fs.Rename(*l.name.Load(), name); err != nil {
		return err
	}
	l.name.Store(&name)
	return nil
}

// exchange makes the copy the partition's log.
func (m *Manager) exchange(from, to *Log) {
	to.future.Store(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs[to.tp] = to
	delete(m.futures, to.tp)
	from.dir.logs--
}

// giveUp deletes the directory that was moved away. With both logs' mu held. Where that fails the directory keeps its name, and the mark
// stays, so that the next start deletes it.
func (m *Manager) giveUp(from, to *Log) {
	onDisk, err := from.renameAwayLocked()
	if err == nil && onDisk {
		m.removeLater(from.dir, *from.name.Load())
		err = m.settleDeletes(from.dir)
	}
	if err == nil && to.onDisk.Load() {
		err = to.unmarkMovedHere()
	}
	if err != nil {
		m.log.Error("a log was moved, but its old directory is not deleted before the next start", "partition", from.tp.String(),
			"dir", from.dir.path, "errno", errno(err), "err", err)
	}
	from.gone.Store(true)
}

// copyOf makes the cache equal to another one.
func (c *epochCache) copyOf(other *epochCache) {
	other.mu.Lock()
	entries := slices.Clone(other.entries)
	other.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.entries, entries) {
		c.entries = entries
		c.version++
	}
}
