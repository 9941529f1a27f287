package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// OffsetFetch, key 9, versions 1-9. Needs DESCRIBE on the group and on each topic. Version 0 reads from ZooKeeper, see OffsetCommit. A partition without a committed
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
	answers := make([]kmsg.OffsetFetchResponseGroup, len(groups))
	var asks []group.Request
	var fetches []*groupFetch
	for i := range groups {
		g := &groupFetch{at: i, group: &groups[i], topics: map[string]bool{}}
		if !h.allowed(r, acl.Describe, acl.Group, g.group.Group) {
			answers[i] = fetchedGroup(g.group.Group, &group.FetchOffsetsResult{Err: cluster.GroupAuthorizationFailed})
			continue
		}
		asks, fetches = append(asks, h.askedOffsets(r, g, req.RequireStable)), append(fetches, g)
	}
	askGroups(h.d.Groups, asks, func(results []group.FetchOffsetsResult) {
		for i, g := range fetches {
			h.hideOffsets(r, g, &results[i])
			answers[g.at] = fetchedGroup(g.group.Group, &results[i])
		}
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		resp.Groups = answers
		if req.Version < 8 {
			fillOneGroup(resp, req)
		}
		r.Respond(resp, 0)
	})
}

// groupFetch is one group whose offsets are asked for; topics tells of each topic whether the client may DESCRIBE it.
type groupFetch struct {
	at     int // its place in the answer
	group  *kmsg.OffsetFetchRequestGroup
	topics map[string]bool
}

// askedOffsets asks the group for the offsets of the topics that the client may know about.
func (h *Handlers) askedOffsets(r *wire.Request, g *groupFetch, requireStable bool) group.Request {
	e := group.FetchOffsets{Group: g.group.Group, All: g.group.Topics == nil, RequireStable: requireStable}
	for _, t := range g.group.Topics {
		if g.topics[t.Topic] = h.allowed(r, acl.Describe, acl.Topic, t.Topic); !g.topics[t.Topic] {
			continue
		}
		for _, p := range t.Partitions {
			e.Partitions = append(e.Partitions, cluster.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	return e
}

// hideOffsets adds TOPIC_AUTHORIZATION_FAILED for the topics asked for that the client may not DESCRIBE; where all are asked
// for, those are left out in silence.
func (h *Handlers) hideOffsets(r *wire.Request, g *groupFetch, res *group.FetchOffsetsResult) {
	if res.Err != cluster.None {
		return
	}
	if g.group.Topics == nil {
		res.Offsets = slices.DeleteFunc(res.Offsets, func(o group.FetchedOffset) bool {
			may, known := g.topics[o.Topic]
			if !known {
				may = h.allowedQuietly(r, acl.Describe, acl.Topic, o.Topic)
				g.topics[o.Topic] = may
			}
			return !may
		})
		return
	}
	for _, t := range g.group.Topics {
		if g.topics[t.Topic] {
			continue
		}
		for _, p := range t.Partitions {
			res.Offsets = append(res.Offsets, group.FetchedOffset{TopicPartition: cluster.TopicPartition{Topic: t.Topic, Partition: p},
				Offset: -1, LeaderEpoch: -1, Err: cluster.TopicAuthorizationFailed})
		}
	}
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
