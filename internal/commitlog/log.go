package commitlog

import (
	"math/rand/v2"
	"path"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// OffsetMetadata is an offset and where its batch starts in the segment files.
type OffsetMetadata struct {
	Offset      int64
	SegmentBase int64
	Position    int64 // -1 unknown
}

// Log is one partition's log (Kafka: UnifiedLog). Safe for concurrent use.
//
// Invariants:
//  1. start <= high watermark <= end; last stable offset <= high watermark.
//  2. Segments are ascending by base offset and never none; only the last one, the active segment, grows.
//  3. Bytes below end are whole, validated batches with ascending offsets.
//  4. Until the first append there is no file (onDisk is false): then the directory, partition.metadata and the first .log appear.
type Log struct {
	tp  cluster.TopicPartition
	dir *logDir
	m   *Manager

	cfg      atomic.Pointer[config.LogConfig]
	name     atomic.Pointer[string] // of the partition's directory in the log dir
	topicID  atomic.Pointer[cluster.TopicID]
	segments atomic.Pointer[[]*segment]
	start    atomic.Int64
	recovery atomic.Int64 // recovery point: everything below is durable
	unstable atomic.Int64 // first unstable offset, -1 none
	epochs   epochCache
	// gone is set, under mu, when the log was deleted or closed: every later operation answers errLogGone.
	gone atomic.Bool
	// future is true while this is the copy of a log that moves to this dir. Only the Move writes it, and nothing flushes it but the Move.
	future atomic.Bool
	// truncations counts truncations, so that a flush that overlapped one does not raise the recovery point.
	truncations atomic.Int64
	flushedMs   atomic.Int64
	cleaned     atomic.Int64 // everything below is compacted
	uncleanable atomic.Bool  // compaction failed

	onDisk atomic.Bool // the partition's directory exists; set under mu
	saving sync.Mutex  // held while leader-epoch-checkpoint or an empty index file is written in the background; a leaf lock

	// unsynced directory state: set when names appear or change, cleared by the flush that syncs the directory.
	namesDirty atomic.Bool
	metaSynced atomic.Bool // partition.metadata and the directory's own name are durable

	marks struct {
		sync.Mutex // guards what follows; a leaf lock
		end, hw    OffsetMetadata
		// cut is the lowest offset that the log was truncated to since a Move asked, noCut when it was not.
		cut int64
	}

	// mu orders appends, rolls, truncations and deletion. It is held across the file writes of those, on purpose: they are one another's
	// order. Readers do not take it.
	mu        sync.Mutex
	metaDone  bool  // partition.metadata is written
	touched   bool  // there is something for Close to write
	touchedMs int64 // when that was last set
	unsynced  bool  // what was written then may not be durable
	settled   int   // how many times it was written before Close, settleDoublings at most
	movedHere bool  // movedHereFile was found; only while loading
	producers producerState
}

func newLog(m *Manager, dir *logDir, tp cluster.TopicPartition, id cluster.TopicID, cfg *config.LogConfig) *Log {
	l := &Log{tp: tp, dir: dir, m: m}
	name := tp.String()
	l.name.Store(&name)
	l.cfg.Store(cfg)
	l.topicID.Store(&id)
	l.unstable.Store(-1)
	l.marks.cut = noCut
	l.flushedMs.Store(time.Now().UnixMilli())
	l.setSegments([]*segment{l.newSegment(0)})
	return l
}

func (l *Log) newSegment(base int64) *segment {
	s := newSegment(l, base)
	s.jitterMs = l.cfg.Load().RandomSegmentJitter(rand.Uint64()).Milliseconds()
	return s
}

func (l *Log) setSegments(list []*segment) { l.segments.Store(&list) }

// active is the segment that is appended to.
func (l *Log) active() *segment {
	list := *l.segments.Load()
	return list[len(list)-1]
}

// floor returns the index of the segment that an offset belongs to, -1 when it lies before the first.
func floorSegment(list []*segment, offset int64) int {
	return sort.Search(len(list), func(i int) bool { return list[i].base > offset }) - 1
}

// path gives a name in the partition's directory as it is called now.
func (l *Log) path(name string) string { return path.Join(*l.name.Load(), name) }

// TopicPartition names the partition.
func (l *Log) TopicPartition() cluster.TopicPartition { return l.tp }

// TopicID is the topic's id, zero when none is known.
func (l *Log) TopicID() cluster.TopicID { return *l.topicID.Load() }

// Dir is the path of the log dir (not of the partition's directory in it).
func (l *Log) Dir() string { return l.dir.path }

// Config is the configuration in force.
func (l *Log) Config() *config.LogConfig { return l.cfg.Load() }

// LogStartOffset is the first offset that may be read.
func (l *Log) LogStartOffset() int64 { return l.start.Load() }

// LogEndOffset is the offset of the next record.
func (l *Log) LogEndOffset() int64 { return l.EndOffsetMetadata().Offset }

// EndOffsetMetadata is the log end offset with its position.
func (l *Log) EndOffsetMetadata() OffsetMetadata {
	l.marks.Lock()
	defer l.marks.Unlock()
	return l.marks.end
}

// HighWatermark is the offset below which records are replicated.
func (l *Log) HighWatermark() int64 { return l.HighWatermarkMetadata().Offset }

// HighWatermarkMetadata is the high watermark with its position where that is known without IO, else -1.
func (l *Log) HighWatermarkMetadata() OffsetMetadata {
	l.marks.Lock()
	defer l.marks.Unlock()
	return l.marks.hw
}

// LastStableOffset is the offset below which every record is replicated and its transaction, if it has one, decided.
func (l *Log) LastStableOffset() int64 {
	hw := l.HighWatermark()
	if u := l.unstable.Load(); u >= 0 && u < hw {
		return u
	}
	return hw
}

// RecoveryPoint is the offset below which everything is durable.
func (l *Log) RecoveryPoint() int64 { return l.recovery.Load() }

// Size is the number of bytes in all segments.
func (l *Log) Size() int64 {
	var sum int64
	for _, s := range *l.segments.Load() {
		sum += s.size.Load()
	}
	return sum
}

// Segments is the number of segments.
func (l *Log) Segments() int { return len(*l.segments.Load()) }

// LatestEpoch is the newest leader epoch that the log knows.
func (l *Log) LatestEpoch() (cluster.LeaderEpoch, bool) {
	e, ok := l.epochs.latest()
	return e.epoch, ok
}

// OffsetForLeaderEpoch returns the largest epoch at or below the asked one and the offset after its last record; -1, -1 when undefined.
func (l *Log) OffsetForLeaderEpoch(e cluster.LeaderEpoch) (cluster.LeaderEpoch, int64) {
	return l.epochs.endOffset(e, l.LogEndOffset())
}

// EpochForOffset returns the leader epoch that an offset belongs to.
func (l *Log) EpochForOffset(offset int64) (cluster.LeaderEpoch, bool) {
	return l.epochs.forOffset(offset)
}

// AssignLeaderEpochStart notes that a leader epoch starts at an offset.
func (l *Log) AssignLeaderEpochStart(e cluster.LeaderEpoch, startOffset int64) error {
	if e < 0 || startOffset < 0 {
		return refuse(cluster.InvalidRequest, "invalid leader epoch %d or start offset %d", e, startOffset)
	}
	if err := l.usable(); err != nil {
		return err
	}
	l.noteEpoch(e, startOffset)
	return nil
}

func (l *Log) noteEpoch(e cluster.LeaderEpoch, start int64) {
	if e >= 0 && l.epochs.assign(e, start) {
		l.m.later(l)
	}
}

// ActiveProducers lists the producers that the log remembers, by id.
func (l *Log) ActiveProducers() []ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]ProducerState, 0, len(l.producers.entries))
	for _, e := range l.producers.entries {
		out = append(out, ProducerState{
			ProducerID: e.id, ProducerEpoch: e.epoch, LastSequence: e.lastSequence(), LastTimestamp: e.lastTimestamp,
			CoordinatorEpoch: e.coordinatorEpoch, CurrentTxnStartOffset: e.txnFirst,
		})
	}
	slices.SortFunc(out, func(a, b ProducerState) int { return int(max(min(a.ProducerID-b.ProducerID, 1), -1)) })
	return out
}

