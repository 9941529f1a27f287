package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/metadata"
)

// clusterMetadataTopic is the name of KRaft's log, which no client may create.
const clusterMetadataTopic = "__cluster_metadata"

// topicCreation is one topic to create and, afterwards, what became of it.
type topicCreation struct {
	req kmsg.CreateTopicsRequestTopic

	err         answerError
	marked      bool // err says that the name is marked for deletion
	decided     bool // nothing of the item will be tried again
	hideConfigs bool // the client may not describe the topic's configs
	id          cluster.TopicID
	assignment  map[int32][]cluster.BrokerID
	configs     map[string]string // the topic's own settings
}

// configErrorCode says why there are no configs in the answer, if so.
func (c *topicCreation) configErrorCode() int16 {
	if c.hideConfigs {
		return int16(cluster.TopicAuthorizationFailed)
	}
	return 0
}

func (c *topicCreation) replicationFactor() int16 { return int16(len(c.assignment[0])) }

// create validates the topics in Kafka's order and writes those that pass. An item that comes with an error is left as
// it is. Afterwards an item without error exists in the store (or would, with validateOnly).
func (a *topicAdmin) create(ctx context.Context, items []*topicCreation, validateOnly bool, charge chargeQuota) {
	names := make([]string, 0, len(items))
	for _, c := range items {
		names = append(names, c.req.Topic)
	}
	found, err := readTopics(ctx, a.store, names)
	var existing map[string]bool
	if err == nil {
		existing, err = a.collisionCandidates(ctx, names)
	}
	if err != nil {
		a.failAll(items, "read topics before creation", err)
		return
	}
	v := creationValidator{admin: a, image: a.cache.Image(), found: found, existing: existing}
	var groups []*atomicGroup
	var writing []*topicCreation
	for _, c := range items {
		if c.err.failed() {
			continue
		}
		if c.err = v.validate(c); c.err.failed() || validateOnly {
			continue
		}
		if charge != nil {
			if c.err = charge(len(c.assignment)); c.err.failed() {
				continue
			}
		}
		if v.existing != nil {
			v.existing[c.req.Topic] = true
		}
		if a.topicIDs() {
			c.id = cluster.NewTopicID()
		}
		groups = append(groups, &atomicGroup{ops: c.writes(found[c.req.Topic].config)})
		writing = append(writing, c)
	}
	writeGroups(ctx, a.store, groups)
	a.settle(ctx, writing, groups)
}

// collisionCandidates lists all topics when one of the names could collide with another topic's metrics name; nil otherwise.
func (a *topicAdmin) collisionCandidates(ctx context.Context, names []string) (map[string]bool, error) {
	if !slices.ContainsFunc(names, cluster.HasCollidingChars) {
		return nil, nil
	}
	all, err := a.store.Children(ctx, coord.TopicsPath)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return nil, err
	}
	existing := make(map[string]bool, len(all))
	for _, name := range all {
		existing[name] = true
	}
	return existing, nil
}

// writes gives the topic's nodes: its config, written even when empty, and then itself, so that whoever sees the topic
// finds its config. Kafka writes the two apart; together no config of a creation that lost a race stays behind.
func (c *topicCreation) writes(oldConfig coord.ReadResult) []coord.Op {
	data := coord.EncodeConfig(c.configs)
	path := coord.ConfigEntityPath(coord.TopicConfigs, c.req.Topic)
	config := coord.Create(path, data)
	if oldConfig.Err == nil { // left over from an earlier topic of this name
		config = coord.Set(path, data, coord.AnyVersion)
	}
	topic := coord.Topic{ID: c.id, Partitions: make(map[int32]cluster.ReplicaAssignment, len(c.assignment))}
	for p, replicas := range c.assignment {
		topic.Partitions[p] = cluster.ReplicaAssignment{Replicas: replicas}
	}
	return []coord.Op{config, coord.Create(coord.TopicPath(c.req.Topic), coord.EncodeTopic(topic))}
}

// topicIDs says whether new topics get ids (inter.broker.protocol.version 2.8-IV0; Kafka: KafkaConfig.usesTopicId).
func (a *topicAdmin) topicIDs() bool {
	return a.config.Broker().InterBrokerProtocol.AtLeast(config.ProtocolVersion{Major: 2, Minor: 8})
}

// wrote says whether a topic without an id is as this creation writes it.
func (c *topicCreation) wrote(t coord.Topic) bool {
	return maps.EqualFunc(t.Partitions, c.assignment, func(a cluster.ReplicaAssignment, replicas []cluster.BrokerID) bool {
		return slices.Equal(a.Replicas, replicas)
	})
}

