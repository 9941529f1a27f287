package controller

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// OfflineReplicas is what a topic's deletion does about replicas that cannot be deleted now: their broker is gone, their log dir has
// failed, or their broker's storage refuses (W15, W8: Kafka waits for ever).
//
// A deletion that ends without a replica leaves a record in the store, by broker and topic id. The broker removes what
// the record names when it returns, or its dir does. The name is free at once: a later topic of that name has another id.
//
// Without an id a topic's deletion always waits: a later topic of the name has none either, and should the broker return with the old
// log's dir still offline, create the new log in another dir, and get the old dir back later, nothing would tell which of the two to
// remove. Such topics exist with an inter.broker.protocol.version below 2.8 only: from there on every controller gives ids to
// all topics when it takes office.
type OfflineReplicas uint8

// The policies.
const (
	// OfflineReplicasAuto ends a deletion without such replicas if all brokers with a replica of the topic run klamm,
	// which look for such records; else it waits.
	OfflineReplicasAuto OfflineReplicas = iota
	// OfflineReplicasComplete ends it in any case. A Kafka broker does not know the record: its data stays until somebody
	// removes it.
	OfflineReplicasComplete
	// OfflineReplicasWait waits for every broker, as Kafka does.
	OfflineReplicasWait
)

// String gives the value of topic.deletion.offline.replicas.
func (o OfflineReplicas) String() string { return [...]string{"auto", "complete", "wait"}[o] }

// learnKlammBrokers takes over which brokers run klamm. One that is remembered and has come back as another broker is
// no longer remembered.
func (c *Core) learnKlammBrokers(r BrokersRead) error {
	known := map[cluster.BrokerID]bool{}
	for _, id := range r.Klamm {
		known[id] = true
	}
	var others []cluster.BrokerID
	for _, b := range r.Brokers {
		if known[b.ID] && !b.Klamm {
			others = append(others, b.ID)
		}
		known[b.ID] = b.Klamm
	}
	c.ctx.klamm = known
	if len(others) == 0 {
		return nil
	}
	items, err := c.remove(ForgetKlammBrokers{others}, len(others))
	for i := range items {
		if items[i].Status == ItemFailed {
			c.noteBroker(Warn, "broker is remembered as a klamm broker and is none", others[i], items[i].Err)
		}
	}
	return err
}

// finished reports whether the deletion of a topic can end: all replicas are deleted, or can be left to their brokers.
func (m topicDeletionManager) finished(d *topicDeletion) bool {
	t := d.topic
	deleted, all := t.replicas[ReplicaDeletionSuccessful], t.replicaCount()
	if deleted == all {
		return true
	}
	if !d.started || deleted+t.replicas[OfflineReplica]+t.replicas[ReplicaDeletionIneligible] != all {
		return false
	}
	mayLeave := m.mayLeaveAbsent(t)
	for _, p := range t.partitions {
		for i := range p.replicas {
			if r := &p.replicas[i]; r.state != ReplicaDeletionSuccessful && !m.canLeave(p, r, mayLeave) {
				return false
			}
		}
	}
	return true
}

// mayLeaveAbsent reports whether the deletion of a topic may end without what cannot be deleted now, by the policy.
func (m topicDeletionManager) mayLeaveAbsent(t *topicContext) bool {
	switch m.c.cfg.OfflineReplicas {
	case OfflineReplicasComplete:
		return !t.ID.IsZero()
	case OfflineReplicasAuto:
		return !t.ID.IsZero() && m.foreignBroker(t) == cluster.NoBroker
	}
	return false
}

// foreignBroker is a broker with a replica of the topic that is not known to run klamm.
func (m topicDeletionManager) foreignBroker(t *topicContext) cluster.BrokerID {
	for _, p := range t.partitions {
		for _, r := range p.replicas {
			if !m.c.ctx.klamm[r.id] {
				return r.id
			}
		}
	}
	return cluster.NoBroker
}

// storageAttempts is how often a broker is asked to delete a replica that it refuses with KAFKA_STORAGE_ERROR before the deletion may end
// without it: some seconds, by the growing pauses.
const storageAttempts = 5

// canLeave reports whether a deletion may end without a replica. A broker that only shuts down will be gone, or back, soon.
func (m topicDeletionManager) canLeave(p *partitionContext, r *replicaContext, mayLeave bool) bool {
	if p.topic.ID.IsZero() || m.c.ctx.bouncing[r.id] {
		return false
	}
	if m.c.ctx.isReplicaOnline(p, r.id) {
		return mayLeave && r.lastError == cluster.KafkaStorageError && r.attempts >= storageAttempts
	}
	if at := m.patienceEnds(r); at != 0 && at <= m.c.now {
		return true
	}
	_, registered := m.c.ctx.brokers[r.id]
	return mayLeave && (!registered || r.offlineDir)
}

