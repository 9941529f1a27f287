package admin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// description is all that --describe shows, as the cluster answered.
type description struct {
	topics        []kmsg.MetadataResponseTopic // sorted by name
	configs       map[string][]kmsg.DescribeConfigsResponseResourceConfig
	liveBrokers   map[int32]bool
	reassignments map[cluster.TopicPartition]reassignment
}

// reassignment is a partition on its way to other replicas.
type reassignment struct{ replicas, adding, removing []int32 }

func (t *topicsTool) describe(ctx context.Context) error {
	names, err := t.topicsToDescribe(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	d := description{}
	if d.topics, err = t.metadataOf(ctx, names); err != nil {
		return err
	}
	if d.configs, err = t.configsOf(ctx, names); err != nil {
		return err
	}
	if d.liveBrokers, err = t.brokersAlive(ctx); err != nil {
		return err
	}
	if d.reassignments, err = t.reassignmentsOf(ctx, d.topics); err != nil {
		return err
	}
	return d.print(t.stdout, t.opts)
}

// topicsToDescribe finds topics by --topic-id, which goes first, or by --topic.
func (t *topicsTool) topicsToDescribe(ctx context.Context) ([]string, error) {
	text := t.opts.value("topic-id")
	if text == "" {
		return t.matchingOrFail(ctx)
	}
	id, err := cluster.ParseTopicID(text)
	if err != nil {
		return nil, illegalArgument("%s", err)
	}
	if id.IsZero() {
		return t.matchingOrFail(ctx)
	}
	all, err := t.allTopics(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.TopicID == id && !(t.opts.has("exclude-internal") && slices.Contains(internalTopics, *m.Topic)) {
			return []string{*m.Topic}, nil
		}
	}
	if t.opts.has("if-exists") {
		return nil, nil
	}
	return nil, illegalArgument("TopicId '%s' does not exist as expected", id)
}

// metadataOf asks for the named topics only, and never creates them.
func (t *topicsTool) metadataOf(ctx context.Context, names []string) ([]kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	resp, err := call[*kmsg.MetadataResponse](ctx, t.brokers, "describeTopics", req)
	if err != nil {
		return nil, err
	}
	for _, m := range resp.Topics {
		code := cluster.ErrorCode(m.ErrorCode)
		if code != cluster.None && code != cluster.LeaderNotAvailable || m.Topic == nil {
			return nil, refused(code, nil)
		}
	}
	slices.SortFunc(resp.Topics, func(a, b kmsg.MetadataResponseTopic) int { return strings.Compare(*a.Topic, *b.Topic) })
	for _, m := range resp.Topics {
		slices.SortFunc(m.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	}
	return resp.Topics, nil
}

const topicResource = kmsg.ConfigResourceTypeTopic

func (t *topicsTool) configsOf(ctx context.Context, names []string) (map[string][]kmsg.DescribeConfigsResponseResourceConfig, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range names {
		req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: topicResource, ResourceName: name})
	}
	resp, err := call[*kmsg.DescribeConfigsResponse](ctx, t.brokers, "describeConfigs", req)
	if err != nil {
		return nil, err
	}
	out := map[string][]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, r := range resp.Resources {
		if code := cluster.ErrorCode(r.ErrorCode); code != cluster.None {
			return nil, refused(code, r.ErrorMessage)
		}
		for i := range r.Configs {
			if resp.Version == 0 { // tells less: only whether it is the default
				r.Configs[i].Source = kmsg.ConfigSourceDynamicTopicConfig
				if r.Configs[i].IsDefault {
					r.Configs[i].Source = kmsg.ConfigSourceDefaultConfig
				}
			}
		}
		out[r.ResourceName] = r.Configs
	}
	return out, nil
}

func (t *topicsTool) brokersAlive(ctx context.Context) (map[int32]bool, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := call[*kmsg.MetadataResponse](ctx, t.brokers, "listNodes", req)
	if err != nil {
		return nil, err
	}
	alive := map[int32]bool{}
	for _, b := range resp.Brokers {
		alive[b.NodeID] = true
	}
	return alive, nil
}

