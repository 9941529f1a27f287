package controller

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// topicDeletionManager drives the deletion of queued topics (Kafka: TopicDeletionManager). It has no state of its own: each
// queued topic has a topicDeletion in the context, and what its replicas have reached is in their replica states.
//
// A topic's way: queued -> its partitions NonExistent, caches told to forget it -> each replica Offline,
// ReplicaDeletionStarted, and by the broker's answer Successful or Ineligible -> when all are Successful, or left to their
// absent brokers (see offline_replicas.go), its nodes are removed: tree, configuration, and the marker last, so that a new controller finds what it has to finish.
//
// A topic is ineligible while a started deletion cannot go on. Every ineligible topic has something that lifts it: the
// start of a broker that hosts one of its replicas, or its retry time (W8: Kafka has no timer). It is only
// marked by a transition that took place (W1). Unlike Kafka, a failover does not hold back the online replicas of a
// topic that has an offline one: they are deleted at once, as they are when a topic is queued.
type topicDeletionManager struct {
	c      *Core
	client deletionClient
}

// topicDeletion is one topic queued for deletion.
type topicDeletion struct {
	name string
	// topic is nil when only the marker, and perhaps the configuration, is left.
	topic       *topicContext
	markerCzxid int64
	queuedAt    Time
	// started: the partitions were moved to NonExistentPartition. It only grows.
	started bool
	// ineligible: no replica of the topic is started until it is lifted.
	ineligible bool
	// toForget are the brokers that were told to forget the topic and have not yet answered. The nodes stay until they
	// have: should this controller end before, the next one tells them again. Kafka does not wait, and a broker that missed
	// the message lists the topic for ever.
	toForget map[cluster.BrokerID]bool
	// removing: all replicas are deleted or left behind, and the removal of the nodes has begun.
	removing bool
	// retryAt is when the deletion is tried again by itself; 0 when it waits for something else.
	retryAt Time
	// giveUpAt is when the patience with offline replicas ends, as the timer knows it; 0 when it does not.
	giveUpAt  Time
	attempts  int // failures so far
	lastError string
}

func (c *Core) tdm() topicDeletionManager { return topicDeletionManager{c, deletionClient{c}} }

// init queues everything that has a marker, at failover (step 7). With deletion disabled it removes the markers, but for those of
// deletions that a former controller had begun: the topic would come back with what is left of it (Kafka lets it).
func (m topicDeletionManager) init(markers []Marker) error {
	if m.c.cfg.DeleteTopicEnable {
		return m.queue(markers)
	}
	var begun, fresh []Marker
	for _, k := range markers {
		if m.hasBegun(m.c.ctx.topics[k.Topic]) {
			m.c.note(Info, "topic deletion is disabled: one that has begun goes on", k.Topic, "")
			begun = append(begun, k)
		} else {
			fresh = append(fresh, k)
		}
	}
	if err := m.refuse(fresh); err != nil {
		return err
	}
	return m.queue(begun)
}

// hasBegun reads from the store's state whether the deletion of a topic has begun, which takes every online replica out of its
// leadership first: then a partition has no leader although a member of its ISR is online. Without a deletion such a partition is
// led at once. A topic whose node is gone (nil) has little left to delete.
func (m topicDeletionManager) hasBegun(t *topicContext) bool {
	if t == nil {
		return true
	}
	return slices.ContainsFunc(t.partitions, func(p *partitionContext) bool {
		return p.leadership != nil && p.leadership.Leader < 0 &&
			slices.ContainsFunc(p.leadership.ISR, func(id cluster.BrokerID) bool { return m.c.ctx.isReplicaOnline(p, id) })
	})
}

// refuse removes markers while delete.topic.enable is false. One that cannot be removed now is not refused yet: it is
// looked at again, and its deletion may be enabled by then.
func (m topicDeletionManager) refuse(markers []Marker) error {
	for _, k := range markers {
		m.c.note(Warn, "topic deletion is disabled: the marker is removed", k.Topic, "")
	}
	removed, err := m.client.deleteMarkers(markers)
	if len(removed) > 0 {
		m.c.emit(DeletionsRefused{removed})
	}
	return err
}

