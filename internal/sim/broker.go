package sim

import (
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// broker is the side of a node that obeys controllers: partitions in memory, logs on disk, the metadata cache. It follows the
// rules of Kafka's ReplicaManager for LeaderAndIsr, UpdateMetadata and StopReplica.
type broker struct {
	epoch cluster.BrokerEpoch // of its registration

	// Memory, lost with the process.
	controllerEpoch cluster.ControllerEpoch
	conn            connection // the latest of that controller
	hosted          map[cluster.TopicPartition]*hosted
	cache           map[cluster.TopicPartition]controller.UpdateMetadataPartition
	cacheIDs        map[string]cluster.TopicID
	live            map[cluster.BrokerID]bool

	// Disk.
	logs    map[cluster.TopicPartition]diskLog
	badDirs [2]bool
}

type diskLog struct {
	id  cluster.TopicID
	dir int
}

// hosted is a partition in memory.
type hosted struct {
	id       cluster.TopicID
	state    cluster.LeaderAndISR
	replicas []cluster.BrokerID
	proposed *proposal // of its leader; nil: none
}

func (b *broker) forgetMemory() {
	b.controllerEpoch, b.conn = 0, 0
	b.hosted = map[cluster.TopicPartition]*hosted{}
	b.cache = map[cluster.TopicPartition]controller.UpdateMetadataPartition{}
	b.cacheIDs = map[string]cluster.TopicID{}
	b.live = map[cluster.BrokerID]bool{}
}

// connection numbers connections from controllers to brokers in the order in which they are made.
type connection int64

// superseded reports whether a request comes on a connection that its controller has given up. Kafka's brokers do not look at that.
func (n *Node) superseded(t controller.Target, on connection) bool {
	return !n.isKafka() && t.ControllerEpoch == n.controllerEpoch && on < n.conn
}

// gate is the check common to the three requests.
func (b *broker) gate(t controller.Target, on connection) cluster.ErrorCode {
	if t.BrokerEpoch != cluster.NoBrokerEpoch && t.BrokerEpoch < b.epoch {
		return cluster.StaleBrokerEpoch
	}
	if t.ControllerEpoch < b.controllerEpoch {
		return cluster.StaleControllerEpoch
	}
	b.controllerEpoch, b.conn = t.ControllerEpoch, on
	return cluster.None
}

// handle answers a request of a controller; nil when it came on a connection that the controller has given up.
func (n *Node) handle(req controller.Effect, on connection) controller.Event {
	if n.superseded(targetOf(req), on) {
		return nil
	}
	switch req := req.(type) {
	case controller.SendLeaderAndISR:
		r := controller.LeaderAndISRReply{Request: req, Err: n.gate(req.Target, on)}
		if r.Err == cluster.None {
			for _, t := range req.Topics {
				for _, p := range t.Partitions {
					tp := cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}
					r.Partitions = append(r.Partitions, controller.PartitionError{TopicPartition: tp, Err: n.leaderAndISR(tp, t.ID, p)})
				}
			}
		}
		return r
	case controller.SendUpdateMetadata:
		r := controller.UpdateMetadataReply{Request: req, Err: n.gate(req.Target, on)}
		if r.Err == cluster.None {
			n.updateMetadata(req.Update)
		}
		return r
	case controller.SendStopReplica:
		r := controller.StopReplicaReply{Request: req, Err: n.gate(req.Target, on)}
		if r.Err == cluster.None {
			for _, t := range req.Topics {
				for _, p := range t.Partitions {
					tp := cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}
					r.Partitions = append(r.Partitions, controller.PartitionError{TopicPartition: tp, Err: n.stopReplica(tp, p)})
				}
			}
		}
		return r
	}
	panic("sim: not a request")
}

func targetOf(req controller.Effect) controller.Target {
	switch req := req.(type) {
	case controller.SendLeaderAndISR:
		return req.Target
	case controller.SendUpdateMetadata:
		return req.Target
	case controller.SendStopReplica:
		return req.Target
	}
	panic("sim: not a request")
}

