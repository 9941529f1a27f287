package coordinator

import (
	"context"
	"errors"
	"fmt"
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
}

// takeLoaded feeds a piece of the log to the core.
func (s *shard) takeLoaded(l loaded) {
	if l.anew {
		s.core = group.New(s.c.coreConfig())
	}
	for _, ev := range l.events {
		s.step(ev)
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
	if err := send(loaded{events: []group.Event{group.Loaded{}}}); err != nil {
		return err
	}
	s.c.counters.loaded(time.Since(start))
	if records > 0 {
		s.log.Info("groups loaded", "leader_epoch", epoch, "records", records, "duration", time.Since(start).Round(time.Millisecond))
	}
	return nil
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
