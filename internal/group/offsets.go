package group

import (
	"cmp"
	"maps"
	"slices"
	"unicode/utf16"

	"klamm/internal/cluster"
)

// offset is a committed offset.
type offset struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	committed   Time
	expires     Time // negative: by the group's retention
	// order is the place of its record in the log, relative to others: an append that is acknowledged late must not
	// replace what was written after it.
	order AppendID
}

// committed holds a group's offsets.
type committed struct {
	offsets map[cluster.TopicPartition]offset
	// inFlight counts appends of offsets that have not been answered, per partition.
	inFlight map[cluster.TopicPartition]int
	// removed notes, for partitions with appends in flight, up to which append they were taken back by a tombstone.
	removed map[cluster.TopicPartition]AppendID
	// txn holds offsets of transactions that have not ended, per producer id.
	txn map[int64]map[cluster.TopicPartition]offset
}

func newCommitted() committed {
	return committed{offsets: map[cluster.TopicPartition]offset{}, inFlight: map[cluster.TopicPartition]int{},
		removed: map[cluster.TopicPartition]AppendID{}, txn: map[int64]map[cluster.TopicPartition]offset{}}
}

// hasOffsets counts those to come, too.
func (o *committed) hasOffsets() bool {
	return len(o.offsets) > 0 || len(o.inFlight) > 0 || len(o.txn) > 0
}

// undecided reports whether a commit for the partition is under way.
func (o *committed) undecided(tp cluster.TopicPartition) bool {
	if o.inFlight[tp] > 0 {
		return true
	}
	for _, pending := range o.txn {
		if _, ok := pending[tp]; ok {
			return true
		}
	}
	return false
}

// put stores an offset unless a later one is there.
func (o *committed) put(tp cluster.TopicPartition, v offset) {
	if old, ok := o.offsets[tp]; !ok || old.order <= v.order {
		o.offsets[tp] = v
	}
}

// stage notes an offset of an open transaction.
func (o *committed) stage(producer int64, tp cluster.TopicPartition, v offset) {
	if o.txn[producer] == nil {
		o.txn[producer] = map[cluster.TopicPartition]offset{}
	}
	o.txn[producer][tp] = v
}

// unstage takes it back.
func (o *committed) unstage(producer int64, tp cluster.TopicPartition) {
	delete(o.txn[producer], tp)
	if len(o.txn[producer]) == 0 {
		delete(o.txn, producer)
	}
}

// forget drops everything about a partition and reports whether the log has, or may come to have, a record of it.
// The last append so far is before the tombstone that takes it back.
func (o *committed) forget(tp cluster.TopicPartition, last AppendID) bool {
	_, stored := o.offsets[tp]
	delete(o.offsets, tp)
	for producer := range o.txn {
		o.unstage(producer, tp)
	}
	if o.inFlight[tp] > 0 {
		o.removed[tp] = last
		return true
	}
	return stored
}

// partitions are those with a record in the log, or one on its way there, sorted.
func (o *committed) partitions() []cluster.TopicPartition {
	all := map[cluster.TopicPartition]bool{}
	for tp := range o.offsets {
		all[tp] = true
	}
	for tp := range o.inFlight {
		all[tp] = true
	}
	return slices.SortedFunc(maps.Keys(all), cluster.TopicPartition.Compare)
}

func commitError(e Commit, code cluster.ErrorCode) CommitResult {
	return CommitResult{repeat(code, len(e.Offsets))}
}

// handleCommit follows Kafka's GroupCoordinator.doCommitOffsets and doTxnCommitOffsets.
func (c *Core) handleCommit(e Commit) {
	g := c.groups[e.Group]
	if g == nil {
		if e.Generation >= 0 && e.Txn == nil {
			c.reply(e.Token, commitError(e, cluster.IllegalGeneration))
			return
		}
		// A group that only stores offsets and manages its partitions itself.
		g = newGroup(e.Group, c.now)
		c.groups[e.Group] = g
	}
	if code := c.mayCommit(g, e); code != cluster.None {
		c.reply(e.Token, commitError(e, code))
		c.maybeForget(g)
		return
	}
	errs := make([]cluster.ErrorCode, len(e.Offsets))
	var records []Record
	written := map[int]offset{} // by position in the request
	id := c.nextAppend + 1
	for i, o := range e.Offsets {
		if javaLength(o.Metadata) > c.cfg.OffsetMetadataMax {
			errs[i] = cluster.OffsetMetadataTooLarge
			continue
		}
		v := c.toStore(o, id)
		written[i] = v
		records = append(records, offsetRecord(e.Group, o.TopicPartition, v))
		g.inFlight[o.TopicPartition]++
		if e.Txn != nil {
			g.stage(e.Txn.ID, o.TopicPartition, v)
		}
	}
	if len(records) == 0 {
		c.reply(e.Token, CommitResult{errs})
		c.maybeForget(g)
		return
	}
	c.appendTxn(e.Txn, records, func(code cluster.ErrorCode) {
		for _, i := range sortedKeys(written) {
			errs[i] = commitAppendError(code)
			c.settle(g, e.Offsets[i].TopicPartition, written[i], e.Txn, code)
		}
		c.reply(e.Token, CommitResult{errs})
		if g.state != Dead {
			c.maybeForget(g)
		}
	})
}

