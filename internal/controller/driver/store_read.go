package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/coord"
)

// uncleanElectionKey is the topic configuration that the controller looks at.
const uncleanElectionKey = "unclean.leader.election.enable"

func (o *storeOp) readTopics(ctx context.Context, names []string) (controller.StoreValue, error) {
	reads, err := o.getMany(ctx, names, coord.TopicPath)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	out := controller.TopicsRead{Topics: make([]controller.TopicRead, len(names))}
	for i, r := range reads {
		out.Topics[i] = topicRead(names[i], r)
	}
	return out, nil
}

func topicRead(name string, r coord.ReadResult) controller.TopicRead {
	t := controller.TopicRead{Name: name}
	if errors.Is(r.Err, coord.ErrNoNode) {
		return t
	}
	t.Exists = true
	if r.Err != nil {
		t.Err = unreadable(coord.TopicPath(name), r.Err)
		return t
	}
	t.Czxid, t.Version = r.Node.Stat.Czxid, r.Node.Stat.Version
	topic, err := coord.DecodeTopic(r.Node.Data)
	if err != nil {
		t.Err = unreadable(coord.TopicPath(name), err)
		return t
	}
	t.ID = topic.ID
	t.Partitions = make([]controller.PartitionAssignment, 0, len(topic.Partitions))
	for p, a := range topic.Partitions {
		t.Partitions = append(t.Partitions, controller.PartitionAssignment{Partition: p, Assignment: a})
	}
	slices.SortFunc(t.Partitions, func(a, b controller.PartitionAssignment) int { return int(a.Partition) - int(b.Partition) })
	return t
}

func (o *storeOp) readStates(ctx context.Context, tps []cluster.TopicPartition) ([]controller.ItemResult, error) {
	paths := make([]string, len(tps))
	for i, tp := range tps {
		paths[i] = coord.PartitionStatePath(tp)
	}
	reads, err := o.d.store.GetMany(ctx, paths)
	if err != nil {
		return nil, fmt.Errorf("read partition states: %w", err)
	}
	out := make([]controller.ItemResult, len(reads))
	for i, r := range reads {
		out[i] = stateRead(paths[i], r)
	}
	return out, nil
}

func stateRead(path string, r coord.ReadResult) controller.ItemResult {
	switch {
	case errors.Is(r.Err, coord.ErrNoNode):
		return controller.ItemResult{Status: controller.ItemNoNode}
	case r.Err != nil:
		return controller.ItemResult{Status: controller.ItemFailed, Err: unreadable(path, r.Err)}
	}
	state, err := coord.DecodePartitionState(r.Node.Data, r.Node.Stat.Version)
	if err != nil {
		return controller.ItemResult{Status: controller.ItemFailed, Err: unreadable(path, err)}
	}
	return controller.ItemResult{Status: controller.ItemOK, State: state, HasState: true}
}

// unreadable names the node that could not be used.
func unreadable(path string, err error) string { return fmt.Sprintf("%s: %v", path, err) }

// mayRead sorts what GetMany says of one node: false without an error for a node that is absent, or that this broker
// has no right to read, which is told and skipped: one such node must not keep the controller from all others.
func (o *storeOp) mayRead(r coord.ReadResult, path string) (bool, error) {
	switch {
	case r.Err == nil:
		return true, nil
	case errors.Is(r.Err, coord.ErrNoNode):
		return false, nil
	case errors.Is(r.Err, coord.ErrNoPermission):
		o.d.log.Warn("node cannot be read, it is skipped", "path", path, "err", r.Err)
		return false, nil
	}
	return false, fmt.Errorf("read %s: %w", path, r.Err)
}

func (o *storeOp) readMarkers(ctx context.Context) (controller.StoreValue, error) {
	names, err := o.children(ctx, coord.DeleteTopicsPath)
	if err != nil {
		return nil, err
	}
	reads, err := o.getMany(ctx, names, coord.DeleteTopicPath)
	if err != nil {
		return nil, fmt.Errorf("read deletion markers: %w", err)
	}
	var out controller.MarkersRead
	for i, r := range reads {
		ok, err := o.mayRead(r, coord.DeleteTopicPath(names[i]))
		if err != nil {
			return nil, err
		}
		if ok {
			out.Markers = append(out.Markers, controller.Marker{Topic: names[i], Czxid: r.Node.Stat.Czxid})
		}
	}
	return out, nil
}

func (o *storeOp) readTopicConfigs(ctx context.Context, topics []string) (controller.StoreValue, error) {
	reads, err := o.getMany(ctx, topics, func(t string) string { return coord.ConfigEntityPath(coord.TopicConfigs, t) })
	if err != nil {
		return nil, fmt.Errorf("read topic configs: %w", err)
	}
	out := controller.TopicConfigsRead{Topics: make([]controller.TopicConfigRead, len(topics))}
	for i, r := range reads {
		out.Topics[i] = topicConfigRead(topics[i], r)
	}
	return out, nil
}

