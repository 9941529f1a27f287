package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// controllerContext is what the controller knows during one term (Kafka: ControllerContext). Everything about a topic
// hangs on its topicContext, so that removing the topic removes all of it (W1, W4, W21).
type controllerContext struct {
	epoch     cluster.ControllerEpoch
	zkVersion int32 // data version of /controller_epoch

	// brokers are the registered brokers, also those shutting down, with their endpoints and epochs.
	brokers map[cluster.BrokerID]cluster.Broker
	// shuttingDown are those of brokers that asked for a controlled shutdown.
	shuttingDown map[cluster.BrokerID]bool
	// klamm are the brokers, registered or not, that run klamm as far as is known.
	klamm map[cluster.BrokerID]bool
	// bouncing are brokers whose failure is handled while their new registration is known already.
	bouncing map[cluster.BrokerID]bool

	// isrWriters: a registered broker writes ISRs itself, or one did whose failure is being handled.
	isrWriters bool

	// features are the finalized levels; incompatible are registered brokers that do not support them, which are not in brokers.
	features     map[string]int16
	incompatible map[cluster.BrokerID]cluster.BrokerEpoch

	topics     map[string]*topicContext
	topicNames map[cluster.TopicID]string // of topics with an id
	// deletions are the topics queued for deletion, also markers without a topic.
	deletions map[string]*topicDeletion

	// reassignNode: /admin/reassign_partitions exists, as last read.
	reassignNode bool
	// takingOffice is set until the failover has read everything; no broker has been told anything yet.
	takingOffice bool

	sortedTopics    []*topicContext // cache of topics by name; nil when stale
	sortedBrokerIDs []cluster.BrokerID

	// retries of partitions, see retryPartitions.
	partitionRetryAttempts int
	partitionRetryArmed    bool
	markersLeft            bool // void markers could not be removed, see retryPartitions
	idsMissing             bool // topics could not be given their ids, see retryTopicIDs
	// deletionTimerAt is when TimerDeletionRetry will fire; 0 when it does not run.
	deletionTimerAt Time
}

// topicContext is one incarnation of a topic.
type topicContext struct {
	TopicRef
	czxid   int64 // creation id of the topic node: the identity of the incarnation
	version int32 // data version of the topic node as last seen
	// partitions are in ascending order of partition number.
	partitions []*partitionContext
	// replicas counts the replicas of the topic by state; maintained by setReplicaState alone.
	replicas [replicaStates]int
	deletion *topicDeletion // nil unless queued
	// gone: the node was removed by hand; the context is told to brokers one last time as deleted.
	gone bool
}

// partitionContext is one partition.
type partitionContext struct {
	cluster.TopicPartition
	topic      *topicContext
	assignment cluster.ReplicaAssignment
	state      PartitionState
	// leadership is the state node as last read or written; nil when it was never initialised. The value is immutable.
	leadership *cluster.LeaderAndISR
	// removedFrom are brokers that a reassignment has moved the partition away from and that have not confirmed that they deleted their replica.
	removedFrom []cluster.BrokerID
	// unread: the state node could not be read, so that leadership is nil says nothing.
	unread bool
	// replicas holds one entry per replica that is not NonExistentReplica, in the order of their first transition.
	replicas []replicaContext
	// stateWatched says that the state node is watched (leader_written_isr.go).
	stateWatched bool
}

// replicaContext is one replica.
type replicaContext struct {
	id    cluster.BrokerID
	state ReplicaState
	// offlineDir says that the broker answered KAFKA_STORAGE_ERROR to LeaderAndIsr for it.
	offlineDir bool
	// stray says that the broker holds a log of another incarnation, which it was told to replace.
	stray bool
	since Time // of the state
	// attempts and lastError are those of the replica's deletion.
	attempts  int
	lastError cluster.ErrorCode
	// offlineSince is when the replica's deletion first found it offline; 0 when it did not.
	offlineSince Time
}

// replicaRef names a replica in the context.
type replicaRef struct {
	*partitionContext
	id cluster.BrokerID
}

func newContext(epoch cluster.ControllerEpoch, zkVersion int32) *controllerContext {
	return &controllerContext{
		epoch: epoch, zkVersion: zkVersion, takingOffice: true,
		brokers:      map[cluster.BrokerID]cluster.Broker{},
		shuttingDown: map[cluster.BrokerID]bool{},
		klamm:        map[cluster.BrokerID]bool{},
		bouncing:     map[cluster.BrokerID]bool{},
		topics:       map[string]*topicContext{},
		topicNames:   map[cluster.TopicID]string{},
		deletions:    map[string]*topicDeletion{},
	}
}

