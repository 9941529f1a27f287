package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Timestamps with a meaning of their own.
const (
	latestTimestamp         = -1
	earliestTimestamp       = -2
	maxTimestamp            = -3
	earliestLocalTimestamp  = -4
	latestTieredTimestamp   = -5
	earliestPendingUploadTS = -6
)

// ListOffsets, key 2, versions 0-11. Needs DESCRIBE on each topic.
//
//	v0   answers a list: for -1 the end and, if more than one is asked for, the start of the log; for -2 the start; for a
//	     time the offset as in v1. Kafka's v0 lists segment bases, which no client needs.
//	v1   one offset with its timestamp; a partition listed twice is INVALID_REQUEST
//	v2   isolation level
//	v4   leader epochs
//	v5   OFFSET_NOT_AVAILABLE, told as LEADER_NOT_AVAILABLE before
//	v7   -3, the offset of the largest timestamp
//	v8   -4, the earliest local offset
//	v9   -5, the latest offset in tiered storage
//	v10  a timeout for reads from tiered storage, not used
//	v11  -6, the earliest offset not yet uploaded: none, as there is no tiered storage
//
// A negative timestamp that the version does not know is UNSUPPORTED_VERSION for that partition.
func (h *Handlers) handleListOffsets(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.ListOffsetsRequest)
	r.Exempt = h.fromFollower(r, req.ReplicaID)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	var ask []replica.ListOffsetsPartition
	var where []*kmsg.ListOffsetsResponseTopicPartition
	var counts []int32 // v0: how many offsets are asked for
	times := timesListed(req)
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for ti, t := range req.Topics {
		out := &resp.Topics[ti]
		out.Topic = t.Topic
		mayDescribe := h.allowed(r, acl.Describe, acl.Topic, t.Topic)
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(t.Partitions))
		for pi, p := range t.Partitions {
			out.Partitions[pi] = kmsg.NewListOffsetsResponseTopicPartition()
			out.Partitions[pi].Partition = p.Partition
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			switch {
			case !mayDescribe:
				setListOffsetsError(&out.Partitions[pi], cluster.TopicAuthorizationFailed)
			case req.Version > 0 && times[tp] > 1:
				setListOffsetsError(&out.Partitions[pi], cluster.InvalidRequest)
			case !timestampSupported(p.Timestamp, req.Version):
				setListOffsetsError(&out.Partitions[pi], cluster.UnsupportedVersion)
			default:
				ts := p.Timestamp
				if ts == earliestPendingUploadTS {
					ts = latestTieredTimestamp // the same answer while nothing is tiered
				}
				ask = append(ask, replica.ListOffsetsPartition{TP: tp, CurrentLeaderEpoch: cluster.LeaderEpoch(p.CurrentLeaderEpoch), Timestamp: ts})
				where = append(where, &out.Partitions[pi])
				counts = append(counts, p.MaxNumOffsets)
			}
		}
	}
	replicaID, isolation := cluster.BrokerID(req.ReplicaID), replica.Isolation(req.IsolationLevel)
	results := h.d.Replicas.ListOffsets(replicaID, isolation, ask)
	for i, res := range results {
		fillListOffsets(where[i], &res, req.Version)
		if req.Version == 0 && res.Err == cluster.None {
			where[i].OldStyleOffsets = h.oldStyleOffsets(replicaID, ask[i], res.Offset, counts[i])
		}
	}
	r.Respond(resp, 0)
}

func timesListed(req *kmsg.ListOffsetsRequest) map[cluster.TopicPartition]int {
	out := map[cluster.TopicPartition]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			out[cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	return out
}

// timestampSupported holds the version from which each negative timestamp is known (Kafka: ReplicaManager.isListOffsetsTimestampUnsupported).
func timestampSupported(timestamp int64, version int16) bool {
	switch timestamp {
	case latestTimestamp, earliestTimestamp:
		return true
	case maxTimestamp:
		return version >= 7
	case earliestLocalTimestamp:
		return version >= 8
	case latestTieredTimestamp:
		return version >= 9
	case earliestPendingUploadTS:
		return version >= 11
	default:
		return timestamp >= 0
	}
}

func setListOffsetsError(p *kmsg.ListOffsetsResponseTopicPartition, code cluster.ErrorCode) {
	p.ErrorCode = int16(code)
	p.Timestamp, p.Offset, p.LeaderEpoch = -1, -1, -1
}

func fillListOffsets(p *kmsg.ListOffsetsResponseTopicPartition, res *replica.ListOffsetsResult, version int16) {
	code := res.Err
	if code == cluster.OffsetNotAvailable && version < 5 {
		code = cluster.LeaderNotAvailable
	}
	if code != cluster.None {
		setListOffsetsError(p, code)
		return
	}
	p.Timestamp, p.Offset, p.LeaderEpoch = res.Timestamp, res.Offset, int32(res.LeaderEpoch)
}

// oldStyleOffsets gives v0's list, newest first.
func (h *Handlers) oldStyleOffsets(replicaID cluster.BrokerID, asked replica.ListOffsetsPartition, offset int64, count int32) []int64 {
	if count <= 0 || offset < 0 {
		return []int64{}
	}
	out := []int64{offset}
	if count > 1 && asked.Timestamp == latestTimestamp {
		asked.Timestamp = earliestTimestamp
		first := h.d.Replicas.ListOffsets(replicaID, replica.ReadUncommitted, []replica.ListOffsetsPartition{asked})[0]
		if first.Err == cluster.None && first.Offset < offset {
			out = append(out, first.Offset)
		}
	}
	return out
}
