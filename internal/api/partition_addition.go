package api

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// partitionAddition is one topic to get more partitions and, afterwards, what became of it.
type partitionAddition struct {
	req kmsg.CreatePartitionsRequestTopic

	err   answerError
	id    cluster.TopicID
	total int // partitions of the topic afterwards
}

// addPartitions validates the additions in Kafka's order and writes the longer assignments, each on condition that the
// topic's node is as it was read: Kafka overwrites what a reassignment or another addition wrote meanwhile. An item that
// comes with an error is left as it is (Kafka: ZkAdminManager.createPartitions).
func (a *topicAdmin) addPartitions(ctx context.Context, items []*partitionAddition, validateOnly bool, charge chargeQuota) {
	brokers, err := readBrokers(ctx, a.store)
	if err != nil {
		a.failAdditions(items, "read brokers before adding partitions", err)
		return
	}
	pending := items
	for try := 0; len(pending) > 0; try++ {
		left := maxPartitionsPerRequest
		names := make([]string, 0, len(pending))
		for _, p := range pending {
			names = append(names, p.req.Topic)
		}
		found, err := readTopics(ctx, a.store, names)
		if err != nil {
			a.failAdditions(pending, "read topics before adding partitions", err)
			return
		}
		var ops []coord.Op
		var writing []*partitionAddition
		for _, p := range pending {
			if p.err.failed() {
				continue
			}
			topic, e := a.extend(p, found[p.req.Topic], brokers, left)
			if p.err = e; e.failed() {
				continue
			}
			added := p.total - len(found[p.req.Topic].topic.Partitions)
			left -= added
			if validateOnly {
				continue
			}
			if charge != nil && try == 0 {
				if p.err = charge(added); p.err.failed() {
					continue
				}
			}
			ops = append(ops, coord.Set(coord.TopicPath(p.req.Topic), coord.EncodeTopic(topic), found[p.req.Topic].version))
			writing = append(writing, p)
		}
		pending = a.writeAdditions(ctx, writing, ops, try)
	}
}

// writeAdditions returns the items that lost against another writer, to be decided again on the fresh assignment.
func (a *topicAdmin) writeAdditions(ctx context.Context, items []*partitionAddition, ops []coord.Op, try int) (again []*partitionAddition) {
	if len(ops) == 0 {
		return nil
	}
	results, err := a.store.Batch(ctx, nil, ops)
	if err != nil {
		a.failAdditions(items, "write new partitions", err)
		return nil
	}
	for i, p := range items {
		switch err := results[i].Err; {
		case err == nil:
		case isConflict(err) && try < conflictTriesMax:
			again = append(again, p)
		default:
			a.log.Error("write new partitions", "topic", p.req.Topic, "err", err)
			p.err = storeError(err)
		}
	}
	return again
}

func (a *topicAdmin) failAdditions(items []*partitionAddition, what string, err error) {
	a.log.Error(what, "err", err)
	for _, p := range items {
		if !p.err.failed() {
			p.err = storeError(err)
		}
	}
}

