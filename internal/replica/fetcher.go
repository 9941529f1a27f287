package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/wire"
)

// Conn is a connection to another broker. After an error it is only closed. wire.ClientConn satisfies it, and its Fetch,
// which saves copying the records, is used when there is one.
type Conn interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Close() error
}

// fencedPause is how many back-offs a partition waits whose leader has a newer epoch than this broker: normally a
// LeaderAndIsr request comes long before.
const fencedPause = 10

// firstBackoff is the pause after a leader's first refusal of a partition; it doubles up to replica.fetch.backoff.ms. The
// leader of a new partition has often just not heard of it yet.
const firstBackoff = 20 * time.Millisecond

// lossesPerWarning spaces the warnings about a leader that stays away.
const lossesPerWarning = 30

// expressWait is the longest poll of an express fetcher: it lives only until the main fetcher's poll returns.
const expressWait = 20 * time.Millisecond

// fetcher copies partitions from one leader, with one request in flight (Kafka: ReplicaFetcherThread). Its goroutine
// owns session, conn and losses; mu guards the partitions and is held for no IO. Whether an append is still right is checked
// by Partition under its own lock, so nothing has to wait here when the controller takes partitions away.
type fetcher struct {
	m       *Manager
	key     fetcherKey
	dial    func(ctx context.Context, broker cluster.BrokerID) (Conn, error)
	wake    chan struct{}
	polling atomic.Bool // a request is under way, so that partitions added now would wait for it

	session followerSession
	conn    Conn
	losses  int // of the connection, in a row

	mu struct {
		sync.Mutex
		parts map[cluster.TopicPartition]*followed
		// order is the order in which partitions are asked for; one that gave records moves to its end.
		order []*followed
	}
}

// followed is a partition that a fetcher copies.
type followed struct {
	tp      cluster.TopicPartition
	p       *Partition
	topicID cluster.TopicID
	epoch   cluster.LeaderEpoch // of the leadership that is followed
	offset  int64               // next to fetch
	// lastEpoch is the leader epoch of the last record held, -1 when there is none or divergence is found otherwise.
	lastEpoch  cluster.LeaderEpoch
	truncating bool // where the log leaves the leader's has to be found before the first fetch
	notBefore  time.Time
	fenced     bool
	refusals   int   // in a row
	lag        int64 // messages behind the leader's high watermark; -1 unknown
	served     bool  // gave records in the last answer
}

func newFetcher(m *Manager, key fetcherKey, dial func(context.Context, cluster.BrokerID) (Conn, error)) *fetcher {
	f := &fetcher{m: m, key: key, dial: dial, wake: make(chan struct{}, 1)}
	f.session.none = key.express // it would outlive the fetcher at the leader, and keep a consumer's out
	f.mu.parts = map[cluster.TopicPartition]*followed{}
	return f
}

func (f *fetcher) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fetcher) add(parts ...*followed) {
	f.mu.Lock()
	for _, part := range parts {
		if old := f.mu.parts[part.tp]; old != nil {
			f.mu.order = slices.DeleteFunc(f.mu.order, func(x *followed) bool { return x == old })
		}
		f.mu.parts[part.tp] = part
		f.mu.order = append(f.mu.order, part)
	}
	f.mu.Unlock()
	f.nudge()
}

// remove takes partitions away.
func (f *fetcher) remove(tps []cluster.TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.mu.parts)
	for _, tp := range tps {
		delete(f.mu.parts, tp)
	}
	if len(f.mu.parts) < before {
		f.mu.order = slices.DeleteFunc(f.mu.order, func(part *followed) bool { return f.mu.parts[part.tp] != part })
	}
}

// takeAll takes all partitions away and returns copies of them: the fetcher may be about to note an answer in its own.
func (f *fetcher) takeAll() []*followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*followed, len(f.mu.order))
	for i, part := range f.mu.order {
		moved := *part
		all[i] = &moved
	}
	f.mu.order = nil
	clear(f.mu.parts)
	return all
}

func (f *fetcher) setTopicID(tp cluster.TopicPartition, id cluster.TopicID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if part := f.mu.parts[tp]; part != nil {
		part.topicID = id
	}
}