// enqueue queues topics and starts what can be started.
func (m topicDeletionManager) enqueue(markers []Marker) error {
	if err := m.queue(markers); err != nil {
		return err
	}
	return m.resume()
}

// queue adds topics. A marker that names another incarnation than the one that exists came too late and is void (W11).
func (m topicDeletionManager) queue(markers []Marker) error {
	x := m.c.ctx
	markers = slices.DeleteFunc(slices.Clone(markers), func(k Marker) bool { return x.deletions[k.Topic] != nil })
	// Before a marker without an id, or with a strange one, is held against a topic: is it still that topic?
	var doubtful []string
	for _, k := range markers {
		if t := x.topics[k.Topic]; t != nil && (k.ID.IsZero() || isVoid(k, t)) {
			doubtful = append(doubtful, k.Topic)
		}
	}
	if err := m.c.refreshTopics(doubtful); err != nil {
		return err
	}
	var void []Marker
	var queued []string
	var topics []*topicContext
	for _, k := range markers {
		t := x.topics[k.Topic]
		if isVoid(k, t) {
			m.c.note(Warn, "deletion marker is for an earlier topic of this name and is removed", k.Topic, "id "+k.ID.String())
			void = append(void, k)
			continue
		}
		d := &topicDeletion{name: k.Topic, topic: t, markerCzxid: k.Czxid, queuedAt: m.c.now}
		x.deletions[k.Topic] = d
		if t != nil {
			t.deletion = d
			topics = append(topics, t)
		}
		queued = append(queued, k.Topic)
	}
	if len(queued) > 0 {
		m.c.emit(DeletionsQueued{queued})
		if err := m.c.dropReassignmentsOf(topics...); err != nil { // W7: nothing of them stays listed
			return err
		}
	}
	_, err := m.client.deleteMarkers(void)
	return err
}

func isVoid(k Marker, t *topicContext) bool {
	return t != nil && !k.ID.IsZero() && !t.ID.IsZero() && k.ID != t.ID
}

// resumeFor lifts what blocks topics, because a broker with a replica of theirs started, and goes on with all.
func (m topicDeletionManager) resumeFor(topics []*topicContext) error {
	if len(topics) == 0 {
		return nil
	}
	for _, t := range topics {
		t.deletion.ineligible, t.deletion.retryAt = false, 0
		for _, r := range t.allReplicas() {
			if m.c.ctx.isReplicaOnline(r.partitionContext, r.id) {
				r.replica(r.id).offlineSince = 0
			}
		}
	}
	return m.resume()
}

// idle reports whether a replica could be deleted that nobody deletes: its broker came back while the answer for
// another replica was awaited, and that other broker is gone since.
func (m topicDeletionManager) idle(d *topicDeletion) bool {
	return slices.ContainsFunc(d.topic.allReplicas(), func(r replicaRef) bool {
		s := r.replicaState(r.id)
		return s != ReplicaDeletionStarted && s != ReplicaDeletionSuccessful && m.c.ctx.isReplicaOnline(r.partitionContext, r.id)
	})
}

// retryDeletions runs when TimerDeletionRetry fires.
func (c *Core) retryDeletions() error {
	c.ctx.deletionTimerAt = 0
	for _, d := range c.ctx.deletions {
		if d.retryAt != 0 && d.retryAt <= c.now {
			d.ineligible, d.retryAt = false, 0
		}
	}
	return c.tdm().resume()
}

// failed handles replicas whose deletion failed with a code: they are Ineligible, and their topics are tried again
// after a pause.
func (m topicDeletionManager) failed(rs []replicaRef, codes map[replicaRef]cluster.ErrorCode) error {
	if len(rs) == 0 {
		return nil
	}
	for _, r := range rs {
		entry := r.replica(r.id)
		entry.attempts++
		entry.lastError = codes[r]
	}
	if err := m.c.changeReplicaStates(rs, ReplicaDeletionIneligible); err != nil {
		return err
	}
	for _, t := range topicsOf(rs) {
		m.retryLater(t.deletion, "a replica could not be deleted")
	}
	return m.resume()
}

