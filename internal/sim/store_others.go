package sim

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// This file is what others than the controller write into the store, and how watches tell of it.

func (s *store) register(n *Node) {
	s.zxid++
	s.w.sessions++
	n.session = s.w.sessions
	n.epoch = cluster.BrokerEpoch(s.zxid)
	isKlamm := !slices.Contains(s.w.opts.Kafka, n.id)
	if isKlamm {
		s.klamm[n.id] = true
	}
	s.brokers[n.id] = registration{cluster.Broker{ID: n.id, Epoch: n.epoch, Klamm: isKlamm, WritesISR: n.writesISR, Features: s.w.featuresOf(n.id)}, n.session}
	s.fire(controller.Watched{Kind: controller.WatchBrokers})
	s.fire(controller.Watched{Kind: controller.WatchBroker, Broker: n.id})
}

// expire removes a session's ephemeral nodes.
func (s *store) expire(session int64) {
	for _, id := range slices.Sorted(maps.Keys(s.brokers)) {
		if s.brokers[id].session == session {
			delete(s.brokers, id)
			s.fire(controller.Watched{Kind: controller.WatchBrokers})
			s.fire(controller.Watched{Kind: controller.WatchBroker, Broker: id})
		}
	}
	if s.controllerOwner == session {
		s.removeController()
	}
}

func (s *store) createTopic(name string, id cluster.TopicID, partitions map[int32]cluster.ReplicaAssignment) {
	s.zxid++
	s.configs[name] = nil
	s.topics[name] = &topicNode{czxid: s.zxid, id: id, partitions: partitions, states: map[int32]cluster.LeaderAndISR{}}
	s.fire(controller.Watched{Kind: controller.WatchTopic, Topic: name})
	s.fire(controller.Watched{Kind: controller.WatchTopics})
}

func (s *store) createMarker(name string, id cluster.TopicID) {
	if _, ok := s.markers[name]; ok {
		return
	}
	s.zxid++
	s.markers[name] = controller.Marker{Topic: name, Czxid: s.zxid, ID: id}
	s.fire(controller.Watched{Kind: controller.WatchMarkers})
}

func (s *store) addLogDirEvent(id cluster.BrokerID) {
	s.zxid++
	name := fmt.Sprintf("log_dir_event_%010d", s.zxid)
	s.logDirEvents[name] = controller.LogDirEvent{Name: name, Broker: id, Valid: true}
	s.fire(controller.Watched{Kind: controller.WatchLogDirEvents})
}

// fire puts the event of a watch into the queue of every node that has it, once.
func (s *store) fire(x controller.Watched) {
	for _, n := range s.w.Nodes() {
		if n.up && n.session != 0 && n.watches[x] {
			n.enqueueOnce(watchEvent(x))
		}
	}
}

func watchEvent(x controller.Watched) controller.Event {
	switch x.Kind {
	case controller.WatchController:
		return controller.ControllerChange{}
	case controller.WatchBrokers:
		return controller.BrokerChange{}
	case controller.WatchBroker:
		return controller.BrokerModifications{Broker: x.Broker}
	case controller.WatchTopics:
		return controller.TopicChange{}
	case controller.WatchTopic:
		return controller.PartitionModifications{Topic: x.Topic}
	case controller.WatchMarkers:
		return controller.TopicDeletion{}
	case controller.WatchLogDirEvents:
		return controller.LogDirEventNotification{}
	case controller.WatchISRChanges:
		return controller.ISRChangeNotification{}
	case controller.WatchPartition:
		return controller.ReassignmentISRChange{TopicPartition: cluster.TopicPartition{Topic: x.Topic, Partition: x.Partition}}
	case controller.WatchReassignments:
		return controller.PartitionReassignmentChange{}
	case controller.WatchPreferredElection:
		return controller.PreferredReplicaElection{}
	}
	panic("sim: unknown watch")
}
