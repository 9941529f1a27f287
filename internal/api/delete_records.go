package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DeleteRecords, key 21, versions 0-2. Needs DELETE on each topic. Moves the log start offset of partitions led here, to a given offset or (-1) the
// high watermark, and answers when all replicas in sync have done so or the timeout is over.
func (h *Handlers) handleDeleteRecords(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	im := h.d.Cache.Image()
	var ask []replica.DeleteRecordsPartition
	var where []*kmsg.DeleteRecordsResponseTopicPartition
	resp.Topics = make([]kmsg.DeleteRecordsResponseTopic, len(req.Topics))
	for ti, t := range req.Topics {
		out := &resp.Topics[ti]
		out.Topic = t.Topic
		mayDelete := h.allowed(r, acl.Delete, acl.Topic, t.Topic)
		out.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(t.Partitions))
		for pi, p := range t.Partitions {
			o := &out.Partitions[pi]
			o.Partition, o.LowWatermark = p.Partition, -1
			tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if !mayDelete {
				o.ErrorCode = int16(cluster.TopicAuthorizationFailed)
				continue
			}
			if !h.d.Replicas.Exists(im, tp) {
				o.ErrorCode = int16(cluster.UnknownTopicOrPartition)
				continue
			}
			ask = append(ask, replica.DeleteRecordsPartition{TP: tp, Offset: p.Offset})
			where = append(where, o)
		}
	}
	timeout := time.Duration(req.TimeoutMillis) * time.Millisecond
	h.d.Replicas.DeleteRecords(timeout, r.ClientID == adminClientID, ask, func(results []replica.DeleteRecordsResult) {
		for i, res := range results {
			where[i].ErrorCode, where[i].LowWatermark = int16(res.Err), res.LowWatermark
		}
		r.Respond(resp, 0)
	})
}
