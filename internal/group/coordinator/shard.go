package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/record"
	"klamm/internal/replica"
)

// inboxRequestsMax bounds the requests that wait for a shard. Beyond it they are refused with COORDINATOR_NOT_AVAILABLE,
// after which clients wait and ask again. Events are not refused: there is at most one per request and append.
const inboxRequestsMax = 16 << 10

// shard serves one partition for one term of leadership.
type shard struct {
	c         *Coordinator
	partition int32
	log       *slog.Logger
	before    *shard        // the partition's shard of an earlier term, which has to end first; nil for none
	ended     chan struct{} // closed when run has returned
	wake      chan struct{} // capacity 1: look at the inbox

	inbox struct {
		sync.Mutex
		items    []item
		requests int
		closed   bool
	}

	// Owned by run.
	base    time.Time // of the clock: sessions must not end because somebody sets the wall clock
	core    *group.Core
	waiting map[group.Token]func(any)
	tokens  group.Token
	timers  timers
	codec   record.Codec
}

// item is what waits in the inbox: a request with its done, or an event.
type item struct {
	event group.Event
	done  func(any)
}

func newShard(c *Coordinator, partition int32, before *shard) *shard {
	s := &shard{
		c: c, partition: partition, before: before, ended: make(chan struct{}), wake: make(chan struct{}, 1),
		log:  c.o.Log.With("topic", cluster.GroupOffsetsTopic, "partition", partition),
		core: group.New(c.coreConfig()), waiting: map[group.Token]func(any){},
		codec: record.Codec(c.o.Config.Broker().OffsetsTopicCompressionCodec),
	}
	s.timers = newTimers(func(t group.Timer) bool { return s.core.Needs(t) })
	return s
}

func (c *Coordinator) coreConfig() group.Config {
	b := c.o.Config.Broker()
	return group.Config{
		MinSessionTimeoutMs: b.GroupMinSessionTimeout.Milliseconds(), MaxSessionTimeoutMs: b.GroupMaxSessionTimeout.Milliseconds(),
		MaxSize: b.GroupMaxSize, InitialRebalanceMs: b.GroupInitialRebalanceDelay.Milliseconds(),
		OffsetMetadataMax: b.OffsetMetadataMaxBytes, OffsetsRetentionMs: b.OffsetsRetention.Milliseconds(),
	}
}

func (s *shard) tp() cluster.TopicPartition {
	return cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic, Partition: s.partition}
}

// ask queues a request; one that comes too late or finds the inbox full is refused at once.
func (s *shard) ask(r group.Request, done func(any)) {
	s.inbox.Lock()
	var code cluster.ErrorCode
	switch {
	case s.inbox.closed:
		code = cluster.NotCoordinator
	case s.inbox.requests >= inboxRequestsMax:
		code = cluster.CoordinatorNotAvailable
	default:
		s.inbox.items = append(s.inbox.items, item{r, done})
		s.inbox.requests++
	}
	s.inbox.Unlock()
	if code != cluster.None {
		done(group.Refusal(r, code))
		return
	}
	s.signal()
}

// post queues an event; after the end it is of no use to anybody.
func (s *shard) post(ev group.Event) {
	s.inbox.Lock()
	if !s.inbox.closed {
		s.inbox.items = append(s.inbox.items, item{event: ev})
	}
	s.inbox.Unlock()
	s.signal()
}

// end makes run answer what waits and return.
func (s *shard) end() {
	s.inbox.Lock()
	s.inbox.closed = true
	s.inbox.Unlock()
	s.signal()
}

func (s *shard) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (s *shard) take() (items []item, closed bool) {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	items, s.inbox.items, s.inbox.requests = s.inbox.items, nil, 0
	return items, s.inbox.closed
}

