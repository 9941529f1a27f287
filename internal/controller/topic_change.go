package controller

import (
	"fmt"
	"slices"

	"klamm/internal/cluster"
)

// handleTopicChange compares the topics that exist with those known: new ones get their partitions created, vanished ones are
// forgotten with everything about them (W4). A topic that vanished while queued stays until its replicas are deleted.
//
// A topic that was deleted and created again between two looks has its name in both sets; the watch on its node
// raises PartitionModifications, which compares creation ids.
func (c *Core) handleTopicChange() error {
	r, err := query[TopicNamesRead](c, ReadTopicNames{})
	if err != nil {
		return err
	}
	exists := make(map[string]bool, len(r.Names))
	var added []string
	for _, name := range r.Names {
		exists[name] = true
		if c.ctx.topics[name] == nil {
			added = append(added, name)
		}
	}
	var gone []*topicContext
	for _, t := range c.ctx.sorted() {
		if !exists[t.Name] && t.deletion == nil {
			gone = append(gone, t)
		}
	}
	c.forgetTopics(gone)
	if err := c.dropReassignmentsOf(gone...); err != nil {
		return err
	}
	slices.Sort(added)
	return c.addTopics(added)
}

// forgetTopics drops topics that were removed behind the controller's back: caches forget them; their data is left
// alone, because nobody asked for a deletion.
func (c *Core) forgetTopics(ts []*topicContext) {
	if len(ts) == 0 {
		return
	}
	var ps []*partitionContext
	var refs []TopicRef
	for _, t := range ts {
		c.note(Warn, "topic was removed from the store by hand", t.Name, "")
		c.emit(Unwatch{Watched{Kind: WatchTopic, Topic: t.Name}})
		c.unwatchStates(t)
		t.gone = true
		ps = append(ps, t.partitions...)
		refs = append(refs, t.TopicRef)
	}
	c.sendUpdateMetadata(c.ctx.brokerIDs(), ps...)
	for _, t := range ts {
		c.ctx.removeTopic(t)
	}
	c.emit(TopicsForgotten{refs})
}

// addTopics reads topics that are new to the controller and creates their partitions.
func (c *Core) addTopics(names []string) error {
	ts, err := c.readIntoContext(names)
	if err != nil {
		return err
	}
	return c.createTopics(ts)
}

func (c *Core) createTopics(ts []*topicContext) error {
	var ps []*partitionContext
	for _, t := range ts {
		ps = append(ps, t.partitions...)
	}
	return c.createPartitions(ps)
}

// readIntoContext arms the watch on topics, reads them and puts those that exist into the context, with an id. A node
// that cannot be decoded is a topic without partitions: it can be deleted, and it gets its partitions when it is mended.
func (c *Core) readIntoContext(names []string) ([]*topicContext, error) {
	for _, name := range names {
		c.emit(Watch{Watched{Kind: WatchTopic, Topic: name}})
	}
	reads, err := c.readTopics(names)
	if err != nil {
		return nil, err
	}
	return c.putIntoContext(reads)
}

func (c *Core) putIntoContext(reads []TopicRead) ([]*topicContext, error) {
	var ts []*topicContext
	for _, r := range reads {
		if !r.Exists {
			c.emit(Unwatch{Watched{Kind: WatchTopic, Topic: r.Name}})
			continue
		}
		if r.Err != "" {
			c.note(Warn, "topic node cannot be decoded", r.Name, r.Err)
		}
		ts = append(ts, c.ctx.addTopic(r))
	}
	if err := c.assignTopicIDs(ts, reads); err != nil {
		return nil, err
	}
	if len(ts) > 0 {
		refs := make([]TopicRef, len(ts))
		for i, t := range ts {
			refs[i] = t.TopicRef
		}
		c.emit(TopicsKnown{refs})
	}
	return ts, nil
}

