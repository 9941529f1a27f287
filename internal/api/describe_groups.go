package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DescribeGroups, key 15, versions 0-5. Needs DESCRIBE on each group. Members' metadata and assignment only while the group is stable. A group that does
// not exist has the state Dead. (v6, of Kafka 4, makes that an error: with it kafka-consumer-groups of Kafka 4 ends with a
// stack trace where it says today that the group does not exist.)
//
//	v3  authorized operations
//	v4  instance ids
//	v5  flexible
func (h *Handlers) handleDescribeGroups(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeGroupsRequest)
	out := make([]kmsg.DescribeGroupsResponseGroup, len(req.Groups))
	var asks []group.Request
	var at []int // the place in out of each ask
	for i, id := range req.Groups {
		if !h.allowed(r, acl.Describe, acl.Group, id) {
			out[i] = h.describedGroup(r, req, &group.Description{Group: id, Err: cluster.GroupAuthorizationFailed})
			continue
		}
		asks, at = append(asks, group.Describe{Group: id}), append(at, i)
	}
	askGroups(h.d.Groups, asks, func(results []group.Description) {
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for i := range results {
			out[at[i]] = h.describedGroup(r, req, &results[i])
		}
		resp.Groups = out
		r.Respond(resp, 0)
	})
}

func (h *Handlers) describedGroup(r *wire.Request, req *kmsg.DescribeGroupsRequest, d *group.Description) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group, out.ErrorCode, out.AuthorizedOperations = d.Group, int16(d.Err), operationsNotAsked
	if d.Err != cluster.None {
		return out
	}
	out.State, out.ProtocolType, out.Protocol = d.State, d.ProtocolType, d.Protocol
	if req.IncludeAuthorizedOperations {
		out.AuthorizedOperations = h.operationsOn(r, acl.Group, d.Group)
	}
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID, member.ClientID, member.ClientHost = m.MemberID, nullable(m.InstanceID), m.ClientID, m.ClientHost
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		out.Members = append(out.Members, member)
	}
	return out
}
