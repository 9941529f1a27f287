package controller

import (
	"slices"

	"klamm/internal/cluster"
)

// ReplicaState is a replica's state in the controller (Kafka: ReplicaState).
type ReplicaState uint8

// The replica states with their valid previous states; this table is validPreviousReplicaStates.
//
//	target                     valid previous                           effects
//	NonExistentReplica         DeletionSuccessful                       leaves the assignment in memory
//	NewReplica                 NonExistent                              leadership known: LeaderAndIsr (isNew) to it
//	OnlineReplica              New, Online, Offline, DeletionIneligible not from New, leadership known: LeaderAndIsr to it
//	OfflineReplica             New, Online, Offline, DeletionIneligible StopReplica to it; leaves the ISR, LeaderAndIsr to the others
//	ReplicaDeletionStarted     Offline                                  StopReplica (delete) to it
//	ReplicaDeletionSuccessful  DeletionStarted                          none
//	ReplicaDeletionIneligible  Offline, DeletionStarted                 none
const (
	NonExistentReplica ReplicaState = iota
	NewReplica
	OnlineReplica
	OfflineReplica
	ReplicaDeletionStarted
	ReplicaDeletionSuccessful
	ReplicaDeletionIneligible

	replicaStates = iota
)

var validPreviousReplicaStates = [replicaStates][]ReplicaState{
	NonExistentReplica:        {ReplicaDeletionSuccessful},
	NewReplica:                {NonExistentReplica},
	OnlineReplica:             {NewReplica, OnlineReplica, OfflineReplica, ReplicaDeletionIneligible},
	OfflineReplica:            {NewReplica, OnlineReplica, OfflineReplica, ReplicaDeletionIneligible},
	ReplicaDeletionStarted:    {OfflineReplica},
	ReplicaDeletionSuccessful: {ReplicaDeletionStarted},
	ReplicaDeletionIneligible: {OfflineReplica, ReplicaDeletionStarted},
}

// String gives Kafka's name of the state.
func (s ReplicaState) String() string {
	return [...]string{
		"NonExistentReplica", "NewReplica", "OnlineReplica", "OfflineReplica",
		"ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "ReplicaDeletionIneligible",
	}[s]
}

// changeReplicaStates moves replicas to a state and sends what follows from it, broker by broker with one send at the
// end. Invalid transitions are recorded and skipped (Kafka: ReplicaStateMachine.handleStateChanges).
func (c *Core) changeReplicaStates(rs []replicaRef, target ReplicaState) error {
	if len(rs) == 0 {
		return nil
	}
	b := c.newBatch()
	if err := c.changeReplicaStatesIn(b, rs, target); err != nil {
		return err
	}
	b.send()
	return nil
}

// changeReplicaStatesIn is changeReplicaStates that leaves the sending to the caller.
func (c *Core) changeReplicaStatesIn(b *requestBatch, rs []replicaRef, target ReplicaState) error {
	byBroker := map[cluster.BrokerID][]replicaRef{}
	var brokers []cluster.BrokerID
	for _, r := range rs {
		if byBroker[r.id] == nil {
			brokers = append(brokers, r.id)
		}
		byBroker[r.id] = append(byBroker[r.id], r)
	}
	slices.Sort(brokers)
	for _, id := range brokers {
		valid := make([]replicaRef, 0, len(byBroker[id]))
		for _, r := range byBroker[id] {
			if !slices.Contains(validPreviousReplicaStates[target], r.replicaState(id)) {
				c.replicaFailed(r, target, "invalid transition")
				continue
			}
			valid = append(valid, r)
		}
		if err := c.changeReplicasOf(b, id, valid, target); err != nil {
			return err
		}
	}
	return nil
}

