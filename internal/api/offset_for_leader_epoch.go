package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// OffsetForLeaderEpoch, key 23, versions 0-4. From followers (KIP-101) and consumers that check for truncation (KIP-320):
// CLUSTER_ACTION, or DESCRIBE on each topic.
//
//	v1  the epoch that the end offset belongs to
//	v2  current leader epoch
//	v3  replica id: a follower's time is not limited
func (h *Handlers) handleOffsetForLeaderEpoch(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	var queries []replica.EpochQuery
	isBroker := h.allowedQuietly(r, acl.ClusterAction, acl.Cluster, acl.ClusterName)
	r.Exempt = h.fromFollower(r, req.ReplicaID)
	may := make([]bool, len(req.Topics))
	for i, t := range req.Topics {
		if may[i] = isBroker || h.allowed(r, acl.Describe, acl.Topic, t.Topic); !may[i] {
			continue
		}
		for _, p := range t.Partitions {
			queries = append(queries, replica.EpochQuery{
				TP:                 cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition},
				CurrentLeaderEpoch: cluster.LeaderEpoch(p.CurrentLeaderEpoch),
				LeaderEpoch:        cluster.LeaderEpoch(p.LeaderEpoch),
			})
		}
	}
	results := h.d.Replicas.OffsetForLeaderEpoch(queries)
	for i, t := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			res := replica.EpochEndOffset{Err: cluster.TopicAuthorizationFailed, LeaderEpoch: -1, EndOffset: -1}
			if may[i] {
				res = results[0]
				results = results[1:]
			}
			o := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			o.Partition, o.ErrorCode = p.Partition, int16(res.Err)
			o.LeaderEpoch, o.EndOffset = int32(res.LeaderEpoch), res.EndOffset
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	r.Respond(resp, 0)
}
