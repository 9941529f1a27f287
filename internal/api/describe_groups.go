package api

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/wire"
)

// DescribeGroups, key 15, versions 0-6. Members' metadata and assignment only while the group is stable.
//
//	v3  authorized operations
//	v4  instance ids
//	v5  flexible
//	v6  a group that does not exist is GROUP_ID_NOT_FOUND with a message (KIP-1043); before it has the state Dead
func (h *Handlers) handleDescribeGroups(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeGroupsRequest)
	asks := make([]group.Request, len(req.Groups))
	for i, id := range req.Groups {
		asks[i] = group.Describe{Group: id}
	}
	askGroups(h.d.Groups, asks, func(results []group.Description) {
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		for i := range results {
			resp.Groups = append(resp.Groups, describedGroup(req, &results[i]))
		}
		r.Respond(resp, 0)
	})
}

func describedGroup(req *kmsg.DescribeGroupsRequest, d *group.Description) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group, out.ErrorCode, out.AuthorizedOperations = d.Group, int16(d.Err), operationsNotAsked
	if d.Err != cluster.None {
		return out
	}
	out.State, out.ProtocolType, out.Protocol = d.State, d.ProtocolType, d.Protocol
	if req.Version >= 6 && d.State == group.Dead.String() {
		message := fmt.Sprintf("Group %s not found.", d.Group)
		out.ErrorCode, out.ErrorMessage = int16(cluster.GroupIDNotFound), &message
		return out
	}
	if req.IncludeAuthorizedOperations {
		out.AuthorizedOperations = groupOperations
	}
	for _, m := range d.Members {
		member := kmsg.NewDescribeGroupsResponseGroupMember()
		member.MemberID, member.InstanceID, member.ClientID, member.ClientHost = m.MemberID, nullable(m.InstanceID), m.ClientID, m.ClientHost
		member.ProtocolMetadata, member.MemberAssignment = m.Metadata, m.Assignment
		out.Members = append(out.Members, member)
	}
	return out
}
