package sim

import (
	"slices"

	"klamm/internal/cluster"
)

// Leaders converge to the store: in the end whoever leads a partition knows it, with the epochs and the ISR of the store. (Until
// it does its followers may wait, and what it proposes is refused.)

func (k *checks) leaders() {
	for name, t := range k.w.store.topics {
		for p, s := range t.states {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if _, assigned := t.partitions[p]; !assigned {
				continue // written while the topic was replaced by hand
			}
			n := k.w.nodes[s.Leader]
			if n == nil {
				continue // see states
			}
			h := n.hosted[tp]
			if h == nil {
				k.w.failf("broker %d leads %s and does not know of it", n.id, tp)
			} else if h.state.Leader != s.Leader || h.state.LeaderEpoch != s.LeaderEpoch || h.state.PartitionEpoch != s.PartitionEpoch || !slices.Equal(h.state.ISR, s.ISR) {
				k.w.failf("broker %d leads %s as {%s}, the store has {%s}", n.id, tp, h.state, s)
			}
		}
	}
}
