package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Reassigner is what a Controller may offer besides; then reassignments are served.
type Reassigner interface {
	AlterPartitionReassignments(ctx context.Context, req *kmsg.AlterPartitionAssignmentsRequest, done func(*kmsg.AlterPartitionAssignmentsResponse))
	ListPartitionReassignments(ctx context.Context, req *kmsg.ListPartitionReassignmentsRequest, done func(*kmsg.ListPartitionReassignmentsResponse))
}

// handleAlterPartitionReassignments is AlterPartitionReassignments, key 45, version 0 (KIP-455). Needs ALTER on the cluster. The timeout is ignored, as
// in Kafka: the answer says that the reassignments have begun. On a broker that is not the controller the answer is
// NOT_CONTROLLER as a whole.
func (h *Handlers) handleAlterPartitionReassignments(ctx context.Context, r *wire.Request) {
	if !h.allowedOnCluster(r, acl.Alter) {
		resp := r.Msg.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		resp.ErrorCode, resp.ErrorMessage = int16(clusterDenied.Code), clusterDenied.message()
		r.Respond(resp, 0)
		return
	}
	h.d.Controller.(Reassigner).AlterPartitionReassignments(ctx, r.Msg.(*kmsg.AlterPartitionAssignmentsRequest),
		func(resp *kmsg.AlterPartitionAssignmentsResponse) { r.Respond(resp, 0) })
}

// handleListPartitionReassignments is ListPartitionReassignments, key 46, version 0. Needs DESCRIBE on the cluster. No list of topics means all; what is
// unknown, or not being reassigned, is left out.
func (h *Handlers) handleListPartitionReassignments(ctx context.Context, r *wire.Request) {
	if !h.allowedOnCluster(r, acl.Describe) {
		resp := r.Msg.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		resp.ErrorCode, resp.ErrorMessage = int16(clusterDenied.Code), clusterDenied.message()
		r.Respond(resp, 0)
		return
	}
	h.d.Controller.(Reassigner).ListPartitionReassignments(ctx, r.Msg.(*kmsg.ListPartitionReassignmentsRequest),
		func(resp *kmsg.ListPartitionReassignmentsResponse) { r.Respond(resp, 0) })
}
