package replica

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"klamm/internal/cluster"
)

// Session ids and epochs of a fetch request with a meaning of their own (KIP-227).
const (
	NoFetchSession    = 0  // session id: none
	InitialFetchEpoch = 0  // asks for a new session
	FinalFetchEpoch   = -1 // wants none, and closes the one that is named
)

// firstFetchVersionByID is the first Fetch version that names topics by id.
const firstFetchVersionByID = 13

// FetchSessionCache remembers, per session, which partitions a client fetches and what it was told last, so that
// requests and answers carry differences only (KIP-227, Kafka: FetchSessionCache). It holds a fixed number of sessions:
// a new one takes the place of a session that was idle for the eviction time, or of one that is worth less; if there
// is none the client works without a session. Followers' sessions are worth more than consumers', then larger ones
// more than smaller. Safe for concurrent use.
type FetchSessionCache struct {
	slots    int
	eviction time.Duration

	mu struct {
		sync.Mutex
		sessions   map[int32]*fetchSession
		partitions int
		evictions  int64
	}
}

// NewFetchSessionCache makes a cache of max.incremental.fetch.session.cache.slots sessions (Kafka's default 1000);
// sessions are safe for minEviction after their creation (Kafka: 2 minutes). Zero slots turn sessions off.
func NewFetchSessionCache(slots int, minEviction time.Duration) *FetchSessionCache {
	c := &FetchSessionCache{slots: slots, eviction: minEviction}
	c.mu.sessions = map[int32]*fetchSession{}
	return c
}

// fetchSession is one session. Its lock is never held together with the cache's.
type fetchSession struct {
	id        int32
	follower  bool
	byID      bool
	createdAt time.Time
	usedAt    time.Time // guarded by the cache's lock, as is size
	size      int

	mu    sync.Mutex
	epoch int32 // of the next request
	parts map[sessionKey]*sessionPartition
	// first and last link the partitions in the order in which they are read: the one that gave records goes to the
	// end, so that a full answer does not starve the others.
	first, last *sessionPartition
}

// sessionKey names a partition within a session: by topic id, or by name before version 13.
type sessionKey struct {
	id        cluster.TopicID
	topic     string
	partition int32
}

type sessionPartition struct {
	FetchPartition
	highWatermark  int64 // as last sent
	logStartOffset int64
	prev, next     *sessionPartition
}

func keyOf(tp cluster.TopicPartition, id cluster.TopicID) sessionKey {
	if !id.IsZero() {
		return sessionKey{id: id, partition: tp.Partition}
	}
	return sessionKey{topic: tp.Topic, partition: tp.Partition}
}

func (s *fetchSession) addLocked(p *sessionPartition) {
	if p.prev, p.next = s.last, nil; s.last == nil {
		s.first = p
	} else {
		s.last.next = p
	}
	s.last = p
}

func (s *fetchSession) removeLocked(p *sessionPartition) {
	if p.prev == nil {
		s.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		s.last = p.prev
	} else {
		p.next.prev = p.prev
	}
}

// updateLocked applies the differences that a request carries.
func (s *fetchSession) updateLocked(req *FetchSessionRequest) {
	for _, part := range req.Partitions {
		key := keyOf(part.TP, part.TopicID)
		if p := s.parts[key]; p != nil {
			if part.TP.Topic == "" {
				part.TP.Topic = p.TP.Topic
			}
			p.FetchPartition = part
			continue
		}
		p := &sessionPartition{FetchPartition: part, highWatermark: -1, logStartOffset: -1}
		s.parts[key] = p
		s.addLocked(p)
	}
	for _, f := range req.Forgotten {
		key := keyOf(f.TP, f.TopicID)
		if p := s.parts[key]; p != nil {
			delete(s.parts, key)
			s.removeLocked(p)
		}
	}
}

// FetchSessionRequest is the session's part of a fetch request.
type FetchSessionRequest struct {
	Version    int16
	SessionID  int32
	Epoch      int32
	Follower   bool
	Partitions []FetchPartition // in request order; TP.Topic is empty where the id is not known
	Forgotten  []ForgottenPartition
	// TopicName resolves ids that were not known when the session took them up.
	TopicName func(cluster.TopicID) (string, bool)
}

// ForgottenPartition leaves a session.
type ForgottenPartition struct {
	TP      cluster.TopicPartition
	TopicID cluster.TopicID // zero before version 13
}

// FetchContext is one request in its session. It is used by one goroutine at a time.
type FetchContext struct {
	cache   *FetchSessionCache
	req     FetchSessionRequest
	err     cluster.ErrorCode
	session *fetchSession // nil without one: a full request, which may get a new one at the end
	create  bool
	parts   []FetchPartition
	cached  []*sessionPartition // parallel to parts, in a session
}

