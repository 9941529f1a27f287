package api

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Metadata, key 3, versions 0-13.
//
// Answered from this broker's metadata image, on any broker. Addresses are those of the listener the request came in on;
// brokers without that listener are left out. Topics that do not exist are created while auto.create.topics.enable when
// the request allows it (always before v4); see autoTopicCreation. A topic with an error does not spoil the others, and a
// topic asked for twice is answered once. Topics that the client may not DESCRIBE are TOPIC_AUTHORIZATION_FAILED whether they
// exist or not (R26), and left out of "all".
//
//	v0   an empty list asks for all topics; REPLICA_NOT_AVAILABLE for partitions with replicas on brokers that are away
//	v1   null asks for all, empty for none; racks, controller, internal flag
//	v2   cluster id
//	v4   the request says whether topics may be created
//	v5   offline replicas
//	v6   LISTENER_NOT_FOUND instead of LEADER_NOT_AVAILABLE when the leader lacks the listener
//	v7   leader epoch
//	v8   authorized operations (of the cluster: v8-v10)
//	v10  topic ids; v12 asks by id, unknown ones are UNKNOWN_TOPIC_ID
//	v13  top-level error, never set here
func (h *Handlers) handleMetadata(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.MetadataRequest)
	im := h.d.Cache.Image()
	m := metadataAnswer{h: h, r: r, im: im, listener: r.Conn.Listener(), version: req.Version}
	resp := h.metadataHead(req, &m)
	if req.Version == 0 && len(req.Topics) == 0 || req.Version > 0 && req.Topics == nil {
		resp.Topics = h.describable(r, h.allTopics.get(&m))
		h.respondMetadata(r, req, resp)
		return
	}
	if req.Version < 12 && mixesIDs(req) {
		resp.Topics = refuseTopics(req)
		r.Respond(resp, 0)
		return
	}
	missing := m.addTopics(req.Topics)
	mayCreate := len(missing) > 0 && (req.AllowAutoTopicCreation || req.Version < 4) && h.d.Config.Broker().AutoCreateTopicsEnable
	if mayCreate {
		missing = m.refuseCreation(missing)
	}
	if mayCreate && len(missing) > 0 {
		h.onWorker(ctx, r, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, storeTimeout)
			defer cancel()
			h.autoTopics.create(ctx, r, missing, func(codes map[string]cluster.ErrorCode) {
				created := metadataAnswer{h: h, r: r, im: h.d.Cache.Image(), listener: m.listener, version: m.version, topics: m.topics}
				created.addCreated(missing, codes)
				resp.Topics = created.topics
				h.respondMetadata(r, req, resp)
			})
		})
		return
	}
	for _, name := range missing {
		m.addMissing(name)
	}
	resp.Topics = m.topics
	h.respondMetadata(r, req, resp)
}

func (h *Handlers) metadataHead(req *kmsg.MetadataRequest, m *metadataAnswer) *kmsg.MetadataResponse {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = &h.d.ClusterID
	resp.ControllerID = int32(m.im.Controller())
	brokers := m.im.BrokersOn(m.listener)
	resp.Brokers = make([]kmsg.MetadataResponseBroker, len(brokers))
	for i := range brokers {
		e, _ := brokers[i].Endpoint(m.listener)
		resp.Brokers[i] = kmsg.MetadataResponseBroker{NodeID: int32(brokers[i].ID), Host: e.Host, Port: e.Port, Rack: rackOf(brokers[i])}
	}
	return resp
}

// describable leaves out of "all topics" those that the client may not describe: their existence is not disclosed.
func (h *Handlers) describable(r *wire.Request, all []kmsg.MetadataResponseTopic) []kmsg.MetadataResponseTopic {
	if h.d.Authorizer == nil {
		return all
	}
	out := make([]kmsg.MetadataResponseTopic, 0, len(all))
	for _, t := range all {
		if h.allowedQuietly(r, acl.Describe, acl.Topic, *t.Topic) {
			out = append(out, t)
		}
	}
	return out
}

// respondMetadata fills in the authorized operations and answers. Topics known only by an id have none.
func (h *Handlers) respondMetadata(r *wire.Request, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = h.clusterOperationsFor(r)
	}
	if req.IncludeTopicAuthorizedOperations {
		topics := make([]kmsg.MetadataResponseTopic, len(resp.Topics)) // the original may be the shared one
		copy(topics, resp.Topics)
		for i := range topics {
			if topics[i].Topic != nil && topics[i].ErrorCode != int16(cluster.TopicAuthorizationFailed) {
				topics[i].AuthorizedOperations = h.operationsOn(r, acl.Topic, *topics[i].Topic)
			}
		}
		resp.Topics = topics
	}
	r.Respond(resp, 0)
}

