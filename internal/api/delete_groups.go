package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/group"
	"klamm/internal/wire"
)

// DeleteGroups, key 42, versions 0-2 (v2 flexible). Empty groups go with their offsets; NON_EMPTY_GROUP for others,
// GROUP_ID_NOT_FOUND for those that do not exist. A group named twice is answered once.
func (h *Handlers) handleDeleteGroups(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DeleteGroupsRequest)
	var asks []group.Request
	seen := map[string]bool{}
	for _, id := range req.Groups {
		if !seen[id] {
			seen[id] = true
			asks = append(asks, group.DeleteGroup{Group: id})
		}
	}
	askGroups(h.d.Groups, asks, func(results []group.ErrorResult) {
		resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for i, res := range results {
			out := kmsg.NewDeleteGroupsResponseGroup()
			out.Group, out.ErrorCode = asks[i].GroupID(), int16(res.Err)
			resp.Groups = append(resp.Groups, out)
		}
		r.Respond(resp, 0)
	})
}