// settle takes note of the outcome of an offset's append.
func (c *Core) settle(g *group, tp cluster.TopicPartition, v offset, txn *Producer, code cluster.ErrorCode) {
	takenBack := v.order <= g.removed[tp]
	if g.inFlight[tp]--; g.inFlight[tp] == 0 {
		delete(g.inFlight, tp)
		delete(g.removed, tp)
	}
	switch {
	case g.state == Dead || takenBack:
	case txn == nil && code == cluster.None:
		g.put(tp, v)
	case txn != nil && code != cluster.None && g.txn[txn.ID][tp] == v:
		g.unstage(txn.ID, tp)
	}
}

// javaLength is what Kafka compares with offset.metadata.max.bytes: UTF-16 units.
func javaLength(s string) (n int) {
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

func (c *Core) toStore(o CommitOffset, order AppendID) offset {
	s := offset{offset: o.Offset, leaderEpoch: o.LeaderEpoch, metadata: o.Metadata, committed: c.now, expires: -1, order: order}
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
	switch {
	case e.Generation < 0 && g.state == Empty:
		// From outside of the group's protocol: an operator, or a consumer that assigns its partitions itself.
		return cluster.None
	case e.Generation < 0 && e.MemberID == "" && e.InstanceID == "" && e.Txn != nil:
		return cluster.None // producers before TxnOffsetCommit v3 do not say for which member they commit
	case e.Generation < 0 && e.MemberID == "" && e.InstanceID == "":
		// Somebody who is no member must not move the offsets of members that are alive.
		return cluster.UnknownMemberID
	}
	m, code := g.current(e.MemberID, e.InstanceID)
	switch {
	case code != cluster.None:
		return code
	case e.Generation != g.generation:
		return cluster.IllegalGeneration
	case e.Txn != nil:
		return cluster.None
	case g.state == CompletingRebalance:
		return cluster.RebalanceInProgress
	}
	c.keepAlive(g, m, m.sessionTimeoutMs)
	return cluster.None
}

// endTxn makes the offsets of a transaction count, or forgets them (Kafka: handleTxnCompletion).
func (c *Core) endTxn(e TxnEnded) {
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		pending, ok := g.txn[e.ProducerID]
		if !ok {
			continue
		}
		delete(g.txn, e.ProducerID)
		if e.Commit {
			for tp, v := range pending {
				g.put(tp, v)
			}
		}
		if !c.loading {
			c.maybeForget(g)
		}
	}
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
	r := FetchOffsetsResult{Offsets: make([]FetchedOffset, 0, len(parts))}
	for _, tp := range parts {
		f := FetchedOffset{TopicPartition: tp, Offset: -1, LeaderEpoch: -1}
		switch {
		case g == nil:
		case e.RequireStable && g.undecided(tp):
			f.Err = cluster.UnstableOffsetCommit
		default:
			if o, ok := g.offsets[tp]; ok {
				f.Offset, f.LeaderEpoch, f.Metadata = o.offset, o.leaderEpoch, o.metadata
			}
		}
		r.Offsets = append(r.Offsets, f)
	}
	return r
}

// Committed lists the partitions for which there are committed offsets, those of open transactions included, in no order; also while
// records are being loaded.
func (c *Core) Committed() []cluster.TopicPartition {
	all := map[cluster.TopicPartition]struct{}{}
	for _, g := range c.groups {
		for tp := range g.offsets {
			all[tp] = struct{}{}
		}
		for _, staged := range g.txn {
			for tp := range staged {
				all[tp] = struct{}{}
			}
		}
	}
	return slices.Collect(maps.Keys(all))
}

// removePartitions forgets the offsets of partitions that are gone and writes their tombstones.
func (c *Core) removePartitions(gone []cluster.TopicPartition) {
	var records []Record
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		for _, tp := range gone {
			if g.forget(tp, c.nextAppend) {
				records = append(records, offsetTombstone(id, tp))
			}
		}
		records = append(records, c.maybeEnd(g)...)
	}
	c.appendAll(records)
}

// sortedKeys makes walks over maps the same in every run.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func repeat(code cluster.ErrorCode, n int) []cluster.ErrorCode {
	return slices.Repeat([]cluster.ErrorCode{code}, n)
}