func (c *Core) changeReplicasOf(b *requestBatch, id cluster.BrokerID, rs []replicaRef, target ReplicaState) error {
	switch target {
	case NewReplica:
		c.toNewReplica(b, id, rs)
	case OnlineReplica:
		c.toOnlineReplica(b, id, rs)
	case OfflineReplica:
		return c.toOfflineReplica(b, id, rs)
	case ReplicaDeletionStarted:
		for _, r := range rs {
			c.markReplica(r, target)
			b.addStopReplica(r.partitionContext, id, true)
		}
	case ReplicaDeletionSuccessful, ReplicaDeletionIneligible:
		for _, r := range rs {
			c.markReplica(r, target)
		}
	case NonExistentReplica:
		for _, r := range rs {
			a := &r.assignment
			*a = cluster.ReplicaAssignment{Replicas: without(a.Replicas, id), Adding: without(a.Adding, id), Removing: without(a.Removing, id)}
			c.markReplica(r, target)
		}
	}
	return nil
}

func (c *Core) markReplica(r replicaRef, to ReplicaState) {
	c.transitions = append(c.transitions, Transition{TopicPartition: r.TopicPartition, Replica: r.id, From: r.replicaState(r.id).String(), To: to.String()})
	r.setReplicaState(r.id, to, c.now)
}

func (c *Core) replicaFailed(r replicaRef, to ReplicaState, why string) {
	c.transitions = append(c.transitions, Transition{TopicPartition: r.TopicPartition, Replica: r.id, From: r.replicaState(r.id).String(), To: to.String(), Err: why})
}

func (c *Core) toNewReplica(b *requestBatch, id cluster.BrokerID, rs []replicaRef) {
	for _, r := range rs {
		if r.leadership != nil {
			if r.leadership.Leader == id {
				c.replicaFailed(r, NewReplica, "a leader cannot be a new replica")
				continue
			}
			b.addLeaderAndISR(r.partitionContext, []cluster.BrokerID{id}, true)
		}
		c.markReplica(r, NewReplica)
	}
}

func (c *Core) toOnlineReplica(b *requestBatch, id cluster.BrokerID, rs []replicaRef) {
	for _, r := range rs {
		if r.replicaState(id) != NewReplica && r.leadership != nil {
			b.addLeaderAndISR(r.partitionContext, []cluster.BrokerID{id}, false)
		}
		c.markReplica(r, OnlineReplica)
	}
}

// toOfflineReplica stops replicas and takes them out of their ISR; the other replicas learn the shrunk ISR, unless the
// topic is queued for deletion. Where the ISR had shrunk before, with an election, they know it already (Kafka tells them
// again).
func (c *Core) toOfflineReplica(b *requestBatch, id cluster.BrokerID, rs []replicaRef) error {
	var led []replicaRef
	for _, r := range rs {
		b.addStopReplica(r.partitionContext, id, false)
		if r.leadership != nil {
			led = append(led, r)
		} else {
			b.addUpdateMetadata(c.ctx.brokerIDs())
			c.markReplica(r, OfflineReplica)
		}
	}
	before := make(map[*partitionContext]*cluster.LeaderAndISR, len(led))
	for _, r := range led {
		before[r.partitionContext] = r.leadership
	}
	removed, err := c.removeFromISR(id, led)
	if err != nil {
		return err
	}
	for _, r := range removed {
		switch {
		case r.leadership != nil && r.leadership != before[r.partitionContext]:
			b.addLeaderAndISR(r.partitionContext, without(r.assignment.Replicas, id), false)
		case !r.queued():
			b.addUpdateMetadata(c.ctx.brokerIDs(), r.partitionContext)
		}
		c.markReplica(r, OfflineReplica)
	}
	return nil
}

