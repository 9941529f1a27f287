package replica

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/metadata"
	"klamm/internal/quota"
)

// Partition is one partition that this broker hosts, as leader or follower (Kafka: Partition.scala).
//
// Invariants: (1) epochStart >= 0 exactly while this broker leads; (2) the ISR is empty on a follower; (3) leader epoch
// and partition epoch never decrease; (4) at most one ISR change is pending; (5) a closed partition has no log and
// never gets one again. Safe for concurrent use.
type Partition struct {
	tp    cluster.TopicPartition
	env   *environment
	stats *topicStats

	mu struct {
		sync.RWMutex
		log             *commitlog.Log // nil until the log was opened, and after close
		leader          cluster.BrokerID
		leaderEpoch     cluster.LeaderEpoch
		partitionEpoch  cluster.PartitionEpoch
		controllerEpoch cluster.ControllerEpoch // of the controller that decided the leadership
		epochStart      int64                   // log end offset at which this leadership began; -1 on followers
		ledSince        cluster.LeaderEpoch     // the first epoch in which this broker led without a break up to now; void on followers
		assignment      cluster.ReplicaAssignment
		isr             isrState
		closed          bool
	}
	// doubtful: clients are told to look for another leader; see doubt.go.
	doubtful atomic.Bool
	// following serialises what fetchers do to the log of a follower: a partition may be changing hands between two.
	// Taken with mu held for reading, held across an append or a truncation.
	following sync.Mutex
	// followers has one entry per other replica while this broker leads. The list is replaced under mu held for writing;
	// its entries change under this lock and mu held for reading.
	followers struct {
		sync.Mutex
		list []followerState
	}
}

// environment is what partitions need of their manager.
type environment struct {
	self     cluster.BrokerID
	lagMax   time.Duration
	logs     *commitlog.Manager
	metadata *metadata.Cache
	isr      *alterPartitions
	counters *counters
	throttle *quota.Replication // of leaders here
	// highWatermarkMoved is called without locks after a high watermark advanced outside an append.
	highWatermarkMoved func(cluster.TopicPartition)
}

func newPartition(tp cluster.TopicPartition, env *environment, stats *topicStats) *Partition {
	p := &Partition{tp: tp, env: env, stats: stats}
	p.mu.leader, p.mu.leaderEpoch, p.mu.partitionEpoch, p.mu.epochStart = cluster.NoBroker, cluster.NoLeaderEpoch, -1, -1
	return p
}

// TP names the partition.
func (p *Partition) TP() cluster.TopicPartition { return p.tp }

// Log is the partition's log, or nil before it was opened and after the partition was stopped.
func (p *Partition) Log() *commitlog.Log {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.log
}

// PartitionState is a copy of what a Partition knows.
type PartitionState struct {
	TopicID         cluster.TopicID
	IsLeader        bool
	Leader          cluster.BrokerID
	LeaderEpoch     cluster.LeaderEpoch
	PartitionEpoch  cluster.PartitionEpoch
	ControllerEpoch cluster.ControllerEpoch
	ISR             []cluster.BrokerID // committed; empty on followers
	ISRPending      bool               // a change is on its way to the controller
	Assignment      cluster.ReplicaAssignment
	LogStartOffset  int64 // the offsets are -1 without a log
	HighWatermark   int64
	LogEndOffset    int64
}

// State copies the partition's state.
func (p *Partition) State() PartitionState {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s := PartitionState{
		IsLeader: p.isLeaderLocked(), Leader: p.mu.leader, LeaderEpoch: p.mu.leaderEpoch, PartitionEpoch: p.mu.partitionEpoch,
		ControllerEpoch: p.mu.controllerEpoch, ISR: slices.Clone(p.mu.isr.committed), ISRPending: p.mu.isr.pending != nil,
		Assignment: p.mu.assignment.Clone(), LogStartOffset: -1, HighWatermark: -1, LogEndOffset: -1,
	}
	if log := p.mu.log; log != nil {
		s.TopicID = log.TopicID()
		s.LogStartOffset, s.HighWatermark, s.LogEndOffset = log.LogStartOffset(), log.HighWatermark(), log.LogEndOffset()
	}
	return s
}