// settle turns the outcomes of the writes into answers. A write whose answer was lost is looked up: our id tells, or
// without ids the assignment.
func (a *topicAdmin) settle(ctx context.Context, items []*topicCreation, groups []*atomicGroup) {
	var unknown []string
	for i, c := range items {
		switch err := groups[i].err; {
		case err == nil:
		case errors.Is(err, coord.ErrNodeExists):
			c.err, c.id = topicExists(c.req.Topic), cluster.TopicID{}
		case errors.Is(err, coord.ErrUnknownOutcome):
			unknown = append(unknown, c.req.Topic)
			c.err = storeError(err)
		default:
			a.log.Error("create topic", "topic", c.req.Topic, "err", err)
			c.err, c.id = storeError(err), cluster.TopicID{}
		}
	}
	if len(unknown) == 0 {
		return
	}
	found, err := readTopics(ctx, a.store, unknown)
	if err != nil {
		a.log.Error("look up topics whose creation has no known outcome", "err", err)
		return
	}
	for _, c := range items {
		if t := found[c.req.Topic]; t != nil && t.exists {
			if c.err = (answerError{}); t.topic.ID != c.id || c.id.IsZero() && !c.wrote(t.topic) {
				c.err, c.id = topicExists(c.req.Topic), cluster.TopicID{}
			}
		}
	}
}

func (a *topicAdmin) failAll(items []*topicCreation, what string, err error) {
	a.log.Error(what, "err", err)
	for _, c := range items {
		if !c.err.failed() {
			c.err = storeError(err)
		}
	}
}

func topicExists(name string) answerError {
	return errorf(cluster.TopicAlreadyExists, "Topic '%s' already exists.", name)
}

// creationValidator holds what the checks of one request's topics look at.
type creationValidator struct {
	admin    *topicAdmin
	image    *metadata.Image
	found    topicsInStore
	existing map[string]bool // all topics and those accepted so far; nil when no name of the request can collide
	assigned int             // partitions of the topics accepted so far
}

// validate runs the checks of control-plane.md 8.2 in their order; the first failure is the answer. It fills the
// item's assignment and configs (Kafka: ZkAdminManager.createTopics, AdminZkClient.validateTopicCreate).
func (v *creationValidator) validate(c *topicCreation) answerError {
	name := c.req.Topic
	if _, cached := v.image.Topic(name); cached {
		return topicExists(name)
	}
	if e := nullConfigs(c.req.Configs); e.failed() {
		return e
	}
	if (c.req.NumPartitions != -1 || c.req.ReplicationFactor != -1) && len(c.req.ReplicaAssignment) > 0 {
		return errorf(cluster.InvalidRequest, "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time.")
	}
	if e := v.assign(c); e.failed() {
		return e
	}
	if e := v.checkName(name); e.failed() {
		t := v.found[name]
		c.marked = t != nil && t.marked && e.Code == cluster.TopicAlreadyExists
		return e
	}
	if e := v.checkAssignment(c); e.failed() {
		return e
	}
	return v.checkConfigs(c)
}

