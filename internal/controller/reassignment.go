package controller

import (
	"fmt"
	"slices"

	"klamm/internal/cluster"
)

// A partition is reassigned in two phases (KIP-455; Kafka: onPartitionReassignment). Origin are the replicas that it had, target
// those that it is to have; meanwhile its assignment is both, target first, with the ones to add and the ones to remove marked.
//
//	A  the topic node says so; a new leader epoch tells origin and new replicas; the new ones fetch
//	B  once all target replicas are in the ISR, and one of them is online: the leader moves into the target, the removed
//	   replicas leave the ISR and are deleted, the topic node has the target alone
//
// A is left by B, by another target, or by a cancellation, which has the origin as its target. Both phases can be repeated
// from their beginning: that is what a new controller does. The deletion of a topic ends its reassignments (W7): a topic
// that is queued is not reassigned any more, and nothing of it stays listed.

// reassignment is one partition to reassign and, afterwards, what became of it.
type reassignment struct {
	p       *partitionContext
	to      cluster.ReplicaAssignment
	err     cluster.ErrorCode
	message string
}

func (r *reassignment) fail(code cluster.ErrorCode, format string, args ...any) {
	r.err, r.message = code, fmt.Sprintf(format, args...)
}

// originOf is the assignment without the replicas that are being added.
func originOf(a cluster.ReplicaAssignment) []cluster.BrokerID {
	return difference(a.Replicas, a.Adding)
}

// targetOf is the assignment without the replicas that are being removed.
func targetOf(a cluster.ReplicaAssignment) []cluster.BrokerID {
	return difference(a.Replicas, a.Removing)
}

// reassignTo is the assignment on the way to the target.
func reassignTo(a cluster.ReplicaAssignment, target []cluster.BrokerID) cluster.ReplicaAssignment {
	origin := originOf(a)
	all := slices.Clone(target)
	all = append(all, difference(origin, target)...)
	return cluster.ReplicaAssignment{Replicas: all, Adding: difference(all, origin), Removing: difference(all, target)}
}

func difference(a, b []cluster.BrokerID) []cluster.BrokerID {
	return filter(a, func(id cluster.BrokerID) bool { return !slices.Contains(b, id) })
}

// isReassigned reports whether a reassignment of the partition goes on; the deletion of its topic ends it.
func (p *partitionContext) isReassigned() bool {
	return p.assignment.BeingReassigned() && !p.forgotten()
}

// handleAlterPartitionReassignments starts, replaces and cancels reassignments. Per partition the first match wins:
//
//	target empty, with a broker twice or a negative id, or with a
//	  broker to add that is not live                                 INVALID_REPLICA_ASSIGNMENT
//	cancellation where nothing is in progress                        NO_REASSIGNMENT_IN_PROGRESS
//	topic queued for deletion, partition unknown                     UNKNOWN_TOPIC_OR_PARTITION
//	the state cannot be read                                         UNKNOWN_SERVER_ERROR
//	no member of the ISR would be left (Kafka loses the data)        INVALID_REPLICA_ASSIGNMENT
//	the topic node or the state could not be written                 UNKNOWN_SERVER_ERROR
//
// It is answered once the reassignments have begun. Not active: NOT_CONTROLLER, by dispatch.
func (c *Core) handleAlterPartitionReassignments(ev AlterPartitionReassignments) error {
	asked := map[cluster.TopicPartition]PartitionReassignment{} // of several for a partition the last counts
	var order []cluster.TopicPartition
	for _, r := range ev.Partitions {
		if _, again := asked[r.TopicPartition]; !again {
			order = append(order, r.TopicPartition)
		}
		asked[r.TopicPartition] = r
	}
	slices.SortFunc(order, cluster.TopicPartition.Compare)
	if err := c.prepareReassignments(order); err != nil {
		return err
	}
	all := make([]*reassignment, len(order))
	taken := map[cluster.TopicPartition]bool{}
	for i, tp := range order {
		all[i] = c.buildReassignment(tp, asked[tp].Target)
		taken[tp] = all[i].err == cluster.None
	}
	// The latest request wins over one that old tools wrote.
	if err := c.removeFromReassignNode(func(t ReassignmentTarget) bool { return taken[t.TopicPartition] }); err != nil {
		return err
	}
	if err := c.reassign(all); err != nil {
		return err
	}
	result := AlterPartitionReassignmentsResult{Partitions: make([]ReassignmentOutcome, len(order))}
	for i, r := range all {
		result.Partitions[i] = ReassignmentOutcome{TopicPartition: order[i], Err: r.err, Message: r.message}
	}
	c.reply(result)
	return nil
}