// Begin finds or starts the request's session (Kafka: FetchManager.newContext).
func (c *FetchSessionCache) Begin(req FetchSessionRequest) *FetchContext {
	ctx := &FetchContext{cache: c, req: req}
	if req.Epoch == InitialFetchEpoch || req.Epoch == FinalFetchEpoch {
		if req.SessionID != NoFetchSession {
			c.remove(req.SessionID)
		}
		req.Partitions = withoutRepetitions(req.Partitions)
		ctx.req.Partitions = req.Partitions
		ctx.parts, ctx.create = req.Partitions, req.Epoch == InitialFetchEpoch && c.slots > 0
		return ctx
	}
	s := c.find(req.SessionID)
	if s == nil {
		ctx.err = cluster.FetchSessionIDNotFound
		return ctx
	}
	s.mu.Lock()
	defer func() {
		size := len(s.parts)
		s.mu.Unlock()
		if ctx.err == cluster.None {
			c.touch(s, size)
		}
	}()
	if ctx.err = s.checkLocked(&req); ctx.err != cluster.None {
		return ctx
	}
	s.updateLocked(&req)
	if len(s.parts) > 0 {
		s.epoch = nextFetchEpoch(s.epoch)
		ctx.session = s
	}
	ctx.takePartitionsLocked(s)
	return ctx
}

// withoutRepetitions lists each partition once, at its first place, as it is listed last (Kafka: FetchRequest.fetchData).
func withoutRepetitions(parts []FetchPartition) []FetchPartition {
	if len(parts) < 2 {
		return parts
	}
	at := make(map[sessionKey]int, len(parts))
	out := parts[:0:len(parts)]
	for _, p := range parts {
		key := keyOf(p.TP, p.TopicID)
		if i, again := at[key]; again {
			out[i] = p
			continue
		}
		at[key] = len(out)
		out = append(out, p)
	}
	return out
}

func (s *fetchSession) checkLocked(req *FetchSessionRequest) cluster.ErrorCode {
	switch {
	case s.epoch != req.Epoch:
		return cluster.InvalidFetchSessionEpoch
	case s.byID != (req.Version >= firstFetchVersionByID):
		return cluster.FetchSessionTopicIDError
	default:
		return cluster.None
	}
}

// takePartitionsLocked lists what to read, in the session's order.
func (ctx *FetchContext) takePartitionsLocked(s *fetchSession) {
	ctx.parts = make([]FetchPartition, 0, len(s.parts))
	ctx.cached = make([]*sessionPartition, 0, len(s.parts))
	for p := s.first; p != nil; p = p.next {
		if p.TP.Topic == "" && ctx.req.TopicName != nil {
			p.TP.Topic, _ = ctx.req.TopicName(p.TopicID)
		}
		ctx.parts = append(ctx.parts, p.FetchPartition)
		ctx.cached = append(ctx.cached, p)
	}
}

// Err is a fault of the session: the answer carries it at its top, with session id 0 and no partitions.
func (ctx *FetchContext) Err() cluster.ErrorCode { return ctx.err }

// Partitions lists what is to be read, in order.
func (ctx *FetchContext) Partitions() []FetchPartition { return ctx.parts }

// FetchSessionAnswer is the session's part of the answer.
type FetchSessionAnswer struct {
	Err       cluster.ErrorCode
	SessionID int32
	Include   []int // indexes of the results to send, in order; all others have no records
}

// Finish notes the results, which are parallel to Partitions, in the session and says which of them to send. Records of
// results that are left out are released.
func (ctx *FetchContext) Finish(results []FetchResult) FetchSessionAnswer {
	switch {
	case ctx.err != cluster.None:
		return FetchSessionAnswer{Err: ctx.err}
	case ctx.session != nil:
		return ctx.finishIncremental(results)
	}
	a := FetchSessionAnswer{Include: make([]int, len(results))}
	for i := range results {
		a.Include[i] = i
	}
	if ctx.create {
		a.SessionID = ctx.cache.create(&ctx.req, results)
	}
	return a
}

