package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/group"
	"klamm/internal/wire"
)

// Heartbeat, key 12, versions 0-4 (v3 static members, v4 flexible). REBALANCE_IN_PROGRESS tells the member to rejoin.
func (h *Handlers) handleHeartbeat(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.HeartbeatRequest)
	e := group.Heartbeat{Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID), Generation: req.Generation}
	askGroup(h.d.Groups, e, func(res group.ErrorResult) {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = int16(res.Err)
		r.Respond(resp, 0)
	})
}
