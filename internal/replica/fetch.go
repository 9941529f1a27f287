package replica

import (
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/wire"
)

// Isolation says how far a client may read.
type Isolation int8

// The isolation levels, by their numbers in the protocol.
const (
	ReadUncommitted Isolation = 0 // up to the high watermark
	ReadCommitted   Isolation = 1 // up to the last stable offset
)

// FetchRequest asks to read partitions. ReplicaID tells who asks: 0 and more a follower, whose progress is noted and who
// reads up to the log's end; less a consumer, also one that calls itself a debugger by -2.
type FetchRequest struct {
	ReplicaID    cluster.BrokerID
	ReplicaEpoch cluster.BrokerEpoch // of the follower's registration; -1 unknown
	MaxWait      time.Duration
	MinBytes     int32
	MaxBytes     int32
	Isolation    Isolation
	// HardMaxBytes gives bytes of a first batch that is larger than what was asked for, rather than all of it: to clients
	// before Fetch version 3, which take that for a sign to ask for more.
	HardMaxBytes bool
	// FollowersToo lets a consumer read from a partition that this broker follows, up to the high watermark known here:
	// Fetch version 11 and later (KIP-392).
	FollowersToo bool
	Partitions   []FetchPartition
}

// FetchPartition is one partition of a fetch. An entry that has an id but no topic name answers UNKNOWN_TOPIC_ID; one
// whose id is not the log's answers INCONSISTENT_TOPIC_ID.
type FetchPartition struct {
	TP                 cluster.TopicPartition
	TopicID            cluster.TopicID     // zero when the request goes by name
	CurrentLeaderEpoch cluster.LeaderEpoch // -1: not checked
	FetchOffset        int64
	LastFetchedEpoch   cluster.LeaderEpoch // -1: no check for divergence
	LogStartOffset     int64               // the follower's; -1 from consumers
	MaxBytes           int32
}

// FetchResult is what one partition gave. The offsets are -1 with an error.
type FetchResult struct {
	Err              cluster.ErrorCode
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	// Diverging says where the follower's log leaves the leader's: the follower is to truncate. No records come with it.
	Diverging *EpochEndOffset
	// CurrentLeader is set with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH when it is known.
	CurrentLeader *LeaderIDAndEpoch
	// AbortedTxns belongs to ReadCommitted; nil otherwise.
	AbortedTxns          []commitlog.AbortedTxn
	PreferredReadReplica cluster.BrokerID // always -1
	// Records is nil when there are none. The receiver must Release it, once.
	Records wire.RecordSource

	sent *atomic.Int64 // counts the bytes of Records once they are sent
}

// CountSent counts the records of a partition as sent to a consumer. What a follower is sent is counted already.
func (r *FetchResult) CountSent() {
	if r.Records != nil && r.sent != nil {
		r.sent.Add(int64(r.Records.Len()))
	}
}

func (r *FetchRequest) fromFollower() bool { return r.ReplicaID >= 0 }
func (r *FetchRequest) leaderOnly() bool   { return r.fromFollower() || !r.FollowersToo }

func (r *FetchRequest) isolation() commitlog.Isolation {
	switch {
	case r.fromFollower():
		return commitlog.LogEnd
	case r.Isolation == ReadCommitted:
		return commitlog.TxnCommitted
	default:
		return commitlog.HighWatermark
	}
}

// Fetch reads partitions in the request's order and calls done with one result a partition: at once when MinBytes are
// there, when a partition has an error or has diverged, or when nothing may be waited for; else when there is more to
// give or MaxWait has passed. done may run before Fetch returns.
//
// The returned function, nil if the request was answered, answers it at once with what there is: a connection that is
// gone need not be waited for. It may be called at any time and more than once.
func (m *Manager) Fetch(req FetchRequest, done func([]FetchResult)) (hurry func()) {
	op := &fetchOp{m: m, req: req, done: done}
	read := m.read(&op.req, true)
	if req.MaxWait <= 0 || m.leaving.Load() || len(req.Partitions) == 0 || read.bytes >= int64(req.MinBytes) || read.answerNow {
		op.answer(read.results)
	} else {
		releaseAll(read.results)
		op.from = read.from
		op.bytes = make([]int64, len(req.Partitions))
		w := m.fetches.add(op, len(req.Partitions), func(i int) cluster.TopicPartition { return op.req.Partitions[i].TP }, time.Now().Add(req.MaxWait))
		if m.leaving.Load() {
			w.expire() // AnswerFetches may have come between the two looks
		}
		if !w.done.Load() {
			hurry = w.expire
		}
	}
	for _, mv := range read.moved {
		if mv.high {
			m.wakeAll(mv.tp)
		} else {
			m.deletes.wake(mv.tp)
		}
	}
	return hurry
}

