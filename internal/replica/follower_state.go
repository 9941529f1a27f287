package replica

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/record"
)

// followerState is what a leader knows of one follower, from its fetches (Kafka: Replica.scala ReplicaState).
type followerState struct {
	id          cluster.BrokerID
	brokerEpoch cluster.BrokerEpoch // as the last fetch gave it, -1 before
	startOffset int64               // log start offset, -1 unknown
	endOffset   int64               // log end offset, -1 unknown
	// leaderEndOffset and fetchTime are the leader's log end offset and the time at the last fetch.
	leaderEndOffset int64
	fetchTime       time.Time
	// caughtUpTime is the largest time t such that a fetch at or after t asked for at least the leader's log end offset at t.
	caughtUpTime time.Time
}

// caughtUp reports whether the follower is at the leader's end, or was within the lag.
func (f *followerState) caughtUp(leaderEndOffset int64, now time.Time, lagMax time.Duration) bool {
	return f.endOffset == leaderEndOffset || !f.caughtUpTime.IsZero() && now.Sub(f.caughtUpTime) <= lagMax
}

// fetched notes a fetch from offset at a moment when the leader's log ended at leaderEndOffset.
func (f *followerState) fetched(offset, startOffset, leaderEndOffset int64, epoch cluster.BrokerEpoch, now time.Time) {
	switch {
	case offset >= leaderEndOffset:
		f.caughtUpTime = later(f.caughtUpTime, now)
	case offset >= f.leaderEndOffset:
		f.caughtUpTime = later(f.caughtUpTime, f.fetchTime)
	}
	f.endOffset, f.startOffset, f.brokerEpoch, f.fetchTime = offset, startOffset, epoch, now
	f.leaderEndOffset = max(f.leaderEndOffset, leaderEndOffset)
}

