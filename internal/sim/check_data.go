package sim

import (
	"slices"

	"klamm/internal/cluster"
)

// No data of a topic that is wanted is touched, least of all of one that was created again: the only logs that are deleted
// are those of topics that somebody asked to delete, and those that a reassignment moved away, which are out of the ISR.

func (k *checks) logDeleted(n *Node, tp cluster.TopicPartition, id cluster.TopicID) {
	t := k.w.store.topics[tp.Topic]
	moved := t != nil && t.id == id && !slices.Contains(t.states[tp.Partition].ISR, n.id)
	if i := k.byID[id]; i != nil && i.wanted && !moved {
		k.w.failf("broker %d deletes %s of a topic that nobody asked to delete", n.id, tp)
	}
}