// ---- brokers

// brokerIDs returns live and shutting-down brokers in ascending order.
func (x *controllerContext) brokerIDs() []cluster.BrokerID {
	if x.sortedBrokerIDs == nil {
		x.sortedBrokerIDs = slices.Sorted(maps.Keys(x.brokers))
	}
	return x.sortedBrokerIDs
}

func (x *controllerContext) addBroker(b cluster.Broker) {
	x.brokers[b.ID] = b
	x.sortedBrokerIDs = nil
}

func (x *controllerContext) removeBroker(id cluster.BrokerID) {
	delete(x.brokers, id)
	delete(x.shuttingDown, id)
	x.sortedBrokerIDs = nil
}

// isLive reports whether a broker is registered and not shutting down.
func (x *controllerContext) isLive(id cluster.BrokerID) bool {
	_, ok := x.brokers[id]
	return ok && !x.shuttingDown[id]
}

func (x *controllerContext) liveBrokers() []cluster.Broker {
	out := make([]cluster.Broker, 0, len(x.brokers))
	for _, id := range x.brokerIDs() {
		out = append(out, x.brokers[id])
	}
	return out
}

// isReplicaOnline: the broker lives, does not shut down, and the replica is not in a failed log dir.
func (x *controllerContext) isReplicaOnline(p *partitionContext, id cluster.BrokerID) bool {
	return x.isLive(id) && !p.inOfflineDir(id)
}

// isReplicaOnlineOrShuttingDown is the same, counting brokers that shut down.
func (x *controllerContext) isReplicaOnlineOrShuttingDown(p *partitionContext, id cluster.BrokerID) bool {
	_, ok := x.brokers[id]
	return ok && !p.inOfflineDir(id)
}

// ---- topics

func (x *controllerContext) sorted() []*topicContext {
	if x.sortedTopics == nil && len(x.topics) > 0 {
		x.sortedTopics = slices.SortedFunc(maps.Values(x.topics), func(a, b *topicContext) int { return cmp.Compare(a.Name, b.Name) })
	}
	return x.sortedTopics
}

// addTopic puts a topic read from the store into the context, without any state for its partitions.
func (x *controllerContext) addTopic(r TopicRead) *topicContext {
	if old, known := x.topics[r.Name]; known {
		panic(fmt.Sprintf("controller: topic %s added twice (czxid %d, then %d)", r.Name, old.czxid, r.Czxid))
	}
	t := &topicContext{TopicRef: TopicRef{Name: r.Name}, czxid: r.Czxid, version: r.Version}
	x.topics[r.Name] = t
	x.sortedTopics = nil
	x.setTopicID(t, r.ID)
	for _, pa := range r.Partitions {
		t.addPartition(pa)
	}
	return t
}

// setTopicID binds name and id. An id that another topic holds is a copy made by hand: it is not taken.
func (x *controllerContext) setTopicID(t *topicContext, id cluster.TopicID) {
	if _, taken := x.topicNames[id]; taken || id.IsZero() {
		return
	}
	if !t.ID.IsZero() {
		panic(fmt.Sprintf("controller: topic %s has id %s, not %s", t.Name, t.ID, id))
	}
	t.ID = id
	x.topicNames[id] = t.Name
}

// removeTopic forgets a topic and all that hangs on it.
func (x *controllerContext) removeTopic(t *topicContext) {
	delete(x.topics, t.Name)
	if !t.ID.IsZero() {
		delete(x.topicNames, t.ID)
	}
	if t.deletion != nil {
		t.deletion.topic = nil
		t.deletion = nil
	}
	x.sortedTopics = nil
}

// forgetBrokerState drops what is only true of one registration of a broker: failed dirs, strays, what it could not delete.
func (x *controllerContext) forgetBrokerState(ids []cluster.BrokerID) {
	for _, ref := range x.replicasOn(ids) {
		r := ref.replica(ref.id)
		r.offlineDir, r.stray, r.lastError = false, false, cluster.None
	}
}

// replicasOn lists all replicas on the brokers, by partition.
func (x *controllerContext) replicasOn(ids []cluster.BrokerID) []replicaRef {
	var out []replicaRef
	for p := range x.partitions() {
		for _, r := range p.replicas {
			if slices.Contains(ids, r.id) {
				out = append(out, replicaRef{p, r.id})
			}
		}
	}
	return out
}