// run fetches until the context ends or no partition is left.
func (f *fetcher) run(ctx context.Context) {
	defer f.disconnect()
	for ctx.Err() == nil {
		f.m.fetchers.adoptExpress(f)
		if f.m.fetchers.retire(f) {
			return
		}
		if err := f.round(ctx); err != nil && ctx.Err() == nil {
			f.lost(err)
		}
	}
}

// lost gives up the connection and pauses, longer each time: the leader may have just been started again.
func (f *fetcher) lost(err error) {
	f.m.counters.fetcherErrors.Add(1)
	level := slog.LevelDebug
	if f.losses == 0 || f.losses%lossesPerWarning == 0 {
		level = slog.LevelWarn
	}
	f.m.log.Log(context.Background(), level, "fetch from leader failed", "broker", f.key.leader, "in_a_row", f.losses+1, "err", err)
	f.disconnect()
	f.delayAll(min(firstBackoff<<min(f.losses, 10), f.m.cfg.FetchBackoff))
	f.losses++
}

// round truncates where that is due, and fetches once, or waits until there is something to do.
func (f *fetcher) round(ctx context.Context) error {
	if err := f.truncateDue(ctx); err != nil {
		return err
	}
	want, wait := f.ready(time.Now())
	if len(want) == 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-timer.C:
		}
		return nil
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	f.polling.Store(true)
	defer f.polling.Store(false)
	reqCtx, cancel := context.WithTimeout(ctx, f.m.cfg.SocketTimeout)
	defer cancel()
	req, began := f.request(want, wait), time.Now()
	reply, release, err := f.fetch(reqCtx, req)
	if err != nil {
		return err
	}
	defer release()
	f.losses = 0
	if f.session.answered(reply) {
		f.process(ctx, reply)
	}
	// A leader that is about to stop lets no fetch wait, and one that refuses the session answers at once, too.
	if early := time.Duration(req.MaxWaitMillis)*time.Millisecond - time.Since(began); early > 0 && !hasNews(reply) {
		f.delayAll(min(firstBackoff, early))
	}
	return nil
}

// hasNews reports whether an answer had to come before the end of the poll: it has records, or an error of a partition.
func hasNews(resp *kmsg.FetchResponse) bool {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			if len(p.RecordBatches) > 0 || p.ErrorCode != 0 || p.DivergingEpoch.EndOffset >= 0 {
				return true
			}
		}
	}
	return false
}

// ready lists the partitions to fetch now, in order, and the time until another one is due.
func (f *fetcher) ready(now time.Time) (want []FetchPartition, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait = time.Minute
	want = make([]FetchPartition, 0, len(f.mu.order))
	for _, part := range f.mu.order {
		if d := part.notBefore.Sub(now); d > 0 {
			wait = min(wait, d)
			continue
		}
		log := part.p.Log()
		if part.truncating || log == nil || f.throttled(part, now) {
			wait = min(wait, f.m.cfg.FetchBackoff)
			continue
		}
		part.served = false
		want = append(want, FetchPartition{
			TP: part.tp, TopicID: part.topicID, CurrentLeaderEpoch: part.epoch, FetchOffset: part.offset,
			LastFetchedEpoch: part.lastEpoch, LogStartOffset: log.LogStartOffset(), MaxBytes: f.m.cfg.FetchMaxBytes,
		})
	}
	return want, wait
}

// throttled reports whether a partition must not be fetched now: its replica is a throttled one that is behind, and throttled
// replicas have fetched what they may (KIP-73, Kafka: ReplicaFetcherThread.shouldFollowerThrottle).
func (f *fetcher) throttled(part *followed, now time.Time) bool {
	t := f.m.throttle
	return t.Throttled(part.tp.Topic, part.tp.Partition) && part.lag != 0 && t.Exceeded(now)
}