// assignTopicIDs gives an id to topics that have none. The write is conditional on the version read, so an id
// or a change by somebody else is never overwritten (W9); after a conflict the fresh node decides.
func (c *Core) assignTopicIDs(ts []*topicContext, reads []TopicRead) error {
	if !c.cfg.UseTopicIDs {
		return nil
	}
	read := map[string]TopicRead{}
	for _, r := range reads {
		read[r.Name] = r
	}
	missing := slices.DeleteFunc(slices.Clone(ts), func(t *topicContext) bool { return !t.ID.IsZero() || read[t.Name].Err != "" })
	for round := 0; len(missing) > 0 && round < maxConflictRounds; round++ {
		writes := make([]TopicWrite, len(missing))
		for i, t := range missing {
			writes[i] = TopicWrite{TopicRef{t.Name, c.cfg.NewTopicID()}, t.czxid, t.version, read[t.Name].Partitions}
		}
		conflicts, err := c.writeTopics(writes, func(i int, version int32) {
			c.ctx.setTopicID(missing[i], writes[i].ID)
			missing[i].version = version
		})
		if err != nil {
			return err
		}
		c.missIDs(missing, conflicts)
		if len(conflicts) == 0 {
			return nil
		}
		again := pick(missing, conflicts)
		names := make([]string, len(again))
		for i, t := range again {
			names[i] = t.Name
		}
		fresh, err := c.readTopics(names)
		if err != nil {
			return err
		}
		missing = nil
		for i, r := range fresh {
			t := again[i]
			if !r.Exists || r.Czxid != t.czxid || r.Err != "" {
				continue // the watches tell what became of it
			}
			read[t.Name] = r
			t.version = r.Version
			if c.ctx.setTopicID(t, r.ID); t.ID.IsZero() {
				missing = append(missing, t)
			}
		}
	}
	return nil
}

// missIDs has the timer try again for the topics that got no id although nobody else wrote their nodes.
func (c *Core) missIDs(ts []*topicContext, conflicts []int) {
	for i, t := range ts {
		if t.ID.IsZero() && !slices.Contains(conflicts, i) {
			c.ctx.idsMissing = true
			c.armPartitionRetry()
		}
	}
}

// retryTopicIDs gives ids to topics whose nodes could not be written before, and tells their brokers. Until then a broker that still has the log of an
// earlier topic of the name takes it for this one's (Kafka tries again at the next failover only).
func (c *Core) retryTopicIDs() error {
	if !c.ctx.idsMissing {
		return nil
	}
	c.ctx.idsMissing = false
	var names []string
	for _, t := range c.ctx.sorted() {
		if t.ID.IsZero() && t.deletion == nil {
			names = append(names, t.Name)
		}
	}
	reads, err := c.readTopics(names)
	if err != nil {
		return err
	}
	var ts, missing []*topicContext
	for _, r := range reads {
		t := c.ctx.topics[r.Name]
		if !r.Exists || r.Czxid != t.czxid || r.Err != "" {
			continue // the watches tell what became of it
		}
		t.version = r.Version
		c.adoptTopicID(t, r.ID)
		if ts = append(ts, t); t.ID.IsZero() {
			missing = append(missing, t)
		}
	}
	if err := c.assignTopicIDs(missing, reads); err != nil {
		return err
	}
	for _, t := range missing {
		if !t.ID.IsZero() {
			c.emit(TopicsForgotten{[]TopicRef{{Name: t.Name}}})
			c.emit(TopicsKnown{[]TopicRef{t.TopicRef}})
		}
	}
	b := c.newBatch()
	for _, t := range ts {
		if t.ID.IsZero() {
			continue
		}
		for _, p := range t.partitions {
			if p.leadership != nil {
				b.addLeaderAndISR(p, p.assignment.Replicas, false)
			}
		}
	}
	b.send()
	return nil
}

// writeTopics writes topic nodes and reports the indexes of those whose version differed. A lost answer counts as a conflict: the
// fresh node shows what became of the write.
func (c *Core) writeTopics(writes []TopicWrite, written func(i int, version int32)) (conflicts []int, err error) {
	base := 0
	err = chunks(c, writes, func(writes []TopicWrite) error {
		attempt := 0
		items, applied, err := c.write(SetTopics{writes}, len(writes), &attempt)
		for i := range writes {
			switch {
			case err != nil:
			case !applied || items[i].Status == ItemConflict:
				conflicts = append(conflicts, base+i)
			case items[i].Status == ItemOK:
				written(base+i, items[i].Version)
			case items[i].Status == ItemFailed:
				c.note(Warn, "topic node could not be written", writes[i].Name, items[i].Err)
			}
		}
		base += len(writes)
		return err
	})
	return conflicts, err
}

// createPartitions brings new partitions and their replicas into being (Kafka: onNewPartitionCreation). Unlike in Kafka, replicas that
// are not online do not become OnlineReplica: the deletion of a topic must be able to see them as what they are (W6).
func (c *Core) createPartitions(ps []*partitionContext) error {
	if len(ps) == 0 {
		return nil
	}
	if _, err := c.changePartitionStates(ps, NewPartition, 0); err != nil {
		return err
	}
	var all, online, offline []replicaRef
	for _, p := range ps {
		for _, id := range p.assignment.Replicas {
			all = append(all, replicaRef{p, id})
			if c.ctx.isReplicaOnline(p, id) {
				online = append(online, replicaRef{p, id})
			} else {
				offline = append(offline, replicaRef{p, id})
			}
		}
	}
	if err := c.changeReplicaStates(all, NewReplica); err != nil {
		return err
	}
	if _, err := c.changePartitionStates(ps, OnlinePartition, OfflineStrategy); err != nil {
		return err
	}
	if err := c.changeReplicaStates(online, OnlineReplica); err != nil {
		return err
	}
	for _, r := range offline {
		// Only marked: the replica never had anything to stop, and it is in no ISR.
		c.markReplica(r, OfflineReplica)
	}
	return nil
}

