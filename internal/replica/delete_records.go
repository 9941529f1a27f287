package replica

import (
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// DeleteRecordsPartition asks to delete the records before Offset; -1 stands for the high watermark.
type DeleteRecordsPartition struct {
	TP     cluster.TopicPartition
	Offset int64
}

// DeleteRecordsResult is the outcome: the low watermark that all live replicas have reached, -1 on error.
type DeleteRecordsResult struct {
	Err          cluster.ErrorCode
	LowWatermark int64
}

// DeleteRecords moves the log start offsets of partitions that this broker leads and calls done once all live followers
// have done the same, or with REQUEST_TIMED_OUT where they have not in time. One result a partition, in order.
func (m *Manager) DeleteRecords(timeout time.Duration, internalTopicsAllowed bool, parts []DeleteRecordsPartition, done func([]DeleteRecordsResult)) {
	op := &deleteRecordsOp{m: m, results: make([]DeleteRecordsResult, len(parts)), done: done}
	for i, part := range parts {
		r := &op.results[i]
		p, target, code := m.deleteOne(part, internalTopicsAllowed, r)
		if code != cluster.None {
			*r = DeleteRecordsResult{Err: code, LowWatermark: -1}
			continue
		}
		m.fetches.wake(part.TP) // the log start offset has changed
		if r.LowWatermark < target {
			op.open = append(op.open, openDelete{p: p, target: target, at: i})
		}
	}
	if len(op.open) == 0 {
		done(op.results)
		return
	}
	op.left = len(op.open)
	m.deletes.add(op, len(op.open), func(i int) cluster.TopicPartition { return op.open[i].p.tp }, time.Now().Add(timeout))
}

func (m *Manager) deleteOne(part DeleteRecordsPartition, internalTopicsAllowed bool, r *DeleteRecordsResult) (*Partition, int64, cluster.ErrorCode) {
	if !internalTopicsAllowed && cluster.IsInternalTopic(part.TP.Topic) {
		return nil, 0, cluster.InvalidTopicException
	}
	p, code := m.lookup(part.TP)
	if code != cluster.None {
		return nil, 0, code
	}
	target, low, code := p.deleteRecords(part.Offset)
	r.LowWatermark = low
	return p, target, code
}

// deleteRecords moves the log start offset and returns where to, with the low watermark now.
func (p *Partition) deleteRecords(offset int64) (target, low int64, code cluster.ErrorCode) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.servesClientsLocked() {
		return 0, 0, cluster.NotLeaderOrFollower
	}
	log := p.mu.log
	if !log.Config().Delete {
		return 0, 0, cluster.PolicyViolation
	}
	if target = offset; target == -1 {
		target = log.HighWatermark()
	}
	if target < 0 {
		return 0, 0, cluster.OffsetOutOfRange
	}
	if err := log.MaybeIncrementLogStartOffset(target, "client record deletion"); err != nil {
		return 0, 0, commitlog.Code(err)
	}
	return target, p.lowWatermarkLocked(), cluster.None
}

// deleteRecordsOp waits for followers (Kafka: DelayedDeleteRecords).
type deleteRecordsOp struct {
	m       *Manager
	results []DeleteRecordsResult
	open    []openDelete
	left    int
	done    func([]DeleteRecordsResult)
}

type openDelete struct {
	p       *Partition
	target  int64
	at      int
	settled bool
}

func (op *deleteRecordsOp) check(i int) bool {
	if i >= 0 {
		op.checkOne(&op.open[i])
	} else {
		for i := range op.open {
			op.checkOne(&op.open[i])
		}
	}
	return op.left == 0
}

func (op *deleteRecordsOp) checkOne(d *openDelete) {
	if d.settled {
		return
	}
	p, code := op.m.lookup(d.p.tp)
	result := DeleteRecordsResult{Err: code, LowWatermark: -1}
	switch {
	case code != cluster.None:
	case p != d.p:
		result.Err = cluster.NotLeaderOrFollower
	default:
		low, led := p.lowWatermark()
		if led && low < d.target {
			return
		}
		if result.LowWatermark = low; !led {
			result = DeleteRecordsResult{Err: cluster.NotLeaderOrFollower, LowWatermark: -1}
		}
	}
	d.settled = true
	op.left--
	op.results[d.at] = result
}

func (p *Partition) lowWatermark() (low int64, led bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.servesClientsLocked() {
		return -1, false
	}
	return p.lowWatermarkLocked(), true
}

func (op *deleteRecordsOp) complete(bool) {
	for i := range op.open {
		if d := &op.open[i]; !d.settled {
			op.results[d.at].Err = cluster.RequestTimedOut
		}
	}
	op.done(op.results)
}