func topicConfigRead(topic string, r coord.ReadResult) controller.TopicConfigRead {
	c := controller.TopicConfigRead{Topic: topic}
	if errors.Is(r.Err, coord.ErrNoNode) {
		return c
	}
	configs, err := map[string]string(nil), r.Err
	if err == nil {
		configs, err = coord.DecodeConfig(r.Node.Data)
	}
	if err != nil {
		c.Err = unreadable(coord.ConfigEntityPath(coord.TopicConfigs, topic), err)
		return c
	}
	text, set := configs[uncleanElectionKey]
	if !set {
		return c
	}
	// Kafka's parser of booleans: the words in any case, with blanks around (ConfigDef.parseType).
	var unclean bool
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true":
		unclean = true
	case "false":
	default:
		c.Err = fmt.Sprintf("%s is %q, want true or false", uncleanElectionKey, text)
		return c
	}
	c.Unclean = &unclean
	return c
}

func (o *storeOp) readLogDirEvents(ctx context.Context) (controller.StoreValue, error) {
	names, reads, err := o.notifications(ctx, coord.LogDirEventPath)
	if err != nil {
		return nil, err
	}
	var out controller.LogDirEventsRead
	for i, r := range reads {
		broker, err := coord.DecodeLogDirEvent(r.Node.Data)
		if err != nil {
			o.d.log.Warn("log dir notification cannot be read, it is removed", "path", coord.LogDirEventPath+"/"+names[i], "err", err)
		}
		out.Events = append(out.Events, controller.LogDirEvent{Name: names[i], Broker: broker, Valid: err == nil})
	}
	return out, nil
}

func (o *storeOp) readISRChanges(ctx context.Context) (controller.StoreValue, error) {
	names, reads, err := o.notifications(ctx, coord.ISRChangePath)
	if err != nil {
		return nil, err
	}
	var out controller.ISRChangesRead
	for i, r := range reads {
		tps, err := coord.DecodeISRChange(r.Node.Data)
		if err != nil {
			o.d.log.Warn("isr change notification cannot be read, it is removed", "path", coord.ISRChangePath+"/"+names[i], "err", err)
		}
		out.Changes = append(out.Changes, controller.ISRChange{Name: names[i], Partitions: tps})
	}
	return out, nil
}

// notifications reads all children of a notification root that still exist.
func (o *storeOp) notifications(ctx context.Context, root string) (names []string, reads []coord.ReadResult, err error) {
	all, err := o.children(ctx, root)
	if err != nil {
		return nil, nil, err
	}
	found, err := o.getMany(ctx, all, func(name string) string { return root + "/" + name })
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", root, err)
	}
	for i, r := range found {
		ok, err := o.mayRead(r, root+"/"+all[i])
		if err != nil {
			return nil, nil, err
		}
		if ok {
			names, reads = append(names, all[i]), append(reads, r)
		}
	}
	return names, reads, nil
}

func (o *storeOp) readProducerIDBlock(ctx context.Context) (controller.StoreValue, error) {
	node, err := o.d.store.Get(ctx, coord.ProducerIDBlockPath)
	if errors.Is(err, coord.ErrNoNode) {
		return controller.ProducerIDBlockRead{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read producer id block: %w", err)
	}
	b, ok, err := coord.DecodeProducerIDBlock(node.Data)
	if err != nil {
		return controller.ProducerIDBlockRead{Err: unreadable(coord.ProducerIDBlockPath, err)}, nil
	}
	block := controller.ProducerIDBlock{Broker: b.Broker, Start: b.First, End: b.Last}
	return controller.ProducerIDBlockRead{Exists: ok, Block: block, Version: node.Stat.Version}, nil
}

func (o *storeOp) readReassignments(ctx context.Context) (controller.StoreValue, error) {
	node, exists, err := o.request(ctx, coord.ReassignPartitionsPath)
	if err != nil || !exists {
		return controller.ReassignmentsRead{}, err
	}
	out := controller.ReassignmentsRead{Exists: true, Version: node.Stat.Version}
	targets, err := coord.DecodeReassignment(node.Data)
	if err != nil {
		out.Err = unreadable(coord.ReassignPartitionsPath, err)
	}
	for tp, replicas := range targets {
		out.Targets = append(out.Targets, controller.ReassignmentTarget{TopicPartition: tp, Replicas: replicas})
	}
	slices.SortFunc(out.Targets, func(a, b controller.ReassignmentTarget) int { return a.TopicPartition.Compare(b.TopicPartition) })
	return out, nil
}

func (o *storeOp) readPreferredElection(ctx context.Context) (controller.StoreValue, error) {
	node, exists, err := o.request(ctx, coord.PreferredElectionPath)
	if err != nil || !exists {
		return controller.PreferredElectionRead{}, err
	}
	out := controller.PreferredElectionRead{Exists: true, Version: node.Stat.Version}
	if out.Partitions, err = coord.DecodePreferredElection(node.Data); err != nil {
		out.Err = unreadable(coord.PreferredElectionPath, err)
	}
	return out, nil
}

// request reads a node that old tools write; false when it is absent or may not be read.
func (o *storeOp) request(ctx context.Context, path string) (coord.Node, bool, error) {
	node, err := o.d.store.Get(ctx, path)
	ok, err := o.mayRead(coord.ReadResult{Node: node, Err: err}, path)
	return node, ok, err
}

// getMany reads one node per name.
func (o *storeOp) getMany(ctx context.Context, names []string, path func(string) string) ([]coord.ReadResult, error) {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = path(name)
	}
	return o.d.store.GetMany(ctx, paths)
}