// Throttled ends a request that is answered without partitions, because its client is over its quota. The session stays as it
// was, so the next request is told everything; the first request of a session gets none (Kafka: getThrottledResponse).
func (ctx *FetchContext) Throttled(results []FetchResult) FetchSessionAnswer {
	releaseAll(results)
	s := ctx.session
	if ctx.err != cluster.None || s == nil {
		return FetchSessionAnswer{Err: ctx.err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != nextFetchEpoch(ctx.req.Epoch) {
		return FetchSessionAnswer{Err: cluster.InvalidFetchSessionEpoch, SessionID: s.id}
	}
	return FetchSessionAnswer{SessionID: s.id}
}

func (ctx *FetchContext) finishIncremental(results []FetchResult) FetchSessionAnswer {
	s := ctx.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != nextFetchEpoch(ctx.req.Epoch) {
		releaseAll(results)
		return FetchSessionAnswer{Err: cluster.InvalidFetchSessionEpoch, SessionID: s.id}
	}
	a := FetchSessionAnswer{SessionID: s.id, Include: make([]int, 0, len(results))}
	for i := range results {
		p, r := ctx.cached[i], &results[i]
		if !p.told(r) {
			continue
		}
		a.Include = append(a.Include, i)
		if r.Records != nil && s.last != p {
			s.removeLocked(p)
			s.addLocked(p)
		}
	}
	return a
}

// told notes what the client is about to learn and reports whether there is anything: records, a moved watermark or
// start, an error, a divergence. After an error the watermark counts as never sent.
func (p *sessionPartition) told(r *FetchResult) bool {
	news := r.Records != nil || r.Diverging != nil || r.Err != cluster.None ||
		p.highWatermark != r.HighWatermark || p.logStartOffset != r.LogStartOffset
	p.highWatermark, p.logStartOffset = r.HighWatermark, r.LogStartOffset
	if r.Err != cluster.None {
		p.highWatermark = -1
	}
	return news
}

func nextFetchEpoch(epoch int32) int32 {
	switch {
	case epoch < 0:
		return FinalFetchEpoch
	case epoch == math.MaxInt32:
		return 1
	default:
		return epoch + 1
	}
}

func (c *FetchSessionCache) find(id int32) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.sessions[id]
}

func (c *FetchSessionCache) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(c.mu.sessions[id])
}

func (c *FetchSessionCache) removeLocked(s *fetchSession) {
	if s != nil {
		delete(c.mu.sessions, s.id)
		c.mu.partitions -= s.size
	}
}

// touch marks the session as used now, with that many partitions; an empty one is closed.
func (c *FetchSessionCache) touch(s *fetchSession, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.sessions[s.id] != s {
		return // evicted meanwhile: this request still ends well, the next one starts anew
	}
	if size == 0 {
		c.removeLocked(s)
		return
	}
	c.mu.partitions += size - s.size
	s.size, s.usedAt = size, time.Now()
}

// create starts a session with what the full request read; NoFetchSession when there is no room.
func (c *FetchSessionCache) create(req *FetchSessionRequest, results []FetchResult) int32 {
	now := time.Now()
	s := &fetchSession{
		follower: req.Follower, byID: req.Version >= firstFetchVersionByID, createdAt: now, usedAt: now,
		epoch: nextFetchEpoch(InitialFetchEpoch), parts: make(map[sessionKey]*sessionPartition, len(results)),
	}
	if !c.makeRoom(s, len(req.Partitions), now) {
		return NoFetchSession
	}
	for i, part := range req.Partitions {
		key := keyOf(part.TP, part.TopicID)
		if s.parts[key] != nil {
			continue
		}
		p := &sessionPartition{FetchPartition: part}
		p.told(&results[i])
		s.parts[key] = p
		s.addLocked(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.sessions) >= c.slots {
		return NoFetchSession // another request took the place
	}
	for s.id == NoFetchSession || c.mu.sessions[s.id] != nil {
		s.id = rand.Int32()
	}
	s.size = len(s.parts)
	c.mu.sessions[s.id] = s
	c.mu.partitions += s.size
	return s.id
}

// makeRoom evicts a session for the new one if all slots are taken (Kafka: FetchSessionCacheShard.tryEvict): the least
// recently used one if it was idle for the eviction time, else the least valuable of those that may go. A follower may
// push out any consumer's session; others only sessions older than the eviction time.
func (c *FetchSessionCache) makeRoom(s *fetchSession, size int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.sessions) < c.slots {
		return true
	}
	var idlest, cheapest *fetchSession
	for _, o := range c.mu.sessions {
		if idlest == nil || o.usedAt.Before(idlest.usedAt) {
			idlest = o
		}
		old := now.Sub(o.createdAt) > c.eviction
		if evictable := old || s.follower && !o.follower; evictable && (cheapest == nil || o.cheaperThan(cheapest.follower, cheapest.size)) {
			cheapest = o
		}
	}
	victim := cheapest
	if idlest != nil && now.Sub(idlest.usedAt) > c.eviction {
		victim = idlest
	} else if cheapest == nil || !cheapest.cheaperThan(s.follower, size) {
		return false
	}
	c.removeLocked(victim)
	c.mu.evictions++
	return true
}

func (s *fetchSession) cheaperThan(follower bool, size int) bool {
	if s.follower != follower {
		return !s.follower
	}
	return s.size < size
}

// FetchSessionStats are a cache's figures: sessions and partitions held now, evictions since start.
type FetchSessionStats struct {
	Sessions, Partitions int
	Evictions            int64
}

// Stats returns the cache's figures.
func (c *FetchSessionCache) Stats() FetchSessionStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return FetchSessionStats{len(c.mu.sessions), c.mu.partitions, c.mu.evictions}
}
