package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// Origin tells who appends: it decides which checks a batch must pass.
type Origin = record.Origin

// The origins.
const (
	Client      = record.Client      // a producer: every check
	Coordinator = record.Coordinator // this broker's own batches, control batches among them: no sequence check
	// replication marks a leader's batches, accepted before.
	replication Origin = 255
)

// AppendOptions says how a leader appends.
type AppendOptions struct {
	LeaderEpoch cluster.LeaderEpoch
	Origin      Origin
	APIVersion  int16 // of the produce request, 0 when there is none
}

// AppendInfo says what was appended.
type AppendInfo struct {
	FirstOffset     int64
	LastOffset      int64
	LastLeaderEpoch cluster.LeaderEpoch
	MaxTimestamp    int64
	LogAppendTime   int64 // ms, -1 unless message.timestamp.type is LogAppendTime
	LogStartOffset  int64
	NumRecords      int // by offsets
	Bytes           int
	// Duplicate tells that the batch was appended before: the offsets are the original ones and nothing was written.
	Duplicate bool
}

// UnexpectedOffsetError tells that a follower's append starts before its log's end. A follower whose start lies inside the leader's
// first batch resolves it by TruncateFullyAndStartAt(First).
type UnexpectedOffsetError struct {
	TopicPartition    cluster.TopicPartition
	First, Last, Next int64
}

// Error tells the three offsets.
func (e *UnexpectedOffsetError) Error() string {
	return fmt.Sprintf("unexpected offset in append to %s: first offset %d (last %d) is less than the next offset %d", e.TopicPartition, e.First, e.Last, e.Next)
}

