package replica

import (
	"errors"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/record"
)

// AppendRequest asks to append to partitions that this broker leads. Records alias the caller's buffer; they are changed
// in place (offsets, leader epoch) and not used after Append has returned.
type AppendRequest struct {
	Acks    int16         // 0, 1 or -1
	Timeout time.Duration // how long to wait for followers with acks -1
	Origin  record.Origin
	// APIVersion is that of the produce request, for the words of refusals; 0 when there is none.
	APIVersion int16
	// InternalTopicsAllowed lets the request append to __consumer_offsets and __transaction_state.
	InternalTopicsAllowed bool
	Partitions            []AppendPartition
}

// AppendPartition is one partition's records: one batch, or several from a coordinator.
type AppendPartition struct {
	TP      cluster.TopicPartition
	Records []byte
}

// AppendResult is the outcome for one partition.
type AppendResult struct {
	Err            cluster.ErrorCode
	ErrMessage     string // empty: none
	RecordErrors   []record.RecordError
	BaseOffset     int64 // -1 on error
	LogAppendTime  int64 // milliseconds; -1 unless the topic stamps records itself
	LogStartOffset int64 // -1 on error
	// CurrentLeader is set with NOT_LEADER_OR_FOLLOWER when it is known.
	CurrentLeader *LeaderIDAndEpoch
}

// LeaderIDAndEpoch tells a client who leads.
type LeaderIDAndEpoch struct {
	Leader cluster.BrokerID
	Epoch  cluster.LeaderEpoch
}

// appended notes what happened to one partition, beside its result.
type appended struct {
	p        *Partition
	end      int64               // offset after the last record; 0 when nothing was appended
	ledSince cluster.LeaderEpoch // of the leadership under which it was appended
	hwMoved  bool
	acksLeft bool
}

// Append appends to the logs and calls done once the acks are there, with one result a partition in the request's order.
// done may run before Append returns.
func (m *Manager) Append(req AppendRequest, done func([]AppendResult)) {
	results := make([]AppendResult, len(req.Partitions))
	if req.Acks < -1 || req.Acks > 1 {
		for i := range results {
			results[i] = appendFailed(cluster.InvalidRequiredAcks, "")
		}
		done(results)
		return
	}
	var few [4]appended
	notes := few[:0:len(few)]
	if len(results) > len(few) {
		notes = make([]appended, 0, len(results))
	}
	waiting := 0
	for i := range req.Partitions {
		var note appended
		results[i], note = m.appendOne(&req, &req.Partitions[i])
		if req.Acks == -1 && note.p != nil {
			if code, reached := note.p.acked(note.end, note.ledSince); !reached {
				note.acksLeft = true
				waiting++
			} else if code != cluster.None {
				results[i].Err = code
			}
		}
		notes = append(notes, note)
	}
	if waiting == 0 {
		done(results)
	} else {
		m.waitForAcks(&req, results, notes, waiting, done)
	}
	for i := range notes {
		if note := &notes[i]; note.p != nil {
			m.afterAppend(note.p.tp, note.hwMoved)
		}
	}
}

// afterAppend wakes the requests that the append may have made possible.
func (m *Manager) afterAppend(tp cluster.TopicPartition, hwMoved bool) {
	if hwMoved {
		m.wakeAll(tp)
		return
	}
	m.fetches.wake(tp) // followers read up to the log end
}

func (m *Manager) appendOne(req *AppendRequest, part *AppendPartition) (AppendResult, appended) {
	m.counters.produceRequests.Add(1)
	if !req.InternalTopicsAllowed && cluster.IsInternalTopic(part.TP.Topic) {
		return appendFailed(cluster.InvalidTopicException, ""), appended{}
	}
	p, code := m.lookup(part.TP)
	if code != cluster.None {
		r := appendFailed(code, "")
		r.CurrentLeader = m.leaderHint(code, part.TP)
		return r, appended{}
	}
	info, note, code, err := p.appendAsLeader(part.Records, req.Acks, commitlog.AppendOptions{Origin: req.Origin, APIVersion: req.APIVersion})
	if code != cluster.None {
		r := m.appendError(p, code, err)
		r.CurrentLeader = m.leaderHint(code, part.TP)
		return r, appended{}
	}
	if !info.Duplicate {
		p.stats.bytesIn.Add(int64(len(part.Records)))
		p.stats.messagesIn.Add(int64(info.NumRecords))
	}
	return AppendResult{BaseOffset: info.FirstOffset, LogAppendTime: info.LogAppendTime, LogStartOffset: info.LogStartOffset}, note
}

func (m *Manager) leaderHint(code cluster.ErrorCode, tp cluster.TopicPartition) *LeaderIDAndEpoch {
	if code != cluster.NotLeaderOrFollower && code != cluster.FencedLeaderEpoch {
		return nil
	}
	return m.currentLeader(tp)
}