// request asks for the partitions with a poll that ends when another one is due.
func (f *fetcher) request(want []FetchPartition, due time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = f.m.cfg.Versions.Fetch
	wait := min(f.m.cfg.FetchWaitMax, max(due, time.Millisecond))
	if f.key.express {
		wait = min(wait, expressWait)
	}
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), f.m.cfg.FetchMinBytes, f.m.cfg.FetchResponseMaxBytes
	f.session.fill(req, want)
	if self := int32(f.m.cfg.BrokerID); req.Version >= 15 {
		req.ReplicaState.ID, req.ReplicaState.Epoch = self, int64(f.m.brokerEpoch())
	} else {
		req.ReplicaID = self
	}
	return req
}

func (f *fetcher) connect(ctx context.Context) error {
	if f.conn != nil && !dead(f.conn) {
		return nil
	}
	f.disconnect() // there was nothing to fetch while the leader was stopped and started again
	dialCtx, cancel := context.WithTimeout(ctx, f.m.cfg.SocketTimeout)
	defer cancel()
	conn, err := f.dial(dialCtx, f.key.leader)
	if err != nil {
		return fmt.Errorf("connect to broker %d: %w", f.key.leader, err)
	}
	f.conn = conn
	return nil
}

// dead reports whether a connection is known to be broken.
func dead(c Conn) bool {
	d, ok := c.(interface{ Done() <-chan struct{} })
	if !ok {
		return false
	}
	select {
	case <-d.Done():
		return true
	default:
		return false
	}
}

func (f *fetcher) disconnect() {
	f.session.reset()
	f.session.id = NoFetchSession
	if f.conn != nil {
		_ = f.conn.Close() // the connection is given up whatever Close says
		f.conn = nil
	}
}

// fetch sends the request. release gives the records' memory back.
func (f *fetcher) fetch(ctx context.Context, req *kmsg.FetchRequest) (resp *kmsg.FetchResponse, release func(), err error) {
	if direct, ok := f.conn.(interface {
		Fetch(context.Context, *kmsg.FetchRequest) (*wire.FetchReply, error)
	}); ok {
		reply, err := direct.Fetch(ctx, req)
		if err != nil {
			return nil, nil, err
		}
		return reply.FetchResponse, reply.Release, nil
	}
	answer, err := f.conn.Request(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	resp, ok := answer.(*kmsg.FetchResponse)
	if !ok {
		return nil, nil, fmt.Errorf("answer of broker %d is no fetch response", f.key.leader)
	}
	return resp, func() {}, nil
}

func (f *fetcher) delayAll(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	until := time.Now().Add(d)
	for _, part := range f.mu.order {
		part.notBefore = until
	}
}

// delay and refused do nothing to a partition whose place another leadership has taken meanwhile.
func (f *fetcher) delay(part *followed, d time.Duration, fenced bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.parts[part.tp] == part {
		part.notBefore, part.fenced = time.Now().Add(d), fenced
	}
}

// refused delays a partition that the leader did not serve, longer each time.
func (f *fetcher) refused(part *followed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.parts[part.tp] == part {
		part.notBefore = time.Now().Add(min(firstBackoff<<min(part.refusals, 10), f.m.cfg.FetchBackoff))
		part.refusals++
	}
}

// process takes over the answer, partition by partition.
func (f *fetcher) process(ctx context.Context, resp *kmsg.FetchResponse) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			if part, ok := f.session.asked(t, t.Partitions[j].Partition, resp.Version); ok {
				f.processPartition(ctx, &part, &t.Partitions[j])
			}
		}
	}
	f.moveServed()
}

// current returns the partition if it is still to be fetched just as it was asked for.
func (f *fetcher) current(asked *FetchPartition) *followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	part := f.mu.parts[asked.TP]
	if part == nil || part.epoch != asked.CurrentLeaderEpoch || part.offset != asked.FetchOffset || part.truncating {
		return nil
	}
	return part
}

