package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// CreatePartitions, key 37, versions 0-3.
//
// Only the active controller's broker serves it; others answer NOT_CONTROLLER per topic. Needs ALTER on each topic. Order of the checks and texts:
// topicAdmin.addPartitions. It waits, as CreateTopics does, until all partitions of the topics have leaders. Kafka fails
// the whole request when one topic meets an unforeseen error; here such a topic has UNKNOWN_SERVER_ERROR of its own.
//
//	v3  mutation quota is strict
func (h *Handlers) handleCreatePartitions(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.CreatePartitionsRequest)
	items := make([]*partitionAddition, len(req.Topics))
	times := map[string]int{}
	for i, t := range req.Topics {
		items[i] = &partitionAddition{req: t}
		times[t.Topic]++
	}
	mutations := h.mutationQuota(r, 3)
	isActive := h.d.Controller.IsActive()
	for _, p := range items {
		switch {
		case !isActive:
			p.err = answerError{Code: cluster.NotController}
		case times[p.req.Topic] > 1:
			p.err = errorf(cluster.InvalidRequest, "Duplicate topic in request.")
		case !h.allowed(r, acl.Alter, acl.Topic, p.req.Topic):
			p.err = errorf(cluster.TopicAuthorizationFailed, "The topic authorization is failed.")
		case h.d.Controller.IsTopicQueuedForDeletion(p.req.Topic):
			p.err = queuedForDeletion
		}
	}
	if isActive {
		h.admin.addPartitions(ctx, items, req.ValidateOnly, charging(mutations))
	}
	timeout, wait := requestTimeout(req.TimeoutMillis)
	succeeded := 0
	for _, p := range items {
		if !p.err.failed() {
			succeeded++
			if !wait && !req.ValidateOnly {
				p.err = answerError{Code: cluster.RequestTimedOut}
			}
		}
	}
	answer := func() { r.Respond(createPartitionsResponse(req, items), mutations.Throttle(time.Now())) }
	if !wait || req.ValidateOnly || succeeded == 0 {
		answer()
		return
	}
	h.admin.awaitLeaders(additionWaits(items), timeout, answer)
}

// createPartitionsResponse names each topic once, as Kafka does for one that the request has twice.
func createPartitionsResponse(req *kmsg.CreatePartitionsRequest, items []*partitionAddition) *kmsg.CreatePartitionsResponse {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	named := map[string]bool{}
	for _, p := range items {
		if named[p.req.Topic] {
			continue
		}
		named[p.req.Topic] = true
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic, t.ErrorCode, t.ErrorMessage = p.req.Topic, int16(p.err.Code), p.err.message()
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
