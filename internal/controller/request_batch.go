package controller

import (
	"slices"

	"klamm/internal/cluster"
)

// requestBatch gathers what one set of transitions has to tell the brokers (Kafka: ControllerBrokerRequestBatch).
// It is a value of one call: when the call fails the batch goes with it, so nothing is ever left in one (W18).
//
// Rules: a LeaderAndIsr for a partition also puts it into the UpdateMetadata for all brokers; later additions replace
// earlier ones, but isNew and delete stay set once they were; every partition added to UpdateMetadata goes to
// every broker added to it. Sending is: all LeaderAndIsr, then UpdateMetadata, then StopReplica, brokers ascending.
// Brokers that are neither live nor shutting down are left out.
type requestBatch struct {
	c    *Core
	lisr map[cluster.BrokerID]map[*partitionContext]lisrEntry
	stop map[cluster.BrokerID]map[*partitionContext]stopEntry

	updateBrokers    map[cluster.BrokerID]bool
	updatePartitions map[*partitionContext]bool
}

type lisrEntry struct {
	state      *cluster.LeaderAndISR
	assignment cluster.ReplicaAssignment
	isNew      bool
}

type stopEntry struct {
	leaderEpoch cluster.LeaderEpoch
	delete      bool
}

func (c *Core) newBatch() *requestBatch {
	return &requestBatch{
		c:                c,
		lisr:             map[cluster.BrokerID]map[*partitionContext]lisrEntry{},
		stop:             map[cluster.BrokerID]map[*partitionContext]stopEntry{},
		updateBrokers:    map[cluster.BrokerID]bool{},
		updatePartitions: map[*partitionContext]bool{},
	}
}

// addLeaderAndISR tells the brokers the partition's current leadership, and its metadata to everybody.
// Partitions queued for deletion get no LeaderAndIsr (W16): it would create logs only to be deleted.
func (b *requestBatch) addLeaderAndISR(p *partitionContext, to []cluster.BrokerID, isNew bool) {
	if p.queued() {
		return
	}
	for _, id := range to {
		if _, known := b.c.ctx.brokers[id]; !known {
			continue
		}
		if b.lisr[id] == nil {
			b.lisr[id] = map[*partitionContext]lisrEntry{}
		}
		b.lisr[id][p] = lisrEntry{p.leadership, p.assignment, isNew || b.lisr[id][p].isNew}
	}
	b.addUpdateMetadata(b.c.ctx.brokerIDs(), p)
}

// addStopReplica tells a broker to stop a replica. The leader epoch is the sentinel that every receiver accepts when
// the topic is queued for deletion (or gone) or the partition has no leadership.
func (b *requestBatch) addStopReplica(p *partitionContext, id cluster.BrokerID, deletion bool) {
	if _, known := b.c.ctx.brokers[id]; !known {
		return
	}
	epoch := cluster.NoLeaderEpoch
	switch {
	case p.forgotten():
		epoch = cluster.LeaderEpochDuringDelete
	case p.leadership != nil:
		epoch = p.leadership.LeaderEpoch
	}
	b.addStopReplicaAt(p, id, epoch, deletion)
}

func (b *requestBatch) addStopReplicaAt(p *partitionContext, id cluster.BrokerID, epoch cluster.LeaderEpoch, deletion bool) {
	if b.stop[id] == nil {
		b.stop[id] = map[*partitionContext]stopEntry{}
	}
	b.stop[id][p] = stopEntry{epoch, deletion || b.stop[id][p].delete}
}

// addUpdateMetadata adds brokers and partitions to the metadata part. Without partitions the live brokers are told.
func (b *requestBatch) addUpdateMetadata(to []cluster.BrokerID, partitions ...*partitionContext) {
	for _, id := range to {
		b.updateBrokers[id] = true
	}
	for _, p := range partitions {
		b.updatePartitions[p] = true
	}
}

// send turns the batch into effects. The batch is spent afterwards.
func (b *requestBatch) send() {
	x := b.c.ctx
	for _, id := range x.brokerIDs() {
		if entries := b.lisr[id]; len(entries) > 0 {
			b.c.emit(b.leaderAndISR(id, entries))
		}
	}
	var update *MetadataUpdate
	for _, id := range x.brokerIDs() {
		if !b.updateBrokers[id] {
			continue
		}
		if update == nil {
			update = b.metadataUpdate()
		}
		b.c.emit(SendUpdateMetadata{b.target(id), update})
	}
	for _, id := range x.brokerIDs() {
		if entries := b.stop[id]; len(entries) > 0 {
			b.c.emit(b.stopReplica(id, entries))
		}
	}
	*b = requestBatch{}
}