// lost handles replicas of queued topics that went offline with their broker or log dir. Those being deleted become
// Ineligible and block their topic until the broker returns; those not yet begun go Offline. A replica that is
// deleted already stays so and blocks nothing (W1).
func (m topicDeletionManager) lost(rs []replicaRef) error {
	var started, serving []replicaRef
	for _, r := range rs {
		switch r.replicaState(r.id) {
		case ReplicaDeletionStarted:
			started = append(started, r)
		case NewReplica, OnlineReplica:
			serving = append(serving, r)
		}
	}
	if err := m.c.changeReplicaStates(serving, OfflineReplica); err != nil {
		return err
	}
	if err := m.c.changeReplicaStates(started, ReplicaDeletionIneligible); err != nil {
		return err
	}
	for _, t := range topicsOf(started) {
		t.deletion.ineligible = true
	}
	m.noteOffline(rs)
	return m.resume()
}

// succeeded handles replicas that their broker has deleted.
func (m topicDeletionManager) succeeded(rs []replicaRef) error {
	if len(rs) == 0 {
		return nil
	}
	if err := m.c.changeReplicaStates(rs, ReplicaDeletionSuccessful); err != nil {
		return err
	}
	return m.resume()
}

// resume looks at every queued topic and does what is due (Kafka: resumeDeletions): complete those whose replicas are all
// deleted, take failed replicas back to Offline, start those that are eligible.
func (m topicDeletionManager) resume() error {
	x := m.c.ctx
	var complete, eligible []*topicDeletion
	var retry []replicaRef
	for _, name := range slices.Sorted(maps.Keys(x.deletions)) {
		d := x.deletions[name]
		switch t := d.topic; {
		case d.removing && d.retryAt != 0:
		case t == nil || m.finished(d):
			if t != nil && !d.started {
				m.tellToForget([]*topicDeletion{d})
			}
			if len(d.toForget) == 0 {
				complete = append(complete, d)
			}
		case t.replicas[ReplicaDeletionStarted] == 0:
			if t.replicas[ReplicaDeletionIneligible] > 0 {
				retry = append(retry, replicasInState(t, ReplicaDeletionIneligible)...)
			}
			if !d.ineligible || d.retryAt == 0 && m.idle(d) {
				d.ineligible = false
				eligible = append(eligible, d)
			}
		}
	}
	if len(complete) > 0 {
		if err := m.complete(complete); err != nil {
			return err
		}
	}
	if err := m.c.changeReplicaStates(retry, OfflineReplica); err != nil {
		return err
	}
	if len(eligible) > 0 {
		if err := m.start(eligible); err != nil {
			return err
		}
		// With all replicas on absent brokers, and nobody to tell, no answer will come to look again.
		ended := slices.DeleteFunc(eligible, func(d *topicDeletion) bool { return len(d.toForget) > 0 || !m.finished(d) })
		if len(ended) > 0 {
			if err := m.complete(ended); err != nil {
				return err
			}
		}
	}
	m.schedule()
	return nil
}

func replicasInState(t *topicContext, s ReplicaState) []replicaRef {
	return slices.DeleteFunc(t.allReplicas(), func(r replicaRef) bool { return r.replicaState(r.id) != s })
}

// start begins or goes on with the deletion of topics (Kafka: onTopicDeletion).
func (m topicDeletionManager) start(ds []*topicDeletion) error {
	var fresh []*partitionContext
	for _, d := range ds {
		if !d.started {
			fresh = append(fresh, d.topic.partitions...)
			m.c.note(Info, "topic deletion started", d.name, "")
		}
	}
	for _, target := range []PartitionState{OfflinePartition, NonExistentPartition} {
		if _, err := m.c.changePartitionStates(fresh, target, 0); err != nil {
			return err
		}
	}
	for _, d := range ds {
		// After the transitions: until then the partitions count as the topic's offline ones.
		d.started = true
	}
	m.tellToForget(ds)
	return m.deletePartitions(ds)
}

