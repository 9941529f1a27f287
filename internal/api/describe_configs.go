package api

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DescribeConfigs, key 32, versions 0-4. Needs DESCRIBE_CONFIGS on the topic or the cluster. Topics are read from the store, not from what this broker applied: the settings
// of a topic are there on every broker as soon as its creation was answered. Brokers describe themselves (by id) and the
// cluster-wide defaults that are set (empty name), as applied.
//
//	v1  sources and, if asked for, synonyms
//	v3  types and, if asked for, documentation
func (h *Handlers) handleDescribeConfigs(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	var names []string
	for _, res := range req.Resources {
		if res.ResourceType == kmsg.ConfigResourceTypeTopic {
			names = append(names, res.ResourceName)
		}
	}
	found, err := readTopics(ctx, h.d.Store, names)
	if err != nil {
		h.d.Log.Error("read configs to describe", "err", err)
	}
	for _, res := range req.Resources {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = res.ResourceType, res.ResourceName
		out.Configs = []kmsg.DescribeConfigsResponseResourceConfig{}
		var entries []config.Entry
		var e answerError
		denied := h.configsDenied(r, acl.DescribeConfigs, res.ResourceType, res.ResourceName)
		switch {
		case denied.failed():
			e = denied
		case res.ResourceType == kmsg.ConfigResourceTypeTopic:
			if e = storeError(err); err == nil {
				entries, e = h.describeTopicConfigs(&res, found[res.ResourceName])
			}
		case res.ResourceType == kmsg.ConfigResourceTypeBroker:
			entries, e = h.describeBrokerConfigs(&res)
		case res.ResourceType == kmsg.ConfigResourceTypeBrokerLogger:
			entries, e = h.describeLogLevels(&res)
		default:
			e = errorf(cluster.InvalidRequest, "Unsupported resource type: %s", resourceTypeName(res.ResourceType))
		}
		out.ErrorCode, out.ErrorMessage = int16(e.Code), &e.Message // Kafka: no text is empty here, not null
		for _, entry := range entries {
			out.Configs = append(out.Configs, describedConfig(req, &entry))
		}
		resp.Resources = append(resp.Resources, out)
	}
	r.Respond(resp, 0)
}

// configsDenied is the refusal of an operation on configs, which are a topic's or the cluster's affair.
func (h *Handlers) configsDenied(r *wire.Request, op acl.Operation, kind kmsg.ConfigResourceType, name string) answerError {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if !h.allowed(r, op, acl.Topic, name) {
			return topicDenied
		}
	case kmsg.ConfigResourceTypeGroupConfig:
		if !h.allowed(r, op, acl.Group, name) {
			return groupDenied
		}
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeClientMetrics:
		if !h.allowedOnCluster(r, op) {
			return clusterDenied
		}
	}
	return answerError{}
}

func (h *Handlers) describeTopicConfigs(res *kmsg.DescribeConfigsRequestResource, t *topicInStore) ([]config.Entry, answerError) {
	if err := cluster.ValidateTopicName(res.ResourceName); err != nil {
		return nil, errorf(cluster.InvalidTopicException, "Topic name is invalid: %v", err)
	}
	_, cached := h.d.Cache.Image().Topic(res.ResourceName)
	if !t.exists || t.marked && !cached {
		return nil, answerError{Code: cluster.UnknownTopicOrPartition}
	}
	settings, err := t.settings()
	if err != nil {
		h.d.Log.Error("config in the store cannot be read", "topic", res.ResourceName, "err", err)
		return nil, answerError{Code: cluster.UnknownServerError}
	}
	return h.d.Config.DescribeTopicWith(settings, askedKeys(res)), answerError{}
}

func (h *Handlers) describeBrokerConfigs(res *kmsg.DescribeConfigsRequestResource) ([]config.Entry, answerError) {
	if res.ResourceName == "" {
		return h.d.Config.DescribeClusterDefault(askedKeys(res)), answerError{}
	}
	if e := h.checkDescribedBroker(res.ResourceName, " or empty string,"); e.failed() {
		return nil, e
	}
	return h.d.Config.DescribeBroker(askedKeys(res)), answerError{}
}

// checkDescribedBroker wants this broker's id; alternative is how the refusal goes on after it.
func (h *Handlers) checkDescribedBroker(name, alternative string) answerError {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return errorf(cluster.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
	}
	if cluster.BrokerID(id) != h.d.BrokerID {
		return errorf(cluster.InvalidRequest, "Unexpected broker id, expected %d%s but received %s", h.d.BrokerID, alternative, name)
	}
	return answerError{}
}

// askedKeys is nil for all: an empty list asks for all, too.
func askedKeys(res *kmsg.DescribeConfigsRequestResource) []string {
	if len(res.ConfigNames) == 0 {
		return nil
	}
	return res.ConfigNames
}

func describedConfig(req *kmsg.DescribeConfigsRequest, e *config.Entry) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.ReadOnly, out.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Sensitive
	out.IsDefault = e.IsDefault()
	out.Source = kmsg.ConfigSource(e.Source)
	out.ConfigType = kmsg.ConfigType(e.Type)
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			out.ConfigSynonyms = append(out.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{
				Name: s.Name, Value: s.Value, Source: kmsg.ConfigSource(s.Source)})
		}
	}
	if req.IncludeDocumentation {
		out.Documentation = &e.Doc
	}
	return out
}