// removeFromISR takes a broker out of the ISR of partitions that have a leadership and returns those where it is out.
// The leader becomes none when it is the broker; the last member of an ISR stays in it, so that the partition can be
// led cleanly when that broker returns. The state is written at the cached partition epoch, and decided again on the
// fresh value after a conflict (Kafka: doRemoveReplicasFromIsr).
func (c *Core) removeFromISR(id cluster.BrokerID, rs []replicaRef) (removed []replicaRef, err error) {
	if err := c.refreshISRs(contextsOf(rs)); err != nil {
		return nil, err
	}
	remaining := rs
	for round := 0; len(remaining) > 0; round++ {
		var todo []replicaRef
		var writes []PartitionStateWrite
		for _, r := range remaining {
			switch {
			case r.leadership.ControllerEpoch > c.ctx.epoch:
				c.replicaFailed(r, OfflineReplica, "state node was written by a later controller")
			case !slices.Contains(r.leadership.ISR, id), c.leftBefore(r):
				removed = append(removed, r)
			case round == maxConflictRounds:
				c.replicaFailed(r, OfflineReplica, "another writer keeps changing the state node")
				c.armPartitionRetry()
			default:
				todo = append(todo, r)
				writes = append(writes, PartitionStateWrite{r.TopicPartition, c.stateWithout(r)})
			}
		}
		results, err := c.setStates(writes)
		if err != nil {
			return nil, err
		}
		remaining = nil
		for i, r := range todo {
			switch res := results[i]; {
			case res.Status == ItemOK:
				r.leadership = &res.State
				removed = append(removed, r)
			case res.Status == ItemConflict:
				r.leadership = &res.State
				remaining = append(remaining, r)
			case res.Status == ItemNoNode:
				// There is no ISR left to be removed from: a deletion that an earlier term got this far (W12), or a
				// topic removed by hand, of which TopicChange will tell.
				if r.queued() {
					r.leadership = nil
				}
				removed = append(removed, r)
			default:
				c.replicaFailed(r, OfflineReplica, itemError("write the ISR", res))
				c.retryIfTransient(res)
			}
		}
	}
	slices.SortFunc(removed, func(a, b replicaRef) int { return a.TopicPartition.Compare(b.TopicPartition) })
	return removed, nil
}

// leftBefore reports whether a replica of a queued topic has been taken offline before and is only in the ISR because the
// last member stays. Writing that again with every attempt of the deletion would raise the leader epoch for nothing.
func (c *Core) leftBefore(r replicaRef) bool {
	state := r.replicaState(r.id)
	return r.queued() && (state == OfflineReplica || state == ReplicaDeletionIneligible) &&
		r.leadership.Leader == cluster.NoBroker && len(r.leadership.ISR) == 1 && r.leadership.ControllerEpoch == c.ctx.epoch
}

func (c *Core) stateWithout(r replicaRef) cluster.LeaderAndISR {
	s := *r.leadership
	if s.Leader == r.id {
		s.Leader = cluster.NoBroker
	}
	if len(s.ISR) > 1 {
		s.ISR = without(s.ISR, r.id)
	}
	s.LeaderEpoch++
	s.ControllerEpoch = c.ctx.epoch
	return s
}

// startReplicas derives the states of all replicas at failover: a replica is Online when its broker is, else Ineligible as
// a marker, from where it goes Offline.
func (c *Core) startReplicas() error {
	for p := range c.ctx.partitions() {
		for _, id := range p.assignment.Replicas {
			state := ReplicaDeletionIneligible
			if c.ctx.isReplicaOnline(p, id) {
				state = OnlineReplica
			}
			p.setReplicaState(id, state, c.now)
		}
	}
	return nil
}

// announceReplicas tells brokers of all replicas but those of partitions that were just elected, which know: offline
// replicas leave their ISRs, and then each online replica hears of its partition once, with what came of that. Kafka sends
// LeaderAndIsr for every partition, then again for each that shrinks, and only then elects; its brokers apply
// the first two while clients wait for the third.
func (c *Core) announceReplicas(elected map[*partitionContext]bool) error {
	var online, offline []replicaRef
	for p := range c.ctx.partitions() {
		for _, r := range p.replicas {
			switch {
			case r.state == ReplicaDeletionIneligible:
				offline = append(offline, replicaRef{p, r.id})
			case r.state == OnlineReplica && !elected[p]:
				online = append(online, replicaRef{p, r.id})
			}
		}
	}
	b := c.newBatch()
	if err := c.changeReplicaStatesIn(b, offline, OfflineReplica); err != nil {
		return err
	}
	if err := c.changeReplicaStatesIn(b, online, OnlineReplica); err != nil {
		return err
	}
	b.send()
	return nil
}