// buildReassignment judges a wish; a nil target cancels.
func (c *Core) buildReassignment(tp cluster.TopicPartition, target []cluster.BrokerID) *reassignment {
	r := &reassignment{p: c.ctx.partition(tp)}
	current := cluster.ReplicaAssignment{}
	if r.p != nil {
		current = r.p.assignment
	}
	if target != nil {
		if r.validateTarget(target); r.err == cluster.None {
			if dead := filter(reassignTo(current, target).Adding, func(id cluster.BrokerID) bool { return !c.ctx.isLive(id) }); len(dead) > 0 {
				r.fail(cluster.InvalidReplicaAssignment, "Replica assignment has brokers that are not alive. Replica list: %v", dead)
			}
		}
	} else if !current.BeingReassigned() {
		r.err = cluster.NoReassignmentInProgress
	}
	c.settleTarget(r, current, target)
	return r
}

func (r *reassignment) validateTarget(target []cluster.BrokerID) {
	distinct := slices.Compact(slices.Sorted(slices.Values(target)))
	switch {
	case len(target) == 0:
		r.fail(cluster.InvalidReplicaAssignment, "Empty replica list specified in partition reassignment.")
	case len(distinct) != len(target):
		r.fail(cluster.InvalidReplicaAssignment, "Duplicate replica ids in partition reassignment replica list: %v", target)
	case distinct[0] < 0:
		r.fail(cluster.InvalidReplicaAssignment, "Invalid broker id in replica list: %v", target)
	}
}

// settleTarget decides where a wish leads, if it has no error yet.
func (c *Core) settleTarget(r *reassignment, current cluster.ReplicaAssignment, target []cluster.BrokerID) {
	switch {
	case r.err != cluster.None:
	case r.p == nil:
		r.fail(cluster.UnknownTopicOrPartition, "The partition does not exist.")
	case r.p.queued():
		r.fail(cluster.UnknownTopicOrPartition, "The topic is being deleted.")
	case r.p.unread:
		r.fail(cluster.UnknownServerError, "The state of partition %s cannot be read.", r.p)
	default:
		if target == nil {
			target = originOf(current)
		}
		r.to = reassignTo(current, target)
		kept := func(id cluster.BrokerID) bool { return slices.Contains(r.to.Replicas, id) }
		if l := r.p.leadership; l != nil && !slices.ContainsFunc(l.ISR, kept) {
			r.fail(cluster.InvalidReplicaAssignment, "No in-sync replica of partition %s would be left: the ISR is %v.", r.p, l.ISR)
		}
	}
}

// handleListPartitionReassignments lists the reassignments in progress, all or those of the partitions named.
func (c *Core) handleListPartitionReassignments(ev ListPartitionReassignments) error {
	result := ListPartitionReassignmentsResult{}
	add := func(p *partitionContext) {
		if p.isReassigned() {
			result.Partitions = append(result.Partitions, OngoingReassignment{p.TopicPartition, p.assignment.Clone()})
		}
	}
	if ev.All {
		for p := range c.ctx.partitions() {
			add(p)
		}
	}
	tps := slices.Clone(ev.Partitions)
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	for _, tp := range slices.Compact(tps) {
		if p := c.ctx.partition(tp); p != nil {
			add(p)
		}
	}
	c.reply(result)
	return nil
}