// run serves until end is called or the context ends.
func (s *shard) run(ctx context.Context) {
	defer close(s.ended)
	if s.before != nil {
		<-s.before.ended // its appends must be in the log before this one reads it
		s.before = nil
	}
	s.base = time.Now()
	loads := make(chan loaded)
	loadCtx, cancel := context.WithCancel(ctx)
	var loader sync.WaitGroup
	loader.Go(func() { s.load(loadCtx, loads) })
	defer loader.Wait()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	expiry := time.NewTicker(s.c.o.Config.Broker().OffsetsRetentionCheckInterval)
	defer expiry.Stop()
	for {
		items, closed := s.take()
		if closed {
			s.finish(items)
			return
		}
		for _, it := range items {
			s.handle(it)
		}
		for t, ok := s.timers.due(s.now()); ok; t, ok = s.timers.due(s.now()) {
			s.step(group.TimerFired{Timer: t})
		}
		timer.Reset(s.timers.next(s.now()))
		select {
		case <-ctx.Done():
			s.end()
		case <-s.wake:
		case <-timer.C:
		case l := <-loads:
			s.takeLoaded(l)
		case <-expiry.C:
			s.step(group.ExpireOffsets{})
		}
	}
}

// finish answers everything that waits.
func (s *shard) finish(items []item) {
	s.step(group.Unload{})
	for _, it := range items {
		if r, ok := it.event.(group.Request); ok {
			it.done(group.Refusal(r, cluster.NotCoordinator))
		}
	}
}

func (s *shard) handle(it item) {
	r, isRequest := it.event.(group.Request)
	if !isRequest {
		if a, ok := it.event.(group.Appended); ok && a.Err == cluster.KafkaStorageError {
			// The log dir has failed, whose announcement is on its way, or this log alone, which nobody announces.
			s.log.Warn("cannot store offsets, giving the partition's groups up", "err", a.Err)
			s.c.abandon(s)
		}
		s.step(it.event)
		return
	}
	s.tokens++
	s.waiting[s.tokens] = it.done
	s.step(r.WithToken(s.tokens))
}

// now is the wall clock at the shard's start and the time since then by the clock that nobody sets.
func (s *shard) now() group.Time {
	return group.Time(s.base.UnixMilli() + time.Since(s.base).Milliseconds())
}

// step feeds the core and carries out what it wants, in order.
func (s *shard) step(ev group.Event) {
	for _, e := range s.core.Step(s.now(), ev) {
		switch e := e.(type) {
		case group.Reply:
			done := s.waiting[e.Token]
			delete(s.waiting, e.Token)
			done(e.Value)
		case group.StartTimer:
			s.timers.start(e.Timer, e.At)
		case group.Append:
			s.append(e)
		case group.StateChange:
			s.note(e)
		}
	}
}

// note logs and counts what happens to groups. Groups that only store offsets come and go without a word.
func (s *shard) note(e group.StateChange) {
	level := slog.LevelInfo
	switch {
	case e.To == group.CompletingRebalance:
		s.c.counters.rebalances.Add(1)
		level = slog.LevelDebug
	case e.To == group.Dead && e.Generation == 0:
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "group state changed", "group", e.Group, "from", e.From.String(), "to", e.To.String(),
		"generation", e.Generation, "members", e.Members, "reason", e.Reason)
}

// append writes records as one batch, waits for all in-sync replicas and posts the outcome.
func (s *shard) append(a group.Append) {
	batch, err := s.batch(a)
	if err != nil {
		s.log.Error("cannot make a batch of group records", "err", err)
		s.post(group.Appended{Append: a.ID, Err: cluster.UnknownServerError})
		return
	}
	s.c.o.Replicas.Append(replica.AppendRequest{
		Acks: -1, Timeout: s.c.o.Config.Broker().OffsetCommitTimeout, Origin: record.Coordinator, InternalTopicsAllowed: true,
		Partitions: []replica.AppendPartition{{TP: s.tp(), Records: batch}},
	}, func(results []replica.AppendResult) {
		s.c.counters.appended(len(a.Records), results[0].Err)
		s.post(group.Appended{Append: a.ID, Err: results[0].Err})
	})
}

func (s *shard) batch(a group.Append) ([]byte, error) {
	o := record.BuilderOptions{Compression: record.Compression{Codec: s.codec}}
	if a.Txn != nil {
		o.Transactional, o.ProducerID, o.ProducerEpoch = true, a.Txn.ID, a.Txn.Epoch
	}
	b := record.NewBuilder(o)
	now := int64(s.now())
	for _, r := range a.Records {
		b.Append(now, r.Key, r.Value)
	}
	return b.Build()
}
