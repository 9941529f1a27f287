package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// FeatureUpdater is what a Controller may offer besides; then UpdateFeatures is served.
type FeatureUpdater interface {
	UpdateFeatures(ctx context.Context, req *kmsg.UpdateFeaturesRequest, done func(resp *kmsg.UpdateFeaturesResponse, version int32))
}

// handleUpdateFeatures is UpdateFeatures, key 57, versions 0-1 (KIP-584, KIP-778). Needs ALTER on the cluster.
//
// The controller judges each feature alone and writes the valid ones together; which refusals there are stands in its code. The
// answer waits until this broker has seen the change; past the timeout what was accepted is FEATURE_UPDATE_FAILED. A
// broker that is not the controller answers NOT_CONTROLLER. klamm has no features that could be finalized, as Kafka's
// brokers with ZooKeeper have none: what is left is to delete one that somebody else finalized.
//
//	v1  upgrade type instead of a flag, validate only
func (h *Handlers) handleUpdateFeatures(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.UpdateFeaturesRequest)
	if !h.allowedOnCluster(r, acl.Alter) {
		resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
		resp.ErrorCode, resp.ErrorMessage = int16(clusterDenied.Code), clusterDenied.message()
		r.Respond(resp, 0)
		return
	}
	deadline := time.Now().Add(max(0, time.Duration(req.TimeoutMillis)*time.Millisecond))
	h.d.Controller.(FeatureUpdater).UpdateFeatures(ctx, req, func(resp *kmsg.UpdateFeaturesResponse, version int32) {
		if version < 0 {
			r.Respond(resp, 0)
			return
		}
		h.d.Features.Await(version, deadline, func(seen bool) {
			for i := range resp.Results {
				if f := &resp.Results[i]; !seen && f.ErrorCode == 0 {
					f.ErrorCode = int16(cluster.FeatureUpdateFailed)
				}
			}
			r.Respond(resp, 0)
		})
	})
}
