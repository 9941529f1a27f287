package replica

import (
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// transition is one partition's part of a LeaderAndIsr request.
type transition struct {
	tp              cluster.TopicPartition
	topicID         cluster.TopicID // zero when the request names none
	leader          cluster.BrokerID
	leaderEpoch     cluster.LeaderEpoch
	partitionEpoch  cluster.PartitionEpoch
	controllerEpoch cluster.ControllerEpoch
	isr             []cluster.BrokerID
	assignment      cluster.ReplicaAssignment
	isNew           bool
}

// outcome says what a transition did to its partition.
type outcome struct {
	// changed: a leader that was none before; a follower whose leader epoch grew, so that its fetcher starts anew.
	changed bool
}

// makeLeader applies a leadership of this broker (Kafka: Partition.makeLeader). log is the partition's log, opened by
// the caller outside the lock. A partition epoch older than the known one, which an AlterPartition answer may have
// raised already, changes nothing.
func (p *Partition) makeLeader(t *transition, log *commitlog.Log, now time.Time) (outcome, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.partitionEpoch < p.mu.partitionEpoch || p.mu.closed {
		return outcome{}, nil
	}
	newLeader, newEpoch := !p.isLeaderLocked(), t.leaderEpoch > p.mu.leaderEpoch
	if newEpoch {
		// Followers may hold entries of later epochs than any in this log: they find where to cut by asking for an
		// epoch below this one, so it must be known from its first offset on, even without records.
		start := log.LogEndOffset()
		if err := log.AssignLeaderEpochStart(t.leaderEpoch, start); err != nil {
			return outcome{}, err
		}
		p.mu.epochStart = start
	}
	if newLeader {
		p.mu.ledSince = t.leaderEpoch
	}
	p.mu.log = log
	p.mu.controllerEpoch = t.controllerEpoch
	p.mu.assignment = t.assignment
	// A RECOVERING state counts as recovered at once; the next AlterPartition reports it.
	p.mu.isr = isrState{committed: t.isr}
	p.setFollowersLocked(without(t.assignment.Replicas, p.env.self))
	if newEpoch {
		p.resetFollowersLocked(now, newLeader)
	}
	p.mu.leader, p.mu.leaderEpoch, p.mu.partitionEpoch = p.env.self, t.leaderEpoch, t.partitionEpoch
	p.doubtful.Store(false)           // a controller has just said so
	p.advanceHighWatermarkLocked(now) // the caller wakes waiting requests
	return outcome{changed: newLeader}, nil
}

func (p *Partition) resetFollowersLocked(now time.Time, newLeader bool) {
	p.followers.Lock()
	defer p.followers.Unlock()
	for i := range p.followers.list {
		f := &p.followers.list[i]
		f.reset(now, p.mu.epochStart, newLeader, contains(p.mu.isr.committed, f.id))
	}
}

// makeFollower applies a leadership of another broker (Kafka: Partition.makeFollower).
func (p *Partition) makeFollower(t *transition, log *commitlog.Log) outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.partitionEpoch < p.mu.partitionEpoch || p.mu.closed {
		return outcome{}
	}
	changed := t.leaderEpoch > p.mu.leaderEpoch
	p.mu.log = log
	p.mu.controllerEpoch = t.controllerEpoch
	p.mu.assignment = t.assignment
	p.mu.isr = isrState{}
	p.setFollowersLocked(nil)
	p.mu.leader, p.mu.leaderEpoch, p.mu.partitionEpoch, p.mu.epochStart = t.leader, t.leaderEpoch, t.partitionEpoch, -1
	p.doubtful.Store(false)
	return outcome{changed: changed}
}

// adoptLog opens the log of a partition whose leader is not known to be alive, so that its high watermark stays in the
// checkpoint; nothing else of the transition is taken over, in particular not its leader epoch.
func (p *Partition) adoptLog(log *commitlog.Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.closed {
		p.mu.log = log
	}
}

func contains(ids []cluster.BrokerID, id cluster.BrokerID) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

func without(ids []cluster.BrokerID, id cluster.BrokerID) []cluster.BrokerID {
	out := make([]cluster.BrokerID, 0, len(ids))
	for _, x := range ids {
		if x != id {
			out = append(out, x)
		}
	}
	return out
}
