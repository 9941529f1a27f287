package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// LeaveGroup, key 13, versions 0-5. Needs READ on the group.
//
//	v0-v2  one member, whose error is the answer's
//	v3     several members, also by instance id alone, each with its error (KIP-345)
//	v4     flexible
//	v5     a reason, for the log
func (h *Handlers) handleLeaveGroup(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.LeaveGroupRequest)
	if !h.allowed(r, acl.Read, acl.Group, req.Group) {
		resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = int16(cluster.GroupAuthorizationFailed)
		r.Respond(resp, 0)
		return
	}
	e := group.Leave{Group: req.Group}
	if req.Version < 3 {
		e.Members = []group.MemberIdentity{{MemberID: req.MemberID}}
	}
	for _, m := range req.Members {
		e.Members = append(e.Members, group.MemberIdentity{MemberID: m.MemberID, InstanceID: text(m.InstanceID), Reason: reason(m.Reason)})
	}
	askGroup(h.d.Groups, e, func(res group.LeaveResult) {
		resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = int16(res.Err)
		switch {
		case res.Err != cluster.None:
		case req.Version < 3:
			resp.ErrorCode = int16(res.Members[0])
		default:
			for i, m := range req.Members {
				out := kmsg.NewLeaveGroupResponseMember()
				out.MemberID, out.InstanceID, out.ErrorCode = m.MemberID, m.InstanceID, int16(res.Members[i])
				resp.Members = append(resp.Members, out)
			}
		}
		r.Respond(resp, 0)
	})
}