// extend checks one addition of at most so many partitions (control-plane.md 8.4) and returns the topic with its new ones.
func (a *topicAdmin) extend(p *partitionAddition, t *topicInStore, brokers []brokerRack, most int) (coord.Topic, answerError) {
	name := p.req.Topic
	switch {
	case t == nil || !t.exists || len(t.topic.Partitions) == 0:
		return coord.Topic{}, errorf(cluster.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
	case t.marked:
		return coord.Topic{}, queuedForDeletion
	}
	for _, assignment := range t.topic.Partitions {
		if assignment.BeingReassigned() {
			return coord.Topic{}, errorf(cluster.ReassignmentInProgress, "A partition reassignment is in progress for the topic '%s'.", name)
		}
	}
	old, count := len(t.topic.Partitions), int(p.req.Count)
	switch {
	case count < old:
		return coord.Topic{}, errorf(cluster.InvalidPartitions, "Topic currently has %d partitions, which is higher than the requested %d.", old, count)
	case count == old:
		return coord.Topic{}, errorf(cluster.InvalidPartitions, "Topic already has %d partitions.", old)
	case count-old > most:
		return coord.Topic{}, errorf(cluster.InvalidPartitions, "One request can create at most %d partitions.", maxPartitionsPerRequest)
	}
	first, ok := t.topic.Partitions[0]
	if !ok { // Kafka: AdminOperationException
		return coord.Topic{}, answerError{Code: cluster.UnknownServerError}
	}
	lists, e := a.newPartitions(p, first.Replicas, old, brokers)
	if e.failed() {
		return coord.Topic{}, e
	}
	out := coord.Topic{ID: t.topic.ID, Partitions: maps.Clone(t.topic.Partitions)}
	for i, replicas := range lists {
		out.Partitions[int32(old+i)] = cluster.ReplicaAssignment{Replicas: replicas}
	}
	p.id, p.total = t.topic.ID, len(out.Partitions)
	return out, answerError{}
}

// newPartitions gives the replicas of the partitions to add: the request's, or on the pattern of partition 0.
func (a *topicAdmin) newPartitions(p *partitionAddition, first []cluster.BrokerID, old int, brokers []brokerRack) ([][]cluster.BrokerID, answerError) {
	increment := int(p.req.Count) - old
	if p.req.Assignment != nil {
		lists := make([][]cluster.BrokerID, 0, len(p.req.Assignment))
		for _, given := range p.req.Assignment {
			lists = append(lists, brokerIDs(given.Replicas))
		}
		return lists, checkNewPartitions(lists, increment, old, len(first), brokers)
	}
	start := max(0, slices.IndexFunc(brokers, func(b brokerRack) bool { return len(first) > 0 && b.ID >= first[0] }))
	return assignReplicas(brokers, increment, len(first), assignmentStart{Index: start, Partition: old}, a.intn)
}

// checkNewPartitions validates assignments given by hand (Kafka: createPartitions and validateReplicaAssignment). That
// all brokers are available, which Kafka checks again later, follows from the first rule.
func checkNewPartitions(lists [][]cluster.BrokerID, increment, old, replicationFactor int, brokers []brokerRack) answerError {
	isKnown := func(id cluster.BrokerID) bool {
		return slices.ContainsFunc(brokers, func(b brokerRack) bool { return b.ID == id })
	}
	if unknown := strangers(lists, isKnown); len(unknown) > 0 {
		return errorf(cluster.InvalidReplicaAssignment, "Unknown broker(s) in replica assignment: %s.", joinIDs(unknown))
	}
	if len(lists) != increment {
		return errorf(cluster.InvalidReplicaAssignment, "Increasing the number of partitions by %d but %d assignments provided.", increment, len(lists))
	}
	for i, replicas := range lists {
		switch {
		case len(replicas) == 0:
			return errorf(cluster.InvalidReplicaAssignment, "Cannot have replication factor of 0 for partition id %d.", old+i)
		case hasDuplicates(replicas):
			return errorf(cluster.InvalidReplicaAssignment, "Duplicate brokers not allowed in replica assignment: %s for partition id %d.",
				joinIDs(replicas), old+i)
		}
	}
	var partitions, factors []string
	for i, replicas := range lists {
		if len(replicas) != replicationFactor {
			partitions = append(partitions, strconv.Itoa(old+i))
			factors = append(factors, strconv.Itoa(len(replicas)))
		}
	}
	if partitions != nil {
		return errorf(cluster.InvalidReplicaAssignment, "Inconsistent replication factor between partitions, partition 0 has %d "+
			"while partitions [%s] have replication factors [%s], respectively.",
			replicationFactor, strings.Join(partitions, ", "), strings.Join(factors, ", "))
	}
	return answerError{}
}

// readBrokers lists the registered brokers with their racks, sorted by id.
func readBrokers(ctx context.Context, store coord.Store) ([]brokerRack, error) {
	names, err := store.Children(ctx, coord.BrokerIDsPath)
	if err != nil {
		return nil, err
	}
	var ids []cluster.BrokerID
	for _, name := range names {
		if id, ok := coord.ParseBrokerPath(coord.BrokerIDsPath + "/" + name); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	paths := make([]string, 0, len(ids))
	for _, id := range ids {
		paths = append(paths, coord.BrokerPath(id))
	}
	nodes, err := store.GetMany(ctx, paths)
	if err != nil {
		return nil, err
	}
	out := make([]brokerRack, 0, len(ids))
	for i, r := range nodes {
		if r.Err != nil { // left between the two reads
			continue
		}
		b, err := coord.DecodeBroker(r.Node.Data)
		if err != nil {
			return nil, err
		}
		out = append(out, brokerRack{ids[i], b.Rack})
	}
	return out, nil
}

// queuedForDeletion answers additions to a topic that is being deleted.
var queuedForDeletion = answerError{cluster.InvalidTopicException, "The topic is queued for deletion."}

// additionWaits lists the items without error as what to wait for: all partitions of their topics, old and new.
func additionWaits(items []*partitionAddition) []leaderWait {
	var out []leaderWait
	for _, p := range items {
		if !p.err.failed() {
			out = append(out, leaderWait{p.req.Topic, p.id, p.total, &p.err})
		}
	}
	return out
}