// partitions walks all partitions in order.
func (x *controllerContext) partitions() func(yield func(*partitionContext) bool) {
	return func(yield func(*partitionContext) bool) {
		for _, t := range x.sorted() {
			for _, p := range t.partitions {
				if !yield(p) {
					return
				}
			}
		}
	}
}

func (x *controllerContext) partition(tp cluster.TopicPartition) *partitionContext {
	if t := x.topics[tp.Topic]; t != nil {
		return t.partition(tp.Partition)
	}
	return nil
}

// partitionOf finds a partition of one incarnation; nil when the topic is unknown or is another incarnation by now.
func (x *controllerContext) partitionOf(t TopicRef, partition int32) *partitionContext {
	topic := x.topics[t.Name]
	if topic == nil || topic.ID != t.ID {
		return nil
	}
	return topic.partition(partition)
}

func (x *controllerContext) isQueued(topic string) bool { return x.deletions[topic] != nil }

// ---- one topic, one partition

func (t *topicContext) partition(n int32) *partitionContext {
	i, ok := slices.BinarySearchFunc(t.partitions, n, func(p *partitionContext, n int32) int { return int(p.Partition) - int(n) })
	if !ok {
		return nil
	}
	return t.partitions[i]
}

func (t *topicContext) addPartition(pa PartitionAssignment) *partitionContext {
	p := &partitionContext{
		TopicPartition: cluster.TopicPartition{Topic: t.Name, Partition: pa.Partition},
		topic:          t, assignment: pa.Assignment,
	}
	i, ok := slices.BinarySearchFunc(t.partitions, pa.Partition, func(p *partitionContext, n int32) int { return int(p.Partition) - int(n) })
	if ok {
		panic(fmt.Sprintf("controller: partition %s added twice", p))
	}
	t.partitions = slices.Insert(t.partitions, i, p)
	return p
}

// assignments is the topic node's content as the context has it.
func (t *topicContext) assignments() []PartitionAssignment {
	out := make([]PartitionAssignment, len(t.partitions))
	for i, p := range t.partitions {
		out[i] = PartitionAssignment{p.Partition, p.assignment}
	}
	return out
}

// allReplicas lists the replicas of the topic, by partition.
func (t *topicContext) allReplicas() []replicaRef {
	var out []replicaRef
	for _, p := range t.partitions {
		for _, r := range p.replicas {
			out = append(out, replicaRef{p, r.id})
		}
	}
	return out
}

// replicaCount is the number of replicas with any state.
func (t *topicContext) replicaCount() int {
	n := 0
	for _, k := range t.replicas {
		n += k
	}
	return n
}

func (p *partitionContext) queued() bool { return p.topic.deletion != nil }

// forgotten reports whether brokers are to forget the partition: its topic is queued for deletion, or gone.
func (p *partitionContext) forgotten() bool { return p.topic.deletion != nil || p.topic.gone }

// replica returns the entry of a replica, nil when it is NonExistentReplica.
func (p *partitionContext) replica(id cluster.BrokerID) *replicaContext {
	for i := range p.replicas {
		if p.replicas[i].id == id {
			return &p.replicas[i]
		}
	}
	return nil
}

func (p *partitionContext) replicaState(id cluster.BrokerID) ReplicaState {
	if r := p.replica(id); r != nil {
		return r.state
	}
	return NonExistentReplica
}

func (p *partitionContext) inOfflineDir(id cluster.BrokerID) bool {
	r := p.replica(id)
	return r != nil && r.offlineDir
}

// setReplicaState is the only place that changes a replica's state and the topic's counts.
func (p *partitionContext) setReplicaState(id cluster.BrokerID, state ReplicaState, now Time) {
	r := p.replica(id)
	if r == nil {
		p.replicas = append(p.replicas, replicaContext{id: id})
		r = &p.replicas[len(p.replicas)-1]
	} else {
		p.topic.replicas[r.state]--
	}
	if state == NonExistentReplica {
		p.replicas = slices.DeleteFunc(p.replicas, func(r replicaContext) bool { return r.id == id })
		return
	}
	r.state, r.since = state, now
	p.topic.replicas[state]++
}

// leaderOnline reports whether the partition has a leader whose replica is online.
func (x *controllerContext) leaderOnline(p *partitionContext) bool {
	return p.leadership != nil && p.leadership.Leader >= 0 && x.isReplicaOnline(p, p.leadership.Leader)
}

func without(ids []cluster.BrokerID, id cluster.BrokerID) []cluster.BrokerID {
	out := make([]cluster.BrokerID, 0, len(ids))
	for _, b := range ids {
		if b != id {
			out = append(out, b)
		}
	}
	return out
}
