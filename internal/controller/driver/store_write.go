package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/coord"
)

// itemOf turns the result of one operation on a node into the core's terms.
func itemOf(r coord.OpResult) controller.ItemResult {
	switch {
	case r.Err == nil:
		return controller.ItemResult{Status: controller.ItemOK, Version: r.Stat.Version}
	case errors.Is(r.Err, coord.ErrBadVersion):
		return controller.ItemResult{Status: controller.ItemConflict, Err: r.Err.Error()}
	case errors.Is(r.Err, coord.ErrNodeExists):
		return controller.ItemResult{Status: controller.ItemExists, Err: r.Err.Error()}
	case errors.Is(r.Err, coord.ErrNoNode):
		return controller.ItemResult{Status: controller.ItemNoNode, Err: r.Err.Error()}
	default:
		return controller.ItemResult{Status: controller.ItemFailed, Err: r.Err.Error()}
	}
}

// createStates creates state nodes with their parents, all in one batch: within it a child may follow its parent. A
// parent that exists fails alone, which is fine; a missing topic node fails all below it with ItemNoNode.
func (o *storeOp) createStates(ctx context.Context, writes []controller.PartitionStateWrite) (controller.StoreValue, error) {
	ops := make([]coord.Op, 0, 2*len(writes)+8)
	at := make([]int, len(writes)) // of the state's own operation
	parents := map[string]bool{}
	for i, w := range writes {
		if !parents[w.Topic] {
			parents[w.Topic] = true
			ops = append(ops, coord.Create(coord.PartitionsPath(w.Topic), nil))
		}
		ops = append(ops, coord.Create(coord.PartitionPath(w.TopicPartition), nil))
		at[i] = len(ops)
		ops = append(ops, coord.Create(coord.PartitionStatePath(w.TopicPartition), coord.EncodePartitionState(w.State)))
	}
	results, err := o.d.store.Batch(ctx, o.guard, ops)
	if err != nil {
		return nil, fmt.Errorf("create partition states: %w", err)
	}
	items := make([]controller.ItemResult, len(writes))
	for i := range writes {
		items[i] = stateWritten(results[at[i]])
	}
	o.addFresh(ctx, writes, items)
	return controller.Written{Items: items}, nil
}

func (o *storeOp) setStates(ctx context.Context, writes []controller.PartitionStateWrite) (controller.StoreValue, error) {
	ops := make([]coord.Op, len(writes))
	for i, w := range writes {
		ops[i] = coord.Set(coord.PartitionStatePath(w.TopicPartition), coord.EncodePartitionState(w.State), int32(w.State.PartitionEpoch))
	}
	results, err := o.d.store.Batch(ctx, o.guard, ops)
	if err != nil {
		return nil, fmt.Errorf("set partition states: %w", err)
	}
	items := make([]controller.ItemResult, len(writes))
	for i, r := range results {
		items[i] = stateWritten(r)
	}
	o.addFresh(ctx, writes, items)
	return controller.Written{Items: items}, nil
}

func stateWritten(r coord.OpResult) controller.ItemResult {
	item := itemOf(r)
	if item.Status == controller.ItemOK {
		item.State.PartitionEpoch = cluster.PartitionEpoch(r.Stat.Version)
	}
	return item
}

// addFresh reads the states of items that found another one in place. The writes are done by then, so a failure to
// read is no failure of theirs: the core reads again where it needs to.
func (o *storeOp) addFresh(ctx context.Context, writes []controller.PartitionStateWrite, items []controller.ItemResult) {
	var tps []cluster.TopicPartition
	var at []int
	for i, item := range items {
		if item.Status == controller.ItemConflict || item.Status == controller.ItemExists {
			tps, at = append(tps, writes[i].TopicPartition), append(at, i)
		}
	}
	if len(tps) == 0 {
		return
	}
	reads, err := o.readStates(ctx, tps)
	if err != nil {
		return
	}
	for k, r := range reads {
		if r.HasState {
			items[at[k]].State, items[at[k]].HasState = r.State, true
		}
	}
}

// setTopics writes topic nodes that still are the incarnation meant. Only somebody's hand replaces a topic between the look and the
// write, and only to one at the same version would it go unnoticed.
func (o *storeOp) setTopics(ctx context.Context, topics []controller.TopicWrite) (controller.StoreValue, error) {
	refs := make([]controller.NodeRef, len(topics))
	for i, t := range topics {
		refs[i] = controller.NodeRef{Topic: t.Name, Czxid: t.Czxid}
	}
	items, err := o.ofIncarnation(ctx, refs, coord.TopicPath)
	if err != nil {
		return nil, fmt.Errorf("read topics to set: %w", err)
	}
	var ops []coord.Op
	var at []int
	for i, t := range topics {
		switch items[i].Status {
		case controller.ItemOK: // it is absent
			items[i].Status = controller.ItemNoNode
			continue
		case 0:
		default:
			continue
		}
		node := coord.Topic{ID: t.ID, Partitions: make(map[int32]cluster.ReplicaAssignment, len(t.Partitions))}
		for _, p := range t.Partitions {
			node.Partitions[p.Partition] = p.Assignment
		}
		ops, at = append(ops, coord.Set(coord.TopicPath(t.Name), coord.EncodeTopic(node), t.Version)), append(at, i)
	}
	if len(ops) == 0 {
		return controller.Written{Items: items}, nil
	}
	value, err := o.batch(ctx, "set topics", ops)
	if err != nil {
		return nil, err
	}
	for k, item := range value.(controller.Written).Items {
		items[at[k]] = item
	}
	return controller.Written{Items: items}, nil
}

