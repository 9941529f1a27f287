package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// SyncGroup, key 14, versions 0-5. Needs READ on the group. The leader brings the assignment, every member gets its part once it is stored.
//
//	v3  static members
//	v4  flexible
//	v5  protocol type and name, which must be given and fit the generation (KIP-559): else INCONSISTENT_GROUP_PROTOCOL
func (h *Handlers) handleSyncGroup(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.SyncGroupRequest)
	answer := func(res group.SyncResult) {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode = int16(res.Err)
		if res.Err == cluster.None {
			resp.ProtocolType, resp.Protocol, resp.MemberAssignment = nullable(res.ProtocolType), nullable(res.ProtocolName), res.Assignment
		}
		r.Respond(resp, 0)
	}
	if !h.allowed(r, acl.Read, acl.Group, req.Group) {
		answer(group.SyncResult{Err: cluster.GroupAuthorizationFailed})
		return
	}
	if req.Version >= 5 && (text(req.ProtocolType) == "" || text(req.Protocol) == "") {
		answer(group.SyncResult{Err: cluster.InconsistentGroupProtocol})
		return
	}
	e := group.Sync{
		Group: req.Group, MemberID: req.MemberID, InstanceID: text(req.InstanceID), Generation: req.Generation,
		ProtocolType: text(req.ProtocolType), ProtocolName: text(req.Protocol),
	}
	for _, a := range req.GroupAssignment {
		e.Assignments = append(e.Assignments, group.Assignment{MemberID: a.MemberID, Data: a.MemberAssignment})
	}
	askGroup(h.d.Groups, e, answer)
}