// reassign brings partitions on their way, or to its end where nothing is to be waited for.
func (c *Core) reassign(all []*reassignment) error {
	rs := slices.DeleteFunc(slices.Clone(all), func(r *reassignment) bool { return r.err != cluster.None })
	if len(rs) == 0 {
		return nil
	}
	changed := slices.DeleteFunc(slices.Clone(rs), func(r *reassignment) bool { return r.to.Equal(r.p.assignment) })
	if err := c.changeAssignments(changed); err != nil {
		return err
	}
	settled := make([]*partitionContext, len(rs))
	for i, r := range rs {
		settled[i] = r.p
	}
	if err := c.refreshISRs(settled); err != nil {
		return err
	}
	var waiting, done []*partitionContext
	for _, r := range rs {
		switch {
		case r.err != cluster.None:
		case c.canComplete(r.p):
			done = append(done, r.p)
		default:
			waiting = append(waiting, r.p)
		}
	}
	if err := c.announceReassignments(waiting); err != nil {
		return err
	}
	return c.completeReassignments(done)
}

// changeAssignments writes the topic nodes of reassignments whose assignment changes. Replicas that a replaced or
// cancelled reassignment was adding leave the ISR before the node forgets them: in no moment is somebody in the ISR who is
// not assigned (Kafka does it the other way round).
func (c *Core) changeAssignments(rs []*reassignment) error {
	unneeded := map[*reassignment][]replicaRef{}
	var all []replicaRef
	for _, r := range rs {
		for _, id := range difference(r.p.assignment.Replicas, r.to.Replicas) {
			unneeded[r] = append(unneeded[r], replicaRef{r.p, id})
			all = append(all, replicaRef{r.p, id})
		}
	}
	if err := c.changeReplicaStates(all, OfflineReplica); err != nil {
		return err
	}
	targets := map[*partitionContext]cluster.ReplicaAssignment{}
	for _, r := range rs {
		if slices.ContainsFunc(unneeded[r], isNotOffline) {
			r.fail(cluster.UnknownServerError, "The ISR of partition %s could not be written.", r.p)
			c.armPartitionRetry()
			continue
		}
		targets[r.p] = r.to
	}
	failed, err := c.writeAssignments(targets)
	if err != nil {
		return err
	}
	var gone []replicaRef
	var leaderless []*partitionContext
	for _, r := range rs {
		if why, ok := failed[r.p.topic]; ok && r.err == cluster.None {
			r.fail(cluster.UnknownServerError, "%s", why)
		}
		if r.err == cluster.None {
			r.p.assignment = r.to
			gone = append(gone, unneeded[r]...)
		}
		if r.p.state == OnlinePartition && !c.ctx.leaderOnline(r.p) {
			leaderless = append(leaderless, r.p)
		}
	}
	if err := c.deleteReplicas(gone); err != nil {
		return err
	}
	// The leader was one of the replicas that were being added.
	if _, err := c.changePartitionStates(leaderless, OfflinePartition, 0); err != nil {
		return err
	}
	_, err = c.changePartitionStates(leaderless, OnlinePartition, OfflineStrategy)
	return err
}

func isNotOffline(r replicaRef) bool {
	s := r.replicaState(r.id)
	return s != OfflineReplica && s != NonExistentReplica
}

// deleteReplicas has brokers delete replicas that are offline and no longer assigned. Nobody waits for the answers; a broker that has not
// confirmed it is asked again when it registers anew. For a klamm broker that is gone it is written down (W20: in Kafka the replica stays for
// ever); one that cannot do it now looks for replicas that are not its own when it starts the next time.
func (c *Core) deleteReplicas(rs []replicaRef) error {
	if err := c.leaveReplicas(rs); err != nil {
		return err
	}
	for _, r := range rs {
		if r.removedFrom = without(r.removedFrom, r.id); r.replicaState(r.id) != NonExistentReplica {
			r.removedFrom = append(r.removedFrom, r.id)
		}
	}
	for _, target := range []ReplicaState{ReplicaDeletionStarted, ReplicaDeletionSuccessful, NonExistentReplica} {
		rs = slices.DeleteFunc(slices.Clone(rs), func(r replicaRef) bool { return r.replicaState(r.id) == NonExistentReplica })
		if err := c.changeReplicaStates(rs, target); err != nil {
			return err
		}
	}
	return nil
}

