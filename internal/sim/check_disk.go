package sim

import (
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Disks converge: in the end nothing of deleted topics is left, and every assigned replica is there. Excepted are what is known
// as W20: replicas that a reassignment removed and whose broker could not delete them or never got the request. A broker
// looks for them when it starts, while the topic exists; if it is deleted before that they are strays for good.

func (k *checks) disk(n *Node) {
	for _, tp := range sortedPartitions(n.logs) {
		id := n.logs[tp].id
		isKafka := slices.Contains(k.w.opts.Kafka, n.id) && k.w.store.isLeft(n.id, tp, id) // it does not know the record
		if i := k.byID[id]; i != nil && i.removed && !i.byHand && !isKafka && !k.strays[stray{n.id, tp, id}] && !k.restored[stray{n.id, tp, id}] {
			k.w.failf("broker %d has %s of a deleted topic", n.id, tp)
		}
	}
	for name, t := range k.w.store.topics {
		for p, a := range t.partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if log, ok := n.logs[tp]; ok && log.id == t.id && !slices.Contains(a.Replicas, n.id) && !k.mayKeepStray(n, stray{n.id, tp, log.id}) {
				k.w.failf("broker %d has %s, which is on %v", n.id, tp, a.Replicas)
			}
			if log, ok := n.logs[tp]; slices.Contains(a.Replicas, n.id) && (!ok || log.id != t.id) {
				k.w.failf("broker %d has no log of %s", n.id, tp)
			}
		}
	}
	if n.hasLeftovers() {
		k.w.failf("broker %d has not removed what deletions left", n.id)
	}
}

// mayKeepStray: a replica that a reassignment removed stays on a broker that could not delete it, or whose controller lost its
// office before it was confirmed, until the broker starts the next time; on Kafka's brokers for ever.
func (k *checks) mayKeepStray(n *Node, s stray) bool {
	moved, ok := n.movedAway[s]
	if k.w.store.isLeft(s.broker, s.tp, s.id) && n.hosted[s.tp] != nil {
		return true // the record is for the next start: a broker never removes what runs on it
	}
	return k.w.deletionsFailed || slices.Contains(k.w.opts.Kafka, n.id) || ok && moved != k.w.store.epoch
}

// assignmentWritten notes which replicas an assignment moves away.
func (k *checks) assignmentWritten(name string, t *topicNode, to []controller.PartitionAssignment) {
	for _, pa := range to {
		for _, id := range t.partitions[pa.Partition].Replicas {
			if n := k.w.nodes[id]; n != nil && n.up && !slices.Contains(pa.Assignment.Replicas, id) {
				n.movedAway[stray{id, cluster.TopicPartition{Topic: name, Partition: pa.Partition}, t.id}] = k.w.store.epoch
			}
		}
	}
}
