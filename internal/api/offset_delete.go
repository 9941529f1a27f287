package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// OffsetDelete, key 47, version 0 (KIP-496). Needs DELETE on the group and READ on each topic. Committed offsets go, except those of topics that members of the group
// subscribe to: GROUP_SUBSCRIBED_TO_TOPIC. Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION.
func (h *Handlers) handleOffsetDelete(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.OffsetDeleteRequest)
	if !h.allowed(r, acl.Delete, acl.Group, req.Group) {
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = int16(cluster.GroupAuthorizationFailed)
		r.Respond(resp, 0)
		return
	}
	topics := make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	e := group.DeleteOffsets{Group: req.Group}
	var where []*kmsg.OffsetDeleteResponseTopicPartition // of e.Partitions
	for i, t := range req.Topics {
		topics[i].Topic, topics[i].Partitions = t.Topic, make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		mayTopic := h.allowed(r, acl.Read, acl.Topic, t.Topic)
		for j, p := range t.Partitions {
			out := &topics[i].Partitions[j]
			out.Partition = p.Partition
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if code := h.committable(tp, true, mayTopic); code != cluster.None {
				out.ErrorCode = int16(code)
				continue
			}
			e.Partitions = append(e.Partitions, tp)
			where = append(where, out)
		}
	}
	askGroup(h.d.Groups, e, func(res group.DeleteOffsetsResult) {
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		if resp.ErrorCode = int16(res.Err); res.Err == cluster.None {
			for i, code := range res.Errs {
				where[i].ErrorCode = int16(code)
			}
			resp.Topics = topics
		}
		r.Respond(resp, 0)
	})
}