// patienceEnds is when the deletion ends without an offline replica by topic.deletion.offline.replica.timeout.ms; 0 when never.
func (m topicDeletionManager) patienceEnds(r *replicaContext) Time {
	if m.c.cfg.OfflineReplicaTimeoutMs <= 0 || r.offlineSince == 0 {
		return 0
	}
	return r.offlineSince + Time(m.c.cfg.OfflineReplicaTimeoutMs)
}

// givesUpAt is when a waiting deletion will end without its offline replicas; 0 when it waits for something else.
func (m topicDeletionManager) givesUpAt(d *topicDeletion) (at Time) {
	if m.c.cfg.OfflineReplicaTimeoutMs <= 0 || d.topic == nil || !d.started || d.removing {
		return 0
	}
	if m.finished(d) {
		if len(d.toForget) > 0 {
			return 0 // for the answers of brokers
		}
		return m.c.now // its time came while other topics were looked at
	}
	mayLeave := m.mayLeaveAbsent(d.topic)
	for _, p := range d.topic.partitions {
		for i := range p.replicas {
			r := &p.replicas[i]
			if r.state == ReplicaDeletionSuccessful || m.canLeave(p, r, mayLeave) {
				continue
			}
			ends := m.patienceEnds(r)
			if ends == 0 || p.topic.ID.IsZero() || m.c.ctx.isReplicaOnline(p, r.id) {
				return 0
			}
			at = max(at, ends)
		}
	}
	return at
}

// earlier is the earlier of two moments, where 0 is none.
func earlier(a, b Time) Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// noteOffline starts the patience with replicas that are offline.
func (m topicDeletionManager) noteOffline(rs []replicaRef) {
	for _, r := range rs {
		if e := r.replica(r.id); e.offlineSince == 0 && !m.c.ctx.isReplicaOnline(r.partitionContext, r.id) {
			e.offlineSince = m.c.now
		}
	}
}

// whyItWaits says why a deletion does not end without its absent brokers.
func (m topicDeletionManager) whyItWaits(d *topicDeletion) string {
	key := "topic.deletion.offline.replicas=" + m.c.cfg.OfflineReplicas.String()
	switch {
	case d.topic.ID.IsZero():
		return "the topic has no id"
	case m.c.cfg.OfflineReplicas == OfflineReplicasWait:
		return key
	case m.c.cfg.OfflineReplicas == OfflineReplicasAuto && m.foreignBroker(d.topic) != cluster.NoBroker:
		return fmt.Sprintf("%s, and broker %d is not known to run klamm", key, m.foreignBroker(d.topic))
	}
	return ""
}

// leaveBehind writes down what absent brokers have to remove of topics whose deletion ends without them, before
// anything else of the topics is removed: a controller that dies in between finds the markers, and does all of it again.
// It returns the topics that can go on.
func (m topicDeletionManager) leaveBehind(ds []*topicDeletion) ([]*topicDeletion, error) {
	var records []Leftover
	var of []*topicDeletion
	for _, d := range ds {
		for _, l := range m.leftovers(d) {
			records, of = append(records, l), append(of, d)
		}
	}
	failed := map[*topicDeletion]bool{}
	at := 0
	err := chunks(m.c, records, func(records []Leftover) error {
		items, err := m.c.remove(RecordLeftovers{records}, len(records))
		for i := range items {
			d := of[at+i]
			if items[i].Status != ItemOK {
				failed[d], d.removing = true, true
				m.retryLater(d, itemError("record what an absent broker has to remove", items[i]))
				continue
			}
			message := "topic deletion ends without a broker that is gone; it removes its replicas when it returns"
			if _, registered := m.c.ctx.brokers[records[i].Broker]; registered {
				message = "topic deletion ends without replicas that their broker cannot reach; it removes them when their log dir is back"
			}
			m.c.emit(Note{Level: Warn, Message: message, Topic: d.name, Broker: records[i].Broker,
				Detail: fmt.Sprintf("id %s, %d replicas", records[i].ID, len(records[i].Partitions))})
		}
		at += len(records)
		return err
	})
	return withoutThose(ds, failed), err
}

// leftovers lists what the brokers of a topic's offline replicas have to remove, by broker.
func (m topicDeletionManager) leftovers(d *topicDeletion) []Leftover {
	if d.topic == nil {
		return nil
	}
	byBroker := map[cluster.BrokerID][]int32{}
	for _, p := range d.topic.partitions {
		for _, r := range p.replicas {
			if r.state != ReplicaDeletionSuccessful {
				byBroker[r.id] = append(byBroker[r.id], p.Partition)
			}
		}
	}
	out := make([]Leftover, 0, len(byBroker))
	for _, id := range slices.Sorted(maps.Keys(byBroker)) {
		out = append(out, Leftover{Broker: id, TopicRef: d.topic.TopicRef, Partitions: byBroker[id], At: m.c.now})
	}
	return out
}
