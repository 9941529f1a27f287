package group

import (
	"slices"

	"klamm/internal/cluster"
)

// expireOffsets follows KIP-211: a group with members keeps the offsets of what it subscribes to, an empty one keeps
// all for the retention after it became empty, offsets without a group for the retention after their commit. A group
// that has neither members nor offsets goes.
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

// expired lists what is over its time. Kafka counts an empty group's time from the moment it became empty alone; here a
// commit after that, which only an operator makes, counts too: offsets set by hand are not lost the minute after.
func (c *Core) expired(g *group) (tps []cluster.TopicPartition) {
	var keep map[string]bool
	sinceEmpty := false
	switch {
	case g.protocolType != "" && g.state == Empty:
		sinceEmpty = true
	case g.protocolType == consumerProtocol && g.state == Stable && g.subscribed != nil:
		keep = g.subscribed
	case g.protocolType != "":
		return nil
	}
	for tp, o := range g.offsets {
		base := o.committed
		if sinceEmpty {
			base = max(base, g.stateSince)
		}
		over := c.now-base >= Time(c.cfg.OffsetsRetentionMs)
		if o.expires >= 0 { // the committer named its time: the rule of old
			over = c.now >= o.expires
		}
		if over && !keep[tp.Topic] && g.inFlight[tp] == 0 {
			tps = append(tps, tp)
		}
	}
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	return tps
}

// maybeEnd takes an empty group without offsets out; if the log has a record of it, that gets a tombstone.
func (c *Core) maybeEnd(g *group) []Record {
	if g.state != Empty || g.hasState() {
		return nil
	}
	c.transition(g, Dead, "no members and no offsets are left")
	delete(c.groups, g.id)
	if g.generation == 0 {
		return nil
	}
	return []Record{groupTombstone(g.id)}
}

// appendAll writes tombstones. Losing them is harmless: they are written again when the records are loaded and expire
// once more.
func (c *Core) appendAll(records []Record) { c.appendTombstones(records, func(cluster.ErrorCode) {}) }

// tombstoneBatchBytes bounds the keys of one batch of tombstones, unless one alone is longer. The log refuses a batch above
// max.message.bytes whole, and with it the tombstones of groups that have nothing to do with the one that is so large.
const tombstoneBatchBytes = 64 << 10

// appendTombstones writes tombstones, of which there must be one at least for an answer, in batches of a bounded size, and calls then when
// all are answered, with the first failure.
func (c *Core) appendTombstones(records []Record, then func(cluster.ErrorCode)) {
	var batches [][]Record
	for len(records) > 0 {
		n := 1
		for bytes := len(records[0].Key); n < len(records); n++ {
			if bytes += len(records[n].Key); bytes > tombstoneBatchBytes {
				break
			}
		}
		batches, records = append(batches, records[:n]), records[n:]
	}
	left, failure := len(batches), cluster.None
	for _, batch := range batches {
		c.append(batch, func(code cluster.ErrorCode) {
			if failure == cluster.None {
				failure = code
			}
			if left--; left == 0 {
				then(failure)
			}
		})
	}
}
