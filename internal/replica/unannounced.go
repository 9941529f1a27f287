package replica

import (
	"sync"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
)

// unannounced are the partitions that a controller has given to this broker by LeaderAndIsr and of which no UpdateMetadata has
// spoken yet. The controller sends every broker its own requests in order and waits for no other's: a broker that has none of a new
// topic's replicas hears of the topic while its leaders work on LeaderAndIsr, and sends clients to them. By the metadata alone
// they would be told that there is no such topic (Kafka tells them so). Safe for concurrent use.
type unannounced struct {
	sync.RWMutex
	topics map[string]*unannouncedTopic
	names  map[cluster.TopicID]string // of those in topics that have an id
}

type unannouncedTopic struct {
	id         cluster.TopicID
	partitions map[int32]struct{}
}

func (u *unannounced) add(tp cluster.TopicPartition, id cluster.TopicID) {
	u.Lock()
	defer u.Unlock()
	t := u.topics[tp.Topic]
	if t == nil || t.id != id {
		if t != nil {
			delete(u.names, t.id)
		}
		t = &unannouncedTopic{id, map[int32]struct{}{}}
		u.topics[tp.Topic] = t
		if !id.IsZero() {
			u.names[id] = tp.Topic
		}
	}
	t.partitions[tp.Partition] = struct{}{}
}

// remove forgets partitions: the metadata has the word now, or they are gone.
func (u *unannounced) remove(tps []cluster.TopicPartition) {
	u.Lock()
	defer u.Unlock()
	if len(u.topics) == 0 {
		return
	}
	for _, tp := range tps {
		t := u.topics[tp.Topic]
		if t == nil {
			continue
		}
		if delete(t.partitions, tp.Partition); len(t.partitions) == 0 {
			delete(u.topics, tp.Topic)
			delete(u.names, t.id)
		}
	}
}

func (u *unannounced) has(tp cluster.TopicPartition) bool {
	u.RLock()
	defer u.RUnlock()
	t := u.topics[tp.Topic]
	if t == nil {
		return false
	}
	_, ok := t.partitions[tp.Partition]
	return ok
}

func (u *unannounced) topicName(id cluster.TopicID) (string, bool) {
	u.RLock()
	defer u.RUnlock()
	name, ok := u.names[id]
	return name, ok
}

// Exists reports whether the partition exists, as far as this broker knows: by the image of its metadata, or because the
// controller has given it to this broker.
func (m *Manager) Exists(im *metadata.Image, tp cluster.TopicPartition) bool {
	if _, ok := im.Partition(tp); ok {
		return true
	}
	if m.unannounced.has(tp) {
		return true
	}
	_, ok := m.metadata.Image().Partition(tp) // it may have been announced between the two looks
	return ok
}

// TopicName resolves a topic id as Exists does a partition.
func (m *Manager) TopicName(im *metadata.Image, id cluster.TopicID) (string, bool) {
	if name, ok := im.TopicName(id); ok {
		return name, true
	}
	if name, ok := m.unannounced.topicName(id); ok {
		return name, true
	}
	return m.metadata.Image().TopicName(id)
}