// handlePartitionModifications looks at one topic's node: added partitions are created, or taken back while the topic is queued for
// deletion; a node with another creation id is another topic. Changes to replica lists of existing partitions are not
// taken from here.
func (c *Core) handlePartitionModifications(topic string) error {
	reads, err := c.readTopics([]string{topic})
	if err != nil {
		return err
	}
	r, t := reads[0], c.ctx.topics[topic]
	switch {
	case !r.Exists:
		return nil // TopicChange tells
	case t == nil:
		return c.addTopics([]string{topic})
	case t.deletion != nil:
		if r.Czxid != t.czxid {
			return nil // the removal of the old node will find out
		}
		return c.restore(t, r)
	case r.Czxid != t.czxid:
		return c.replaceTopic(t, r)
	case r.Err != "":
		c.note(Warn, "topic node cannot be decoded", topic, r.Err)
		return nil
	}
	t.version = r.Version
	c.adoptTopicID(t, r.ID)
	var added []*partitionContext
	for _, pa := range r.Partitions {
		if t.partition(pa.Partition) == nil {
			added = append(added, t.addPartition(pa))
		}
	}
	if len(added) > 0 {
		c.note(Info, "partitions were added", topic, fmt.Sprintf("%d", len(added)))
	}
	return c.createPartitions(added)
}

// adoptTopicID takes over an id that somebody else gave to a topic that had none.
func (c *Core) adoptTopicID(t *topicContext, id cluster.TopicID) {
	if !t.ID.IsZero() || id.IsZero() {
		return
	}
	old := t.TopicRef
	if c.ctx.setTopicID(t, id); !t.ID.IsZero() {
		c.emit(TopicsForgotten{[]TopicRef{old}})
		c.emit(TopicsKnown{[]TopicRef{t.TopicRef}})
	}
}

// restore writes the assignment back that a queued topic had when partitions were added to it: the context's, exactly (W10:
// Kafka drops partitions that were never initialised).
func (c *Core) restore(t *topicContext, r TopicRead) error {
	for round := 0; round < maxConflictRounds; round++ {
		if !r.Exists || r.Czxid != t.czxid || r.Err != "" || t.deletion.removing {
			return nil
		}
		t.version = r.Version
		extra := slices.ContainsFunc(r.Partitions, func(pa PartitionAssignment) bool { return t.partition(pa.Partition) == nil })
		if !extra {
			return nil
		}
		c.note(Warn, "partitions added to a topic that is queued for deletion are taken back", t.Name, "")
		writes := []TopicWrite{{TopicRef{t.Name, r.ID}, t.czxid, r.Version, t.assignments()}}
		conflicts, err := c.writeTopics(writes, func(_ int, version int32) { t.version = version })
		if err != nil || len(conflicts) == 0 {
			return err
		}
		reads, err := c.readTopics([]string{t.Name})
		if err != nil {
			return err
		}
		r = reads[0]
	}
	return nil
}

// refreshTopics looks whether topics are still the incarnations that the context has.
func (c *Core) refreshTopics(names []string) error {
	reads, err := c.readTopics(names)
	if err != nil {
		return err
	}
	for _, r := range reads {
		if t := c.ctx.topics[r.Name]; r.Exists && r.Czxid != t.czxid {
			if err := c.replaceTopic(t, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceTopic handles a topic that was deleted and created again by hand (W4): the replicas of the old incarnation are
// stopped and deleted, which on each broker comes before the first LeaderAndIsr of the new one.
func (c *Core) replaceTopic(t *topicContext, r TopicRead) error {
	c.note(Warn, "topic was deleted and created again by hand", t.Name, "id "+r.ID.String())
	if !c.ctx.takingOffice {
		t.gone = true
		b := c.newBatch()
		b.addUpdateMetadata(c.ctx.brokerIDs(), t.partitions...)
		for _, replica := range t.allReplicas() {
			b.addStopReplica(replica.partitionContext, replica.id, true)
		}
		b.send()
	}
	old := t.TopicRef
	if err := c.dropReassignmentsOf(t); err != nil {
		return err
	}
	c.ctx.removeTopic(t)
	c.emit(TopicsForgotten{[]TopicRef{old}})
	ts, err := c.putIntoContext([]TopicRead{r})
	if err != nil || c.ctx.takingOffice {
		return err
	}
	return c.createTopics(ts)
}
