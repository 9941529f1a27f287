package replica

import (
	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// Timestamps with a meaning of their own in ListOffsets.
const (
	LatestTimestamp        = -1
	EarliestTimestamp      = -2
	MaxTimestamp           = -3
	EarliestLocalTimestamp = -4
	LatestTieredTimestamp  = -5
)

// ListOffsetsPartition asks for the offset of a timestamp, or of one of the special ones.
type ListOffsetsPartition struct {
	TP                 cluster.TopicPartition
	CurrentLeaderEpoch cluster.LeaderEpoch // -1: not checked
	Timestamp          int64
}

// ListOffsetsResult is the answer; -1 throughout when there is no such record.
type ListOffsetsResult struct {
	Err         cluster.ErrorCode
	Timestamp   int64
	Offset      int64
	LeaderEpoch cluster.LeaderEpoch
}

// ListOffsets answers for partitions that this broker leads, one result a partition in order. The replica is -1 for a
// consumer, which sees only what its isolation allows; a broker's id, which sees all; or -2 for a debugger, which may
// also ask a follower. OFFSET_NOT_AVAILABLE, for a leader whose high watermark has not reached its leadership yet, is
// the caller's to change for request versions before 5.
func (m *Manager) ListOffsets(replica cluster.BrokerID, isolation Isolation, parts []ListOffsetsPartition) []ListOffsetsResult {
	out := make([]ListOffsetsResult, len(parts))
	for i := range parts {
		p, code := m.lookup(parts[i].TP)
		if code == cluster.None {
			out[i], code = p.listOffset(replica, isolation, &parts[i])
		}
		if code != cluster.None {
			out[i] = noOffset(code)
		}
	}
	return out
}

func noOffset(code cluster.ErrorCode) ListOffsetsResult {
	return ListOffsetsResult{Err: code, Timestamp: -1, Offset: -1, LeaderEpoch: cluster.NoLeaderEpoch}
}

// listOffset follows Kafka's Partition.fetchOffsetForTimestamp. The lookup by timestamp reads the log outside the lock.
func (p *Partition) listOffset(replica cluster.BrokerID, isolation Isolation, part *ListOffsetsPartition) (ListOffsetsResult, cluster.ErrorCode) {
	p.mu.RLock()
	log, code := p.logForReadLocked(part.CurrentLeaderEpoch, replica != -2, replica == -1)
	if code != cluster.None {
		p.mu.RUnlock()
		return ListOffsetsResult{}, code
	}
	consumer := replica == -1
	bound := log.LogEndOffset()
	switch {
	case consumer && isolation == ReadCommitted:
		bound = log.LastStableOffset()
	case consumer:
		bound = log.HighWatermark()
	}
	// After an election the high watermark may lag behind records that the last leader has acknowledged: an offset
	// taken from it would go back.
	behind := consumer && p.mu.epochStart > log.HighWatermark()
	epoch := p.mu.leaderEpoch
	p.mu.RUnlock()

	if part.Timestamp == LatestTimestamp {
		if behind {
			return ListOffsetsResult{}, cluster.OffsetNotAvailable
		}
		return ListOffsetsResult{Timestamp: -1, Offset: bound, LeaderEpoch: epoch}, cluster.None
	}
	found, ok, err := log.OffsetForTimestamp(part.Timestamp)
	if err != nil {
		return ListOffsetsResult{}, commitlog.Code(err)
	}
	anyOffset := part.Timestamp == EarliestTimestamp || part.Timestamp == EarliestLocalTimestamp
	switch {
	case ok && (anyOffset || found.Offset < bound):
		return ListOffsetsResult{Timestamp: found.Timestamp, Offset: found.Offset, LeaderEpoch: found.LeaderEpoch}, cluster.None
	case behind:
		return ListOffsetsResult{}, cluster.OffsetNotAvailable
	default:
		return noOffset(cluster.None), cluster.None
	}
}
