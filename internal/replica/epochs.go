package replica

import (
	"klamm/internal/cluster"
)

// EpochQuery asks where a leader epoch ends in a partition's log.
type EpochQuery struct {
	TP                 cluster.TopicPartition
	CurrentLeaderEpoch cluster.LeaderEpoch // -1: not checked
	LeaderEpoch        cluster.LeaderEpoch
}

// EpochEndOffset is the largest leader epoch not above the asked one, and the offset after its last record; -1 and -1
// when the log knows no such epoch.
type EpochEndOffset struct {
	Err         cluster.ErrorCode
	LeaderEpoch cluster.LeaderEpoch
	EndOffset   int64
}

// OffsetForLeaderEpoch answers for partitions that this broker leads, one result a query in order
// (Kafka: ReplicaManager.lastOffsetForLeaderEpoch).
func (m *Manager) OffsetForLeaderEpoch(queries []EpochQuery) []EpochEndOffset {
	out := make([]EpochEndOffset, len(queries))
	for i, q := range queries {
		out[i] = EpochEndOffset{LeaderEpoch: cluster.NoLeaderEpoch, EndOffset: -1}
		p, code := m.lookup(q.TP)
		if code != cluster.None {
			out[i].Err = code
			continue
		}
		p.mu.RLock()
		log, code := p.logForReadLocked(q.CurrentLeaderEpoch, true, false)
		if out[i].Err = code; code == cluster.None {
			out[i].LeaderEpoch, out[i].EndOffset = log.OffsetForLeaderEpoch(q.LeaderEpoch)
		}
		p.mu.RUnlock()
	}
	return out
}
