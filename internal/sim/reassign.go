package sim

import (
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
