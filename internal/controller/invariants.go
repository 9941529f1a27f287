package controller

import (
	"errors"
	"fmt"
	"slices"

	"klamm/internal/cluster"
)

// CheckInvariants returns what is wrong with the core's state; nil when nothing is. It is for tests, which call it after every
// step; some rules only hold between events. It walks everything.
//
//  1. A broker that shuts down is registered.
//  2. Topic ids and names map to each other.
//  3. An OnlinePartition has a leadership with a leader that is in its ISR; a NewPartition has none; a leadership is never of a later controller
//     unless an election said so.
//  4. Replica counts per topic equal a recount, and every assigned replica has a state.
//  5. Replicas in a deletion state belong to a queued topic, but for the Ineligible ones of a failover whose ISR write is
//     to be tried again; once the deletion has started its partitions are NonExistentPartition, and only then.
//  6. A deletion and its topic point at each other.
//  7. Every queued topic is waiting for something that will come: an answer of a live broker, the start of a broker, or a retry whose
//     timer runs (W8).
//  8. The retry timer is set for the earliest retry.
func (c *Core) CheckInvariants() error {
	if c.ctx == nil {
		return nil
	}
	idle := c.next == nil
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	x := c.ctx
	for id := range x.shuttingDown {
		if _, ok := x.brokers[id]; !ok {
			bad("broker %d shuts down and is not registered", id)
		}
	}
	for id, name := range x.topicNames {
		if t := x.topics[name]; t == nil || t.ID != id {
			bad("id %s names topic %s, which has another", id, name)
		}
	}
	for _, t := range x.sorted() {
		if !t.ID.IsZero() && x.topicNames[t.ID] != t.Name {
			bad("topic %s has id %s, which names %q", t.Name, t.ID, x.topicNames[t.ID])
		}
		if t.deletion != nil && (x.deletions[t.Name] != t.deletion || t.deletion.topic != t) {
			bad("topic %s and its deletion do not point at each other", t.Name)
		}
		c.checkTopic(t, idle, bad)
	}
	var earliest Time
	for name, d := range x.deletions {
		if d.topic != nil && x.topics[name] != d.topic {
			bad("deletion of %s holds a topic that is not in the context", name)
		}
		earliest = earlier(earliest, earlier(d.retryAt, d.giveUpAt))
		if idle && !c.waitsForSomething(d) {
			bad("deletion of %s waits for nothing: %+v", name, *d)
		}
	}
	if idle && earliest != x.deletionTimerAt {
		bad("earliest retry is at %d, the timer at %d", earliest, x.deletionTimerAt)
	}
	return errors.Join(errs...)
}

func (c *Core) checkTopic(t *topicContext, idle bool, bad func(string, ...any)) {
	var counts [replicaStates]int
	started := t.deletion != nil && t.deletion.started
	for _, p := range t.partitions {
		for _, r := range p.replicas {
			counts[r.state]++
			if r.state >= ReplicaDeletionStarted && t.deletion == nil && idle && !(r.state == ReplicaDeletionIneligible && c.ctx.partitionRetryArmed) {
				bad("%s@%d is %s and its topic is not queued", p, r.id, r.state)
			}
		}
		if !idle {
			continue
		}
		for _, id := range p.assignment.Replicas {
			if p.replicaState(id) == NonExistentReplica {
				bad("%s@%d is assigned and has no state", p, id)
			}
		}
		if started != (p.state == NonExistentPartition) {
			bad("%s is %s, deletion started: %v", p, p.state, started)
		}
		c.checkLeadership(p, bad)
	}
	if counts != t.replicas {
		bad("topic %s counts replicas %v, there are %v", t.Name, t.replicas, counts)
	}
}

func (c *Core) checkLeadership(p *partitionContext, bad func(string, ...any)) {
	switch l := p.leadership; {
	case l == nil && p.state == OnlinePartition:
		bad("%s is online without leadership", p)
	case l != nil && p.state == NewPartition:
		bad("%s is new with leadership %v", p, *l)
	case l != nil && p.state == OnlinePartition && !p.queued() && (l.Leader < 0 || !slices.Contains(l.ISR, l.Leader)):
		bad("%s is online with %v", p, *l)
	case l != nil && len(l.ISR) == 0:
		bad("%s has an empty ISR", p)
	}
}

// waitsForSomething is invariant 7 for one deletion.
func (c *Core) waitsForSomething(d *topicDeletion) bool {
	if d.retryAt != 0 {
		return true
	}
	if d.topic == nil {
		return false
	}
	for id := range d.toForget {
		if _, registered := c.ctx.brokers[id]; registered {
			return true
		}
	}
	if d.topic.replicas[ReplicaDeletionStarted] == 0 && c.tdm().idle(d) {
		return false
	}
	if c.tdm().finished(d) {
		return d.giveUpAt != 0 // W15: else it could have ended; the timer will fire
	}
	for _, r := range d.topic.allReplicas() {
		state := r.replicaState(r.id)
		_, registered := c.ctx.brokers[r.id]
		online := c.ctx.isReplicaOnline(r.partitionContext, r.id)
		if state == ReplicaDeletionStarted && registered || state != ReplicaDeletionSuccessful && !online && state != ReplicaDeletionStarted {
			return true
		}
	}
	return false
}

// Leadership returns the leadership that the core holds for a partition; for tests.
func (c *Core) Leadership(tp cluster.TopicPartition) (cluster.LeaderAndISR, bool) {
	if c.ctx == nil {
		return cluster.LeaderAndISR{}, false
	}
	p := c.ctx.partition(tp)
	if p == nil || p.leadership == nil {
		return cluster.LeaderAndISR{}, false
	}
	return p.leadership.Clone(), true
}
