package replica

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// stop is one partition of a StopReplica request.
type stop struct {
	tp     cluster.TopicPartition
	epoch  cluster.LeaderEpoch
	delete bool
	p      *Partition // nil when not hosted
}

// HandleStopReplica applies a StopReplica request, version 0 to 4 (Kafka: ReplicaManager.stopReplicas). Logs are deleted
// in one call. The caller has checked the ClusterAction permission. It returns nil for a request whose connection is to be closed
// without an answer, see admitLocked.
func (m *Manager) HandleStopReplica(req *kmsg.StopReplicaRequest, on ControlConn) *kmsg.StopReplicaResponse {
	resp := kmsg.NewPtrStopReplicaResponse()
	resp.Version = req.Version
	stops := stopsOf(req)
	codes := make([]cluster.ErrorCode, len(stops))
	m.control.Lock()
	verdict, code := m.admitLocked(controlOrigin{"StopReplica", cluster.BrokerEpoch(req.BrokerEpoch), cluster.BrokerID(req.ControllerID),
		cluster.ControllerEpoch(req.ControllerEpoch), on})
	if verdict != admitted {
		m.control.Unlock()
		if verdict == superseded {
			return nil
		}
		resp.ErrorCode = int16(code)
		return resp
	}
	accepted := m.stopLocked(stops, codes)
	m.control.Unlock()
	for i, s := range stops {
		if accepted[i] {
			m.wakeAll(s.tp)
		}
		p := kmsg.NewStopReplicaResponsePartition()
		p.Topic, p.Partition, p.ErrorCode = s.tp.Topic, s.tp.Partition, int16(codes[i])
		resp.Partitions = append(resp.Partitions, p)
	}
	m.log.Info("stop replica request applied", "broker", req.ControllerID, "controller_epoch", req.ControllerEpoch, "partitions", len(stops))
	return resp
}

// stopsOf lists the request's partitions. Versions before 3 have one delete flag and no leader epochs, which counts as
// an unknown epoch.
func stopsOf(req *kmsg.StopReplicaRequest) []stop {
	var out []stop
	for i := range req.Topics {
		t := &req.Topics[i]
		switch {
		case req.Version == 0:
			out = append(out, stop{tp: cluster.TopicPartition{Topic: t.Topic, Partition: t.Partition}, epoch: cluster.NoLeaderEpoch, delete: req.DeletePartitions})
		case req.Version < 3:
			for _, p := range t.Partitions {
				out = append(out, stop{tp: cluster.TopicPartition{Topic: t.Topic, Partition: p}, epoch: cluster.NoLeaderEpoch, delete: req.DeletePartitions})
			}
		default:
			for _, p := range t.PartitionStates {
				out = append(out, stop{
					tp: cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}, epoch: cluster.LeaderEpoch(p.LeaderEpoch), delete: p.Delete,
				})
			}
		}
	}
	return out
}

// decideStop applies the table of control-plane behaviour 7.5 to one partition.
func (m *Manager) decideStop(s *stop) cluster.ErrorCode {
	p, state := m.Partition(s.tp)
	switch state {
	case HostedOffline:
		return cluster.KafkaStorageError
	case HostedOnline:
		s.p = p
		_, local := p.leadership()
		if s.epoch != cluster.LeaderEpochDuringDelete && s.epoch != cluster.NoLeaderEpoch && s.epoch < local {
			return cluster.FencedLeaderEpoch
		}
		return cluster.None
	default:
		// The topic may have been deleted while this broker was away: whatever log there is goes. Kafka answers NONE even
		// when a log dir is offline and the replica may lie in it; then the deletion would end with data left behind.
		if _, known := m.logs.Get(s.tp); s.delete && !known && m.logs.HasOfflineDir() {
			return cluster.KafkaStorageError
		}
		return cluster.None
	}
}

// stopLocked stops the partitions that pass, fills in the codes and tells which ones were accepted. A partition that is
// stopped without deletion stays leader or follower in memory: only its fetcher ends.
func (m *Manager) stopLocked(stops []stop, codes []cluster.ErrorCode) []bool {
	accepted := make([]bool, len(stops))
	var all, doomed []cluster.TopicPartition
	for i := range stops {
		s := &stops[i]
		if codes[i] = m.decideStop(s); codes[i] != cluster.None {
			continue
		}
		accepted[i] = true
		delete(m.control.orphans, s.tp)
		all = append(all, s.tp)
		if s.delete {
			doomed = append(doomed, s.tp)
		}
	}
	m.fetchers.remove(all)
	m.moves.remove(all)
	m.forget(doomed)
	m.unannounced.remove(doomed)
	for i := range stops {
		if s := &stops[i]; accepted[i] && s.delete && s.p != nil {
			s.p.close()
			m.topics.leave(s.tp.Topic)
		}
	}
	// Appends have ended with close; waiting requests are answered from the map, which no longer has the partitions.
	var failed map[cluster.TopicPartition]error
	if len(doomed) > 0 {
		failed = m.logs.Delete(doomed)
	}
	var resigned []PartitionEpoch
	for i, s := range stops {
		if err := failed[s.tp]; err != nil && accepted[i] && s.delete {
			codes[i] = commitlog.Code(err)
			m.log.Error("replica not deleted", "topic", s.tp.Topic, "partition", s.tp.Partition, "err", err)
			continue
		}
		if accepted[i] && s.delete && cluster.IsInternalTopic(s.tp.Topic) {
			resigned = append(resigned, PartitionEpoch{s.tp, max(s.epoch, cluster.NoLeaderEpoch)})
		}
	}
	if len(resigned) > 0 && m.hooks.LeadershipChanged != nil {
		m.hooks.LeadershipChanged(nil, resigned)
	}
	return accepted
}

// forget drops partitions from the map.
func (m *Manager) forget(tps []cluster.TopicPartition) {
	m.hosted.Lock()
	defer m.hosted.Unlock()
	for _, tp := range tps {
		delete(m.hosted.partitions, tp)
	}
}
