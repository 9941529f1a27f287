package controller

import (
	"klamm/internal/cluster"
)

// Below inter.broker.protocol.version 2.7-IV2 leaders write their ISRs into the state nodes themselves and notify of it seconds
// later. The context's partition epochs are then behind, which every conditional write finds out; but where a decision
// is made from an ISR alone, that nobody can be elected, that a broker has left already, that all targets are in sync,
// it has to be read before (Kafka reads it before each of these, at any version). While the version is being rolled from
// broker to broker this controller's own may be above that of some leaders: it goes by the registrations then.

// leadersWriteISR reports whether some leader may have changed an ISR that the context knows.
func (c *Core) leadersWriteISR() bool { return c.cfg.LeadersWriteISR || c.ctx.isrWriters }

func writesISR(b cluster.Broker) bool { return b.WritesISR }

// refreshISRs reads the leaderships of partitions again where leaders may have changed them. A state node that is gone,
// or cannot be read, changes nothing here: the write that follows will tell.
func (c *Core) refreshISRs(ps []*partitionContext) error {
	if !c.leadersWriteISR() {
		return nil
	}
	var known []*partitionContext
	var tps []cluster.TopicPartition
	for _, p := range ps {
		if p != nil && p.leadership != nil {
			known, tps = append(known, p), append(tps, p.TopicPartition)
		}
	}
	if len(known) == 0 {
		return nil
	}
	states, err := c.readStates(tps)
	if err != nil {
		return err
	}
	for i, p := range known {
		if s := states[i]; s.Status == ItemOK && s.State.PartitionEpoch != p.leadership.PartitionEpoch {
			p.leadership = &s.State
		}
	}
	return nil
}

// watchState watches a partition that waits for its new replicas to come into the ISR: the notification comes late.
func (c *Core) watchState(p *partitionContext) {
	if c.leadersWriteISR() && !p.stateWatched {
		p.stateWatched = true
		c.emit(Watch{stateWatch(p)})
	}
}

func (c *Core) unwatchState(p *partitionContext) {
	if p.stateWatched {
		p.stateWatched = false
		c.emit(Unwatch{stateWatch(p)})
	}
}

func (c *Core) unwatchStates(t *topicContext) {
	for _, p := range t.partitions {
		c.unwatchState(p)
	}
}

func stateWatch(p *partitionContext) Watched {
	return Watched{Kind: WatchPartition, Topic: p.Topic, Partition: p.Partition}
}

func (c *Core) handleReassignmentISRChange(tp cluster.TopicPartition) error {
	p := c.ctx.partition(tp)
	if p == nil {
		return nil
	}
	return c.completeWhatCan([]*partitionContext{p})
}

func contextsOf(rs []replicaRef) []*partitionContext {
	ps := make([]*partitionContext, len(rs))
	for i, r := range rs {
		ps[i] = r.partitionContext
	}
	return ps
}

// partitionsNamed gives the partitions of these names that the context has.
func (x *controllerContext) partitionsNamed(tps []cluster.TopicPartition) []*partitionContext {
	var ps []*partitionContext
	for _, tp := range tps {
		if p := x.partition(tp); p != nil {
			ps = append(ps, p)
		}
	}
	return ps
}
