package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DeleteTopics, key 20, versions 0-6.
//
// Only the active controller's broker serves it; others answer NOT_CONTROLLER per topic. The answer comes when the
// topics have left this broker's metadata, which is before their data is gone; after the timeout the others have
// REQUEST_TIMED_OUT and their deletion goes on. Deletions that the controller refuses, because delete.topic.enable was
// switched off since the request was accepted, are answered as it would be now. A timeout of 0 or less answers at once, with REQUEST_TIMED_OUT for
// successes. Deleting what another request deletes is a success. Messages (v5+) stay null, as Kafka's handler leaves them.
//
// Needs DELETE on each topic, whether it exists or not, and DESCRIBE for its name to be told to who gave its id.
//
// An id is resolved in the controller's context and compared with the topic in the store, so a request by id never hits
// a topic that was created again under the name. Kafka reduces it to the name.
//
//	v3  TOPIC_DELETION_DISABLED instead of INVALID_REQUEST while delete.topic.enable=false
//	v5  mutation quota is strict
//	v6  by name or id; both given is INVALID_REQUEST for the whole request
func (h *Handlers) handleDeleteTopics(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DeleteTopicsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	asked := deleteTopicsAsked(req)
	if code := h.deleteTopicsRefusal(req, asked); code != cluster.None {
		for _, t := range asked {
			resp.Topics = append(resp.Topics, deleteTopicResult(t.Topic, t.TopicID, code))
		}
		r.Respond(resp, 0)
		return
	}
	// Two entries for one topic share one deletion and so its outcome.
	byName := map[string]*topicDeletion{}
	var items []*topicDeletion
	of := make([]*topicDeletion, len(asked))
	for i, t := range asked {
		d := h.deletionOf(r, t)
		if d.err.failed() {
			of[i] = d
			continue
		}
		if first := byName[d.name]; first != nil && (first.id == d.id || d.id.IsZero()) {
			of[i] = first
			continue
		}
		byName[d.name] = d
		items = append(items, d)
		of[i] = d
	}
	mutations := h.mutationQuota(r, 5)
	refused := listenForRefusals(h.d.Controller, h.d.Cache)
	h.admin.delete(ctx, items, charging(mutations))

	timeout, wait := requestTimeout(req.TimeoutMillis)
	succeeded := 0
	for _, d := range items {
		if !d.err.failed() {
			h.hintAtRules(d.name)
			succeeded++
			if !wait {
				d.err = answerError{Code: cluster.RequestTimedOut}
			}
		}
	}
	answer := func() {
		refused.stop()
		for i, t := range asked {
			name := t.Topic
			if of[i].name != "" && of[i].err.Code != cluster.UnknownTopicID {
				name = &of[i].name
			}
			resp.Topics = append(resp.Topics, deleteTopicResult(name, t.TopicID, of[i].err.Code))
		}
		r.Respond(resp, mutations.Throttle(time.Now()))
	}
	if !wait || succeeded == 0 {
		answer()
		return
	}
	h.admin.awaitGone(items, timeout, refused, answerError{Code: deletionDisabled(req.Version)}, answer)
}

// hintAtRules tells that rules outlive the topic they name, and would count for the next topic of that name (KAFKA-2700).
func (h *Handlers) hintAtRules(topic string) {
	if h.d.Authorizer == nil {
		return
	}
	if n := h.d.Authorizer.PatternsNaming(acl.Topic, topic); n > 0 {
		h.d.Log.Info("access rules of a deleted topic stay: they hold for the next topic of that name; kafka-acls removes them", "topic", topic, "rules", n)
	}
}

// deleteTopicsAsked gives the topics of a request of any version in v6's form.
func deleteTopicsAsked(req *kmsg.DeleteTopicsRequest) []kmsg.DeleteTopicsRequestTopic {
	if req.Version >= 6 {
		return req.Topics
	}
	out := make([]kmsg.DeleteTopicsRequestTopic, len(req.TopicNames))
	for i := range req.TopicNames {
		out[i].Topic = &req.TopicNames[i]
	}
	return out
}

// deleteTopicsRefusal is the code that answers every entry without looking at it, or None.
func (h *Handlers) deleteTopicsRefusal(req *kmsg.DeleteTopicsRequest, asked []kmsg.DeleteTopicsRequestTopic) cluster.ErrorCode {
	switch {
	case !h.d.Controller.IsActive():
		return cluster.NotController
	case !h.d.Config.Broker().DeleteTopicEnable:
		return deletionDisabled(req.Version)
	}
	for _, t := range asked {
		if t.Topic != nil && t.TopicID != [16]byte{} {
			return cluster.InvalidRequest
		}
	}
	return cluster.None
}

// deletionDisabled is the code of each version for delete.topic.enable=false.
func deletionDisabled(version int16) cluster.ErrorCode {
	if version < 3 {
		return cluster.InvalidRequest
	}
	return cluster.TopicDeletionDisabled
}

func (h *Handlers) deletionOf(r *wire.Request, t kmsg.DeleteTopicsRequestTopic) *topicDeletion {
	d := h.resolveDeletion(t)
	byID := !d.id.IsZero()
	switch {
	case d.err.failed():
	case byID && !h.allowed(r, acl.Describe, acl.Topic, d.name):
		// An id is no secret, but the name that belongs to it is one (KIP-516).
		d.name, d.err = "", answerError{Code: cluster.TopicAuthorizationFailed}
	case !h.allowed(r, acl.Delete, acl.Topic, d.name):
		d.err = answerError{Code: cluster.TopicAuthorizationFailed}
	}
	return d
}

func (h *Handlers) resolveDeletion(t kmsg.DeleteTopicsRequestTopic) *topicDeletion {
	id := cluster.TopicID(t.TopicID)
	switch {
	case id.IsZero() && t.Topic == nil:
		return &topicDeletion{err: answerError{Code: cluster.UnknownTopicOrPartition}}
	case id.IsZero():
		return &topicDeletion{name: *t.Topic}
	}
	name, ok := h.d.Controller.TopicName(id)
	if !ok {
		return &topicDeletion{err: answerError{Code: cluster.UnknownTopicID}}
	}
	return &topicDeletion{name: name, id: id}
}

func deleteTopicResult(name *string, id [16]byte, code cluster.ErrorCode) kmsg.DeleteTopicsResponseTopic {
	t := kmsg.NewDeleteTopicsResponseTopic()
	t.Topic, t.TopicID, t.ErrorCode = name, id, int16(code)
	return t
}
