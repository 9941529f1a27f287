package api

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/quota"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// CreateTopics, key 19, versions 0-7.
//
// Only the active controller's broker serves it; others answer NOT_CONTROLLER per topic. Needs CREATE on the cluster or on
// each topic. Order of the checks and texts:
// topicAdmin.create. The answer comes when every partition of the new topics has a leader in this broker's metadata, so
// that a client finds a topic it can use, and a name whose deletion is just ending is waited for; after the timeout the unfinished ones have REQUEST_TIMED_OUT and are created
// all the same. A timeout of 0 or less answers at once, with REQUEST_TIMED_OUT for successes, as Kafka does.
//
//	v1  validate only, error messages
//	v4  -1 for partitions and replication factor (the server takes it in any version)
//	v5  partitions, replication factor and configs in the answer, for who may DESCRIBE_CONFIGS
//	v6  mutation quota is strict
//	v7  topic id
func (h *Handlers) handleCreateTopics(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.CreateTopicsRequest)
	if !h.d.Controller.IsActive() {
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, createTopicError(t.Topic, answerError{Code: cluster.NotController}))
		}
		r.Respond(resp, 0)
		return
	}
	items := make([]*topicCreation, len(req.Topics))
	times := map[string]int{}
	for i, t := range req.Topics {
		items[i] = &topicCreation{req: t}
		times[t.Topic]++
	}
	mayCreate := h.allowedQuietly(r, acl.Create, acl.Cluster, acl.ClusterName)
	for _, c := range items {
		c.hideConfigs = !h.allowedQuietly(r, acl.DescribeConfigs, acl.Topic, c.req.Topic)
		switch {
		case c.req.Topic == clusterMetadataTopic:
			c.err = errorf(cluster.InvalidRequest, "Creation of internal topic %s is prohibited.", clusterMetadataTopic)
		case times[c.req.Topic] > 1:
			c.err = errorf(cluster.InvalidRequest, "Found multiple entries for this topic.")
		case !mayCreate && !h.allowed(r, acl.Create, acl.Topic, c.req.Topic):
			c.err = errorf(cluster.TopicAuthorizationFailed, "Authorization failed.")
		}
	}
	h.createAndAnswer(ctx, r, items, h.mutationQuota(r, 6), time.Now())
}

// A creation waits, within its own timeout, for a deletion of the same name to end; Kafka refuses until then, and clients that
// delete and create again have to guess how long. A deletion that nothing blocks ends within milliseconds after
// DeleteTopics was answered, or once the session of a broker that has died unnoticed is over. One that is blocked is refused after deletionGrace.
const (
	deletionGrace    = 2 * time.Second
	deletionPoll     = 5 * time.Millisecond // pause between two looks at a marker
	deletionSlowPoll = 100 * time.Millisecond
)

// deletionsGoOn reports whether a deletion that the creations wait for will end by itself, or has ended since they were refused.
func (h *Handlers) deletionsGoOn(ctx context.Context, items []*topicCreation) bool {
	return slices.ContainsFunc(items, func(c *topicCreation) bool {
		return c.marked && !h.d.Controller.DeletionBlocked(ctx, c.req.Topic)
	})
}

// createAndAnswer creates the items that are not decided yet. Those whose name is marked for deletion are tried again
// while that may help; then everything is answered.
func (h *Handlers) createAndAnswer(ctx context.Context, r *wire.Request, items []*topicCreation, mutations *quota.Mutation, began time.Time) {
	req := r.Msg.(*kmsg.CreateTopicsRequest)
	timeout, wait := requestTimeout(req.TimeoutMillis)
	open := slices.DeleteFunc(slices.Clone(items), func(c *topicCreation) bool { return c.decided })
	h.admin.create(ctx, open, req.ValidateOnly, charging(mutations))
	waited, pause := time.Since(began), deletionPoll
	again := ctx.Err() == nil && wait && !req.ValidateOnly && waited < timeout
	if again && waited >= deletionGrace {
		again, pause = h.deletionsGoOn(ctx, open), deletionSlowPoll
	}
	for _, c := range open {
		if c.decided = !again || !c.marked; !c.decided {
			c.err, c.marked = answerError{}, false
		}
	}
	if again && slices.ContainsFunc(open, func(c *topicCreation) bool { return !c.decided }) {
		retry := func(ctx context.Context, r *wire.Request) { h.createAndAnswer(ctx, r, items, mutations, began) }
		h.deferral.after(pause, r, bounded(retry, r))
		return
	}
	succeeded := 0
	for _, c := range items {
		if !c.err.failed() {
			succeeded++
			if !wait && !req.ValidateOnly {
				c.err = answerError{Code: cluster.RequestTimedOut}
			}
		}
	}
	answer := func() { r.Respond(h.createTopicsResponse(req, items), mutations.Throttle(time.Now())) }
	if !wait || req.ValidateOnly || succeeded == 0 {
		answer()
		return
	}
	h.admin.awaitLeaders(leaderWaits(items), timeout-time.Since(began), answer)
}

func (h *Handlers) createTopicsResponse(req *kmsg.CreateTopicsRequest, items []*topicCreation) *kmsg.CreateTopicsResponse {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	resp.Topics = make([]kmsg.CreateTopicsResponseTopic, 0, len(items))
	for _, c := range items {
		if c.err.failed() {
			t := createTopicError(c.req.Topic, c.err)
			t.ConfigErrorCode = c.configErrorCode()
			t.TopicID = c.id // Kafka: kept beside the error when the topic was written and only the wait timed out
			resp.Topics = append(resp.Topics, t)
			continue
		}
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic, t.TopicID = c.req.Topic, c.id
		t.NumPartitions, t.ReplicationFactor = int32(len(c.assignment)), c.replicationFactor()
		if c.hideConfigs {
			t.NumPartitions, t.ReplicationFactor, t.ConfigErrorCode = -1, -1, c.configErrorCode()
			t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
		} else if req.Version >= 5 {
			t.Configs = createdConfigs(h.d.Config.DescribeTopicWith(c.configs, nil))
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func createTopicError(topic string, e answerError) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.ErrorCode, t.ErrorMessage = topic, int16(e.Code), e.message()
	t.NumPartitions, t.ReplicationFactor = -1, -1
	t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	return t
}

func createdConfigs(entries []config.Entry) []kmsg.CreateTopicsResponseTopicConfig {
	out := make([]kmsg.CreateTopicsResponseTopicConfig, 0, len(entries))
	for _, e := range entries {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.Value, e.ReadOnly, int8(e.Source), e.Sensitive
		out = append(out, c)
	}
	return out
}
