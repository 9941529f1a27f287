package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Heartbeat, key 12, versions 0-4 (v3 static members, v4 flexible). Needs READ on the group. REBALANCE_IN_PROGRESS tells the member to rejoin.
func (h *Handlers) handleHeartbeat(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.HeartbeatRequest)
	if !h.allowed(r, acl.Read, acl.Group, req.Group) {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = int16(cluster.GroupAuthorizationFailed)
		r.Respond(resp, 0)
		return
	}
	e := group.Heartbeat{Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID), Generation: req.Generation}
	askGroup(h.d.Groups, e, func(res group.ErrorResult) {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = int16(res.Err)
		r.Respond(resp, 0)
	})
}