// tellToForget has all brokers drop topics from their caches.
func (m topicDeletionManager) tellToForget(ds []*topicDeletion) {
	var all []*partitionContext
	for _, d := range ds {
		all = append(all, d.topic.partitions...)
	}
	if len(all) == 0 {
		return
	}
	for _, d := range ds {
		d.toForget = map[cluster.BrokerID]bool{}
		for _, id := range m.c.ctx.brokerIDs() {
			d.toForget[id] = true
		}
	}
	m.client.sendMetadataUpdate(all)
}

// forgotten notes that a broker has answered the message to forget topics, or that it is gone and will begin with an
// empty cache. It reports whether a topic that waited for nothing else can go on.
func (m topicDeletionManager) forgotten(id cluster.BrokerID, which func(*topicDeletion) bool) (ready bool) {
	for _, d := range m.c.ctx.deletions {
		if d.toForget[id] && which(d) {
			delete(d.toForget, id)
			ready = ready || len(d.toForget) == 0 && m.finished(d)
		}
	}
	return ready
}

// handleUpdateMetadataReply notes which topics a broker has forgotten.
func (c *Core) handleUpdateMetadataReply(ev UpdateMetadataReply) error {
	id := ev.Request.Target.Broker
	if !c.isCurrent(ev.Request.Target) {
		return nil
	}
	if ev.Err != cluster.None {
		c.noteBroker(Warn, "broker refused UpdateMetadata", id, ev.Err.String())
	}
	told := map[TopicRef]bool{}
	for _, t := range ev.Request.Update.Topics {
		if len(t.Partitions) > 0 && t.Partitions[0].State.Leader == cluster.LeaderDuringDelete {
			told[t.TopicRef] = true
		}
	}
	if len(told) == 0 {
		return nil
	}
	if c.tdm().forgotten(id, func(d *topicDeletion) bool { return d.topic != nil && told[d.topic.TopicRef] }) {
		return c.tdm().resume()
	}
	return nil
}

// deletePartitions takes the replicas of topics to ReplicaDeletionStarted (Kafka: onPartitionDeletion): offline ones
// become Ineligible, the others are first stopped, which takes them out of their ISR, then deleted.
func (m topicDeletionManager) deletePartitions(ds []*topicDeletion) error {
	var serving, dead, todo []replicaRef
	blocked := map[*topicDeletion]bool{}
	for _, d := range ds {
		d.removing = false // a broker came back after the deletion had begun to end without it
		for _, r := range d.topic.allReplicas() {
			state := r.replicaState(r.id)
			switch {
			case state == ReplicaDeletionSuccessful:
				// Gone, whether or not its broker lives (Kafka counts it as blocking when the broker is dead).
			case m.c.ctx.isReplicaOnline(r.partitionContext, r.id):
				r.replica(r.id).offlineSince = 0
				todo = append(todo, r)
			default:
				if state == NewReplica || state == OnlineReplica {
					serving = append(serving, r) // there is no way from Online to Ineligible but through Offline
				}
				dead = append(dead, r)
				blocked[d] = true
			}
		}
	}
	if err := m.c.changeReplicaStates(serving, OfflineReplica); err != nil {
		return err
	}
	m.noteOffline(dead)
	// Kafka tries Ineligible again on Ineligible ones and logs an invalid transition.
	dead = slices.DeleteFunc(dead, func(r replicaRef) bool { return r.replicaState(r.id) != OfflineReplica })
	for _, step := range []struct {
		replicas []replicaRef
		target   ReplicaState
	}{{dead, ReplicaDeletionIneligible}, {todo, OfflineReplica}, {todo, ReplicaDeletionStarted}} {
		if err := m.c.changeReplicaStates(step.replicas, step.target); err != nil {
			return err
		}
	}
	for _, d := range ds {
		if blocked[d] {
			d.ineligible = true
			if !m.finished(d) {
				m.c.note(Info, "topic deletion waits for offline replicas", d.name, m.whyItWaits(d))
			}
		}
		stuck := slices.ContainsFunc(d.topic.allReplicas(), func(r replicaRef) bool {
			s := r.replicaState(r.id)
			return s != ReplicaDeletionStarted && s != ReplicaDeletionSuccessful && s != ReplicaDeletionIneligible
		})
		if stuck {
			m.retryLater(d, "a replica could not be stopped")
		}
	}
	// When nothing could be started no answer will come to look at the Ineligible ones again.
	var retry []replicaRef
	for _, d := range ds {
		if d.topic.replicas[ReplicaDeletionStarted] == 0 {
			retry = append(retry, replicasInState(d.topic, ReplicaDeletionIneligible)...)
		}
	}
	return m.c.changeReplicaStates(retry, OfflineReplica)
}

