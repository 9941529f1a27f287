package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// OffsetCommit, key 8, versions 1-9. Needs READ on the group and on each topic. Version 0 stores offsets in ZooKeeper, where there is none; Kafka 4 has dropped it,
// too. Partitions that this broker's metadata does not have are UNKNOWN_TOPIC_OR_PARTITION, each by itself; the others
// go to the group.
//
//	v1     the time of the commit, per partition
//	v2-v4  how long to keep the offsets; -1 for the broker's retention
//	v6     the leader epoch of the record before the offset
//	v7     static members
//	v8     flexible
//	v9     nothing new for classic groups
func (h *Handlers) handleOffsetCommit(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	e := group.Commit{Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID), Generation: req.Generation}
	expires := int64(-1)
	if req.RetentionTimeMillis != -1 {
		expires = time.Now().UnixMilli() + req.RetentionTimeMillis
	}
	var where []*kmsg.OffsetCommitResponseTopicPartition // of e.Offsets
	mayGroup := h.allowed(r, acl.Read, acl.Group, req.Group)
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i, t := range req.Topics {
		out := &resp.Topics[i]
		out.Topic, out.Partitions = t.Topic, make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		mayTopic := mayGroup && h.allowed(r, acl.Read, acl.Topic, t.Topic)
		for j, p := range t.Partitions {
			out.Partitions[j].Partition = p.Partition
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if code := h.committable(tp, mayGroup, mayTopic); code != cluster.None {
				out.Partitions[j].ErrorCode = int16(code)
				continue
			}
			e.Offsets = append(e.Offsets, group.CommitOffset{TopicPartition: tp, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch,
				Metadata: text(p.Metadata), CommitTimestamp: p.Timestamp, ExpireTimestamp: expires})
			where = append(where, &out.Partitions[j])
		}
	}
	if len(e.Offsets) == 0 {
		r.Respond(resp, 0)
		return
	}
	askGroup(h.d.Groups, e, func(res group.CommitResult) {
		for i, code := range res.Errs {
			where[i].ErrorCode = int16(code)
		}
		r.Respond(resp, 0)
	})
}

// committable gives the error of a partition whose offset cannot be committed, or None.
func (h *Handlers) committable(tp cluster.TopicPartition, mayGroup, mayTopic bool) cluster.ErrorCode {
	switch {
	case !mayGroup:
		return cluster.GroupAuthorizationFailed
	case !mayTopic:
		return cluster.TopicAuthorizationFailed
	case !h.partitionExists(tp):
		return cluster.UnknownTopicOrPartition
	}
	return cluster.None
}
