package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/group"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// JoinGroup, key 11, versions 0-9. Needs READ on the group. Waits for the group's next generation; the leader gets all members' metadata.
//
//	v0  no rebalance timeout: the session timeout stands for it
//	v4  a first join without an id gets MEMBER_ID_REQUIRED with the id to use (KIP-394)
//	v5  static members (KIP-345)
//	v6  flexible
//	v7  the protocol type in the answer; null instead of "" for no protocol
//	v8  a reason, for the log
//	v9  a returning static leader is told to skip the assignment (KIP-814)
func (h *Handlers) handleJoinGroup(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.JoinGroupRequest)
	if !h.allowed(r, acl.Read, acl.Group, req.Group) {
		r.Respond(joinAnswer(req, &group.JoinResult{Err: cluster.GroupAuthorizationFailed, Generation: -1, MemberID: req.MemberID}), 0)
		return
	}
	instance := text(req.InstanceID)
	e := group.Join{
		Group: req.Group, MemberID: req.MemberID, InstanceID: instance, ClientID: r.ClientID, ClientHost: "/" + r.Conn.RemoteHost(),
		NewMemberID: newMemberID(r.ClientID, instance), SessionTimeoutMs: int64(req.SessionTimeoutMillis),
		RebalanceTimeoutMs: int64(req.RebalanceTimeoutMillis), ProtocolType: req.ProtocolType,
		Reason: reason(req.Reason), RequireKnownMember: req.Version >= 4 && instance == "", SupportsSkippingAssignment: req.Version >= 9,
	}
	if req.Version == 0 {
		e.RebalanceTimeoutMs = e.SessionTimeoutMs
	}
	for _, p := range req.Protocols {
		e.Protocols = append(e.Protocols, group.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	askGroup(h.d.Groups, e, func(res group.JoinResult) { r.Respond(joinAnswer(req, &res), 0) })
}

func joinAnswer(req *kmsg.JoinGroupRequest, res *group.JoinResult) *kmsg.JoinGroupResponse {
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	resp.ErrorCode, resp.Generation, resp.MemberID = int16(res.Err), res.Generation, res.MemberID
	if res.Err != cluster.None {
		return resp
	}
	resp.ProtocolType, resp.Protocol = nullable(res.ProtocolType), nullable(res.ProtocolName)
	resp.LeaderID, resp.SkipAssignment = res.Leader, res.SkipAssignment
	for _, m := range res.Members {
		out := kmsg.NewJoinGroupResponseMember()
		out.MemberID, out.InstanceID, out.ProtocolMetadata = m.MemberID, nullable(m.InstanceID), m.Metadata
		resp.Members = append(resp.Members, out)
	}
	return resp
}
