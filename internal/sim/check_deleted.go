package sim

import "klamm/internal/cluster"

// No deleted topic returns.

// logCreated: a broker whose session has expired may still obey a controller that does not know either that it lost its
// office; what that leaves on disk must be gone in the end.
func (k *checks) logCreated(n *Node, tp cluster.TopicPartition, id cluster.TopicID) {
	if i := k.byID[id]; i != nil && i.removed && !i.byHand && !n.frozen && n.session != 0 {
		k.w.failf("broker %d creates a log of %s, which is deleted", n.id, tp)
	}
}
