package metadata

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// update builds the image after one UpdateMetadata request. It is used by one goroutine and thrown away.
type update struct {
	prev, next  *Image
	topicsOwned [shardCount]bool // shards of next that are copies and may be changed
	idsOwned    [shardCount]bool
	added       []string
	removed     map[string]bool
	changes     Changes
}

func newUpdate(prev *Image) *update {
	next := *prev
	next.generation++
	return &update{prev: prev, next: &next, removed: map[string]bool{}}
}

// topicStates gives a request's partitions grouped by topic; versions 0 to 4 list them flat.
func topicStates(req *kmsg.UpdateMetadataRequest) []kmsg.UpdateMetadataRequestTopicState {
	if req.Version >= 5 {
		return req.TopicStates
	}
	var out []kmsg.UpdateMetadataRequestTopicState
	at := map[string]int{}
	for _, p := range req.PartitionStates {
		i, ok := at[p.Topic]
		if !ok {
			i = len(out)
			at[p.Topic] = i
			out = append(out, kmsg.UpdateMetadataRequestTopicState{Topic: p.Topic})
		}
		out[i].PartitionStates = append(out[i].PartitionStates, p)
	}
	return out
}

// setRound begins a new round if the request is the first of its controller epoch or of this broker's registration.
func (u *update) setRound(req *kmsg.UpdateMetadataRequest) {
	controllerEpoch, brokerEpoch := cluster.ControllerEpoch(req.ControllerEpoch), cluster.BrokerEpoch(req.BrokerEpoch)
	if controllerEpoch > u.next.controllerEpoch || brokerEpoch > u.next.brokerEpoch {
		u.next.round++
	}
	u.next.controllerEpoch = max(u.next.controllerEpoch, controllerEpoch)
	u.next.brokerEpoch = max(u.next.brokerEpoch, brokerEpoch)
}

func (u *update) setBrokers(req *kmsg.UpdateMetadataRequest) {
	u.next.controller = cluster.BrokerID(req.ControllerID)
	if req.ControllerID < 0 {
		u.next.controller = cluster.NoBroker
	}
	brokers := make([]cluster.Broker, 0, len(req.LiveBrokers))
	for _, lb := range req.LiveBrokers {
		brokers = append(brokers, liveBroker(req.Version, lb))
	}
	slices.SortFunc(brokers, func(a, b cluster.Broker) int { return cmp.Compare(a.ID, b.ID) })
	u.next.brokers = brokers
}

// liveBroker reads one broker entry. Before version 3 a listener is named after its protocol; version 0 has just one
// address, which is PLAINTEXT (Kafka: UpdateMetadataRequest.liveBrokers).
func liveBroker(version int16, lb kmsg.UpdateMetadataRequestLiveBroker) cluster.Broker {
	b := cluster.Broker{ID: cluster.BrokerID(lb.ID), Epoch: cluster.NoBrokerEpoch}
	if lb.Rack != nil {
		b.Rack = *lb.Rack
	}
	if version == 0 {
		b.Endpoints = []cluster.Endpoint{{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: lb.Host, Port: lb.Port}}
		return b
	}
	b.Endpoints = make([]cluster.Endpoint, 0, len(lb.Endpoints))
	for _, e := range lb.Endpoints {
		protocol := securityProtocolName(e.SecurityProtocol)
		listener := e.ListenerName
		if version < 3 {
			listener = protocol
		}
		b.Endpoints = append(b.Endpoints, cluster.Endpoint{Listener: listener, SecurityProtocol: protocol, Host: e.Host, Port: e.Port})
	}
	return b
}

// securityProtocolName spells the wire's protocol number (Kafka: SecurityProtocol).
func securityProtocolName(id int16) string {
	switch id {
	case 1:
		return "SSL"
	case 2:
		return "SASL_PLAINTEXT"
	case 3:
		return "SASL_SSL"
	default:
		return "PLAINTEXT"
	}
}

// applyTopic merges one topic's entries into the next image.
func (u *update) applyTopic(s kmsg.UpdateMetadataRequestTopicState) {
	u.changes.Topics = append(u.changes.Topics, s.Topic)
	shard := nameShard(s.Topic)
	old := u.next.topics[shard][s.Topic]
	var had []*Partition
	if old != nil {
		had = old.Partitions
	}
	partitions := u.mergePartitions(s, had)
	u.next.partitions += len(partitions) - len(had)
	if len(partitions) == 0 {
		u.removeTopic(old)
		return
	}
	name := s.Topic
	if old == nil {
		u.addName(name)
	} else {
		name = old.Name // one string for all incarnations of the entry, not one per request
	}
	u.setID(name, old, s.TopicID)
	u.ownTopics(shard)[name] = &Topic{Name: name, ID: s.TopicID, Internal: cluster.IsInternalTopic(name), Partitions: partitions, round: u.next.round}
}

// addName and removeTopic undo each other when one request names a topic twice.
func (u *update) addName(name string) {
	if u.removed[name] {
		delete(u.removed, name)
		return
	}
	u.added = append(u.added, name)
}