// AnswerFetches answers all fetches that wait, and from then on lets none wait: a broker that stops would wait as long for its
// followers' and consumers' fetches as these are ready to wait for records.
func (m *Manager) AnswerFetches() {
	m.leaving.Store(true)
	m.fetches.expireAll()
}

// watermarkMove is a partition whose high or low watermark a follower's fetch has moved.
type watermarkMove struct {
	tp   cluster.TopicPartition
	high bool
}

// readOutcome is what one pass over the partitions gave.
type readOutcome struct {
	results   []FetchResult
	from      []commitlog.OffsetMetadata // where each partition's fetch offset lies
	bytes     int64
	answerNow bool // an error or a diverging epoch
	moved     []watermarkMove
}

// read reads the partitions one after the other, up to the request's and the partitions' limits; the first batch is
// given whole whatever the limits, so that a consumer always gets on. note says that a follower's progress is recorded.
func (m *Manager) read(req *FetchRequest, note bool) readOutcome {
	out := readOutcome{results: make([]FetchResult, len(req.Partitions)), from: make([]commitlog.OffsetMetadata, len(req.Partitions))}
	now := time.Now()
	limit := int64(req.MaxBytes)
	for i := range req.Partitions {
		part := &req.Partitions[i]
		r := &out.results[i]
		p := m.readOne(req, part, r, readLimits{max: min(int64(part.MaxBytes), limit), minOne: out.bytes == 0 && !req.HardMaxBytes}, &out.from[i], note, now, &out.moved)
		if r.Err != cluster.None || r.Diverging != nil {
			out.answerNow = true
		}
		if r.Records == nil {
			continue
		}
		n := int64(r.Records.Len())
		out.bytes += n
		limit = max(0, limit-n)
		if r.sent = &p.stats.bytesOut; req.fromFollower() {
			r.sent = &p.stats.replicationOut
		}
	}
	return out
}

type readLimits struct {
	max    int64
	minOne bool
}

func (m *Manager) readOne(req *FetchRequest, part *FetchPartition, r *FetchResult, limits readLimits, from *commitlog.OffsetMetadata,
	note bool, now time.Time, moved *[]watermarkMove) *Partition {
	m.counters.fetchRequests.Add(1)
	*r = FetchResult{HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: cluster.NoBroker}
	if part.TP.Topic == "" && !part.TopicID.IsZero() {
		r.Err = cluster.UnknownTopicID
		return nil
	}
	p, code := m.lookup(part.TP)
	if code != cluster.None {
		r.Err, r.CurrentLeader = code, m.leaderHint(code, part.TP)
		return nil
	}
	fetch, code, err := p.read(req, part, r, limits, from)
	if code != cluster.None {
		r.Err, r.CurrentLeader = code, m.leaderHint(code, part.TP)
		if code == cluster.UnknownServerError || code == cluster.CorruptMessage {
			m.counters.failedFetch.Add(1)
			p.stats.failedFetch.Add(1)
			m.log.Error("fetch failed", "topic", part.TP.Topic, "partition", part.TP.Partition, "offset", part.FetchOffset, "err", err)
		}
		return p
	}
	if note && req.fromFollower() && r.Diverging == nil {
		m.counters.followerFetches.Add(1)
		fetch.now = now
		if high, low := p.noteFollowerFetch(fetch); high || low {
			*moved = append(*moved, watermarkMove{part.TP, high})
		}
	}
	return p
}

