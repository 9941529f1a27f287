package replica

import (
	"time"

	"klamm/internal/cluster"
)

// isrState is the in-sync replica set of a led partition: what the controller has confirmed, and at most one change
// that it has not (Kafka: CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr).
type isrState struct {
	committed []cluster.BrokerID
	pending   *isrChange
}

// isrChange is an ISR that was proposed to the controller. Its address identifies the proposal: an answer for a change
// that is no longer the partition's pending one is out of date.
type isrChange struct {
	added    cluster.BrokerID // NoBroker for a shrink
	proposed cluster.LeaderAndISR
	epochs   []cluster.BrokerEpoch // parallel to proposed.ISR
	// parked: the controller refused it in a way that normally brings new metadata; nothing is in flight.
	parked bool
}

// inMaximal reports membership of the maximal ISR: with a proposed member already in, and with proposed leavers still
// in, since counting more replicas is always safe.
func (s *isrState) inMaximal(id cluster.BrokerID) bool {
	return contains(s.committed, id) || s.pending != nil && s.pending.added == id
}

// maximalSize is the number of members of the maximal ISR.
func (s *isrState) maximalSize() int {
	if s.pending != nil && s.pending.added != cluster.NoBroker {
		return len(s.committed) + 1
	}
	return len(s.committed)
}

// mayExpandLocked reports whether a follower with that log end offset should join the ISR: it is live, it reached the
// high watermark, and it reached this leadership's first offset (else records committed under the last leader could be
// lost if it were elected). mu is held, for reading at least.
func (p *Partition) mayExpandLocked(id cluster.BrokerID, endOffset int64) bool {
	return p.isLeaderLocked() && p.mu.isr.pending == nil && !contains(p.mu.isr.committed, id) &&
		endOffset >= p.mu.log.HighWatermark() && endOffset >= p.mu.epochStart && p.env.metadata.Image().HasBroker(id)
}

// expandISR proposes the follower for the ISR if that is still right.
func (p *Partition) expandISR(id cluster.BrokerID, endOffset int64) {
	p.mu.Lock()
	if !p.mayExpandLocked(id, endOffset) || !p.hasFollowerLocked(id) {
		p.mu.Unlock()
		return
	}
	isr := append(append(make([]cluster.BrokerID, 0, len(p.mu.isr.committed)+1), p.mu.isr.committed...), id)
	change := p.proposeLocked(isr, id)
	p.mu.Unlock()
	p.submit(change)
}

// checkISR is the periodic look at a led partition: followers that lag leave the ISR, and a change that the controller
// refused without new metadata following is proposed again, so that no answer of a stale controller freezes the ISR. The high
// watermark goes on if what held it is over: a follower that was about to join has stopped fetching, min.insync.replicas
// was lowered (Kafka waits for the next append or fetch).
func (p *Partition) checkISR(now time.Time) {
	p.mu.RLock()
	if p.advanceHighWatermarkLocked(now) {
		defer p.env.highWatermarkMoved(p.tp) // without the locks below
	}
	led := p.isLeaderLocked() && len(p.mu.assignment.Replicas) > 1
	act := led && (p.mu.isr.pending != nil && p.mu.isr.pending.parked || p.mu.isr.pending == nil && len(p.laggingLocked(now)) > 0)
	p.mu.RUnlock()
	if !act {
		return
	}
	p.mu.Lock()
	var change *isrChange
	if pending := p.mu.isr.pending; pending != nil && pending.parked {
		pending.parked = false
		change = pending
	} else if pending == nil && p.isLeaderLocked() {
		if lagging := p.laggingLocked(now); len(lagging) > 0 {
			isr := make([]cluster.BrokerID, 0, len(p.mu.isr.committed))
			for _, id := range p.mu.isr.committed {
				if !contains(lagging, id) {
					isr = append(isr, id)
				}
			}
			change = p.proposeLocked(isr, cluster.NoBroker)
		}
	}
	p.mu.Unlock()
	if change != nil {
		p.submit(change)
	}
}

