package sim

import (
	"slices"

	"klamm/internal/cluster"
)

// The ISR is never empty and a part of the assignment; the leader is in the ISR. A new leader was in the ISR before, unless the election was
// unclean, which the topic, the broker default or the request must have allowed.

func (k *checks) isr(tp cluster.TopicPartition, t *topicNode, s cluster.LeaderAndISR) {
	if len(s.ISR) == 0 || s.Leader != cluster.NoBroker && !slices.Contains(s.ISR, s.Leader) {
		k.w.failf("%s has a leader outside of its ISR: {%s}", tp, s)
	}
	for _, id := range s.ISR {
		// A topic replaced by hand can meet the state of the one before; in the end it must be right, see states.
		if a, ok := t.partitions[tp.Partition]; ok && !slices.Contains(a.Replicas, id) && !k.touchedByHand[tp.Topic] {
			k.w.failf("%s has %d in its ISR, which is not assigned", tp, id)
		}
	}
}

// leader: who was not in the ISR becomes leader only by an unclean election.
func (k *checks) leader(tp cluster.TopicPartition, old *cluster.LeaderAndISR, s cluster.LeaderAndISR) {
	if old == nil || s.Leader == cluster.NoBroker || slices.Contains(old.ISR, s.Leader) || k.touchedByHand[tp.Topic] {
		return
	}
	if !k.w.uncleanAsked && !k.uncleanTopics[tp.Topic] {
		k.w.failf("%s gets leader %d, which was not in its ISR %v, and nobody allowed it", tp, s.Leader, old.ISR)
	}
	if s.Recovery != cluster.Recovering || !slices.Equal(s.ISR, []cluster.BrokerID{s.Leader}) {
		k.w.failf("%s has an unclean leader and {%s}", tp, s)
	}
}

// counted: within a leadership nobody joins the ISR whom the leader does not count, as a member or a candidate: what it lets clients read it
// knows of those alone. A leader of Kafka's does not say which registrations it means, so what it asked for long ago may still come true.
func (k *checks) counted(tp cluster.TopicPartition, old *cluster.LeaderAndISR, s cluster.LeaderAndISR) {
	leader := k.w.nodes[s.Leader]
	if old == nil || leader == nil || leader.isKafka() || s.LeaderEpoch != old.LeaderEpoch || k.touchedByHand[tp.Topic] {
		return
	}
	h := leader.hosted[tp]
	if h == nil || h.state.LeaderEpoch != s.LeaderEpoch {
		return
	}
	for _, id := range s.ISR {
		candidate := h.proposed != nil && slices.Contains(h.proposed.req.ISR, id)
		if !slices.Contains(old.ISR, id) && !slices.Contains(h.state.ISR, id) && !candidate {
			k.w.failf("%s gets %d into its ISR, and its leader %d does not know: {%s}", tp, id, s.Leader, h.state)
		}
	}
}

// states: in the end every partition has a leader, and an ISR of brokers that are assigned.
func (k *checks) states() {
	for name, t := range k.w.store.topics {
		for p, a := range t.partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			state, ok := t.states[p]
			if !ok || state.Leader == cluster.NoBroker {
				k.w.failf("%s has no leader: {%s}", tp, state)
			}
			for _, id := range state.ISR {
				if !slices.Contains(a.Replicas, id) {
					k.w.failf("%s has %d in its ISR, which is not assigned", tp, id)
				}
			}
		}
	}
}

func (k *checks) noLeaderInFailedDir() {
	for name, t := range k.w.store.topics {
		if _, queued := k.w.store.markers[name]; queued {
			continue
		}
		for p, state := range t.states {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if _, assigned := t.partitions[p]; !assigned {
				continue // written while the topic was replaced by hand
			}
			if n := k.w.nodes[state.Leader]; n != nil {
				if log, ok := n.logs[tp]; ok && n.badDirs[log.dir] {
					k.w.failf("%s is led by broker %d, where it lies in a failed log dir", tp, n.id)
				}
			}
		}
	}
}