func appendFailed(code cluster.ErrorCode, message string) AppendResult {
	return AppendResult{Err: code, ErrMessage: message, BaseOffset: -1, LogAppendTime: -1, LogStartOffset: -1}
}

// appendError makes the result of a refused append. Refusals that a client causes in normal operation are not counted as
// failures, as in Kafka.
func (m *Manager) appendError(p *Partition, code cluster.ErrorCode, err error) AppendResult {
	r := appendFailed(code, "")
	var refused *commitlog.Error
	if errors.As(err, &refused) {
		r.RecordErrors = refused.Records
		r.ErrMessage = refused.Message
	}
	switch code {
	case cluster.NotLeaderOrFollower, cluster.MessageTooLarge, cluster.RecordListTooLarge, cluster.CorruptMessage, cluster.KafkaStorageError:
		return r
	}
	m.counters.failedProduce.Add(1)
	p.stats.failedProduce.Add(1)
	if log := p.Log(); log != nil {
		r.LogStartOffset = log.LogStartOffset()
	}
	if code == cluster.UnknownServerError {
		m.log.Error("append failed", "topic", p.tp.Topic, "partition", p.tp.Partition, "err", err)
	}
	return r
}

// appendAsLeader appends under this broker's leadership. With acks -1 it refuses when too few replicas are in sync.
func (p *Partition) appendAsLeader(records []byte, acks int16, o commitlog.AppendOptions) (info commitlog.AppendInfo, note appended, code cluster.ErrorCode, err error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.servesClientsLocked() {
		return info, note, cluster.NotLeaderOrFollower, nil
	}
	if acks == -1 && len(p.mu.isr.committed) < p.minISRLocked() {
		return info, note, cluster.NotEnoughReplicas, nil
	}
	o.LeaderEpoch = p.mu.leaderEpoch
	info, err = p.mu.log.AppendAsLeader(records, o)
	if err != nil {
		return info, note, commitlog.Code(err), err
	}
	note = appended{p: p, end: info.LastOffset + 1, ledSince: p.mu.ledSince, hwMoved: p.advanceHighWatermarkLocked(time.Now())}
	return info, note, cluster.None, nil
}

// acked reports whether all in-sync replicas have everything before the offset, and with which code acks -1 ends then.
// Enough replicas must be in sync now, too: the ISR may have shrunk since the append. If the leadership was lost meanwhile
// and won again, other records may lie there (Kafka looks only at who leads now).
func (p *Partition) acked(end int64, ledSince cluster.LeaderEpoch) (code cluster.ErrorCode, reached bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	switch {
	case !p.servesClientsLocked(), p.mu.ledSince != ledSince:
		return cluster.NotLeaderOrFollower, true
	case p.mu.log.HighWatermark() < end:
		return cluster.None, false
	case p.mu.isr.maximalSize() < p.minISRLocked():
		return cluster.NotEnoughReplicasAfterAppend, true
	default:
		return cluster.None, true
	}
}

// produceOp is a produce request with acks -1 that waits for followers (Kafka: DelayedProduce).
type produceOp struct {
	m       *Manager
	results []AppendResult
	open    []openAck
	left    int
	done    func([]AppendResult)
}

// openAck is a partition whose records followers have not fetched yet.
type openAck struct {
	appended
	at      int // its place in the results
	settled bool
}

func (m *Manager) waitForAcks(req *AppendRequest, results []AppendResult, notes []appended, waiting int, done func([]AppendResult)) {
	op := &produceOp{m: m, results: results, open: make([]openAck, 0, waiting), left: waiting, done: done}
	for i, note := range notes {
		if note.acksLeft {
			op.open = append(op.open, openAck{appended: note, at: i})
		}
	}
	m.produces.add(op, waiting, func(i int) cluster.TopicPartition { return op.open[i].p.tp }, time.Now().Add(req.Timeout))
}

func (op *produceOp) check(i int) bool {
	if i >= 0 {
		op.checkOne(&op.open[i])
	} else {
		for i := range op.open {
			op.checkOne(&op.open[i])
		}
	}
	return op.left == 0
}

func (op *produceOp) checkOne(ack *openAck) {
	if ack.settled {
		return
	}
	// The map, not the partition, tells what a stopped partition's clients get.
	p, code := op.m.lookup(ack.p.tp)
	switch {
	case code != cluster.None:
	case p != ack.p:
		code = cluster.NotLeaderOrFollower // deleted and created again meanwhile
	default:
		var reached bool
		if code, reached = p.acked(ack.end, ack.ledSince); !reached {
			return
		}
	}
	ack.settled = true
	op.left--
	op.results[ack.at].Err = code
}

func (op *produceOp) complete(bool) {
	for i := range op.open {
		if ack := &op.open[i]; !ack.settled {
			op.results[ack.at].Err = cluster.RequestTimedOut
		}
	}
	op.done(op.results)
}
