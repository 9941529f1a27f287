package metadata

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"klamm/internal/cluster"
)

// shardCount parts the topic tables so that an update of one topic copies a small piece of them.
// 128 shards keep a shard of a 10,000-topic cluster near 80 entries, a copy of a few microseconds.
const shardCount = 128

var shardSeed = maphash.MakeSeed()

// Partition is one partition as the controller last announced it. It is never changed after it was published.
type Partition struct {
	Index           int32
	Leader          cluster.BrokerID // cluster.NoBroker for a partition without a leader
	LeaderEpoch     cluster.LeaderEpoch
	ControllerEpoch cluster.ControllerEpoch // epoch of the controller that decided the leadership
	PartitionEpoch  cluster.PartitionEpoch
	ISR             []cluster.BrokerID
	Replicas        []cluster.BrokerID
	OfflineReplicas []cluster.BrokerID // assigned, and their broker or log dir was not online
}

// Topic is one topic of an Image. It is never changed after it was published, so two images share a *Topic exactly when
// nothing about the topic differs between them.
type Topic struct {
	Name       string
	ID         cluster.TopicID // zero when the controller knows none
	Internal   bool
	Partitions []*Partition // sorted by Index, never empty

	round uint64 // of the last update that spoke of the topic, see Image.Unconfirmed
}

// Partition returns the partition of that index.
func (t *Topic) Partition(index int32) (*Partition, bool) {
	// Indexes run from 0 without gaps except while a topic is half announced, so the position is nearly always the index.
	if i := int(index); i >= 0 && i < len(t.Partitions) && t.Partitions[i].Index == index {
		return t.Partitions[i], true
	}
	if i, ok := t.search(index); ok {
		return t.Partitions[i], true
	}
	return nil, false
}

func (t *Topic) search(index int32) (int, bool) {
	return slices.BinarySearchFunc(t.Partitions, index, func(p *Partition, i int32) int { return int(p.Index) - int(i) })
}

// Image is the cluster as this broker knows it at one moment. It is immutable and safe for concurrent use.
//
// Invariants: (1) Names holds exactly the names of the topic table, sorted; (2) every topic has at least one partition;
// (3) the id table holds exactly the non-zero ids of the topics, each pointing back to its topic's name.
type Image struct {
	generation uint64
	controller cluster.BrokerID
	// Rounds begin with a new controller epoch or a new registration of this broker: the controller then announces
	// every topic anew.
	round           uint64
	controllerEpoch cluster.ControllerEpoch
	brokerEpoch     cluster.BrokerEpoch
	brokers         []cluster.Broker // sorted by id; Epoch is NoBrokerEpoch, which UpdateMetadata does not carry
	names           []string
	partitions      int
	topics          [shardCount]map[string]*Topic
	ids             [shardCount]map[cluster.TopicID]string
}

// Generation counts the updates applied so far. Two images of one Cache with the same generation are the same image:
// an answer encoded for one is valid for the other.
func (im *Image) Generation() uint64 { return im.generation }

// Controller is the active controller, or cluster.NoBroker while none is known.
func (im *Image) Controller() cluster.BrokerID { return im.controller }

// Brokers lists the live brokers, sorted by id. The slice must not be changed.
func (im *Image) Brokers() []cluster.Broker { return im.brokers }

// Broker returns a live broker.
func (im *Image) Broker(id cluster.BrokerID) (cluster.Broker, bool) {
	i, ok := slices.BinarySearchFunc(im.brokers, id, func(b cluster.Broker, id cluster.BrokerID) int { return int(b.ID) - int(id) })
	if !ok {
		return cluster.Broker{}, false
	}
	return im.brokers[i], true
}

// HasBroker reports whether the broker is live.
func (im *Image) HasBroker(id cluster.BrokerID) bool {
	_, ok := im.Broker(id)
	return ok
}

// Endpoint returns a live broker's endpoint on a listener; false when the broker is not live or lacks the listener.
func (im *Image) Endpoint(id cluster.BrokerID, listener string) (cluster.Endpoint, bool) {
	b, ok := im.Broker(id)
	if !ok {
		return cluster.Endpoint{}, false
	}
	return b.Endpoint(listener)
}

// BrokersOn lists the live brokers that have the listener, sorted by id.
func (im *Image) BrokersOn(listener string) []cluster.Broker {
	out := make([]cluster.Broker, 0, len(im.brokers))
	for _, b := range im.brokers {
		if _, ok := b.Endpoint(listener); ok {
			out = append(out, b)
		}
	}
	return out
}

// TopicCount is the number of topics.
func (im *Image) TopicCount() int { return len(im.names) }

// PartitionCount is the number of partitions of all topics.
func (im *Image) PartitionCount() int { return im.partitions }

// TopicNames lists all topic names, sorted. The slice must not be changed.
func (im *Image) TopicNames() []string { return im.names }

// Topics walks all topics sorted by name.
func (im *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, name := range im.names {
			if !yield(im.topics[nameShard(name)][name]) {
				return
			}
		}
	}
}

// Topic returns a topic by name.
func (im *Image) Topic(name string) (*Topic, bool) {
	t, ok := im.topics[nameShard(name)][name]
	return t, ok
}

// Unconfirmed lists topics that the controller has not spoken of since it was elected, or since this broker registered,
// whichever came last. It announces all topics at both moments, so a topic that stays in the list was deleted while this
// broker could not be told: Kafka's brokers then answer for it until they are restarted. Whoever can look into the
// coordination store decides, and calls Cache.Forget.
func (im *Image) Unconfirmed() []*Topic {
	var out []*Topic
	for t := range im.Topics() {
		if t.round < im.round {
			out = append(out, t)
		}
	}
	return out
}

// TopicByID returns a topic by id. The zero id names none.
func (im *Image) TopicByID(id cluster.TopicID) (*Topic, bool) {
	name, ok := im.ids[idShard(id)][id]
	if !ok {
		return nil, false
	}
	return im.Topic(name)
}

// TopicName returns the name of the topic with that id.
func (im *Image) TopicName(id cluster.TopicID) (string, bool) {
	name, ok := im.ids[idShard(id)][id]
	return name, ok
}

// TopicID returns a topic's id; the zero id when the topic is unknown or has none.
func (im *Image) TopicID(name string) cluster.TopicID {
	if t, ok := im.Topic(name); ok {
		return t.ID
	}
	return cluster.TopicID{}
}

// Partition returns a partition by name and index.
func (im *Image) Partition(tp cluster.TopicPartition) (*Partition, bool) {
	t, ok := im.Topic(tp.Topic)
	if !ok {
		return nil, false
	}
	return t.Partition(tp.Partition)
}

func nameShard(name string) int { return int(maphash.String(shardSeed, name) % shardCount) }

// idShard takes the last byte of the id, which is random.
func idShard(id cluster.TopicID) int { return int(id[15]) % shardCount }

// mergeNames returns the sorted names with some added and some removed; names stays as it is.
func mergeNames(names, added []string, removed map[string]bool) []string {
	out := make([]string, 0, len(names)+len(added))
	slices.Sort(added)
	for _, n := range names {
		for len(added) > 0 && strings.Compare(added[0], n) < 0 {
			out, added = append(out, added[0]), added[1:]
		}
		if !removed[n] {
			out = append(out, n)
		}
	}
	return append(out, added...)
}