// HasOngoingTransaction reports whether a producer has an undecided transaction here.
func (l *Log) HasOngoingTransaction(producerID int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.producers.entries[producerID]
	return ok && e.txnFirst >= 0
}

// AssignTopicID gives the log its topic's id; ErrInconsistentTopicID when it has another.
func (l *Log) AssignTopicID(id cluster.TopicID) error {
	if have := l.TopicID(); have == id {
		return nil
	} else if !have.IsZero() {
		return ErrInconsistentTopicID
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if have := l.TopicID(); !have.IsZero() && have != id {
		return ErrInconsistentTopicID
	}
	l.topicID.Store(&id)
	if !l.onDisk.Load() {
		return nil
	}
	return l.ioError(l.writePartitionMeta())
}

func (l *Log) writePartitionMeta() error {
	id := l.TopicID()
	if l.metaDone || id.IsZero() {
		return nil
	}
	// In place, not by rename: the file is written before the first record is, and a torn one is read as absent.
	if err := vfs.WriteFile(l.dir.fs, l.path(partitionMetaFile), encodePartitionMeta(id)); err != nil {
		return err
	}
	l.metaDone = true
	l.metaSynced.Store(false)
	l.namesDirty.Store(true)
	return nil
}

// touch notes that there is something for Close to write. With mu held.
func (l *Log) touch(nowMs int64) { l.touched, l.touchedMs = true, nowMs }

// usable tells whether the log still exists and its dir is online.
func (l *Log) usable() error {
	if l.gone.Load() {
		return errLogGone
	}
	return l.dir.usable()
}

// ioError is where an error of a file operation becomes the log's answer: the dir fails, unless the log was deleted or closed meanwhile,
// which makes files vanish under an operation (Kafka: KAFKA-15391 failed the dir then). Answers pass unchanged.
func (l *Log) ioError(err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *Error, *StorageError:
		return e
	}
	if record.Code(err) != cluster.UnknownServerError {
		return err // about bytes, not about the disk
	}
	if l.gone.Load() {
		return errLogGone
	}
	if outOfFiles(err) { // Kafka takes the dir offline
		return &StorageError{Dir: l.dir.path, Err: err}
	}
	return l.dir.fail(err)
}