func (f *fetcher) processPartition(ctx context.Context, asked *FetchPartition, got *kmsg.FetchResponseTopicPartition) {
	part := f.current(asked)
	if part == nil {
		return
	}
	switch code := cluster.ErrorCode(got.ErrorCode); code {
	case cluster.None:
		if got.DivergingEpoch.EndOffset >= 0 && f.m.cfg.Versions.TruncationOnFetch {
			f.truncate(part, EpochEndOffset{LeaderEpoch: cluster.LeaderEpoch(got.DivergingEpoch.Epoch), EndOffset: got.DivergingEpoch.EndOffset})
			return
		}
		f.take(part, asked, got)
	case cluster.OffsetOutOfRange:
		f.m.log.Warn("offset is out of the leader's range", "topic", asked.TP.Topic, "partition", asked.TP.Partition, "leader", f.key.leader, "offset", asked.FetchOffset)
		f.restart(ctx, part)
	case cluster.FencedLeaderEpoch:
		f.delay(part, fencedPause*f.m.cfg.FetchBackoff, true)
	default:
		f.m.counters.fetcherErrors.Add(1)
		f.m.log.Debug("leader refused fetch", "topic", asked.TP.Topic, "partition", asked.TP.Partition, "leader", f.key.leader, "err", code)
		f.refused(part)
	}
}

// take appends fetched records and follows the leader's high watermark and log start offset.
func (f *fetcher) take(part *followed, asked *FetchPartition, got *kmsg.FetchResponseTopicPartition) {
	info, err := part.p.appendAsFollower(asked, got)
	switch {
	case errors.Is(err, errNotFollowing):
		return // the controller's request takes the partition from this fetcher
	case errors.Is(err, errMovedOn):
		f.catchUp(part)
		return
	case err != nil:
		f.m.counters.fetcherErrors.Add(1)
		f.m.log.Error("fetched records not appended", "topic", asked.TP.Topic, "partition", asked.TP.Partition, "offset", asked.FetchOffset, "err", err)
		f.delay(part, f.m.cfg.FetchBackoff, false)
		return
	}
	f.m.fetches.wake(asked.TP)
	f.mu.Lock()
	defer f.mu.Unlock()
	part.fenced, part.refusals = false, 0
	if info.LastOffset >= 0 {
		part.offset = info.LastOffset + 1
		part.served = true
		if f.m.cfg.Versions.TruncationOnFetch && info.LastLeaderEpoch != cluster.NoLeaderEpoch {
			part.lastEpoch = info.LastLeaderEpoch
		}
		part.p.stats.replicationBytesIn.Add(int64(len(got.RecordBatches)))
		if f.m.throttle.Throttled(part.tp.Topic, part.tp.Partition) {
			f.m.throttle.Record(int64(len(got.RecordBatches)), time.Now())
		}
	}
	part.lag = max(0, got.HighWatermark-part.offset)
}

// catchUp sets the partition's offset to where its log ends now.
func (f *fetcher) catchUp(part *followed) {
	var offset int64
	var last cluster.LeaderEpoch
	if part.p.asFollower(part.epoch, func(log *commitlog.Log) error {
		offset, last = log.LogEndOffset(), f.lastEpoch(log)
		return nil
	}) != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	part.offset, part.lastEpoch = offset, last
}

// moveServed puts partitions that gave records behind those that did not, so that full answers starve none.
func (f *fetcher) moveServed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	served := 0
	for _, part := range f.mu.order {
		if part.served {
			served++
		}
	}
	if served == 0 || served == len(f.mu.order) {
		return
	}
	order := make([]*followed, 0, len(f.mu.order))
	for _, pass := range []bool{false, true} {
		for _, part := range f.mu.order {
			if part.served == pass {
				order = append(order, part)
			}
		}
	}
	f.mu.order = order
}

// Why an answer to a fetch is not used.
var (
	errNotFollowing = errors.New("partition is followed otherwise now")
	errMovedOn      = errors.New("log no longer ends where the fetch began")
)

// asFollower runs fn on the log while the partition follows in the epoch, and no other fetcher touches the log.
func (p *Partition) asFollower(epoch cluster.LeaderEpoch, fn func(*commitlog.Log) error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.mu.log == nil || p.isLeaderLocked() || p.mu.leaderEpoch != epoch {
		return errNotFollowing
	}
	p.following.Lock()
	defer p.following.Unlock()
	return fn(p.mu.log)
}