// complete removes the nodes of topics whose replicas are all deleted, or left to their absent brokers, then forgets them
// (Kafka: completeDeleteTopic). A topic that cannot be removed now is tried again.
func (m topicDeletionManager) complete(ds []*topicDeletion) error {
	ds, err := m.leaveBehind(ds)
	if err != nil {
		return err
	}
	var replicas []replicaRef
	for _, d := range ds {
		if d.topic == nil {
			continue
		}
		m.client.mutePartitionModifications(d.name)
		replicas = append(replicas, replicasInState(d.topic, ReplicaDeletionSuccessful)...)
	}
	if err := m.c.changeReplicaStates(replicas, NonExistentReplica); err != nil {
		return err
	}
	reborn, err := m.client.deleteTopics(ds)
	if err != nil {
		return err
	}
	if len(reborn) == 0 {
		return nil
	}
	return m.c.addTopics(reborn)
}

// forget drops a topic whose nodes are gone.
func (m topicDeletionManager) forget(ds []*topicDeletion) {
	var names []string
	var refs []TopicRef
	for _, d := range ds {
		delete(m.c.ctx.deletions, d.name)
		names = append(names, d.name)
		if d.topic != nil {
			refs = append(refs, d.topic.TopicRef)
			m.c.ctx.removeTopic(d.topic)
		}
		m.c.note(Info, "topic deletion completed", d.name, "")
	}
	if len(refs) > 0 {
		m.c.emit(TopicsForgotten{refs})
	}
	if len(names) > 0 {
		m.c.emit(DeletionsEnded{names})
	}
}

// retryLater blocks a deletion until its next attempt.
func (m topicDeletionManager) retryLater(d *topicDeletion, why string) {
	if d.retryAt != 0 {
		return
	}
	d.attempts++
	d.ineligible = true
	d.retryAt = m.c.now + Time(m.c.backoff(d.attempts))
	d.lastError = why
	m.c.note(Warn, "topic deletion is tried again later", d.name, fmt.Sprintf("%s, attempt %d", why, d.attempts))
}

// schedule keeps the timer at the earliest retry, or end of the patience with offline replicas.
func (m topicDeletionManager) schedule() {
	x := m.c.ctx
	var at Time
	for _, d := range x.deletions {
		d.giveUpAt = m.givesUpAt(d)
		at = earlier(at, earlier(d.retryAt, d.giveUpAt))
	}
	switch {
	case at == x.deletionTimerAt:
	case at == 0:
		m.c.emit(CancelTimer{TimerDeletionRetry})
	default:
		m.c.emit(StartTimer{TimerDeletionRetry, max(int64(at-m.c.now), 0)})
	}
	x.deletionTimerAt = at
}

// topicsOf lists the topics of replicas once each, in order of first appearance.
func topicsOf(rs []replicaRef) []*topicContext {
	var out []*topicContext
	seen := map[*topicContext]bool{}
	for _, r := range rs {
		if !seen[r.topic] {
			seen[r.topic] = true
			out = append(out, r.topic)
		}
	}
	return out
}

