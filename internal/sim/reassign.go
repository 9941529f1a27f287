package sim

import (
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// RequestReassignment writes /admin/reassign_partitions, as old tools do; false when it is there already.
func (w *World) RequestReassignment(targets ...controller.ReassignmentTarget) bool {
	if w.store.reassign != nil {
		return false
	}
	w.tracef(nil, "reassignments are written: %v", targets)
	w.store.reassign = append([]controller.ReassignmentTarget{}, targets...)
	w.store.reassignVersion = 0
	w.store.fire(controller.Watched{Kind: controller.WatchReassignments})
	return true
}

// CatchUp lets every follower that has fallen out of its ISR catch up, until nothing changes any more: leaders ask for
// the ISR to grow, as brokers do by themselves.
func (w *World) CatchUp() {
	for range 20 {
		grown := w.Active() != nil && w.growISRs()
		w.tellISRs()
		if !grown || len(w.failures) > 0 {
			w.Settle()
			return
		}
		w.Settle()
	}
	w.failf("ISRs keep changing")
}

func (w *World) growISRs() (asked bool) {
	for _, name := range slices.Sorted(maps.Keys(w.store.topics)) {
		t := w.store.topics[name]
		for _, p := range slices.Sorted(maps.Keys(t.states)) {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if n := w.nodes[t.states[p].Leader]; n != nil && n.up && !n.frozen && w.growISR(n, tp) {
				asked = true
			}
		}
	}
	return asked
}

// growISR has the leader of a partition ask for an ISR of all replicas that live.
func (w *World) growISR(leader *Node, tp cluster.TopicPartition) bool {
	h := leader.hosted[tp]
	if h == nil || h.state.Leader != leader.id {
		return false
	}
	isr := slices.Clone(h.state.ISR)
	for _, id := range h.replicas {
		f := w.nodes[id]
		if f == nil || !f.up || f.frozen || f.stopping || slices.Contains(isr, id) || f.hosted[tp] == nil || f.hosted[tp].id != h.id {
			continue
		}
		isr = append(isr, id)
	}
	if len(isr) == len(h.state.ISR) {
		return false
	}
	if w.opts.LeadersWriteISR {
		return w.WriteISR(tp, isr...)
	}
	w.ask(w.Active(), controller.AlterPartition{
		Reply: w.nextToken(), Broker: leader.id, BrokerEpoch: leader.epoch, Version: alterPartitionVersion(h.id),
		Topics: []controller.AlterPartitionTopic{{Name: tp.Topic, ID: h.id, Partitions: []controller.AlterPartitionPartition{{
			Partition: tp.Partition, LeaderEpoch: h.state.LeaderEpoch, ISR: isr, Recovery: cluster.Recovered, PartitionEpoch: h.state.PartitionEpoch,
		}}}},
	})
	return true
}

// alterPartitionVersion is 1, by name, for a topic without an id.
func alterPartitionVersion(id cluster.TopicID) int16 {
	if id.IsZero() {
		return 1
	}
	return 3
}

// randomReassignment draws wishes for partitions that may exist.
func (w *World) randomReassignment() []controller.PartitionReassignment {
	var out []controller.PartitionReassignment
	for _, tp := range w.randomPartitions() {
		r := controller.PartitionReassignment{TopicPartition: tp}
		if w.rng.IntN(4) > 0 {
			r.Target = w.randomReplicas()
		}
		out = append(out, r)
	}
	return out
}

// requestRandomReassignment writes wishes as old tools do.
func (w *World) requestRandomReassignment() {
	targets := map[cluster.TopicPartition][]cluster.BrokerID{}
	for _, r := range w.randomReassignment() {
		targets[r.TopicPartition] = append([]cluster.BrokerID{}, r.Target...)
	}
	var out []controller.ReassignmentTarget
	for _, tp := range sortedPartitions(targets) {
		out = append(out, controller.ReassignmentTarget{TopicPartition: tp, Replicas: targets[tp]})
	}
	w.RequestReassignment(out...)
}