// setEnd moves the log end offset, and the high watermark with it where it would lie beyond or was at the old end's place in the files.
func (l *Log) setEnd(end OffsetMetadata) {
	l.marks.Lock()
	defer l.marks.Unlock()
	l.marks.end = end
	if l.marks.hw.Offset >= end.Offset {
		l.marks.hw = end
	}
}

// SetHighWatermark sets the high watermark, clamped between the log's start and end, and returns what was set. It may go down.
func (l *Log) SetHighWatermark(hw int64) (int64, error) {
	if hw < 0 {
		return 0, refuse(cluster.InvalidRequest, "negative high watermark %d", hw)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.setHighWatermarkLocked(hw), nil
}

func (l *Log) setHighWatermarkLocked(hw int64) int64 {
	hw = max(hw, l.start.Load())
	l.marks.Lock()
	switch {
	case hw >= l.marks.end.Offset:
		l.marks.hw = l.marks.end
		hw = l.marks.end.Offset
	case hw != l.marks.hw.Offset:
		l.marks.hw = OffsetMetadata{Offset: hw, Position: -1}
	}
	l.marks.Unlock()
	l.producers.replicated(hw)
	l.updateUnstable()
	return hw
}

// MaybeIncrementHighWatermark raises the high watermark, at most to the log's end. It returns the old one and whether it moved.
func (l *Log) MaybeIncrementHighWatermark(hw int64) (old int64, advanced bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old = l.HighWatermark()
	if hw <= old {
		return old, false
	}
	return old, l.setHighWatermarkLocked(hw) > old
}

// updateUnstable recomputes the first unstable offset. With mu held.
func (l *Log) updateUnstable() {
	first := l.producers.firstUnstable()
	if first >= 0 {
		first = max(first, l.start.Load())
	}
	l.unstable.Store(first)
}

// expireProducers forgets silent producers.
func (l *Log) expireProducers(nowMs int64, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.expire(nowMs, after)
}
