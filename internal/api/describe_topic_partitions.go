package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DescribeTopicPartitions, key 75, version 0 (KIP-966). Topics sorted by name, at most so many partitions in one answer
// as the request and max.request.partition.size.limit allow, and a cursor to go on from. Kafka serves it with KRaft only; its answer
// from ZooKeeper metadata is the same but that eligible leader replicas are unknown (null).
func (h *Handlers) handleDescribeTopicPartitions(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	im := h.d.Cache.Image()
	names, all, ok := describedTopics(req, im)
	if !ok {
		for _, t := range req.Topics {
			out := kmsg.NewDescribeTopicPartitionsResponseTopic()
			out.ErrorCode, out.Topic = int16(cluster.InvalidRequest), &t.Topic
			resp.Topics = append(resp.Topics, out)
		}
		r.Respond(resp, 0)
		return
	}
	left := max(min(h.d.Config.Broker().MaxRequestPartitionSizeLimit, int(req.ResponsePartitionLimit)), 1)
	for _, name := range names {
		if !h.describes(r, name, all) {
			if !all {
				resp.Topics = append(resp.Topics, deniedDescription(name))
			}
			continue
		}
		if left == 0 {
			resp.NextCursor = cursorAt(name, 0)
			break
		}
		t, exists := im.Topic(name)
		if !exists {
			if !all {
				resp.Topics = append(resp.Topics, h.missingDescription(r, name))
			}
			continue
		}
		from := 0
		if req.Cursor != nil && req.Cursor.Topic == name {
			from = min(int(req.Cursor.Partition), len(t.Partitions))
		}
		to := min(from+left, len(t.Partitions))
		resp.Topics = append(resp.Topics, h.describeTopic(r, im, t, from, to))
		if to < len(t.Partitions) {
			resp.NextCursor = cursorAt(name, t.Partitions[to].Index)
			break
		}
		left -= to - from
	}
	r.Respond(resp, 0)
}

// describedTopics gives the names to describe, sorted, from the cursor on; ok is false for a cursor that does not fit.
func describedTopics(req *kmsg.DescribeTopicPartitionsRequest, im *metadata.Image) (names []string, all, ok bool) {
	if all = len(req.Topics) == 0; all {
		names = slices.Clone(im.TopicNames())
	} else {
		for _, t := range req.Topics {
			names = append(names, t.Topic)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if req.Cursor == nil {
		return names, all, true
	}
	if req.Cursor.Partition < 0 || !all && !slices.Contains(names, req.Cursor.Topic) {
		return nil, all, false
	}
	return slices.DeleteFunc(names, func(n string) bool { return n < req.Cursor.Topic }), all, true
}

func (h *Handlers) describeTopic(r *wire.Request, im *metadata.Image, t *metadata.Topic, from, to int) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.TopicID, out.IsInternal, out.AuthorizedOperations = &t.Name, t.ID, t.Internal, h.operationsOn(r, acl.Topic, t.Name)
	for _, p := range t.Partitions[from:to] {
		o := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		code := leaderError(im, p, r.Conn.Listener(), true)
		o.ErrorCode, o.Partition, o.LeaderID, o.LeaderEpoch = int16(code), p.Index, int32(p.Leader), int32(p.LeaderEpoch)
		if code != cluster.None {
			o.LeaderID = int32(cluster.NoBroker)
		}
		o.Replicas, o.ISR, o.OfflineReplicas = wireIDs(p.Replicas), wireIDs(p.ISR), wireIDs(p.OfflineReplicas)
		// Eligible leader replicas are KRaft's. Java clients cannot take the null that the schema allows.
		o.EligibleLeaderReplicas, o.LastKnownELR = []int32{}, []int32{}
		out.Partitions = append(out.Partitions, o)
	}
	return out
}

// describes decides on one topic; in a list of all a refusal is normal.
func (h *Handlers) describes(r *wire.Request, name string, all bool) bool {
	if all {
		return h.allowedQuietly(r, acl.Describe, acl.Topic, name)
	}
	return h.allowed(r, acl.Describe, acl.Topic, name)
}

func deniedDescription(name string) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.ErrorCode, out.Topic, out.Partitions = int16(cluster.TopicAuthorizationFailed), &name, []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	return out
}

func (h *Handlers) missingDescription(r *wire.Request, name string) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	code := cluster.UnknownTopicOrPartition
	if cluster.ValidateTopicName(name) != nil {
		code = cluster.InvalidTopicException
	}
	out.ErrorCode, out.Topic, out.IsInternal, out.AuthorizedOperations = int16(code), &name, cluster.IsInternalTopic(name), h.operationsOn(r, acl.Topic, name)
	return out
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

func wireIDs(ids []cluster.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
