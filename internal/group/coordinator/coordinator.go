// Package coordinator runs the group coordinator of one broker: for each partition of __consumer_offsets that the broker
// leads a shard, which is a goroutine that owns one group.Core (Kafka: GroupCoordinator, GroupMetadataManager).
//
// A shard takes requests and events from its inbox, feeds them to the core one at a time and carries out the effects:
// answers, appends to its partition, timers. When the broker becomes the partition's leader a loader beside the shard
// reads the log while the shard answers COORDINATOR_LOAD_IN_PROGRESS; when it ceases to lead, the shard answers
// whatever waits and ends.
//
// Goroutines: Run starts and awaits the shards, a shard its loader. Nobody blocks on a shard: a full inbox refuses
// requests. Locks, both leaves: Coordinator.mu guards the map of shards, shard.inbox its queue. Functions named done are
// called without locks, exactly once, on a shard's goroutine or the caller's own.
package coordinator

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"unicode/utf16"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/group"
	"klamm/internal/metadata"
	"klamm/internal/replica"
)

// Options are what a Coordinator works with; all are required.
type Options struct {
	Log      *slog.Logger
	Config   *config.Dynamic
	Cache    *metadata.Cache
	Replicas *replica.Manager
	// TopicsGone gives those of the topics that do not exist, or are being deleted, by the coordination store. It may take its time; ctx ends it.
	TopicsGone func(ctx context.Context, topics []string) ([]string, error)
}

// loadsAtOnce bounds how many partitions are read at a time: each needs a buffer of offsets.load.buffer.size.
const loadsAtOnce = 4

// Coordinator serves the groups whose partition of __consumer_offsets this broker leads. It is safe for concurrent use.
type Coordinator struct {
	o     Options
	wake  chan struct{} // capacity 1: there are shards to start
	loads chan struct{} // one slot per load under way

	mu struct {
		sync.Mutex
		shards   map[int32]*shard // by partition, those that serve or load
		last     map[int32]*shard // the latest shard of a partition, also after its end: its successor waits for it
		epochs   map[int32]cluster.LeaderEpoch
		starting []*shard
		stopped  bool
	}
	counters counters
}

// New makes a coordinator. It serves nothing until Run runs and leadership is announced.
func New(o Options) *Coordinator {
	c := &Coordinator{o: o, wake: make(chan struct{}, 1), loads: make(chan struct{}, loadsAtOnce)}
	c.mu.shards, c.mu.last, c.mu.epochs = map[int32]*shard{}, map[int32]*shard{}, map[int32]cluster.LeaderEpoch{}
	return c
}