// read fills in r under one hold of the leadership. For followers it returns what is to be noted of the fetch.
func (p *Partition) read(req *FetchRequest, part *FetchPartition, r *FetchResult, limits readLimits, from *commitlog.OffsetMetadata) (followerFetch, cluster.ErrorCode, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	fetch := followerFetch{id: req.ReplicaID, brokerEpoch: req.ReplicaEpoch, offset: part.FetchOffset, startOffset: part.LogStartOffset, leaderEpoch: p.mu.leaderEpoch}
	if p.mu.log != nil && !part.TopicID.IsZero() {
		if id := p.mu.log.TopicID(); !id.IsZero() && id != part.TopicID {
			return fetch, cluster.InconsistentTopicID, nil
		}
	}
	log, code := p.logForReadLocked(part.CurrentLeaderEpoch, req.leaderOnly(), req.ReplicaID == -1)
	if code != cluster.None {
		return fetch, code, nil
	}
	if req.fromFollower() && !p.hasFollowerLocked(req.ReplicaID) {
		// The follower knows the leader epoch but is no replica here yet: it learned of a reassignment first, so it retries.
		if part.CurrentLeaderEpoch != cluster.NoLeaderEpoch {
			return fetch, cluster.UnknownLeaderEpoch, nil
		}
		return fetch, cluster.NotLeaderOrFollower, nil
	}
	// The end before the read: appends that follow it must not keep a follower out of the ISR.
	fetch.leaderEndOffset = log.LogEndOffset()
	if part.LastFetchedEpoch != cluster.NoLeaderEpoch {
		diverging, code := divergence(log, part)
		if code != cluster.None {
			return fetch, code, nil
		}
		if diverging != nil {
			r.HighWatermark, r.LastStableOffset, r.LogStartOffset = log.HighWatermark(), log.LastStableOffset(), log.LogStartOffset()
			r.Diverging = diverging
			return fetch, cluster.None, nil
		}
	}
	res, err := log.Read(part.FetchOffset, commitlog.ReadOptions{MaxBytes: int(limits.max), MinOneMessage: limits.minOne, Isolation: req.isolation()})
	if err != nil {
		return fetch, commitlog.Code(err), err
	}
	r.HighWatermark, r.LastStableOffset, r.LogStartOffset = res.HighWatermark, res.LastStableOffset, res.LogStartOffset
	r.AbortedTxns = res.Aborted
	*from = res.Fetch
	switch {
	case p.throttlesLocked(req), res.Records.Len() == 0 || res.FirstEntryIncomplete && !req.HardMaxBytes:
		res.Records.Release()
	default:
		r.Records = res.Records
	}
	return fetch, cluster.None, nil
}

// divergence compares the epoch of the last record that the reader holds with this log. Non-nil: the reader's log has
// left this one at or before the offset that it names (KIP-595, Kafka: Partition.readRecords).
func divergence(log *commitlog.Log, part *FetchPartition) (*EpochEndOffset, cluster.ErrorCode) {
	epoch, end := log.OffsetForLeaderEpoch(part.LastFetchedEpoch)
	switch {
	case epoch == cluster.NoLeaderEpoch || end < 0 || part.FetchOffset < log.LogStartOffset():
		return nil, cluster.OffsetOutOfRange
	case epoch < part.LastFetchedEpoch || end < part.FetchOffset:
		return &EpochEndOffset{LeaderEpoch: epoch, EndOffset: end}, cluster.None
	default:
		return nil, cluster.None
	}
}

func releaseAll(results []FetchResult) {
	for i := range results {
		if r := results[i].Records; r != nil {
			r.Release()
			results[i].Records = nil
		}
	}
}

// fetchOp is a fetch that waits for more data (Kafka: DelayedFetch). The bytes that each partition has to give are kept,
// so that news of one partition costs a look at that one only.
type fetchOp struct {
	m     *Manager
	req   FetchRequest
	done  func([]FetchResult)
	from  []commitlog.OffsetMetadata
	bytes []int64
	total int64
}