func (o *storeOp) batch(ctx context.Context, what string, ops []coord.Op) (controller.StoreValue, error) {
	results, err := o.d.store.Batch(ctx, o.guard, ops)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	items := make([]controller.ItemResult, len(results))
	for i, r := range results {
		items[i] = itemOf(r)
	}
	return controller.Written{Items: items}, nil
}

// remove deletes nodes whatever their version; an absent one is done already.
func (o *storeOp) remove(ctx context.Context, paths []string) (controller.StoreValue, error) {
	ops := make([]coord.Op, len(paths))
	for i, p := range paths {
		ops[i] = coord.Delete(p, coord.AnyVersion)
	}
	value, err := o.batch(ctx, "delete nodes", ops)
	if err != nil {
		return nil, err
	}
	w := value.(controller.Written)
	for i := range w.Items {
		if w.Items[i].Status == controller.ItemNoNode {
			w.Items[i] = controller.ItemResult{Status: controller.ItemOK}
		}
	}
	return w, nil
}

// setReassignments rewrites /admin/reassign_partitions, or removes it with the last entry.
func (o *storeOp) setReassignments(ctx context.Context, op controller.SetReassignments) (controller.StoreValue, error) {
	if len(op.Targets) == 0 {
		return o.deleteAt(ctx, coord.ReassignPartitionsPath, op.Version)
	}
	targets := make(map[cluster.TopicPartition][]cluster.BrokerID, len(op.Targets))
	for _, t := range op.Targets {
		targets[t.TopicPartition] = t.Replicas
	}
	return o.batch(ctx, "set reassignments", []coord.Op{coord.Set(coord.ReassignPartitionsPath, coord.EncodeReassignment(targets), op.Version)})
}

// deleteAt deletes a node at a version; an absent one is done already.
func (o *storeOp) deleteAt(ctx context.Context, path string, version int32) (controller.StoreValue, error) {
	value, err := o.batch(ctx, "delete "+path, []coord.Op{coord.Delete(path, version)})
	if err != nil {
		return nil, err
	}
	w := value.(controller.Written)
	if w.Items[0].Status == controller.ItemNoNode {
		w.Items[0] = controller.ItemResult{Status: controller.ItemOK}
	}
	return w, nil
}

// ofIncarnation reads the nodes and judges each reference: ItemOK for an absent node, ItemConflict for another
// incarnation; the zero status leaves the node to be deleted.
func (o *storeOp) ofIncarnation(ctx context.Context, refs []controller.NodeRef, path func(string) string) ([]controller.ItemResult, error) {
	items := make([]controller.ItemResult, len(refs))
	names := make([]string, len(refs))
	for i, r := range refs {
		names[i] = r.Topic
	}
	reads, err := o.getMany(ctx, names, path)
	if err != nil {
		return nil, err
	}
	for i, r := range reads {
		switch {
		case errors.Is(r.Err, coord.ErrNoNode):
			items[i].Status = controller.ItemOK
		case r.Err != nil:
			items[i] = controller.ItemResult{Status: controller.ItemFailed, Err: r.Err.Error()}
		case refs[i].Czxid != controller.AnyCzxid && refs[i].Czxid != r.Node.Stat.Czxid:
			items[i] = controller.ItemResult{Status: controller.ItemConflict, Err: "the node belongs to another incarnation"}
		}
	}
	return items, nil
}