// AppendAsLeader validates a producer's batches, gives them offsets, leader epoch and, by configuration, append time, and writes them with
// one write. b is modified in place and not kept. A refusal is an *Error or a *StorageError: see Code.
func (l *Log) AppendAsLeader(b []byte, o AppendOptions) (AppendInfo, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	cfg, now := l.cfg.Load(), time.Now().UnixMilli()
	opts := record.ProduceOptions{
		TopicPartition: l.tp, Origin: o.Origin, APIVersion: o.APIVersion, MaxMessageBytes: cfg.MaxMessageBytes, Compacted: cfg.Compact,
		TimestampType: cfg.MessageTimestampType, NowMs: now,
		TimestampBeforeMaxMs: cfg.TimestampBeforeMaxMs, TimestampAfterMaxMs: cfg.TimestampAfterMaxMs,
	}
	info, err := record.ValidateProduce(b, &opts)
	if err != nil {
		return AppendInfo{}, refusal(err)
	}
	if b, err = l.compressed(b[:info.Bytes], &info, cfg); err != nil {
		return AppendInfo{}, err
	}
	if len(b) > cfg.SegmentBytes {
		return AppendInfo{}, refuse(cluster.RecordListTooLarge, "Message batch size is %d bytes in append to partition %s, which exceeds the maximum configured segment size of %d.",
			len(b), l.tp, cfg.SegmentBytes)
	}
	appendTime := int64(-1)
	if cfg.MessageTimestampType == record.LogAppendTime {
		appendTime = now
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	first := l.LogEndOffset()
	next := record.Assign(b, first, int32(o.LeaderEpoch), -1) // the append time is in the header since validation
	out := AppendInfo{
		FirstOffset: first, LastOffset: next - 1, LastLeaderEpoch: o.LeaderEpoch, MaxTimestamp: info.MaxTimestamp, LogAppendTime: appendTime,
		LogStartOffset: l.start.Load(), NumRecords: int(next - first), Bytes: len(b),
	}
	dup, err := l.checkProducers(b, o.Origin)
	if err != nil {
		return AppendInfo{}, refusal(err)
	}
	if dup != nil {
		out.FirstOffset, out.LastOffset, out.LogAppendTime, out.Duplicate = dup.firstOffset(), dup.lastOffset, dup.timestamp, true
		return out, nil
	}
	l.noteEpoch(o.LeaderEpoch, first)
	if err := l.writeLocked(b, first, next, info.MaxTimestamp, cfg); err != nil {
		return AppendInfo{}, l.ioError(err)
	}
	return out, nil
}

// refusal gives a validation error its place in this package's errors.
func refusal(err error) error {
	var ve *record.ValidationError
	if errors.As(err, &ve) {
		return &Error{Code: ve.Code, Message: ve.Message, Records: ve.Records}
	}
	return err
}

// compressed applies compression.type; almost always it is "producer" and b comes back as it is.
func (l *Log) compressed(b []byte, info *record.ProduceInfo, cfg *config.LogConfig) ([]byte, error) {
	target, change := cfg.TargetCompression(info.Header.Codec())
	if !change || info.Header.IsControl() {
		return b, nil
	}
	out, err := record.Recompress(b, target)
	if err != nil {
		return nil, refusal(err)
	}
	for rest := out; len(rest) > 0; {
		batch, after, err := record.NextBatch(rest)
		if err != nil {
			return nil, refusal(err)
		}
		if batch.Size() > cfg.MaxMessageBytes {
			return nil, refuse(cluster.MessageTooLarge, "Message batch size is %d bytes in append to partition %s which exceeds the maximum configured size of %d.",
				batch.Size(), l.tp, cfg.MaxMessageBytes)
		}
		rest = after
	}
	return out, nil
}

// checkProducers validates the batches of idempotent producers and prepares their state; dup is set when the first of them was appended
// before (Kafka: analyzeAndValidateProducerState).
func (l *Log) checkProducers(b []byte, origin Origin) (dup *batchMeta, err error) {
	l.producers.begin()
	for len(b) > 0 {
		batch, rest, err := record.NextBatch(b)
		if err != nil {
			return nil, err
		}
		b = rest
		if !batch.HasProducerID() {
			continue
		}
		if origin == Client {
			if m, found := l.producers.duplicate(&batch.BatchHeader); found {
				return &m, nil
			}
		}
		if err := l.producers.check(l.tp, batch, origin); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// writeLocked writes checked batches and publishes them. With mu held.
func (l *Log) writeLocked(b []byte, first, next, maxTimestamp int64, cfg *config.LogConfig) error {
	if err := l.materialize(); err != nil {
		return err
	}
	s, now := l.active(), time.Now().UnixMilli()
	roll, err := s.shouldRoll(len(b), next-1, maxTimestamp, now, cfg)
	if err != nil {
		return err
	}
	if roll {
		if s, err = l.rollLocked(first); err != nil {
			return err
		}
	}
	l.touch(now)
	if err := s.append(b, cfg.IndexIntervalBytes); err != nil {
		return err
	}
	p := &l.producers
	p.commit(now)
	for _, c := range p.completed {
		if c.aborted {
			if err := s.aborted.append(abortedEntry{c.producerID, c.first, c.last, p.stableAfter(c)}); err != nil {
				return err
			}
		}
		p.complete(c)
	}
	p.mapEnd = next
	l.updateUnstable()
	l.setEnd(OffsetMetadata{Offset: next, SegmentBase: s.base, Position: s.size.Load()})
	if cfg.FlushMessages > 0 && next-l.recovery.Load() >= cfg.FlushMessages {
		return l.flushTo(next)
	}
	return nil
}

// materialize makes the log's files appear before the first record: the directory and partition.metadata; the segment's .log follows by
// the write itself, the indexes and leader-epoch-checkpoint later. Nothing is synced. With mu held.
func (l *Log) materialize() error {
	if l.onDisk.Load() {
		return nil
	}
	name := *l.name.Load()
	err := l.dir.fs.Mkdir(name, vfs.DirPerm)
	if errors.Is(err, fs.ErrExist) {
		// Somebody put something there since start. An empty directory will do; anything else stops this log only.
		if there, rerr := l.dir.fs.ReadDir(name); rerr != nil || len(there) > 0 {
			return &StorageError{Dir: l.dir.path, Err: fmt.Errorf("%s is in the way of a new log: %w", name, err)}
		}
		err = nil
	}
	if err != nil {
		return err
	}
	l.namesDirty.Store(true)
	if err := l.writePartitionMeta(); err != nil {
		return err
	}
	l.onDisk.Store(true)
	l.m.later(l) // writes leader-epoch-checkpoint
	return nil
}

// AppendAsFollower appends a leader's batches, keeping their offsets and epochs. A partial batch at the end of b is ignored, as fetches end
// where their size limit does. *UnexpectedOffsetError when b starts before the log's end.
func (l *Log) AppendAsFollower(b []byte) (AppendInfo, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	out, whole, err := l.analyzeFetched(b)
	if err != nil {
		return AppendInfo{}, refusal(err)
	}
	if len(whole) == 0 {
		return out, nil
	}
	cfg := l.cfg.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return AppendInfo{}, err
	}
	if next := l.LogEndOffset(); out.FirstOffset < next {
		return AppendInfo{}, &UnexpectedOffsetError{l.tp, out.FirstOffset, out.LastOffset, next}
	}
	for len(whole) > 0 {
		n, err := l.appendRun(whole, cfg)
		if err != nil {
			return AppendInfo{}, l.ioError(refusal(err))
		}
		whole = whole[n:]
	}
	out.LogStartOffset = l.start.Load()
	return out, nil
}

// analyzeFetched checks the whole batches at the start of b.
func (l *Log) analyzeFetched(b []byte) (out AppendInfo, whole []byte, err error) {
	out = AppendInfo{FirstOffset: -1, LastOffset: -1, LastLeaderEpoch: cluster.NoLeaderEpoch, MaxTimestamp: -1, LogAppendTime: -1, LogStartOffset: l.start.Load()}
	rest := b
	for len(rest) > 0 {
		batch, after, err := record.NextBatch(rest)
		if errors.Is(err, record.ErrShort) {
			break
		}
		if err == nil {
			err = batch.Validate()
		}
		if err != nil {
			return out, nil, fmt.Errorf("fetched batch for %s: %w", l.tp, err)
		}
		if out.FirstOffset < 0 {
			out.FirstOffset = batch.BaseOffset
		}
		if batch.BaseOffset <= out.LastOffset && out.LastOffset >= 0 {
			return out, nil, refuse(cluster.CorruptMessage, "Out of order offsets found in append to %s: %d after %d", l.tp, batch.BaseOffset, out.LastOffset)
		}
		out.LastOffset = batch.LastOffset()
		out.LastLeaderEpoch = cluster.LeaderEpoch(batch.PartitionLeaderEpoch)
		out.MaxTimestamp = max(out.MaxTimestamp, batch.MaxTimestamp)
		out.Bytes += batch.Size()
		rest = after
	}
	if out.FirstOffset >= 0 {
		out.NumRecords = int(out.LastOffset - out.FirstOffset + 1)
	}
	return out, b[:out.Bytes], nil
}

// appendRun writes as many batches as go into one segment, at least one, and returns their size. Kafka refuses a fetch larger than
// segment.bytes; a leader with smaller segments than replica.fetch.max.bytes could then never be followed.
func (l *Log) appendRun(b []byte, cfg *config.LogConfig) (int, error) {
	l.producers.begin()
	n, first, next, maxTimestamp := 0, int64(-1), int64(0), int64(-1)
	for rest := b; len(rest) > 0; {
		batch, after, err := record.NextBatch(rest)
		if err != nil {
			return 0, err
		}
		if n > 0 && n+batch.Size() > cfg.SegmentBytes {
			break
		}
		if first < 0 {
			first = batch.BaseOffset
		}
		l.noteEpoch(cluster.LeaderEpoch(batch.PartitionLeaderEpoch), batch.BaseOffset)
		if batch.HasProducerID() {
			if err := l.producers.check(l.tp, batch, replication); err != nil {
				return 0, err
			}
		}
		n += batch.Size()
		next = batch.NextOffset()
		maxTimestamp = max(maxTimestamp, batch.MaxTimestamp)
		rest = after
	}
	return n, l.writeLocked(b[:n], first, next, maxTimestamp, cfg)
}