func nullConfigs(configs []kmsg.CreateTopicsRequestTopicConfig) answerError {
	var null []string
	for _, e := range configs {
		if e.Value == nil {
			null = append(null, e.Name)
		}
	}
	if null == nil {
		return answerError{}
	}
	return errorf(cluster.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
}

// assign takes over the request's assignment or makes one over the live brokers.
func (v *creationValidator) assign(c *topicCreation) answerError {
	c.assignment = map[int32][]cluster.BrokerID{}
	if len(c.req.ReplicaAssignment) > 0 {
		for _, p := range c.req.ReplicaAssignment {
			c.assignment[p.Partition] = brokerIDs(p.Replicas)
		}
		return answerError{}
	}
	defaults := v.admin.config.Broker()
	partitions, rf := int(c.req.NumPartitions), int(c.req.ReplicationFactor)
	if partitions == -1 {
		partitions = defaults.NumPartitions
	}
	if rf == -1 {
		rf = int(defaults.DefaultReplicationFactor)
	}
	if v.assigned+partitions > maxPartitionsPerRequest {
		return errorf(cluster.InvalidPartitions, "One request can create at most %d partitions.", maxPartitionsPerRequest)
	}
	lists, e := assignReplicas(racksOf(v.image.Brokers()), partitions, rf, randomStart, v.admin.intn)
	for p, replicas := range lists {
		c.assignment[int32(p)] = replicas
	}
	v.assigned += len(lists)
	return e
}

func (v *creationValidator) checkName(name string) answerError {
	if err := cluster.ValidateTopicName(name); err != nil {
		return errorf(cluster.InvalidTopicException, "Topic name is invalid: %v", err)
	}
	t := v.found[name]
	switch {
	case t.marked:
		return errorf(cluster.TopicAlreadyExists, "Topic '%s' is marked for deletion.", name)
	case t.exists:
		return topicExists(name)
	case !cluster.HasCollidingChars(name):
		return answerError{}
	}
	var colliding []string
	for other := range v.existing {
		if cluster.TopicNamesCollide(name, other) {
			colliding = append(colliding, other)
		}
	}
	if len(colliding) == 0 {
		return answerError{}
	}
	slices.Sort(colliding)
	return errorf(cluster.InvalidTopicException, "Topic '%s' collides with existing topics: %s", name, strings.Join(colliding, ", "))
}

// checkAssignment holds the rules for assignments given by hand; ours pass by construction. That all brokers live is
// klamm's own rule: in Kafka such a topic has no leader, is in no broker's metadata and cannot be deleted.
func (v *creationValidator) checkAssignment(c *topicCreation) answerError {
	if len(c.req.ReplicaAssignment) == 0 {
		return answerError{}
	}
	partitions := slices.Sorted(maps.Keys(c.assignment))
	for _, p := range partitions {
		if len(c.assignment[p]) != len(c.assignment[partitions[0]]) {
			return errorf(cluster.InvalidReplicaAssignment, "All partitions should have the same number of replicas")
		}
	}
	for _, p := range partitions {
		if hasDuplicates(c.assignment[p]) {
			return errorf(cluster.InvalidReplicaAssignment, "Duplicate replica assignment found: %s", printAssignment(partitions, c.assignment))
		}
	}
	for i, p := range partitions {
		if int(p) != i {
			return errorf(cluster.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
	}
	if len(c.assignment[0]) == 0 {
		return errorf(cluster.InvalidReplicaAssignment, "Every partition needs at least one replica.")
	}
	lists := make([][]cluster.BrokerID, len(partitions))
	for i, p := range partitions {
		lists[i] = c.assignment[p]
	}
	if dead := strangers(lists, v.image.HasBroker); len(dead) > 0 {
		slices.Sort(dead)
		return errorf(cluster.InvalidReplicaAssignment, "Replica assignment names brokers that are not live: %s. Live brokers: %s.",
			joinIDs(dead), joinIDs(idsOf(v.image.Brokers())))
	}
	return answerError{}
}

func (v *creationValidator) checkConfigs(c *topicCreation) answerError {
	given := make(map[string]*string, len(c.req.Configs))
	for _, e := range c.req.Configs {
		given[e.Name] = e.Value
	}
	configs, err := v.admin.config.ValidateTopic(given)
	if err != nil {
		return answerError{err.Code, err.Message}
	}
	c.configs = configs
	return answerError{}
}

// leaderWaits lists the items without error as what to wait for.
func leaderWaits(items []*topicCreation) []leaderWait {
	var out []leaderWait
	for _, c := range items {
		if !c.err.failed() {
			out = append(out, leaderWait{c.req.Topic, c.id, len(c.assignment), &c.err})
		}
	}
	return out
}

func printAssignment(partitions []int32, assignment map[int32][]cluster.BrokerID) string {
	parts := make([]string, 0, len(partitions))
	for _, p := range partitions {
		parts = append(parts, fmt.Sprintf("%d -> (%s)", p, joinIDs(assignment[p])))
	}
	return "Map(" + strings.Join(parts, ", ") + ")"
}

func brokerName(id cluster.BrokerID) string { return strconv.Itoa(int(id)) }

func brokerIDs(ids []int32) []cluster.BrokerID {
	out := make([]cluster.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = cluster.BrokerID(id)
	}
	return out
}

func racksOf(brokers []cluster.Broker) []brokerRack {
	out := make([]brokerRack, len(brokers))
	for i, b := range brokers {
		out[i] = brokerRack{b.ID, b.Rack}
	}
	return out
}

func idsOf(brokers []cluster.Broker) []cluster.BrokerID {
	out := make([]cluster.BrokerID, len(brokers))
	for i, b := range brokers {
		out[i] = b.ID
	}
	return out
}

// hasDuplicates and strangers look at lists that a client wrote, of any length.
func hasDuplicates(ids []cluster.BrokerID) bool {
	seen := make(map[cluster.BrokerID]struct{}, len(ids))
	for _, id := range ids {
		seen[id] = struct{}{}
	}
	return len(seen) < len(ids)
}

// strangers lists the brokers in the lists that are not known, each once, by first appearance.
func strangers(lists [][]cluster.BrokerID, known func(cluster.BrokerID) bool) (out []cluster.BrokerID) {
	seen := map[cluster.BrokerID]struct{}{}
	for _, ids := range lists {
		for _, id := range ids {
			if _, again := seen[id]; again || known(id) {
				continue
			}
			seen[id] = struct{}{}
			out = append(out, id)
		}
	}
	return out
}
