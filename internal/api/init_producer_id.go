package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/wire"
)

// InitProducerId, key 22, versions 0-5. Gives an idempotent producer its id; the epoch is 0. See producerIDManager.
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
	default:
		h.producerIDs.next(answer)
	}
}