// mixesIDs reports what v10 and v11 have in their schema but do not allow: ids, or null names.
func mixesIDs(req *kmsg.MetadataRequest) bool {
	for _, t := range req.Topics {
		if t.Topic == nil || t.TopicID != [16]byte{} {
			return true
		}
	}
	return false
}

func refuseTopics(req *kmsg.MetadataRequest) []kmsg.MetadataResponseTopic {
	out := make([]kmsg.MetadataResponseTopic, 0, len(req.Topics))
	for _, asked := range req.Topics {
		name := "" // Kafka: these versions have no null names in answers
		if asked.Topic != nil {
			name = *asked.Topic
		}
		t := kmsg.NewMetadataResponseTopic()
		t.ErrorCode, t.Topic, t.TopicID = int16(cluster.InvalidRequest), &name, asked.TopicID
		out = append(out, t)
	}
	return out
}

// metadataAnswer collects topics for one request from one image.
type metadataAnswer struct {
	h        *Handlers
	r        *wire.Request
	im       *metadata.Image
	listener string
	version  int16
	topics   []kmsg.MetadataResponseTopic

	// Backing arrays of the partitions and broker ids, so that an answer of 10,000 partitions is a handful of allocations.
	partitions []kmsg.MetadataResponseTopicPartition
	ids        []int32
}

// addTopics adds the topics that are asked for and exist, and errors for unknown ids; it returns the names that do not exist.
func (m *metadataAnswer) addTopics(asked []kmsg.MetadataRequestTopic) (missing []string) {
	seen := make(map[string]bool, len(asked))
	found := make([]*metadata.Topic, 0, len(asked))
	for _, a := range asked {
		id := cluster.TopicID(a.TopicID)
		switch {
		case !id.IsZero():
			t, ok := m.im.TopicByID(id)
			if !ok {
				m.addUnknown(cluster.UnknownTopicID, id)
			} else if !m.mayDescribe(t.Name) {
				m.addUnknown(cluster.TopicAuthorizationFailed, id) // an id is no secret, its name is
			} else if !seen[t.Name] {
				seen[t.Name] = true
				found = append(found, t)
			}
		case a.Topic == nil:
			m.addUnknown(cluster.InvalidTopicException, id)
		case !seen[*a.Topic]:
			seen[*a.Topic] = true
			if !m.mayDescribe(*a.Topic) {
				m.addDenied(*a.Topic) // whether it exists or not
			} else if t, ok := m.im.Topic(*a.Topic); ok {
				found = append(found, t)
			} else {
				missing = append(missing, *a.Topic)
			}
		}
	}
	m.reserve(found)
	for _, t := range found {
		m.addTopic(t)
	}
	return missing
}

func (m *metadataAnswer) mayDescribe(topic string) bool {
	return m.h.allowed(m.r, acl.Describe, acl.Topic, topic)
}

// refuseCreation answers for the topics that the client may not create, which needs CREATE on the cluster or on the topic,
// and gives the others.
func (m *metadataAnswer) refuseCreation(names []string) (creatable []string) {
	if m.h.allowedQuietly(m.r, acl.Create, acl.Cluster, acl.ClusterName) {
		return names
	}
	for _, name := range names {
		if m.h.allowed(m.r, acl.Create, acl.Topic, name) {
			creatable = append(creatable, name)
		} else {
			m.addDenied(name)
		}
	}
	return creatable
}

// addDenied adds a topic that the client may not know about.
func (m *metadataAnswer) addDenied(name string) {
	t := kmsg.NewMetadataResponseTopic()
	t.ErrorCode, t.Topic, t.Partitions = int16(cluster.TopicAuthorizationFailed), &name, []kmsg.MetadataResponseTopicPartition{}
	m.topics = append(m.topics, t)
}

// addUnknown adds a topic without a name.
func (m *metadataAnswer) addUnknown(code cluster.ErrorCode, id cluster.TopicID) {
	t := kmsg.NewMetadataResponseTopic()
	t.ErrorCode, t.TopicID = int16(code), id
	t.Partitions = []kmsg.MetadataResponseTopicPartition{}
	m.topics = append(m.topics, t)
}

// addMissing adds a topic that does not exist and is not to be created.
func (m *metadataAnswer) addMissing(name string) {
	code := cluster.UnknownTopicOrPartition
	if cluster.ValidateTopicName(name) != nil {
		code = cluster.InvalidTopicException
	}
	m.addError(name, code)
}

// addCreated adds topics after an attempt to create them: as they are now if they have leaders already, else with the code.
func (m *metadataAnswer) addCreated(names []string, codes map[string]cluster.ErrorCode) {
	for _, name := range names {
		t, ok := m.im.Topic(name)
		if ok && (codes[name] == cluster.None || codes[name] == cluster.LeaderNotAvailable) {
			m.addTopic(t)
			continue
		}
		code := codes[name]
		if code == cluster.None {
			code = cluster.LeaderNotAvailable
		}
		m.addError(name, code)
	}
}