// deleteAgain asks brokers that have registered anew to delete what was moved away from them, where they have not confirmed it: the request may have been
// meant for the registration before, and be refused or dropped with its sender.
func (c *Core) deleteAgain(ids []cluster.BrokerID) {
	b := c.newBatch()
	for p := range c.ctx.partitions() {
		for _, id := range p.removedFrom {
			if slices.Contains(ids, id) && !p.forgotten() && !slices.Contains(p.assignment.Replicas, id) {
				b.addStopReplica(p, id, true)
			}
		}
	}
	b.send()
}

// leaveReplicas writes down what klamm brokers that are gone have to remove.
func (c *Core) leaveReplicas(rs []replicaRef) error {
	type key struct {
		broker cluster.BrokerID
		topic  TopicRef
	}
	at := map[key]int{}
	var records []Leftover
	for _, r := range rs {
		if _, registered := c.ctx.brokers[r.id]; registered || !c.ctx.klamm[r.id] || r.topic.ID.IsZero() {
			continue
		}
		k := key{r.id, r.topic.TopicRef}
		if _, known := at[k]; !known {
			at[k] = len(records)
			records = append(records, Leftover{Broker: r.id, TopicRef: r.topic.TopicRef, At: c.now})
		}
		records[at[k]].Partitions = append(records[at[k]].Partitions, r.Partition)
	}
	return chunks(c, records, func(records []Leftover) error {
		items, err := c.remove(RecordLeftovers{records}, len(records))
		for i := range items {
			if items[i].Status != ItemOK {
				c.noteBroker(Warn, "replicas that were moved away from an absent broker may stay on it", records[i].Broker, itemError(records[i].Name, items[i]))
			}
		}
		return err
	})
}

// prepareReassignments brings up to date what the controller knows of partitions before it judges wishes for them.
func (c *Core) prepareReassignments(tps []cluster.TopicPartition) error {
	ps := c.ctx.partitionsNamed(tps)
	if err := c.learnLeaderships(ps); err != nil {
		return err
	}
	return c.refreshISRs(ps)
}

