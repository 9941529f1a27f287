package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DeleteGroups, key 42, versions 0-2 (v2 flexible). Needs DELETE on each group. Empty groups go with their offsets; NON_EMPTY_GROUP for others,
// GROUP_ID_NOT_FOUND for those that do not exist. A group named twice is answered once.
func (h *Handlers) handleDeleteGroups(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DeleteGroupsRequest)
	var asks []group.Request
	seen := map[string]bool{}
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	add := func(id string, code cluster.ErrorCode) {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group, out.ErrorCode = id, int16(code)
		resp.Groups = append(resp.Groups, out)
	}
	for _, id := range req.Groups {
		if seen[id] {
			continue
		}
		seen[id] = true
		if !h.allowed(r, acl.Delete, acl.Group, id) {
			add(id, cluster.GroupAuthorizationFailed)
			continue
		}
		asks = append(asks, group.DeleteGroup{Group: id})
	}
	askGroups(h.d.Groups, asks, func(results []group.ErrorResult) {
		for i, res := range results {
			add(asks[i].GroupID(), res.Err)
		}
		r.Respond(resp, 0)
	})
}
