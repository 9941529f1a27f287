package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/group"
	"klamm/internal/record"
)

// loadRetry is the pause after a load that failed: the disk may answer again, or the leadership is on its way out.
const loadRetry = time.Second

// errNotLeader is a load that came too late.
var errNotLeader = errors.New("not the leader of the partition")

// loaded is a piece of the log on its way from the loader to the shard.
type loaded struct {
	anew   bool // what came before is void
	events []group.Event
	// committed, unless nil, takes the partitions with offsets among what was loaded so far. It has room for them.
	committed chan []cluster.TopicPartition
}

// takeLoaded feeds a piece of the log to the core.
func (s *shard) takeLoaded(l loaded) {
	if l.anew {
		s.core = s.core.Anew()
	}
	for _, ev := range l.events {
		s.step(ev)
	}
	if l.committed != nil {
		l.committed <- s.core.Committed()
	}
}

// load reads the whole partition and sends it to the shard, again from the start after an error, until it has succeeded
// or the context ends.
func (s *shard) load(ctx context.Context, out chan<- loaded) {
	for {
		err := s.loadOnce(ctx, out)
		if err == nil || ctx.Err() != nil {
			return
		}
		if errors.Is(err, errNotLeader) {
			s.log.Debug("groups not loaded: the leadership has gone", "err", err)
		} else {
			s.c.counters.loadsFailed.Add(1)
			s.log.Error("groups not loaded, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(loadRetry):
		}
	}
}

func (s *shard) loadOnce(ctx context.Context, out chan<- loaded) error {
	select {
	case s.c.loads <- struct{}{}:
		defer func() { <-s.c.loads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	start := time.Now()
	log, epoch, code := s.c.o.Replicas.LeaderLog(s.tp())
	switch code {
	case cluster.None:
	case cluster.NotLeaderOrFollower:
		return errNotLeader // the resignation is on its way
	default:
		return fmt.Errorf("open the log of %s: %v", s.tp(), code)
	}
	send := func(l loaded) error {
		select {
		case out <- l:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := send(loaded{anew: true}); err != nil {
		return err
	}
	records := 0
	at := log.LogStartOffset()
	buf := make([]byte, 0)
	// The end is looked at again each time: markers of transactions are appended while the log is being read.
	for at < log.LogEndOffset() {
		piece, next, err := s.readPiece(log, at, &buf)
		if err != nil {
			return err
		}
		if next == at {
			break // nothing but a hole up to the end
		}
		at = next
		records += len(piece)
		if err := send(loaded{events: piece}); err != nil {
			return err
		}
	}
	committed := make(chan []cluster.TopicPartition, 1)
	if err := send(loaded{committed: committed}); err != nil {
		return err
	}
	gone := s.deletedUnseen(ctx, <-committed)
	if err := send(loaded{events: []group.Event{group.PartitionsDeleted{Partitions: gone}, group.Loaded{}}}); err != nil {
		return err
	}
	s.c.counters.loaded(time.Since(start))
	if records > 0 {
		s.log.Info("groups loaded", "leader_epoch", epoch, "records", records, "duration", time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// topicsGoneTimeout bounds how long a load waits for the coordination store: groups are served without it, too.
const topicsGoneTimeout = 2 * time.Second

// deletedUnseen gives those of the partitions whose topics were deleted while nobody served these groups: the partition had no leader, or its
// leader died at the same time. Their offsets would count for the next topic of the name (Kafka keeps them). The metadata alone cannot tell: a
// broker may lead before it has heard of all topics.
func (s *shard) deletedUnseen(ctx context.Context, committed []cluster.TopicPartition) (gone []cluster.TopicPartition) {
	im := s.c.o.Cache.Image()
	asked := map[string]bool{} // whether the topic is gone
	for _, tp := range committed {
		if _, known := im.Topic(tp.Topic); !known {
			asked[tp.Topic] = false
		}
	}
	if len(asked) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, topicsGoneTimeout)
	defer cancel()
	names, err := s.c.o.TopicsGone(ctx, slices.Sorted(maps.Keys(asked)))
	if err != nil {
		s.log.Warn("the coordination store does not tell which topics exist; the offsets of deleted ones stay until the groups are loaded again", "err", err)
		return nil
	}
	for _, name := range names {
		asked[name] = true
	}
	for _, tp := range committed {
		if asked[tp.Topic] {
			gone = append(gone, tp)
		}
	}
	if len(gone) > 0 {
		s.log.Info("offsets removed of topics that were deleted while nobody served the groups", "topics", names)
	}
	return gone
}

// readPiece reads whole batches from an offset on, and gives their records and the offset after them.
func (s *shard) readPiece(log *commitlog.Log, at int64, buf *[]byte) (events []group.Event, next int64, err error) {
	r, err := log.Read(at, commitlog.ReadOptions{MaxBytes: s.c.o.Config.Broker().OffsetsLoadBufferSize, Isolation: commitlog.LogEnd, MinOneMessage: true})
	if err != nil {
		return nil, at, fmt.Errorf("read %s from offset %d: %w", s.tp(), at, err)
	}
	defer r.Records.Release()
	if n := r.Records.Len(); cap(*buf) < n {
		*buf = make([]byte, n)
	}
	data := (*buf)[:r.Records.Len()]
	if _, err := r.Records.ReadInto(data); err != nil {
		return nil, at, fmt.Errorf("read %s from offset %d: %w", s.tp(), at, err)
	}
	next = at
	for len(data) > 0 {
		batch, rest, err := record.NextBatch(data)
		if errors.Is(err, record.ErrShort) {
			break
		}
		if err != nil {
			return nil, at, fmt.Errorf("read %s after offset %d: %w", s.tp(), next, err)
		}
		if events, err = appendEvents(events, batch, at); err != nil {
			return nil, at, fmt.Errorf("read %s at offset %d: %w", s.tp(), batch.BaseOffset, err)
		}
		next, data = batch.NextOffset(), rest
	}
	return events, next, nil
}

// appendEvents turns a batch into events. Keys and values are copied: the core keeps parts of them.
func appendEvents(events []group.Event, b record.Batch, from int64) ([]group.Event, error) {
	if b.Attributes.IsControl() {
		if b.NumRecords == 0 { // compaction leaves the header of the last batch of a producer
			return events, nil
		}
		m, err := record.ParseEndTxnMarker(b)
		if err != nil {
			return nil, err
		}
		return append(events, group.TxnEnded{ProducerID: m.ProducerID, Commit: m.Type == record.Commit}), nil
	}
	var producer *group.Producer
	if b.Attributes.IsTransactional() {
		producer = &group.Producer{ID: b.ProducerID, Epoch: b.ProducerEpoch}
	}
	err := b.ForEach(0, func(r *record.Record) error {
		if r.Offset >= from {
			events = append(events, group.LoadRecord{Key: clone(r.Key), Value: clone(r.Value), Txn: producer})
		}
		return nil
	})
	return events, err
}

// clone copies bytes; nil, which stands for null, stays nil, and empty is not nil.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