// learnLeaderships reads the state nodes of partitions without a leadership. There may be one all the same: an earlier term wrote it and this one
// could not read it, or the write of the first state was applied and then seemed to fail. The partition is not new then: whoever took it for new
// would move it away from its only data.
func (c *Core) learnLeaderships(ps []*partitionContext) error {
	var unknown []*partitionContext
	var tps []cluster.TopicPartition
	for _, p := range ps {
		if p.leadership == nil && !p.forgotten() {
			unknown, tps = append(unknown, p), append(tps, p.TopicPartition)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	results, err := c.readStates(tps)
	if err == nil {
		err = c.mustStillReign(results)
	}
	if err != nil {
		return err
	}
	b := c.newBatch()
	var elections []*partitionContext
	for i, p := range unknown {
		switch r := results[i]; r.Status {
		case ItemOK:
			if c.adopt(b, p, r.State) {
				elections = append(elections, p)
			}
			p.unread = p.leadership == nil
		case ItemNoNode:
			p.unread = false
		default:
			p.unread = true
			c.partitionFailed(p, OnlinePartition, itemError("read the state", r))
			c.armPartitionRetry()
		}
	}
	if _, err := c.elect(b, elections, OfflineStrategy); err != nil {
		return err
	}
	b.send()
	return nil
}

// canComplete reports whether phase B can run: nothing is to be waited for, or all target replicas are in sync and one of them
// can lead.
func (c *Core) canComplete(p *partitionContext) bool {
	if !p.assignment.BeingReassigned() || p.leadership == nil {
		return !p.unread
	}
	target := targetOf(p.assignment)
	inSync := func(id cluster.BrokerID) bool { return slices.Contains(p.leadership.ISR, id) }
	return len(filter(target, inSync)) == len(target) &&
		slices.ContainsFunc(target, func(id cluster.BrokerID) bool { return c.ctx.isReplicaOnline(p, id) })
}

// announceReassignments is phase A: a new leader epoch for all replicas, new ones included.
func (c *Core) announceReassignments(ps []*partitionContext) error {
	bumped, err := c.bumpLeaderEpochs(ps)
	if err != nil {
		return err
	}
	b := c.newBatch()
	for _, p := range bumped {
		b.addLeaderAndISR(p, originOf(p.assignment), false)
		b.addLeaderAndISR(p, p.assignment.Adding, true)
	}
	for _, p := range ps {
		for _, id := range p.assignment.Adding {
			c.bringUp(p, id)
		}
		c.watchState(p)
	}
	b.send()
	return nil
}

// bringUp gives a replica that is being added its state: New, or Offline where its broker is not there.
func (c *Core) bringUp(p *partitionContext, id cluster.BrokerID) {
	p.removedFrom = without(p.removedFrom, id)
	r := replicaRef{p, id}
	online := c.ctx.isReplicaOnline(p, id)
	if p.replicaState(id) == NonExistentReplica {
		c.markReplica(r, NewReplica)
	}
	switch state := p.replicaState(id); {
	case state == NewReplica && !online:
		c.markReplica(r, OfflineReplica)
	case state == OfflineReplica && online:
		c.markReplica(r, OnlineReplica)
	}
}

// bumpLeaderEpochs writes the states of partitions with the next leader epoch and nothing else changed, and returns those
// for which that went well (Kafka: updateLeaderEpoch).
func (c *Core) bumpLeaderEpochs(ps []*partitionContext) (bumped []*partitionContext, err error) {
	remaining := slices.DeleteFunc(slices.Clone(ps), func(p *partitionContext) bool { return p.leadership == nil })
	for round := 0; len(remaining) > 0; round++ {
		if round == maxConflictRounds {
			c.armPartitionRetry()
			break
		}
		writes := make([]PartitionStateWrite, len(remaining))
		for i, p := range remaining {
			s := *p.leadership
			s.LeaderEpoch++
			s.ControllerEpoch = c.ctx.epoch
			writes[i] = PartitionStateWrite{p.TopicPartition, s}
		}
		results, err := c.setStates(writes)
		if err != nil {
			return nil, err
		}
		var again []*partitionContext
		for i, p := range remaining {
			switch r := results[i]; r.Status {
			case ItemOK:
				p.leadership = &r.State
				bumped = append(bumped, p)
			case ItemConflict:
				p.leadership = &r.State
				again = append(again, p)
			default:
				c.note(Warn, "leader epoch could not be written", p.Topic, itemError(p.String(), r))
				c.armPartitionRetry()
			}
		}
		remaining = again
	}
	sortPartitions(bumped)
	return bumped, nil
}

// completeReassignments is phase B.
func (c *Core) completeReassignments(ps []*partitionContext) error {
	if len(ps) == 0 {
		return nil
	}
	former := map[*partitionContext]cluster.ReplicaAssignment{}
	var toElect, toTell []*partitionContext
	for _, p := range ps {
		former[p] = p.assignment
		for _, id := range p.assignment.Adding {
			c.bringUp(p, id)
			if p.replicaState(id) == NewReplica {
				c.markReplica(replicaRef{p, id}, OnlineReplica)
			}
		}
		p.assignment = cluster.ReplicaAssignment{Replicas: targetOf(p.assignment)}
		switch {
		case p.leadership != nil && slices.Contains(p.assignment.Replicas, p.leadership.Leader) && c.ctx.leaderOnline(p):
			toTell = append(toTell, p)
		case p.leadership == nil || slices.ContainsFunc(p.assignment.Replicas, func(id cluster.BrokerID) bool { return c.ctx.isReplicaOnline(p, id) }):
			toElect = append(toElect, p)
		}
	}
	if _, err := c.changePartitionStates(toElect, OnlinePartition, ReassignStrategy); err != nil {
		return err
	}
	if err := c.announceAssignments(toTell); err != nil {
		return err
	}
	return c.dropRemoved(ps, former)
}

// dropRemoved ends phase B: replicas outside of the target leave the ISR and are deleted, and the topic node has the
// target alone. Where something could not be written the partition stays in its reassignment and the timer tries again.
func (c *Core) dropRemoved(ps []*partitionContext, former map[*partitionContext]cluster.ReplicaAssignment) error {
	var removed []replicaRef
	stays := map[*partitionContext]bool{}
	for _, p := range ps {
		if l := p.leadership; l != nil && l.Leader != cluster.NoBroker && !slices.Contains(p.assignment.Replicas, l.Leader) {
			stays[p] = true // the election failed; its leader must not be thrown out
			continue
		}
		for _, r := range p.replicas {
			if !slices.Contains(p.assignment.Replicas, r.id) {
				removed = append(removed, replicaRef{p, r.id})
			}
		}
	}
	if err := c.changeReplicaStates(removed, OfflineReplica); err != nil {
		return err
	}
	targets := map[*partitionContext]cluster.ReplicaAssignment{}
	for _, r := range removed {
		stays[r.partitionContext] = stays[r.partitionContext] || isNotOffline(r)
	}
	for _, p := range ps {
		switch {
		case stays[p]:
			p.assignment = former[p] // before the write: a topic's node is written whole
		case !former[p].Equal(p.assignment):
			targets[p] = p.assignment
		}
	}
	failed, err := c.writeAssignments(targets)
	if err != nil {
		return err
	}
	var gone []replicaRef
	var finished []*partitionContext
	ends := map[cluster.TopicPartition][]cluster.BrokerID{}
	for _, p := range ps {
		if _, unwritten := failed[p.topic]; unwritten || stays[p] {
			p.assignment = former[p]
			c.armPartitionRetry()
			continue
		}
		finished = append(finished, p)
		c.unwatchState(p)
		ends[p.TopicPartition] = p.assignment.Replicas
		if former[p].BeingReassigned() {
			c.note(Info, "reassignment completed", p.Topic, fmt.Sprintf("%s: %v", p, p.assignment.Replicas))
		}
	}
	for _, r := range removed {
		if !slices.Contains(r.assignment.Replicas, r.id) {
			gone = append(gone, r)
		}
	}
	if err := c.deleteReplicas(gone); err != nil {
		return err
	}
	if len(finished) > 0 {
		c.sendUpdateMetadata(c.ctx.brokerIDs(), finished...)
	}
	return c.removeFromReassignNode(func(t ReassignmentTarget) bool {
		replicas, finished := ends[t.TopicPartition]
		return finished && slices.Equal(replicas, t.Replicas)
	})
}

// completeWhatCan looks at partitions whose ISR may have changed.
func (c *Core) completeWhatCan(ps []*partitionContext) error {
	ps = slices.DeleteFunc(slices.Clone(ps), func(p *partitionContext) bool { return !p.isReassigned() })
	if err := c.refreshISRs(ps); err != nil {
		return err
	}
	return c.completeReassignments(slices.DeleteFunc(ps, func(p *partitionContext) bool { return !c.canComplete(p) }))
}

// resumeReassignmentsOn goes on with the reassignments whose target has one of the brokers, which have just come: from the beginning,
// with another leader epoch, as Kafka does (onBrokerStartup).
func (c *Core) resumeReassignmentsOn(ids []cluster.BrokerID) error {
	return c.resumeSome(func(p *partitionContext) bool {
		return slices.ContainsFunc(targetOf(p.assignment), func(id cluster.BrokerID) bool { return slices.Contains(ids, id) })
	})
}

// resumeReassignments goes on with all reassignments in progress, at a failover and when a write has failed.
func (c *Core) resumeReassignments() error {
	return c.resumeSome(func(*partitionContext) bool { return true })
}

func (c *Core) resumeSome(wanted func(*partitionContext) bool) error {
	var rs []*reassignment
	var ps []*partitionContext
	for p := range c.ctx.partitions() {
		if p.isReassigned() && wanted(p) {
			rs, ps = append(rs, &reassignment{p: p, to: p.assignment}), append(ps, p)
		}
	}
	if err := c.learnLeaderships(ps); err != nil {
		return err
	}
	return c.reassign(rs)
}