func (op *fetchOp) check(i int) bool {
	if i >= 0 {
		return op.checkOne(i)
	}
	for i := range op.req.Partitions {
		if op.checkOne(i) {
			return true
		}
	}
	return false
}

// checkOne reports whether the request is to be answered after a look at one partition: it is no longer led here, its
// epoch or log has changed, the offset lies before the log's last segment, or there are enough bytes in all.
func (op *fetchOp) checkOne(i int) bool {
	part := &op.req.Partitions[i]
	p, code := op.m.lookup(part.TP)
	if code != cluster.None {
		return true
	}
	bytes, answer := p.available(&op.req, part, &op.from[i])
	if answer {
		return true
	}
	bytes = min(bytes, int64(part.MaxBytes))
	op.total += bytes - op.bytes[i]
	op.bytes[i] = bytes
	return op.total >= int64(op.req.MinBytes)
}

// available estimates the bytes that the partition could give from the offset that lies at from. Where the offset lies
// is not known while nothing is stored at it; then it is looked up, once.
func (p *Partition) available(req *FetchRequest, part *FetchPartition, from *commitlog.OffsetMetadata) (bytes int64, answer bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	log, code := p.logForReadLocked(part.CurrentLeaderEpoch, req.leaderOnly(), req.ReplicaID == -1)
	if code != cluster.None {
		return 0, code != cluster.UnknownLeaderEpoch // UNKNOWN cannot come up newly: leader epochs only grow
	}
	end := log.EndOffsetMetadata()
	bound := end.Offset
	switch req.isolation() {
	case commitlog.HighWatermark:
		bound = log.HighWatermark()
	case commitlog.TxnCommitted:
		bound = log.LastStableOffset()
	}
	if part.LastFetchedEpoch != cluster.NoLeaderEpoch {
		if diverging, code := divergence(log, part); diverging != nil || code != cluster.None {
			return 0, true
		}
	}
	switch {
	case part.FetchOffset > end.Offset:
		return 0, true // truncated below the offset: the client is told
	case part.FetchOffset >= bound, p.throttlesLocked(req):
		return 0, false
	case from.Position < 0:
		res, err := log.Read(part.FetchOffset, commitlog.ReadOptions{MaxBytes: int(part.MaxBytes), MinOneMessage: true, Isolation: req.isolation()})
		if err != nil {
			return 0, true
		}
		defer res.Records.Release()
		*from = res.Fetch
		return int64(res.Records.Len()), false
	case from.SegmentBase != end.SegmentBase:
		return 0, true
	}
	bytes = end.Position - from.Position
	if bound < end.Offset {
		// Only the end's position is known: what lies between watermark and end is taken off by its share of the offsets.
		bytes = bytes * (bound - part.FetchOffset) / (end.Offset - part.FetchOffset)
	}
	return max(bytes, 1), false
}

// complete reads again and answers with whatever there is. A follower's progress was noted when its request came.
func (op *fetchOp) complete(bool) {
	op.answer(op.m.read(&op.req, false).results)
}

// answer counts what a follower is sent and gives the results.
func (op *fetchOp) answer(results []FetchResult) {
	if op.req.fromFollower() {
		throttle := op.m.env.throttle
		for i := range results {
			r := &results[i]
			if r.Records == nil {
				continue
			}
			if tp := op.req.Partitions[i].TP; throttle.Throttled(tp.Topic, tp.Partition) {
				throttle.Record(int64(r.Records.Len()), time.Now())
			}
			r.CountSent()
			r.sent = nil
		}
	}
	op.done(results)
}

// throttlesLocked reports whether a follower gets no records now: the replica is a throttled one, the follower is not in
// sync, and throttled replicas have used what they may (KIP-73, Kafka: ReplicaManager.shouldLeaderThrottle).
func (p *Partition) throttlesLocked(req *FetchRequest) bool {
	t := p.env.throttle
	return req.fromFollower() && t.Throttled(p.tp.Topic, p.tp.Partition) &&
		!contains(p.mu.isr.committed, req.ReplicaID) && t.Exceeded(time.Now())
}