// laggingLocked lists ISR members that have not been caught up within the lag.
func (p *Partition) laggingLocked(now time.Time) []cluster.BrokerID {
	if len(p.mu.isr.committed) < 2 {
		return nil
	}
	end := p.mu.log.LogEndOffset()
	var lagging []cluster.BrokerID
	p.followers.Lock()
	defer p.followers.Unlock()
	for _, id := range p.mu.isr.committed {
		if id == p.env.self {
			continue
		}
		if i := p.followerIndexLocked(id); i < 0 || !p.followers.list[i].caughtUp(end, now, p.env.lagMax) {
			lagging = append(lagging, id)
		}
	}
	return lagging
}

// proposeLocked makes the ISR the pending one. mu is held for writing.
func (p *Partition) proposeLocked(isr []cluster.BrokerID, added cluster.BrokerID) *isrChange {
	change := &isrChange{added: added, epochs: make([]cluster.BrokerEpoch, len(isr)), proposed: cluster.LeaderAndISR{
		Leader: p.env.self, LeaderEpoch: p.mu.leaderEpoch, ISR: isr, Recovery: cluster.Recovered,
		PartitionEpoch: p.mu.partitionEpoch, ControllerEpoch: p.mu.controllerEpoch,
	}}
	p.followers.Lock()
	for i, id := range isr {
		// Kafka's ZooKeeper brokers send -1 for all; the epochs of followers are sent where their fetches told them.
		change.epochs[i] = cluster.NoBrokerEpoch
		if j := p.followerIndexLocked(id); j >= 0 {
			change.epochs[i] = p.followers.list[j].brokerEpoch
		}
	}
	p.followers.Unlock()
	p.mu.isr.pending = change
	return change
}

// submit hands the change to the sender. No lock is held: a failing sender answers at once.
func (p *Partition) submit(change *isrChange) {
	p.mu.RLock()
	var id cluster.TopicID
	if p.mu.log != nil {
		id = p.mu.log.TopicID()
	}
	p.mu.RUnlock()
	p.env.isr.submit(&alterPartitionItem{
		tp: p.tp, topicID: id, proposed: change.proposed, epochs: change.epochs, shrinks: change.added == cluster.NoBroker,
		done: func(s cluster.LeaderAndISR, code cluster.ErrorCode) { p.isrAnswered(change, s, code) },
	})
}

// isrAnswered takes over the controller's answer (control-plane behaviour 7.4).
func (p *Partition) isrAnswered(change *isrChange, answer cluster.LeaderAndISR, code cluster.ErrorCode) {
	var hwMoved, again bool
	p.mu.Lock()
	switch {
	case p.mu.isr.pending != change:
		// Leadership or ISR moved on by a LeaderAndIsr request: the answer is about the past.
	case code == cluster.None:
		hwMoved = p.commitISRLocked(change, answer)
	default:
		p.env.counters.failedISRUpdates.Add(1)
		again = p.isrRefusedLocked(change, code)
		// The follower that was refused holds the high watermark no more, unless it counts as caught up. If all others have fetched
		// everything, none of their fetches would come to move it (Kafka waits for the next append).
		hwMoved = p.mu.isr.pending == nil && p.advanceHighWatermarkLocked(time.Now())
	}
	p.mu.Unlock()
	if hwMoved {
		p.env.highWatermarkMoved(p.tp)
	}
	if again {
		p.submit(change)
	}
}

func (p *Partition) commitISRLocked(change *isrChange, answer cluster.LeaderAndISR) (hwMoved bool) {
	if answer.LeaderEpoch != p.mu.leaderEpoch || answer.PartitionEpoch < p.mu.partitionEpoch {
		p.env.counters.failedISRUpdates.Add(1)
		change.parked = true
		return false
	}
	p.mu.isr = isrState{committed: answer.ISR}
	p.mu.partitionEpoch = answer.PartitionEpoch
	if change.added == cluster.NoBroker {
		p.env.counters.isrShrinks.Add(1)
	} else {
		p.env.counters.isrExpands.Add(1)
	}
	return p.advanceHighWatermarkLocked(time.Now())
}

// isrRefusedLocked decides what becomes of a refused change; true: submit it again.
func (p *Partition) isrRefusedLocked(change *isrChange, code cluster.ErrorCode) bool {
	switch refusalOf(code) {
	case notApplied:
		p.mu.isr.pending = nil
		return false
	case outdated:
		// Normally a LeaderAndIsr request ends the wait; checkISR asks again if none comes.
		change.parked = true
		return false
	default:
		return true
	}
}
