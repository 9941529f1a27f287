package sim

import (
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// hasLeftovers reports whether the broker finds a record of what it has to remove, and can tell whether it has it.
func (n *Node) hasLeftovers() bool {
	return len(n.w.store.leftovers[n.id]) > 0 && slices.ContainsFunc(n.leftovers(), n.canRemove)
}

// leftovers are the records for the broker that it sees: a klamm broker with a session.
func (n *Node) leftovers() []controller.Leftover {
	if !n.up || n.session == 0 || n.frozen || n.isKafka() {
		return nil
	}
	records := n.w.store.leftovers[n.id]
	ids := slices.SortedFunc(maps.Keys(records), func(a, b cluster.TopicID) int { return slices.Compare(a[:], b[:]) })
	out := make([]controller.Leftover, len(ids))
	for i, id := range ids {
		out[i] = records[id]
	}
	return out
}

// canRemove reports whether all replicas of a record are in working dirs, or are not here for sure. While the topic exists,
// what is on this broker, or runs on it, stays: the deletion has not ended yet, or the replica has come back.
func (n *Node) canRemove(l controller.Leftover) bool {
	t := n.w.store.topics[l.Name]
	exists := t != nil && t.id == l.ID
	for _, p := range l.Partitions {
		if exists && (n.hosted[cluster.TopicPartition{Topic: l.Name, Partition: p}] != nil || slices.Contains(t.partitions[p].Replicas, n.id)) {
			return false
		}
		log, onDisk := n.logs[cluster.TopicPartition{Topic: l.Name, Partition: p}]
		if onDisk && n.badDirs[log.dir] || !onDisk && (n.badDirs[0] || n.badDirs[1]) {
			return false
		}
	}
	return true
}

// removeLeftovers removes what the records name, known by topic id, and then the records.
func (n *Node) removeLeftovers() {
	for _, l := range n.leftovers() {
		if !n.canRemove(l) {
			continue
		}
		n.w.tracef(n, "= removes what the deletion of %s left %v", l.Name, l.Partitions)
		for _, p := range l.Partitions {
			tp := cluster.TopicPartition{Topic: l.Name, Partition: p}
			if log, onDisk := n.logs[tp]; onDisk && log.id == l.ID {
				n.w.checks.logDeleted(n, tp, log.id)
				delete(n.logs, tp)
			}
			if h := n.hosted[tp]; h != nil && h.id == l.ID {
				delete(n.hosted, tp)
			}
		}
		delete(n.w.store.leftovers[n.id], l.ID)
	}
}

// isLeft reports whether a record tells the broker to remove the replica.
func (s *store) isLeft(id cluster.BrokerID, tp cluster.TopicPartition, topic cluster.TopicID) bool {
	l, ok := s.leftovers[id][topic]
	return ok && slices.Contains(l.Partitions, tp.Partition)
}

// Leftovers lists the records of what absent brokers have to remove, by broker and topic id.
func (w *World) Leftovers() []controller.Leftover {
	var out []controller.Leftover
	for _, id := range slices.Sorted(maps.Keys(w.store.leftovers)) {
		for _, topic := range slices.SortedFunc(maps.Keys(w.store.leftovers[id]), func(a, b cluster.TopicID) int { return slices.Compare(a[:], b[:]) }) {
			out = append(out, w.store.leftovers[id][topic])
		}
	}
	return out
}

// isKafka reports whether the broker is Kafka's.
func (n *Node) isKafka() bool { return slices.Contains(n.w.opts.Kafka, n.id) }

// removeUnassigned is what a klamm broker does at start, before it hears of any controller: it removes replicas of topics
// that exist, with the same id, and are not on this broker any more.
func (n *Node) removeUnassigned() {
	if n.isKafka() {
		return
	}
	for _, tp := range sortedPartitions(n.logs) {
		log, t := n.logs[tp], n.w.store.topics[tp.Topic]
		if t == nil || log.id.IsZero() || log.id != t.id || n.badDirs[log.dir] {
			continue
		}
		if a, exists := t.partitions[tp.Partition]; exists && !slices.Contains(a.Replicas, n.id) {
			n.w.tracef(n, "= removes %s, which is on %v", tp, a.Replicas)
			delete(n.logs, tp)
		}
	}
}