func (u *update) removeTopic(old *Topic) {
	if old == nil {
		return
	}
	delete(u.ownTopics(nameShard(old.Name)), old.Name)
	u.setID(old.Name, old, cluster.TopicID{})
	if i := slices.Index(u.added, old.Name); i >= 0 {
		u.added = slices.Delete(u.added, i, i+1)
		return
	}
	u.removed[old.Name] = true
}

// setID moves the id table's entry of a topic from its old id to the new one; either may be zero.
func (u *update) setID(name string, old *Topic, id cluster.TopicID) {
	if old != nil && old.ID == id {
		return
	}
	if old != nil && !old.ID.IsZero() && u.next.ids[idShard(old.ID)][old.ID] == name {
		delete(u.ownIDs(idShard(old.ID)), old.ID)
	}
	if !id.IsZero() {
		u.ownIDs(idShard(id))[id] = name
	}
}

// mergePartitions returns the topic's partitions after the request; the slice given stays as it is.
func (u *update) mergePartitions(s kmsg.UpdateMetadataRequestTopicState, had []*Partition) []*Partition {
	slab := make([]Partition, len(s.PartitionStates))
	out := make([]*Partition, len(had), max(len(had), len(slab)))
	copy(out, had)
	byIndex := func(p *Partition, i int32) int { return cmp.Compare(p.Index, i) }
	var fresh []*Partition
	ids := newIDArena(s.PartitionStates)
	for i := range s.PartitionStates {
		e := &s.PartitionStates[i]
		tp := cluster.TopicPartition{Topic: s.Topic, Partition: e.Partition}
		if cluster.BrokerID(e.Leader) == cluster.LeaderDuringDelete {
			u.changes.Removed = append(u.changes.Removed, tp)
			same := func(p *Partition) bool { return p.Index == e.Partition }
			fresh = slices.DeleteFunc(fresh, same)
			if at, ok := slices.BinarySearchFunc(out, e.Partition, byIndex); ok {
				out = slices.Delete(out, at, at+1)
			}
			continue
		}
		u.changes.Partitions = append(u.changes.Partitions, tp)
		slab[i] = partition(e, ids)
		if at, ok := slices.BinarySearchFunc(out, e.Partition, byIndex); ok {
			out[at] = &slab[i]
		} else {
			fresh = append(fresh, &slab[i])
		}
	}
	if len(fresh) == 0 {
		return out
	}
	// Stable, so that of two entries for one new partition the later one is kept.
	out = append(out, fresh...)
	slices.SortStableFunc(out, func(a, b *Partition) int { return cmp.Compare(a.Index, b.Index) })
	return keepLast(out)
}

// keepLast drops all but the last of equal indexes.
func keepLast(ps []*Partition) []*Partition {
	out := ps[:0]
	for i, p := range ps {
		if i+1 < len(ps) && ps[i+1].Index == p.Index {
			continue
		}
		out = append(out, p)
	}
	return out
}

func partition(e *kmsg.UpdateMetadataRequestTopicPartition, ids *idArena) Partition {
	return Partition{
		Index:           e.Partition,
		Leader:          cluster.BrokerID(e.Leader),
		LeaderEpoch:     cluster.LeaderEpoch(e.LeaderEpoch),
		ControllerEpoch: cluster.ControllerEpoch(e.ControllerEpoch),
		PartitionEpoch:  cluster.PartitionEpoch(e.ZKVersion),
		ISR:             ids.take(e.ISR),
		Replicas:        ids.take(e.Replicas),
		OfflineReplicas: ids.take(e.OfflineReplicas),
	}
}

// idArena holds the broker id lists of one topic's entries in one allocation.
type idArena struct{ free []cluster.BrokerID }

func newIDArena(ps []kmsg.UpdateMetadataRequestTopicPartition) *idArena {
	n := 0
	for i := range ps {
		n += len(ps[i].ISR) + len(ps[i].Replicas) + len(ps[i].OfflineReplicas)
	}
	return &idArena{make([]cluster.BrokerID, n)}
}

func (a *idArena) take(ids []int32) []cluster.BrokerID {
	out := a.free[:len(ids):len(ids)]
	a.free = a.free[len(ids):]
	for i, id := range ids {
		out[i] = cluster.BrokerID(id)
	}
	return out
}

func (u *update) ownTopics(shard int) map[string]*Topic {
	if !u.topicsOwned[shard] {
		u.topicsOwned[shard] = true
		u.next.topics[shard] = cloneOrNew(u.next.topics[shard])
	}
	return u.next.topics[shard]
}

func (u *update) ownIDs(shard int) map[cluster.TopicID]string {
	if !u.idsOwned[shard] {
		u.idsOwned[shard] = true
		u.next.ids[shard] = cloneOrNew(u.next.ids[shard])
	}
	return u.next.ids[shard]
}

func cloneOrNew[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

func (u *update) finish() *Image {
	if len(u.added) > 0 || len(u.removed) > 0 {
		u.next.names = mergeNames(u.prev.names, u.added, u.removed)
	}
	return u.next
}
