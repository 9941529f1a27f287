package api

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// groupType is the type of all groups there are (KIP-848 has others).
const groupType = "classic"

// ListGroups, key 16, versions 0-5. The groups that this broker coordinates; a client asks every broker. All of them for who
// may DESCRIBE the cluster, else those that the client may DESCRIBE.
// COORDINATOR_LOAD_IN_PROGRESS while a partition is being loaded, with the groups of the others.
//
//	v3  flexible
//	v4  states, to filter by and in the answer, compared without case (KIP-518)
//	v5  types likewise: all are "classic"
func (h *Handlers) handleListGroups(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.ListGroupsRequest)
	seesAll := h.allowedQuietly(r, acl.Describe, acl.Cluster, acl.ClusterName)
	h.d.Groups.List(req.StatesFilter, func(res group.ListResult) {
		resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
		resp.ErrorCode = int16(res.Err)
		wanted := len(req.TypesFilter) == 0 || slices.ContainsFunc(req.TypesFilter, func(t string) bool { return strings.EqualFold(t, groupType) })
		for _, g := range res.Groups {
			if !wanted {
				break
			}
			if !seesAll && !h.allowedQuietly(r, acl.Describe, acl.Group, g.Group) {
				continue
			}
			out := kmsg.NewListGroupsResponseGroup()
			out.Group, out.ProtocolType, out.GroupState, out.GroupType = g.Group, g.ProtocolType, g.State, groupType
			resp.Groups = append(resp.Groups, out)
		}
		r.Respond(resp, 0)
	})
}
