package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/wire"
)

// OffsetFetch, key 9, versions 1-9. Version 0 reads from ZooKeeper, see OffsetCommit. A partition without a committed
// offset is -1 without an error, whether it exists or not.
//
//	v1  an error of the group is told in each partition
//	v2  an error of its own for the group; null asks for all partitions
//	v5  leader epochs
//	v6  flexible
//	v7  only stable offsets: UNSTABLE_OFFSET_COMMIT where a transaction is open (KIP-447)
//	v8  several groups, each with its error
//	v9  member id and epoch, of groups of the newer protocol
func (h *Handlers) handleOffsetFetch(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.OffsetFetchRequest)
	groups := req.Groups
	if req.Version < 8 {
		groups = []kmsg.OffsetFetchRequestGroup{oneGroup(req)}
	}
	asks := make([]group.Request, len(groups))
	for i, g := range groups {
		e := group.FetchOffsets{Group: g.Group, All: g.Topics == nil, RequireStable: req.RequireStable}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				e.Partitions = append(e.Partitions, cluster.TopicPartition{Topic: t.Topic, Partition: p})
			}
		}
		asks[i] = e
	}
	askGroups(h.d.Groups, asks, func(results []group.FetchOffsetsResult) {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for i := range results {
			resp.Groups = append(resp.Groups, fetchedGroup(groups[i].Group, &results[i]))
		}
		if req.Version < 8 {
			fillOneGroup(resp, req)
		}
		r.Respond(resp, 0)
	})
}

// oneGroup gives a request of before v8 the form of the later ones.
func oneGroup(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics == nil {
		return g
	}
	g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	for i, t := range req.Topics {
		g.Topics[i].Topic, g.Topics[i].Partitions = t.Topic, t.Partitions
	}
	return g
}

// fetchedGroup groups the offsets by topic, in the order of the topics' first partitions.
func fetchedGroup(id string, res *group.FetchOffsetsResult) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group, out.ErrorCode = id, int16(res.Err)
	at := map[string]int{}
	for _, o := range res.Offsets {
		i, ok := at[o.Topic]
		if !ok {
			i = len(out.Topics)
			at[o.Topic] = i
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic = o.Topic
			out.Topics = append(out.Topics, t)
		}
		p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata, int16(o.Err)
		out.Topics[i].Partitions = append(out.Topics[i].Partitions, p)
	}
	return out
}

// fillOneGroup gives the answer the form of before v8.
func fillOneGroup(resp *kmsg.OffsetFetchResponse, req *kmsg.OffsetFetchRequest) {
	g := resp.Groups[0]
	resp.ErrorCode = g.ErrorCode
	for _, t := range g.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: p.Partition, Offset: p.Offset,
				LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode})
		}
		resp.Topics = append(resp.Topics, out)
	}
	if req.Version >= 2 || g.ErrorCode == 0 {
		return
	}
	for _, t := range req.Topics {
		out := kmsg.NewOffsetFetchResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			metadata := ""
			out.Partitions = append(out.Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: p, Offset: -1, LeaderEpoch: -1,
				Metadata: &metadata, ErrorCode: g.ErrorCode})
		}
		resp.Topics = append(resp.Topics, out)
	}
}