// Run runs the shards until the context ends; then everything that waits is answered. It must run once.
func (c *Coordinator) Run(ctx context.Context) error {
	var shards sync.WaitGroup
	defer shards.Wait()
	for {
		over := ctx.Err() != nil
		c.mu.Lock()
		c.mu.stopped = over
		starting := c.mu.starting
		c.mu.starting = nil
		c.mu.Unlock()
		for _, s := range starting {
			shards.Go(func() { s.run(ctx) })
		}
		if over {
			return nil
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
	}
}

// LeadershipChanged is replica.Hooks.LeadershipChanged: shards begin for elected partitions and end for resigned ones.
// What is older than the latest leader epoch seen for a partition is ignored. It does not block.
func (c *Coordinator) LeadershipChanged(elected, resigned []replica.PartitionEpoch) {
	var ending []*shard
	c.mu.Lock()
	for _, p := range resigned {
		if p.TP.Topic == cluster.GroupOffsetsTopic && c.isCurrentLocked(p) {
			if s := c.mu.shards[p.TP.Partition]; s != nil {
				delete(c.mu.shards, p.TP.Partition)
				ending = append(ending, s)
			}
		}
	}
	for _, p := range elected {
		if p.TP.Topic != cluster.GroupOffsetsTopic || !c.isCurrentLocked(p) || c.mu.stopped {
			continue
		}
		if c.mu.shards[p.TP.Partition] == nil { // else it led before, too: what the shard knows is still so
			s := newShard(c, p.TP.Partition, c.mu.last[p.TP.Partition])
			c.mu.shards[p.TP.Partition], c.mu.last[p.TP.Partition] = s, s
			c.mu.starting = append(c.mu.starting, s)
		}
	}
	c.mu.Unlock()
	for _, s := range ending {
		s.end()
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// isCurrentLocked reports whether the news is not older than the latest about its partition, and notes its epoch.
// Deletions come without an epoch, and with the last word: the topic may come back with epochs from zero.
func (c *Coordinator) isCurrentLocked(p replica.PartitionEpoch) bool {
	if p.LeaderEpoch < 0 {
		delete(c.mu.epochs, p.TP.Partition)
		return true
	}
	if known, ok := c.mu.epochs[p.TP.Partition]; ok && p.LeaderEpoch < known {
		return false
	}
	c.mu.epochs[p.TP.Partition] = p.LeaderEpoch
	return true
}

// abandon ends a shard by itself: it cannot write to its partition any more.
func (c *Coordinator) abandon(s *shard) {
	c.mu.Lock()
	if c.mu.shards[s.partition] == s {
		delete(c.mu.shards, s.partition)
	}
	c.mu.Unlock()
	s.end()
}

// PartitionsRemoved is replica.Hooks.PartitionsRemoved: committed offsets of the partitions go. It does not block.
func (c *Coordinator) PartitionsRemoved(tps []cluster.TopicPartition) {
	for _, s := range c.serving() {
		s.post(group.PartitionsDeleted{Partitions: tps})
	}
}

// TxnEnded says that a marker which ends a producer's transaction was appended to a partition of __consumer_offsets: the
// offsets that the transaction committed count now, or never. It does not block.
func (c *Coordinator) TxnEnded(partition int32, producerID int64, commit bool) {
	if s, _ := c.shard(partition); s != nil {
		s.post(group.TxnEnded{ProducerID: producerID, Commit: commit})
	}
}

// PartitionFor is the partition of __consumer_offsets that holds the group: by the number of partitions that the topic
// has, or will have.
func (c *Coordinator) PartitionFor(groupID string) int32 {
	n := c.o.Config.Broker().OffsetsTopicNumPartitions
	if t, ok := c.o.Cache.Image().Topic(cluster.GroupOffsetsTopic); ok {
		n = len(t.Partitions)
	}
	return partitionFor(groupID, n)
}

// partitionFor is Java's String.hashCode, made positive by Kafka's Utils.abs, modulo n.
func partitionFor(groupID string, n int) int32 {
	var hash int32
	for _, unit := range utf16.Encode([]rune(groupID)) {
		hash = 31*hash + int32(unit)
	}
	positive := int64(hash)
	switch {
	case positive == -1<<31:
		positive = 0
	case positive < 0:
		positive = -positive
	}
	return int32(positive % int64(n))
}

// Ask hands a request about one group to its shard; done gets the result, of the type that the request's comment names
// in package group. The token is set here. Where the broker does not lead the group's partition, or may do so no more
// (see replica.Manager.InDoubt), the result is NOT_COORDINATOR.
func (c *Coordinator) Ask(r group.Request, done func(any)) {
	if r.GroupID() == "" && needsGroupID(r) {
		done(group.Refusal(r, cluster.InvalidGroupID))
		return
	}
	partition := c.PartitionFor(r.GroupID())
	s, code := c.shard(partition)
	if code == cluster.None && c.o.Replicas.InDoubt(cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic, Partition: partition}) {
		code = cluster.NotCoordinator
	}
	if code != cluster.None {
		done(group.Refusal(r, code))
		return
	}
	s.ask(r, done)
}

// needsGroupID tells requests of the group protocol from those that also work on the group without a name, in which old
// clients store offsets (Kafka: GroupCoordinator.isValidGroupId).
func needsGroupID(r group.Request) bool {
	switch r.(type) {
	case group.Commit, group.FetchOffsets, group.Describe, group.DeleteGroup:
		return false
	}
	return true
}

// List gives the groups of all partitions led here; states filters, empty for all. COORDINATOR_LOAD_IN_PROGRESS comes
// with the groups of the partitions that are loaded.
func (c *Coordinator) List(states []string, done func(group.ListResult)) {
	if _, code := c.shard(0); code == cluster.CoordinatorNotAvailable {
		done(group.ListResult{Err: code})
		return
	}
	shards := c.serving()
	var gather struct {
		sync.Mutex
		left int
		all  group.ListResult
	}
	gather.left = len(shards) + 1
	part := func(r group.ListResult) {
		gather.Lock()
		gather.all.Groups = append(gather.all.Groups, r.Groups...)
		if r.Err == cluster.CoordinatorLoadInProgress { // one that has just resigned has no say
			gather.all.Err = r.Err
		}
		gather.left--
		last := gather.left == 0
		gather.Unlock()
		if last {
			slices.SortFunc(gather.all.Groups, func(a, b group.Overview) int { return cmp.Compare(a.Group, b.Group) })
			done(gather.all)
		}
	}
	for _, s := range shards {
		s.ask(group.List{States: states}, func(v any) { part(v.(group.ListResult)) })
	}
	part(group.ListResult{})
}

// shard finds who serves a partition; with a code when nobody does.
func (c *Coordinator) shard(partition int32) (*shard, cluster.ErrorCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := c.mu.shards[partition]; {
	case c.mu.stopped:
		return nil, cluster.CoordinatorNotAvailable
	case s == nil:
		return nil, cluster.NotCoordinator
	default:
		return s, cluster.None
	}
}

// serving lists the shards by partition.
func (c *Coordinator) serving() []*shard {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*shard, 0, len(c.mu.shards))
	for _, s := range c.mu.shards {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *shard) int { return cmp.Compare(a.partition, b.partition) })
	return out
}