// epochs returns the leader epoch and the leader, for the controller's gates and for answers that name the leader.
func (p *Partition) leadership() (cluster.BrokerID, cluster.LeaderEpoch) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.mu.leader, p.mu.leaderEpoch
}

func (p *Partition) isLeaderLocked() bool { return p.mu.leader == p.env.self && p.mu.log != nil }

// checkEpochLocked compares the leader epoch that a request names with this broker's; -1 is not checked.
func (p *Partition) checkEpochLocked(e cluster.LeaderEpoch) cluster.ErrorCode {
	switch {
	case e == cluster.NoLeaderEpoch || e == p.mu.leaderEpoch:
		return cluster.None
	case e < p.mu.leaderEpoch:
		return cluster.FencedLeaderEpoch
	default:
		return cluster.UnknownLeaderEpoch
	}
}

// logForReadLocked returns the log that serves a request naming the leader epoch, from a client or not.
func (p *Partition) logForReadLocked(e cluster.LeaderEpoch, leaderOnly, client bool) (*commitlog.Log, cluster.ErrorCode) {
	if code := p.checkEpochLocked(e); code != cluster.None {
		return nil, code
	}
	if p.mu.log == nil || leaderOnly && !p.isLeaderLocked() || client && p.doubtful.Load() {
		return nil, cluster.NotLeaderOrFollower
	}
	return p.mu.log, cluster.None
}

// close ends the partition: appends and reads that come later fail, those that run are waited for.
func (p *Partition) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	p.mu.log = nil
	p.mu.leader, p.mu.epochStart = cluster.NoBroker, -1
	p.mu.isr = isrState{}
	p.setFollowersLocked(nil)
}

// minISRLocked is min.insync.replicas, capped by the number of replicas: a larger value could never be met.
func (p *Partition) minISRLocked() int {
	return min(p.mu.log.Config().MinInSyncReplicas, max(len(p.mu.assignment.Replicas), 1))
}

// advanceHighWatermarkLocked moves the high watermark to the smallest log end offset among the members of the maximal
// ISR and the live followers that are caught up and about to join it; waiting for the latter keeps a follower of a
// one-member ISR from chasing the watermark for ever. It does not move below min.insync.replicas and never goes back.
// mu is held, for reading at least.
func (p *Partition) advanceHighWatermarkLocked(now time.Time) bool {
	if !p.isLeaderLocked() || len(p.mu.isr.committed) < p.minISRLocked() {
		return false
	}
	end := p.mu.log.LogEndOffset()
	hw := end
	if len(p.mu.assignment.Replicas) > 1 {
		image := p.env.metadata.Image()
		p.followers.Lock()
		for i := range p.followers.list {
			f := &p.followers.list[i]
			if f.endOffset < hw && (p.mu.isr.inMaximal(f.id) || f.caughtUp(end, now, p.env.lagMax) && image.HasBroker(f.id)) {
				hw = f.endOffset
			}
		}
		p.followers.Unlock()
	}
	_, advanced := p.mu.log.MaybeIncrementHighWatermark(hw)
	return advanced
}

// lowWatermarkLocked is the smallest log start offset of this leader and its live followers; -1 while one of them has
// not told its own.
func (p *Partition) lowWatermarkLocked() int64 {
	low := p.mu.log.LogStartOffset()
	image := p.env.metadata.Image()
	p.followers.Lock()
	defer p.followers.Unlock()
	for i := range p.followers.list {
		if f := &p.followers.list[i]; f.startOffset < low && image.HasBroker(f.id) {
			low = f.startOffset
		}
	}
	return low
}