// reset starts a new leader epoch. What a new leader thought it knew of its followers is void; a re-elected leader
// keeps their offsets. ISR members count as caught up now, others as never, so that they do not hold the high watermark.
func (f *followerState) reset(now time.Time, leaderEndOffset int64, newLeader, inSync bool) {
	f.caughtUpTime, f.fetchTime = time.Time{}, time.Time{}
	if inSync {
		f.caughtUpTime = now
	}
	if newLeader {
		f.startOffset, f.endOffset, f.leaderEndOffset, f.brokerEpoch = -1, -1, -1, cluster.NoBrokerEpoch
		return
	}
	f.leaderEndOffset = leaderEndOffset
	if inSync {
		f.fetchTime = now
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// setFollowersLocked makes the list name exactly the given brokers, keeping what is known of those that stay.
// mu is held for writing.
func (p *Partition) setFollowersLocked(ids []cluster.BrokerID) {
	p.followers.Lock()
	defer p.followers.Unlock()
	list := make([]followerState, 0, len(ids))
	for _, id := range ids {
		f := followerState{id: id, startOffset: -1, endOffset: -1, brokerEpoch: cluster.NoBrokerEpoch}
		if i := p.followerIndexLocked(id); i >= 0 {
			f = p.followers.list[i]
		}
		list = append(list, f)
	}
	p.followers.list = list
}

// followerIndexLocked finds a follower; followers is held. -1: not a replica.
func (p *Partition) followerIndexLocked(id cluster.BrokerID) int {
	return slices.IndexFunc(p.followers.list, func(f followerState) bool { return f.id == id })
}

func (p *Partition) hasFollowerLocked(id cluster.BrokerID) bool {
	p.followers.Lock()
	defer p.followers.Unlock()
	return p.followerIndexLocked(id) >= 0
}

// followerFetch is one follower's fetch of a partition, as its leader notes it.
type followerFetch struct {
	id              cluster.BrokerID
	brokerEpoch     cluster.BrokerEpoch
	offset          int64
	startOffset     int64
	leaderEndOffset int64 // before the read, so that appends during it do not count against the follower
	leaderEpoch     cluster.LeaderEpoch
	now             time.Time
}

// noteFollowerFetch records how far a follower is, lets it into the ISR when it has caught up, and reports whether
// the high watermark or the low watermark moved.
func (p *Partition) noteFollowerFetch(f followerFetch) (highMoved, lowMoved bool) {
	p.mu.RLock()
	// The fetch was read under an earlier hold of mu: a leadership that came between has reset the follower's state.
	if !p.isLeaderLocked() || p.mu.leaderEpoch != f.leaderEpoch {
		p.mu.RUnlock()
		return false, false
	}
	p.followers.Lock()
	i := p.followerIndexLocked(f.id)
	if i < 0 {
		p.followers.Unlock()
		p.mu.RUnlock()
		return false, false
	}
	state := &p.followers.list[i]
	endBefore, startBefore := state.endOffset, state.startOffset
	state.fetched(f.offset, f.startOffset, f.leaderEndOffset, f.brokerEpoch, f.now)
	p.followers.Unlock()
	if f.offset != endBefore {
		highMoved = p.advanceHighWatermarkLocked(f.now)
	}
	expand := p.mayExpandLocked(f.id, f.offset)
	p.mu.RUnlock()
	if expand {
		p.expandISR(f.id, f.offset)
	}
	return highMoved, f.startOffset != startBefore
}

// FollowerLag tells how far a follower of a led partition is.
type FollowerLag struct {
	Broker       cluster.BrokerID
	EndOffset    int64 // -1 unknown
	CaughtUpTime time.Time
}

// Followers copies what the leader knows of its followers; empty on followers.
func (p *Partition) Followers() []FollowerLag {
	p.followers.Lock()
	defer p.followers.Unlock()
	out := make([]FollowerLag, len(p.followers.list))
	for i, f := range p.followers.list {
		out[i] = FollowerLag{f.id, f.endOffset, f.caughtUpTime}
	}
	return out
}

// appendAsFollower appends what a fetch brought if the partition still follows in the leader epoch that was asked for,
// and takes over the leader's high watermark and log start offset. errMovedOn: the log does not end where the fetch
// began, because another fetcher had the partition meanwhile.
func (p *Partition) appendAsFollower(asked *FetchPartition, got *kmsg.FetchResponseTopicPartition) (info commitlog.AppendInfo, err error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	log := p.mu.log
	if log == nil || p.isLeaderLocked() || p.mu.leaderEpoch != asked.CurrentLeaderEpoch {
		return info, errNotFollowing
	}
	p.following.Lock()
	defer p.following.Unlock()
	info.LastOffset, info.LastLeaderEpoch = -1, cluster.NoLeaderEpoch
	if log.LogEndOffset() != asked.FetchOffset {
		return info, errMovedOn // also without records: a hole would open behind a truncated log
	}
	if len(got.RecordBatches) > 0 {
		if info, err = p.appendFetchedLocked(got.RecordBatches); err != nil {
			return info, err
		}
	}
	if _, err = log.SetHighWatermark(got.HighWatermark); err != nil {
		return info, err
	}
	if got.LogStartOffset > log.LogStartOffset() {
		err = log.MaybeIncrementLogStartOffset(min(got.LogStartOffset, log.HighWatermark()), "leader's log start offset moved")
	}
	return info, err
}

// appendFetchedLocked appends what a follower fetched. A log that starts inside the first batch and holds nothing (the
// leader's start lies within a batch) starts at that batch instead.
func (p *Partition) appendFetchedLocked(records []byte) (commitlog.AppendInfo, error) {
	log := p.mu.log
	if h, err := record.ParseHeader(records); err == nil && h.BaseOffset < log.LogEndOffset() &&
		log.LogEndOffset() == log.LogStartOffset() && h.LastOffset() >= log.LogEndOffset() {
		if err := log.TruncateFullyAndStartAt(h.BaseOffset); err != nil {
			return commitlog.AppendInfo{}, err
		}
	}
	return log.AppendAsFollower(records)
}
