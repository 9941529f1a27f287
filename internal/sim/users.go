package sim

import (
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// This file is what users and their tools do to topics.

// CreateTopic creates a topic as the CreateTopics handler does; it reports false when the name is taken.
func (w *World) CreateTopic(name string, assignment ...[]cluster.BrokerID) bool {
	if _, marked := w.store.markers[name]; marked || w.store.topics[name] != nil {
		return false
	}
	w.createNode(name, w.newTopicID(), assignment)
	return true
}

// CreateByHand creates a topic's node without looking for a marker.
func (w *World) CreateByHand(name string, assignment ...[]cluster.BrokerID) {
	w.createNode(name, w.newTopicID(), assignment)
}

func (w *World) createNode(name string, id cluster.TopicID, assignment [][]cluster.BrokerID) {
	ps := map[int32]cluster.ReplicaAssignment{}
	for i, replicas := range assignment {
		ps[int32(i)] = cluster.ReplicaAssignment{Replicas: slices.Clone(replicas)}
	}
	w.tracef(nil, "topic %s is created %v", name, assignment)
	w.store.createTopic(name, id, ps)
	w.checks.created(name, w.store.topics[name])
}

// DeleteTopic marks a topic as the DeleteTopics handler does, with the id in the marker or, as Kafka, without.
func (w *World) DeleteTopic(name string, withID bool) bool {
	t := w.store.topics[name]
	if t == nil {
		return false
	}
	w.tracef(nil, "topic %s is marked for deletion", name)
	if _, marked := w.store.markers[name]; marked {
		return true
	}
	id := cluster.TopicID{}
	if withID {
		id = t.id
	}
	w.checks.unwanted(t)
	w.store.createMarker(name, id)
	return true
}

// AddPartition adds one partition to a topic, whether or not it is marked: an admin request can race with a deletion.
func (w *World) AddPartition(name string, replicas []cluster.BrokerID) {
	t := w.store.topics[name]
	w.tracef(nil, "topic %s gets a partition on %v", name, replicas)
	t.partitions[int32(len(t.partitions))] = cluster.ReplicaAssignment{Replicas: replicas}
	t.version++
	w.store.fire(controller.Watched{Kind: controller.WatchTopic, Topic: name})
}

// RemoveByHand removes a topic's nodes outside of the protocol.
func (w *World) RemoveByHand(name string) {
	w.tracef(nil, "topic %s is removed by hand", name)
	w.checks.removedByHand(name, w.store.topics[name])
	w.store.removeTopic(name)
}