// handleTopicDeletion reads the markers and queues what is new (Kafka: processTopicDeletion).
func (c *Core) handleTopicDeletion() error {
	r, err := query[MarkersRead](c, ReadDeletionMarkers{})
	if err != nil {
		return err
	}
	if !c.cfg.DeleteTopicEnable {
		return c.tdm().refuse(slices.DeleteFunc(r.Markers, func(k Marker) bool { return c.ctx.isQueued(k.Topic) }))
	}
	// A topic may have been created so recently that TopicChange is still to come.
	if err := c.addTopics(c.unknownTopics(r.Markers)); err != nil {
		return err
	}
	var known, void []Marker
	for _, k := range r.Markers {
		if c.ctx.topics[k.Topic] == nil && !c.ctx.isQueued(k.Topic) {
			c.note(Warn, "deletion marker names a topic that does not exist and is removed", k.Topic, "")
			void = append(void, k)
		} else {
			known = append(known, k)
		}
	}
	if _, err := c.tdm().client.deleteMarkers(void); err != nil {
		return err
	}
	return c.tdm().enqueue(known)
}

// handleTopicDeletionEnable takes over delete.topic.enable (KIP-688; in Kafka it can be set at start only). What is queued goes
// on, also under the next controller: brokers have forgotten it, and half a topic is of no use. New markers are refused.
func (c *Core) handleTopicDeletionEnable(enabled bool) {
	if c.cfg.DeleteTopicEnable == enabled {
		return
	}
	c.cfg.DeleteTopicEnable = enabled
	if c.ctx == nil {
		return
	}
	detail := "topics can be deleted"
	if !enabled {
		detail = fmt.Sprintf("topics can no longer be deleted, %d deletions that have begun go on", len(c.ctx.deletions))
	}
	c.note(Info, "delete.topic.enable changed", "", detail)
}

// unknownTopics lists the topics of markers that are neither known nor queued.
func (c *Core) unknownTopics(markers []Marker) []string {
	var unknown []string
	for _, k := range markers {
		if c.ctx.topics[k.Topic] == nil && !c.ctx.isQueued(k.Topic) {
			unknown = append(unknown, k.Topic)
		}
	}
	return unknown
}

// handleStopReplicaReply sorts the answers to deletions (Kafka: TopicDeletionStopReplicaResponseReceived). What counts
// is decided here, by the state of now (W26): an answer of another term, registration or incarnation, or
// one for a replica that is not being deleted, changes nothing. A request that failed as a whole, or an answer that
// leaves a partition out, is a failure of the replica and is tried again.
func (c *Core) handleStopReplicaReply(ev StopReplicaReply) error {
	if !c.isCurrent(ev.Request.Target) {
		return nil
	}
	codes := map[cluster.TopicPartition]cluster.ErrorCode{}
	for _, p := range ev.Partitions {
		codes[p.TopicPartition] = p.Err
	}
	var ok, failed []replicaRef
	failures := map[replicaRef]cluster.ErrorCode{}
	for _, t := range ev.Request.Topics {
		for _, sp := range t.Partitions {
			p := c.ctx.partitionOf(t.TopicRef, sp.Partition)
			id := ev.Request.Target.Broker
			if code, answered := codes[cluster.TopicPartition{Topic: t.Name, Partition: sp.Partition}]; p != nil && sp.Delete && answered && code == cluster.None {
				p.removedFrom = without(p.removedFrom, id)
			}
			if p == nil || !sp.ForTopicDeletion || !p.queued() || p.replicaState(id) != ReplicaDeletionStarted {
				continue
			}
			code, answered := codes[p.TopicPartition]
			if ev.Err != cluster.None {
				code = ev.Err
			} else if !answered {
				code = cluster.UnknownServerError
			}
			if r := (replicaRef{p, id}); code == cluster.None {
				ok = append(ok, r)
			} else {
				failed = append(failed, r)
				failures[r] = code
			}
		}
	}
	if err := c.tdm().failed(failed, failures); err != nil {
		return err
	}
	return c.tdm().succeeded(ok)
}

// isCurrent reports whether a request was sent in this term to the broker's present registration.
func (c *Core) isCurrent(t Target) bool {
	b, known := c.ctx.brokers[t.Broker]
	return known && t.ControllerEpoch == c.ctx.epoch && t.BrokerEpoch == b.Epoch
}
