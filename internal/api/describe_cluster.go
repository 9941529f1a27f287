package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/wire"
)

// DescribeCluster, key 60, versions 0-2. Brokers with their addresses on the request's listener, the controller, the
// cluster id; authorized operations if asked for.
//
//	v1  the endpoint type must be brokers
//	v2  fenced brokers, of which there are none under a ZooKeeper-mode controller
func (h *Handlers) handleDescribeCluster(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	const brokers, controllers = 1, 2
	switch {
	case req.Version == 0 || req.EndpointType == brokers:
	case req.EndpointType == controllers:
		e := errorf(cluster.MismatchedEndpointType, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
		resp.ErrorCode, resp.ErrorMessage = int16(e.Code), e.message()
	default:
		e := errorf(cluster.UnsupportedEndpointType, "Unsupported endpoint type %d", req.EndpointType)
		resp.ErrorCode, resp.ErrorMessage = int16(e.Code), e.message()
	}
	if resp.ErrorCode != 0 {
		resp.ControllerID, resp.ClusterAuthorizedOperations = int32(cluster.NoBroker), operationsNotAsked
		r.Respond(resp, 0)
		return
	}
	im := h.d.Cache.Image()
	resp.EndpointType = brokers
	resp.ClusterID, resp.ControllerID = h.d.ClusterID, int32(im.Controller())
	for _, b := range im.BrokersOn(r.Conn.Listener()) {
		e, _ := b.Endpoint(r.Conn.Listener())
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{NodeID: int32(b.ID), Host: e.Host, Port: e.Port, Rack: rackOf(b)})
	}
	resp.ClusterAuthorizedOperations = operationsNotAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = h.clusterOperationsFor(r)
	}
	r.Respond(resp, 0)
}
