package group

import (
	"cmp"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// offset is a committed offset.
type offset struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	committed   Time
	expires     Time // negative: by the group's retention
}

func commitError(e Commit, code cluster.ErrorCode) CommitResult {
	return CommitResult{repeat(code, len(e.Offsets))}
}

// handleCommit follows Kafka's GroupCoordinator.doCommitOffsets.
func (c *Core) handleCommit(e Commit) {
	g := c.groups[e.Group]
	if g == nil {
		if e.Generation >= 0 {
			c.reply(e.Token, commitError(e, cluster.IllegalGeneration))
			return
		}
		// A group that only stores offsets and manages its partitions itself.
		g = newGroup(e.Group, c.now)
		c.groups[e.Group] = g
	}
	if code := c.mayCommit(g, e); code != cluster.None {
		c.reply(e.Token, commitError(e, code))
		return
	}
	errs := make([]cluster.ErrorCode, len(e.Offsets))
	var records []Record
	var written []int
	for i, o := range e.Offsets {
		if len(o.Metadata) > c.cfg.OffsetMetadataMax {
			errs[i] = cluster.OffsetMetadataTooLarge
			continue
		}
		written = append(written, i)
		records = append(records, offsetRecord(e.Group, o.TopicPartition, c.toStore(o)))
		g.inFlight[o.TopicPartition]++
	}
	if len(records) == 0 {
		c.reply(e.Token, CommitResult{errs})
		c.maybeForget(g)
		return
	}
	stored := make([]offset, len(written))
	for n, i := range written {
		stored[n] = c.toStore(e.Offsets[i])
	}
	c.append(records, func(code cluster.ErrorCode) {
		for n, i := range written {
			tp := e.Offsets[i].TopicPartition
			if g.inFlight[tp]--; g.inFlight[tp] == 0 {
				delete(g.inFlight, tp)
			}
			errs[i] = commitAppendError(code)
			if code == cluster.None && g.state != Dead {
				g.offsets[tp] = stored[n]
			}
		}
		c.reply(e.Token, CommitResult{errs})
	})
}

func (c *Core) toStore(o CommitOffset) offset {
	s := offset{offset: o.Offset, leaderEpoch: o.LeaderEpoch, metadata: o.Metadata, committed: c.now, expires: -1}
	if o.CommitTimestamp >= 0 {
		s.committed = Time(o.CommitTimestamp)
	}
	if o.ExpireTimestamp >= 0 {
		s.expires = Time(o.ExpireTimestamp)
	}
	return s
}

// mayCommit checks who commits (Kafka: validateOffsetCommit).
func (c *Core) mayCommit(g *group, e Commit) cluster.ErrorCode {
	outside := e.Generation < 0 && e.MemberID == "" && e.InstanceID == ""
	switch {
	case g.state == Dead:
		return cluster.CoordinatorNotAvailable
	case outside && g.state == Empty:
		return cluster.None
	case outside:
		// Somebody who is no member must not move the offsets of members that are alive.
		return cluster.UnknownMemberID
	}
	m, code := g.current(e.MemberID, e.InstanceID)
	switch {
	case code != cluster.None:
		return code
	case e.Generation != g.generation:
		return cluster.IllegalGeneration
	}
	c.keepAlive(g, m, m.sessionTimeoutMs)
	if g.state == CompletingRebalance {
		return cluster.RebalanceInProgress
	}
	return cluster.None
}

func (c *Core) fetchOffsets(e FetchOffsets) FetchOffsetsResult {
	g := c.groups[e.Group]
	parts := e.Partitions
	if e.All {
		parts = nil
		if g != nil {
			parts = slices.SortedFunc(maps.Keys(g.offsets), cluster.TopicPartition.Compare)
		}
	}
	var r FetchOffsetsResult
	for _, tp := range parts {
		f := FetchedOffset{TopicPartition: tp, Offset: -1, LeaderEpoch: -1}
		if g != nil {
			if o, ok := g.offsets[tp]; ok {
				f.Offset, f.LeaderEpoch, f.Metadata = o.offset, o.leaderEpoch, o.metadata
			}
		}
		r.Offsets = append(r.Offsets, f)
	}
	return r
}

// handlePartitionsDeleted forgets the offsets of partitions that are gone and writes their tombstones.
func (c *Core) handlePartitionsDeleted(e PartitionsDeleted) {
	var records []Record
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		for _, tp := range e.Partitions {
			if _, ok := g.offsets[tp]; ok {
				delete(g.offsets, tp)
				records = append(records, offsetTombstone(id, tp))
			}
		}
		records = append(records, c.maybeEnd(g)...)
	}
	c.appendAll(records)
}

// expireOffsets follows KIP-211: a group with members keeps the offsets of what it subscribes to, an empty one keeps
// all for the retention after it became empty, offsets without a group for the retention after their commit.
func (c *Core) expireOffsets() {
	var records []Record
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		for _, tp := range c.expired(g) {
			delete(g.offsets, tp)
			records = append(records, offsetTombstone(id, tp))
		}
		records = append(records, c.maybeEnd(g)...)
	}
	c.appendAll(records)
}

func (c *Core) expired(g *group) (tps []cluster.TopicPartition) {
	keep := map[string]bool{}
	sinceEmpty := false
	switch {
	case g.protocolType != "" && g.state == Empty:
		sinceEmpty = true
	case g.protocolType == "consumer" && g.state == Stable:
		topics, ok := g.subscribedTopics()
		if !ok {
			return nil
		}
		keep = topics
	case g.protocolType != "":
		return nil
	}
	for tp, o := range g.offsets {
		base := o.committed
		if sinceEmpty {
			base = g.stateSince
		}
		over := c.now-base >= Time(c.cfg.OffsetsRetentionMs)
		if o.expires >= 0 {
			over = c.now >= o.expires
		}
		if over && !keep[tp.Topic] && g.inFlight[tp] == 0 {
			tps = append(tps, tp)
		}
	}
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	return tps
}

// maybeEnd takes an empty group without offsets out; its stored metadata gets a tombstone.
func (c *Core) maybeEnd(g *group) []Record {
	if g.state != Empty || g.hasState() {
		return nil
	}
	g.transition(Dead, c.now)
	delete(c.groups, g.id)
	if g.generation == 0 && g.protocolType == "" {
		return nil
	}
	return []Record{groupTombstone(g.id)}
}

// appendAll writes tombstones in batches of a bounded size. Losing them is harmless: they are written again when the
// records are loaded and expire once more.
func (c *Core) appendAll(records []Record) {
	for batch := range slices.Chunk(records, 1000) {
		c.append(batch, func(cluster.ErrorCode) {})
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func repeat(code cluster.ErrorCode, n int) []cluster.ErrorCode {
	return slices.Repeat([]cluster.ErrorCode{code}, n)
}