func (m *metadataAnswer) addError(name string, code cluster.ErrorCode) {
	t := kmsg.NewMetadataResponseTopic()
	t.ErrorCode, t.Topic, t.IsInternal = int16(code), &name, cluster.IsInternalTopic(name)
	t.Partitions = []kmsg.MetadataResponseTopicPartition{}
	m.topics = append(m.topics, t)
}

// reserve sizes the backing arrays for the topics to come.
func (m *metadataAnswer) reserve(topics []*metadata.Topic) {
	partitions, ids := 0, 0
	for _, t := range topics {
		partitions += len(t.Partitions)
		for _, p := range t.Partitions {
			ids += len(p.Replicas) + len(p.ISR) + len(p.OfflineReplicas)
		}
	}
	m.partitions = make([]kmsg.MetadataResponseTopicPartition, 0, partitions)
	m.ids = make([]int32, 0, ids)
}

// addTopic adds a topic that exists (Kafka: ZkMetadataCache.getPartitionMetadata).
func (m *metadataAnswer) addTopic(t *metadata.Topic) {
	from := len(m.partitions)
	for _, p := range t.Partitions {
		out := kmsg.MetadataResponseTopicPartition{
			Partition:       p.Index,
			Leader:          int32(p.Leader),
			LeaderEpoch:     int32(p.LeaderEpoch),
			Replicas:        m.copyIDs(p.Replicas),
			ISR:             m.copyIDs(p.ISR),
			OfflineReplicas: m.copyOffline(p.OfflineReplicas),
		}
		code := leaderError(m.im, p, m.listener, m.version >= 6)
		switch {
		case code != cluster.None:
			out.Leader = int32(cluster.NoBroker)
		case m.version == 0 && (len(out.Replicas) < len(p.Replicas) || len(out.ISR) < len(p.ISR)):
			code = cluster.ReplicaNotAvailable
		}
		out.ErrorCode = int16(code)
		m.partitions = append(m.partitions, out)
	}
	m.topics = append(m.topics, kmsg.MetadataResponseTopic{
		Topic: &t.Name, TopicID: t.ID, IsInternal: t.Internal,
		Partitions:           m.partitions[from:len(m.partitions):len(m.partitions)],
		AuthorizedOperations: operationsNotAsked,
	})
}

// leaderError is the error of a partition whose leader a client of the listener cannot reach.
func leaderError(im *metadata.Image, p *metadata.Partition, listener string, knowsListenerErrors bool) cluster.ErrorCode {
	if _, ok := im.Endpoint(p.Leader, listener); ok {
		return cluster.None
	}
	if im.HasBroker(p.Leader) && knowsListenerErrors {
		return cluster.ListenerNotFound
	}
	return cluster.LeaderNotAvailable
}

// copyIDs copies broker ids to the wire's type; v0 leaves out brokers that are away (Kafka: maybeFilterAliveReplicas).
func (m *metadataAnswer) copyIDs(brokers []cluster.BrokerID) []int32 {
	from := len(m.ids)
	for _, id := range brokers {
		if m.version == 0 {
			if _, ok := m.im.Endpoint(id, m.listener); !ok {
				continue
			}
		}
		m.ids = append(m.ids, int32(id))
	}
	return m.ids[from:len(m.ids):len(m.ids)]
}

func (m *metadataAnswer) copyOffline(brokers []cluster.BrokerID) []int32 {
	from := len(m.ids)
	for _, id := range brokers {
		m.ids = append(m.ids, int32(id))
	}
	return m.ids[from:len(m.ids):len(m.ids)]
}

func rackOf(b cluster.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	rack := b.Rack
	return &rack
}

// allTopicsCache keeps the last answer to "all topics", which tools and many old clients ask for again and again. It
// holds for one image, one listener and one of the three ways versions tell errors.
type allTopicsCache struct {
	last atomic.Pointer[allTopicsEntry]
}

type allTopicsEntry struct {
	generation uint64
	listener   string
	errors     int8
	topics     []kmsg.MetadataResponseTopic
}

// get returns the topics of the answer's image; they are shared and must not be changed.
func (c *allTopicsCache) get(m *metadataAnswer) []kmsg.MetadataResponseTopic {
	errors := int8(0)
	switch {
	case m.version >= 6:
		errors = 2
	case m.version >= 1:
		errors = 1
	}
	if e := c.last.Load(); e != nil && e.generation == m.im.Generation() && e.listener == m.listener && e.errors == errors {
		return e.topics
	}
	topics := make([]*metadata.Topic, 0, m.im.TopicCount())
	for t := range m.im.Topics() {
		topics = append(topics, t)
	}
	m.topics = make([]kmsg.MetadataResponseTopic, 0, len(topics))
	m.reserve(topics)
	for _, t := range topics {
		m.addTopic(t)
	}
	c.last.Store(&allTopicsEntry{m.im.Generation(), m.listener, errors, m.topics})
	return m.topics
}
