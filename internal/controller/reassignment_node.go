package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// writeAssignments writes the topic nodes of partitions with their new assignments; those of other partitions stay as
// the context has them, and partitions that somebody has added meanwhile stay in the node (W9: Kafka overwrites them). It
// returns the topics that could not be written, with the reason.
func (c *Core) writeAssignments(targets map[*partitionContext]cluster.ReplicaAssignment) (map[*topicContext]string, error) {
	of := map[*topicContext]bool{}
	for p := range targets {
		of[p.topic] = true
	}
	topics := slices.SortedFunc(maps.Keys(of), func(a, b *topicContext) int { return cmp.Compare(a.Name, b.Name) })
	failed := map[*topicContext]string{}
	added := map[*topicContext][]PartitionAssignment{}
	for round := 0; len(topics) > 0; round++ {
		writes := make([]TopicWrite, len(topics))
		for i, t := range topics {
			writes[i] = TopicWrite{t.TopicRef, t.czxid, t.version, t.assignmentsWith(targets, added[t])}
		}
		written := map[*topicContext]bool{}
		conflicts, err := c.writeTopics(writes, func(i int, version int32) {
			written[topics[i]] = true
			topics[i].version = version
		})
		if err != nil {
			return nil, err
		}
		again := pick(topics, conflicts)
		if len(conflicts) == 0 {
			again = nil
		}
		for _, t := range topics {
			if !written[t] && !slices.Contains(again, t) {
				failed[t] = "the topic node could not be written"
			}
		}
		if round == maxConflictRounds {
			for _, t := range again {
				failed[t] = "another writer keeps changing the topic node"
			}
			return failed, nil
		}
		if topics, err = c.refreshForWrite(again, added, failed); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// assignmentsWith is the topic node's content with other assignments for some partitions, and with partitions that the
// context does not have yet.
func (t *topicContext) assignmentsWith(targets map[*partitionContext]cluster.ReplicaAssignment, added []PartitionAssignment) []PartitionAssignment {
	out := make([]PartitionAssignment, len(t.partitions), len(t.partitions)+len(added))
	for i, p := range t.partitions {
		out[i] = PartitionAssignment{p.Partition, p.assignment}
		if a, changed := targets[p]; changed {
			out[i].Assignment = a
		}
	}
	return append(out, added...)
}

// refreshForWrite reads topics whose node was at another version; it returns those that can be written again.
func (c *Core) refreshForWrite(ts []*topicContext, added map[*topicContext][]PartitionAssignment, failed map[*topicContext]string) ([]*topicContext, error) {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.Name
	}
	reads, err := c.readTopics(names)
	if err != nil {
		return nil, err
	}
	var again []*topicContext
	for i, r := range reads {
		t := ts[i]
		if !r.Exists || r.Czxid != t.czxid || r.Err != "" {
			failed[t] = "the topic node is gone, or another one, or cannot be decoded"
			continue
		}
		t.version = r.Version
		c.adoptTopicID(t, r.ID)
		added[t] = nil
		for _, pa := range r.Partitions {
			if t.partition(pa.Partition) == nil {
				added[t] = append(added[t], pa)
			}
		}
		again = append(again, t)
	}
	return again, nil
}

// handlePartitionReassignment takes up what old tools wrote into /admin/reassign_partitions. Entries that cannot be carried out are removed;
// the others are when they are done (Kafka: ZkPartitionReassignment).
func (c *Core) handlePartitionReassignment() error {
	r, err := query[ReassignmentsRead](c, ReadReassignments{})
	if err != nil {
		return err
	}
	c.ctx.reassignNode = r.Exists
	if !r.Exists {
		return nil
	}
	if r.Err != "" {
		c.note(Warn, "request for reassignments cannot be decoded and is removed", "", r.Err)
		return c.removeFromReassignNode(func(ReassignmentTarget) bool { return true })
	}
	tps := make([]cluster.TopicPartition, len(r.Targets))
	for i, t := range r.Targets {
		tps[i] = t.TopicPartition
	}
	if err := c.prepareReassignments(tps); err != nil {
		return err
	}
	all := make([]*reassignment, len(r.Targets))
	for i, t := range r.Targets {
		wish := &reassignment{p: c.ctx.partition(t.TopicPartition)}
		wish.validateTarget(t.Replicas)
		current := cluster.ReplicaAssignment{}
		if wish.p != nil {
			current = wish.p.assignment
		}
		c.settleTarget(wish, current, t.Replicas)
		all[i] = wish
	}
	// What is on its way already was announced, or will be by the caller.
	fresh := slices.DeleteFunc(slices.Clone(all), func(w *reassignment) bool {
		return w.err == cluster.None && w.p.isReassigned() && w.to.Equal(w.p.assignment)
	})
	if err := c.reassign(fresh); err != nil {
		return err
	}
	failed := map[cluster.TopicPartition]bool{}
	for i, w := range all {
		if w.err != cluster.None {
			failed[r.Targets[i].TopicPartition] = true
			c.note(Warn, "partition cannot be reassigned", r.Targets[i].Topic, fmt.Sprintf("%s: %s %s", r.Targets[i].TopicPartition, w.err, w.message))
		}
	}
	return c.removeFromReassignNode(func(t ReassignmentTarget) bool { return failed[t.TopicPartition] })
}

// removeFromReassignNode takes entries out of /admin/reassign_partitions; the last one takes the node along.
func (c *Core) removeFromReassignNode(drop func(ReassignmentTarget) bool) error {
	for round := 0; round < maxConflictRounds && c.ctx.reassignNode; round++ {
		r, err := query[ReassignmentsRead](c, ReadReassignments{})
		if err != nil {
			return err
		}
		c.ctx.reassignNode = r.Exists
		rest := slices.DeleteFunc(slices.Clone(r.Targets), drop)
		if !r.Exists || r.Err == "" && len(rest) == len(r.Targets) {
			return nil
		}
		items, err := c.remove(SetReassignments{rest, r.Version}, 1)
		if err != nil {
			return err
		}
		switch items[0].Status {
		case ItemOK, ItemNoNode:
			c.ctx.reassignNode = len(rest) > 0
			return nil
		case ItemConflict: // somebody else wrote it, or our write was applied and its answer lost
		default:
			c.note(Warn, "request for reassignments could not be changed", "", items[0].Err)
			return nil
		}
	}
	return nil
}

// dropReassignmentsOf takes topics that are queued for deletion, or gone, out of the request of old tools. At a failover
// the request is looked at later.
func (c *Core) dropReassignmentsOf(ts ...*topicContext) error {
	names := make(map[string]bool, len(ts))
	for _, t := range ts {
		names[t.Name] = true
	}
	if len(names) == 0 {
		return nil
	}
	return c.removeFromReassignNode(func(t ReassignmentTarget) bool { return names[t.Topic] })
}

// takeUpReassignments is step 11 of the failover: first what old tools wrote, which wins, then what was in progress.
func (c *Core) takeUpReassignments() error {
	if err := c.handlePartitionReassignment(); err != nil {
		return err
	}
	return c.resumeReassignments()
}