// reassignmentsOf lists what is being moved. A cluster too old to say, or one that may not tell us, counts as moving nothing.
func (t *topicsTool) reassignmentsOf(ctx context.Context, topics []kmsg.MetadataResponseTopic) (map[cluster.TopicPartition]reassignment, error) {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = t.opts.requestTimeoutMs
	for _, m := range topics {
		topic := kmsg.NewListPartitionReassignmentsRequestTopic()
		topic.Topic = *m.Topic
		for _, p := range m.Partitions {
			topic.Partitions = append(topic.Partitions, p.Partition)
		}
		req.Topics = append(req.Topics, topic)
	}
	resp, err := call[*kmsg.ListPartitionReassignmentsResponse](ctx, t.brokers, "listPartitionReassignments", req)
	if err != nil && asFailure(err).class == kafkaError("UnsupportedVersionException") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch code := cluster.ErrorCode(resp.ErrorCode); code {
	case cluster.None:
	case cluster.UnsupportedVersion, cluster.ClusterAuthorizationFailed:
		return nil, nil
	default:
		return nil, refused(code, resp.ErrorMessage)
	}
	out := map[cluster.TopicPartition]reassignment{}
	for _, m := range resp.Topics {
		for _, p := range m.Partitions {
			out[cluster.TopicPartition{Topic: m.Topic, Partition: p.Partition}] = reassignment{p.Replicas, p.AddingReplicas, p.RemovingReplicas}
		}
	}
	return out, nil
}

// print writes what the options ask for: headers without a report option, partitions without --topics-with-overrides.
func (d *description) print(w io.Writer, o *topicsOptions) error {
	report := slices.ContainsFunc(reportOptions, o.has)
	var b strings.Builder
	for _, m := range d.topics {
		minISR := 0
		if report {
			var err error
			if minISR, err = d.minISR(*m.Topic); err != nil {
				return err
			}
		}
		if !report && len(m.Partitions) > 0 {
			d.printHeader(&b, m, o.has("topics-with-overrides"))
		}
		if o.has("topics-with-overrides") {
			continue
		}
		for _, p := range m.Partitions {
			if !report || d.reported(*m.Topic, p, o, minISR) {
				d.printPartition(&b, *m.Topic, p)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (d *description) printHeader(b *strings.Builder, m kmsg.MetadataResponseTopic, overriddenOnly bool) {
	var set []string
	for _, c := range d.configs[*m.Topic] {
		if c.Source != kmsg.ConfigSourceDefaultConfig {
			value := "null"
			if c.Value != nil {
				value = *c.Value
			}
			set = append(set, c.Name+"="+value)
		}
	}
	if overriddenOnly && len(set) == 0 {
		return
	}
	fmt.Fprintf(b, "Topic: %s", *m.Topic)
	if id := cluster.TopicID(m.TopicID); !id.IsZero() {
		fmt.Fprintf(b, "\tTopicId: %s", id)
	}
	first := m.Partitions[0]
	fmt.Fprintf(b, "\tPartitionCount: %d\tReplicationFactor: %d\tConfigs: %s\n", len(m.Partitions), d.replicationFactor(*m.Topic, first), strings.Join(set, ","))
}

func (d *description) printPartition(b *strings.Builder, topic string, p kmsg.MetadataResponseTopicPartition) {
	leader := "none"
	if p.Leader >= 0 {
		leader = strconv.Itoa(int(p.Leader))
	}
	fmt.Fprintf(b, "\tTopic: %s\tPartition: %d\tLeader: %s\tReplicas: %s\tIsr: %s", topic, p.Partition, leader, join(p.Replicas, ","), join(p.ISR, ","))
	if r, moving := d.reassignments[cluster.TopicPartition{Topic: topic, Partition: p.Partition}]; moving {
		fmt.Fprintf(b, "\tAdding Replicas: %s\tRemoving Replicas: %s", join(r.adding, ","), join(r.removing, ","))
	}
	b.WriteString("\tElr: N/A\tLastKnownElr: N/A\n")
}

// replicationFactor leaves out replicas that are only there until a reassignment is done. One that ended since the metadata was read is
// not counted.
func (d *description) replicationFactor(topic string, p kmsg.MetadataResponseTopicPartition) int {
	r, moving := d.reassignments[cluster.TopicPartition{Topic: topic, Partition: p.Partition}]
	still := slices.ContainsFunc(p.Replicas, func(id int32) bool { return slices.Contains(r.adding, id) || slices.Contains(r.removing, id) })
	if moving && still {
		return len(r.replicas) - len(r.adding)
	}
	return len(p.Replicas)
}

func (d *description) minISR(topic string) (int, error) {
	for _, c := range d.configs[topic] {
		if c.Name == "min.insync.replicas" && c.Value != nil {
			return strconv.Atoi(*c.Value)
		}
	}
	return 0, fmt.Errorf("topic %s has no min.insync.replicas", topic)
}

// reported reports whether one of the asked reports shows the partition.
func (d *description) reported(topic string, p kmsg.MetadataResponseTopicPartition, o *topicsOptions, minISR int) bool {
	leads := p.Leader >= 0
	return o.has("under-replicated-partitions") && len(p.ISR) < d.replicationFactor(topic, p) ||
		o.has("unavailable-partitions") && !(leads && d.liveBrokers[p.Leader]) ||
		o.has("under-min-isr-partitions") && (!leads || len(p.ISR) < minISR) ||
		o.has("at-min-isr-partitions") && len(p.ISR) == minISR
}
