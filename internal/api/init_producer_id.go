package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// InitProducerId, key 22, versions 0-5. Gives an idempotent producer its id; the epoch is 0. See producerIDManager. Needs
// IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679).
//
// Transactions are not served: a transactional id is answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client
// library takes as final, where the coordinator's own errors would make it try for ever.
//
//	v3  the producer's present id and epoch, which do not matter without a transactional id: it gets a new id
func (h *Handlers) handleInitProducerID(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.InitProducerIDRequest)
	answer := func(id int64, code cluster.ErrorCode) {
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = int16(code), id, 0
		if code != cluster.None {
			resp.ProducerID, resp.ProducerEpoch = -1, -1
		}
		r.Respond(resp, 0)
	}
	switch {
	case req.TransactionalID != nil:
		answer(-1, cluster.TransactionalIDAuthorizationFailed)
	case (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		answer(-1, cluster.InvalidRequest)
	case !h.mayProduceIdempotently(r):
		answer(-1, cluster.ClusterAuthorizationFailed)
	default:
		h.producerIDs.next(answer)
	}
}

func (h *Handlers) mayProduceIdempotently(r *wire.Request) bool {
	if h.allowedQuietly(r, acl.IdempotentWrite, acl.Cluster, acl.ClusterName) ||
		h.d.Authorizer.AllowsAny(r.Conn.Principal(), r.Conn.RemoteHost(), acl.Write, acl.Topic) {
		return true
	}
	h.denials.note(r, acl.IdempotentWrite, acl.Cluster, acl.ClusterName)
	return false
}