// deleteTrees removes topic nodes with all below. Nobody but a controller, fenced, removes a topic node, so the
// incarnation that was read is the one that is deleted.
func (o *storeOp) deleteTrees(ctx context.Context, topics []controller.NodeRef) (controller.StoreValue, error) {
	items, err := o.ofIncarnation(ctx, topics, coord.TopicPath)
	if err != nil {
		return nil, fmt.Errorf("read topics to delete: %w", err)
	}
	// Side by side, for the engine makes transactions durable together; one after the other each would wait for the disk.
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(treesInFlight)
	for i, t := range topics {
		if items[i].Status != 0 {
			continue
		}
		calls.Go(func() error {
			if err := o.d.store.DeleteTree(callCtx, o.guard, coord.TopicPath(t.Topic)); err != nil {
				return fmt.Errorf("delete topic node of %s: %w", t.Topic, err)
			}
			items[i].Status = controller.ItemOK
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	return controller.Written{Items: items}, nil
}

// treesInFlight bounds the topics whose nodes are deleted at the same time.
const treesInFlight = 64

func (o *storeOp) deleteMarkers(ctx context.Context, markers []controller.NodeRef) (controller.StoreValue, error) {
	items, err := o.ofIncarnation(ctx, markers, coord.DeleteTopicPath)
	if err != nil {
		return nil, fmt.Errorf("read deletion markers: %w", err)
	}
	var paths []string
	var at []int
	for i, m := range markers {
		if items[i].Status == 0 {
			paths, at = append(paths, coord.DeleteTopicPath(m.Topic)), append(at, i)
		}
	}
	if len(paths) == 0 {
		return controller.Written{Items: items}, nil
	}
	value, err := o.remove(ctx, paths)
	if err != nil {
		return nil, err
	}
	for k, item := range value.(controller.Written).Items {
		items[at[k]] = item
	}
	return controller.Written{Items: items}, nil
}

// mergedLeftover adds the partitions of a record to those of the one that is there.
func (o *storeOp) mergedLeftover(ctx context.Context, path string, l controller.Leftover) ([]byte, error) {
	merged := coord.Leftover{Topic: l.Name, TopicID: l.ID, Partitions: slices.Clone(l.Partitions), TimestampMs: int64(l.At)}
	node, err := o.d.store.Get(ctx, path)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return nil, fmt.Errorf("read leftover: %w", err)
	}
	if there, err := coord.DecodeLeftover(node.Data); err == nil {
		merged.Partitions = append(merged.Partitions, there.Partitions...)
	}
	slices.Sort(merged.Partitions)
	merged.Partitions = slices.Compact(merged.Partitions)
	return coord.EncodeLeftover(merged), nil
}

// recordLeftovers writes what absent brokers have to remove, on top of what is written already.
func (o *storeOp) recordLeftovers(ctx context.Context, leftovers []controller.Leftover) (controller.StoreValue, error) {
	var ops []coord.Op
	at := make([]int, len(leftovers))
	for i, l := range leftovers {
		if i == 0 || leftovers[i-1].Broker != l.Broker {
			ops = append(ops, coord.Create(coord.LeftoversOfPath(l.Broker), nil))
		}
		at[i] = len(ops)
		data := coord.EncodeLeftover(coord.Leftover{Topic: l.Name, TopicID: l.ID, Partitions: l.Partitions, TimestampMs: int64(l.At)})
		ops = append(ops, coord.Create(coord.LeftoverPath(l.Broker, l.ID), data))
	}
	results, err := o.d.store.Batch(ctx, o.guard, ops)
	if err != nil {
		return nil, fmt.Errorf("record leftovers: %w", err)
	}
	items := make([]controller.ItemResult, len(leftovers))
	var again []coord.Op
	var of []int
	for i, l := range leftovers {
		items[i] = itemOf(results[at[i]])
		if items[i].Status == controller.ItemExists {
			data, err := o.mergedLeftover(ctx, ops[at[i]].Path, l)
			if err != nil {
				return nil, err
			}
			again, of = append(again, coord.Set(ops[at[i]].Path, data, coord.AnyVersion)), append(of, i)
		}
	}
	if len(again) == 0 {
		return controller.Written{Items: items}, nil
	}
	value, err := o.batch(ctx, "replace leftovers", again)
	if err != nil {
		return nil, err
	}
	for k, item := range value.(controller.Written).Items {
		items[of[k]] = item
	}
	return controller.Written{Items: items}, nil
}

// deleteNotifications removes children of a notification root; nil removes all. One item in all.
func (o *storeOp) deleteNotifications(ctx context.Context, root string, names []string) (controller.StoreValue, error) {
	if names == nil {
		all, err := o.children(ctx, root)
		if err != nil {
			return nil, err
		}
		names = all
	}
	done := controller.Written{Items: []controller.ItemResult{{Status: controller.ItemOK}}}
	if len(names) == 0 {
		return done, nil
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = root + "/" + name
	}
	value, err := o.remove(ctx, paths)
	if err != nil {
		return nil, err
	}
	for _, item := range value.(controller.Written).Items {
		if item.Status != controller.ItemOK {
			done.Items[0] = item
		}
	}
	return done, nil
}

func (o *storeOp) setProducerIDBlock(ctx context.Context, op controller.SetProducerIDBlock) (controller.StoreValue, error) {
	data := coord.EncodeProducerIDBlock(coord.ProducerIDBlock{Broker: op.Block.Broker, First: op.Block.Start, Last: op.Block.End})
	value, err := o.batch(ctx, "set producer id block", []coord.Op{coord.Set(coord.ProducerIDBlockPath, data, op.Version)})
	if err != nil || value.(controller.Written).Items[0].Status != controller.ItemNoNode {
		return value, err
	}
	// Brokers create the node when they start; a store set up by other means may lack it.
	return o.batch(ctx, "create producer id block", []coord.Op{coord.Create(coord.ProducerIDBlockPath, data)})
}