func (b *requestBatch) target(id cluster.BrokerID) Target {
	x := b.c.ctx
	return Target{Broker: id, BrokerEpoch: x.brokers[id].Epoch, Controller: b.c.cfg.Broker, ControllerEpoch: x.epoch}
}

func (b *requestBatch) leaderAndISR(id cluster.BrokerID, entries map[*partitionContext]lisrEntry) SendLeaderAndISR {
	e := SendLeaderAndISR{Target: b.target(id)}
	leads := map[cluster.BrokerID]bool{}
	for p := range groupByTopic(entries, &e.Topics, func(ref TopicRef) LeaderAndISRTopic { return LeaderAndISRTopic{TopicRef: ref} }) {
		entry := entries[p]
		t := &e.Topics[len(e.Topics)-1]
		t.Partitions = append(t.Partitions, LeaderAndISRPartition{p.Partition, *entry.state, entry.assignment, entry.isNew})
		leads[entry.state.Leader] = true
	}
	for _, broker := range b.c.ctx.brokerIDs() {
		if leads[broker] {
			e.LiveLeaders = append(e.LiveLeaders, b.c.ctx.brokers[broker])
		}
	}
	return e
}

func (b *requestBatch) stopReplica(id cluster.BrokerID, entries map[*partitionContext]stopEntry) SendStopReplica {
	e := SendStopReplica{Target: b.target(id)}
	for p := range groupByTopic(entries, &e.Topics, func(ref TopicRef) StopReplicaTopic { return StopReplicaTopic{TopicRef: ref} }) {
		t := &e.Topics[len(e.Topics)-1]
		t.Partitions = append(t.Partitions, StopReplicaPartition{p.Partition, entries[p].leaderEpoch, entries[p].delete, entries[p].delete && p.queued()})
	}
	return e
}

func (b *requestBatch) metadataUpdate() *MetadataUpdate {
	u := &MetadataUpdate{LiveBrokers: b.c.ctx.liveBrokers()}
	for p := range groupByTopic(b.updatePartitions, &u.Topics, func(ref TopicRef) UpdateMetadataTopic { return UpdateMetadataTopic{TopicRef: ref} }) {
		t := &u.Topics[len(u.Topics)-1]
		t.Partitions = append(t.Partitions, b.c.ctx.metadataOf(p))
	}
	return u
}

// metadataOf is what UpdateMetadata says of a partition. A partition that never had a leader is told with leader -1,
// so that its topic is visible and can be deleted (W6: Kafka leaves it out).
func (x *controllerContext) metadataOf(p *partitionContext) UpdateMetadataPartition {
	m := UpdateMetadataPartition{Partition: p.Partition, Replicas: p.assignment.Replicas}
	if p.leadership != nil {
		m.State = *p.leadership
	} else {
		m.State = cluster.LeaderAndISR{Leader: cluster.NoBroker, ControllerEpoch: x.epoch}
	}
	if p.forgotten() {
		m.State = cluster.LeaderAndISR{Leader: cluster.LeaderDuringDelete, ISR: m.State.ISR, ControllerEpoch: m.State.ControllerEpoch}
	}
	for _, id := range p.assignment.Replicas {
		if !x.isReplicaOnline(p, id) {
			m.OfflineReplicas = append(m.OfflineReplicas, id)
		}
	}
	return m
}

// groupByTopic walks the partitions of a batch in order and appends a new topic to topics whenever the topic changes,
// before it yields the partition.
func groupByTopic[V, T any](entries map[*partitionContext]V, topics *[]T, open func(TopicRef) T) func(yield func(*partitionContext) bool) {
	ps := make([]*partitionContext, 0, len(entries))
	for p := range entries {
		ps = append(ps, p)
	}
	sortPartitions(ps)
	return func(yield func(*partitionContext) bool) {
		var last *topicContext
		for _, p := range ps {
			if p.topic != last {
				last = p.topic
				*topics = append(*topics, open(p.topic.TopicRef))
			}
			if !yield(p) {
				return
			}
		}
	}
}

// sortPartitions orders by topic, creation of the topic, and partition. Two incarnations of a name can meet in one
// batch, when a topic was deleted and created again behind the controller's back.
func sortPartitions(ps []*partitionContext) {
	slices.SortFunc(ps, func(a, b *partitionContext) int {
		if a.topic != b.topic {
			if c := a.TopicPartition.Compare(b.TopicPartition); a.Topic != b.Topic {
				return c
			}
			return int(min(max(a.topic.czxid-b.topic.czxid, -1), 1))
		}
		return int(a.Partition) - int(b.Partition)
	})
}

// sendUpdateMetadata tells brokers about partitions; without partitions, about the live brokers.
func (c *Core) sendUpdateMetadata(to []cluster.BrokerID, partitions ...*partitionContext) {
	b := c.newBatch()
	b.addUpdateMetadata(to, partitions...)
	b.send()
}