func (n *Node) leaderAndISR(tp cluster.TopicPartition, id cluster.TopicID, p controller.LeaderAndISRPartition) cluster.ErrorCode {
	log, onDisk := n.logs[tp]
	if onDisk && n.badDirs[log.dir] {
		return cluster.KafkaStorageError
	}
	h := n.hosted[tp]
	if h == nil {
		h = &hosted{state: cluster.LeaderAndISR{Leader: cluster.NoBroker, LeaderEpoch: -1, PartitionEpoch: -1}}
	}
	localID := h.id
	if onDisk {
		localID = log.id
	}
	switch {
	case !id.IsZero() && !localID.IsZero() && localID != id:
		return cluster.InconsistentTopicID
	case p.State.LeaderEpoch == h.state.LeaderEpoch && !id.IsZero() && localID.IsZero() && onDisk:
		// The controller has given the topic an id, without a new leader epoch.
		n.logs[tp], h.id = diskLog{id, log.dir}, id
		return cluster.None
	case p.State.LeaderEpoch <= h.state.LeaderEpoch:
		return cluster.StaleControllerEpoch
	case !slices.Contains(p.Assignment.Replicas, n.id):
		return cluster.UnknownTopicOrPartition
	}
	n.hosted[tp] = h
	if !onDisk && !n.createLog(tp, id, p.IsNew) {
		return cluster.KafkaStorageError
	}
	if onDisk && log.id.IsZero() {
		n.logs[tp] = diskLog{id, log.dir}
	}
	h.id = id
	if p.State.PartitionEpoch < h.state.PartitionEpoch {
		return cluster.None
	}
	if p.State.Leader == n.id || n.live[p.State.Leader] {
		h.state, h.replicas, h.proposed = p.State.Clone(), p.Assignment.Replicas, nil
	}
	return cluster.None
}

func (n *Node) createLog(tp cluster.TopicPartition, id cluster.TopicID, isNew bool) bool {
	if !isNew && (n.badDirs[0] || n.badDirs[1]) {
		return false
	}
	for dir, bad := range n.badDirs {
		if !bad {
			if n.badDirs == [2]bool{} {
				dir = len(n.logs) % 2
			}
			n.w.checks.logCreated(n, tp, id)
			n.logs[tp] = diskLog{id, dir}
			return true
		}
	}
	return false
}

func (n *Node) updateMetadata(u *controller.MetadataUpdate) {
	clear(n.live)
	for _, b := range u.LiveBrokers {
		n.live[b.ID] = true
	}
	for _, t := range u.Topics {
		if !t.ID.IsZero() {
			n.cacheIDs[t.Name] = t.ID
		}
		for _, p := range t.Partitions {
			tp := cluster.TopicPartition{Topic: t.Name, Partition: p.Partition}
			if p.State.Leader == cluster.LeaderDuringDelete {
				delete(n.cache, tp)
			} else {
				n.cache[tp] = p
			}
		}
		if !n.caches(t.Name) {
			delete(n.cacheIDs, t.Name)
		}
	}
}

func (b *broker) caches(topic string) bool {
	for tp := range b.cache {
		if tp.Topic == topic {
			return true
		}
	}
	return false
}

func (n *Node) stopReplica(tp cluster.TopicPartition, p controller.StopReplicaPartition) cluster.ErrorCode {
	log, onDisk := n.logs[tp]
	if onDisk && n.badDirs[log.dir] {
		return cluster.KafkaStorageError
	}
	h := n.hosted[tp]
	if h != nil && p.LeaderEpoch >= 0 && p.LeaderEpoch < h.state.LeaderEpoch {
		return cluster.FencedLeaderEpoch
	}
	if !p.Delete {
		return cluster.None
	}
	if !onDisk && (n.badDirs[0] || n.badDirs[1]) {
		return cluster.KafkaStorageError // W13: the log may lie in the failed dir
	}
	if n.w.chance(n.w.faults.deleteFails) {
		return cluster.KafkaStorageError
	}
	delete(n.hosted, tp)
	if onDisk {
		n.w.checks.logDeleted(n, tp, log.id)
		delete(n.logs, tp)
	}
	return cluster.None
}

// failDir breaks one of the broker's two log dirs.
func (n *Node) failDir(dir int) {
	if !n.badDirs[dir] && !n.badDirs[1-dir] {
		n.badDirs[dir] = true
		for tp, log := range n.logs {
			if log.dir == dir {
				delete(n.hosted, tp)
			}
		}
		n.w.store.addLogDirEvent(n.id)
	}
}
