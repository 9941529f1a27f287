package sim

import "klamm/internal/cluster"

// Caches converge to the store: in the end every broker's cache shows the leaderships of the store, and nothing else.

func (k *checks) cache(n *Node) {
	for name, t := range k.w.store.topics {
		for p := range t.partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if got, cached := n.cache[tp]; !cached || !got.State.Equal(t.states[p]) {
				k.w.failf("broker %d caches %s as {%s}, the store has {%s}", n.id, tp, got.State, t.states[p])
			}
		}
	}
	for _, tp := range sortedPartitions(n.cache) {
		t := k.w.store.topics[tp.Topic]
		if t != nil {
			if _, ok := t.partitions[tp.Partition]; ok {
				continue
			}
		}
		if !k.touchedByHand[tp.Topic] {
			k.w.failf("broker %d caches %s, which does not exist", n.id, tp)
		}
	}
}
