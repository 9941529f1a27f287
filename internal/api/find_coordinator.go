package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Kinds of coordinators in FindCoordinator.
const (
	coordinatorOfGroup       = 0
	coordinatorOfTransaction = 1
	coordinatorOfShare       = 2
)

// FindCoordinator, key 10, versions 0-6. Needs DESCRIBE on the group. Any broker answers: the coordinator of a group is the leader of the group's
// partition of __consumer_offsets, on the listener that the request came in on. The topic is created by the first
// request that needs it, whatever auto.create.topics.enable says; COORDINATOR_NOT_AVAILABLE while it has no leader.
//
//	v0  groups only
//	v1  kinds: 0 group, 1 transaction; error message, "NONE" without an error as in Kafka
//	v3  flexible
//	v4  several keys at once, errors per key
//	v6  kind 2, share groups' state: COORDINATOR_NOT_AVAILABLE, as Kafka 3.9 answers; INVALID_REQUEST before v6
//
// Transactions are not served: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients take as final, see InitProducerId.
// COORDINATOR_NOT_AVAILABLE, as Kafka says while __transaction_state cannot be made, would have them ask again for ever.
func (h *Handlers) handleFindCoordinator(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.FindCoordinatorRequest)
	_, exists := h.d.Cache.Image().Topic(cluster.GroupOffsetsTopic)
	if req.CoordinatorType != coordinatorOfGroup || exists || !h.mayDescribeAny(r, req) {
		h.answerFindCoordinator(r, req)
		return
	}
	h.onWorker(ctx, r, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		h.autoTopics.create(ctx, r, []string{cluster.GroupOffsetsTopic}, func(map[string]cluster.ErrorCode) {
			h.answerFindCoordinator(r, req)
		})
	})
}

// mayDescribeAny reports whether the request asks for a group that the client may DESCRIBE: for others no topic is created.
func (h *Handlers) mayDescribeAny(r *wire.Request, req *kmsg.FindCoordinatorRequest) bool {
	for _, key := range coordinatorKeys(req) {
		if h.allowedQuietly(r, acl.Describe, acl.Group, key) {
			return true
		}
	}
	return false
}

func coordinatorKeys(req *kmsg.FindCoordinatorRequest) []string {
	if req.Version < 4 {
		return []string{req.CoordinatorKey}
	}
	return req.CoordinatorKeys
}

func (h *Handlers) answerFindCoordinator(r *wire.Request, req *kmsg.FindCoordinatorRequest) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	for _, key := range coordinatorKeys(req) {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		node, host, port, code := h.findCoordinator(r, req, key)
		c.Key, c.NodeID, c.Host, c.Port, c.ErrorCode = key, int32(node), host, port, int16(code)
		message := coordinatorMessages[code]
		c.ErrorMessage = &message
		resp.Coordinators = append(resp.Coordinators, c)
	}
	if req.Version < 4 {
		c := resp.Coordinators[0]
		resp.NodeID, resp.Host, resp.Port, resp.ErrorCode, resp.ErrorMessage = c.NodeID, c.Host, c.Port, c.ErrorCode, c.ErrorMessage
		if c.ErrorCode == 0 {
			none := "NONE"
			resp.ErrorMessage = &none
		}
	}
	r.Respond(resp, 0)
}

var coordinatorMessages = map[cluster.ErrorCode]string{
	cluster.CoordinatorNotAvailable:            "The coordinator is not available.",
	cluster.InvalidRequest:                     "This kind of coordinator is not known in this version of the request.",
	cluster.GroupAuthorizationFailed:           groupDenied.Message,
	cluster.TransactionalIDAuthorizationFailed: "Transactions are not served by this broker.",
}

func (h *Handlers) findCoordinator(r *wire.Request, req *kmsg.FindCoordinatorRequest, key string) (node cluster.BrokerID, host string, port int32, code cluster.ErrorCode) {
	switch {
	case req.CoordinatorType == coordinatorOfTransaction:
		return cluster.NoBroker, "", -1, cluster.TransactionalIDAuthorizationFailed
	case req.CoordinatorType == coordinatorOfShare && req.Version >= 6:
		return cluster.NoBroker, "", -1, cluster.CoordinatorNotAvailable
	case req.CoordinatorType != coordinatorOfGroup:
		return cluster.NoBroker, "", -1, cluster.InvalidRequest
	case !h.allowed(r, acl.Describe, acl.Group, key):
		return cluster.NoBroker, "", -1, cluster.GroupAuthorizationFailed
	}
	im := h.d.Cache.Image()
	p, ok := im.Partition(cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic, Partition: h.d.Groups.PartitionFor(key)})
	if ok && p.Leader >= 0 {
		if e, ok := im.Endpoint(p.Leader, r.Conn.Listener()); ok {
			return p.Leader, e.Host, e.Port, cluster.None
		}
	}
	return cluster.NoBroker, "", -1, cluster.CoordinatorNotAvailable
}
