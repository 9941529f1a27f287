package sim

import "klamm/internal/controller"

// At most one controller's writes take effect per epoch: every write of a term is fenced, is applied only while its epoch is the one of the
// store, and comes from the one process that was elected to it.

func (k *checks) write(n *Node, e controller.Store) {
	if isRead(e.Op) {
		return
	}
	switch e.Op.(type) {
	case controller.Elect, controller.CreateControllerEpoch, controller.DeleteController:
		return // how an office begins and ends; see elected
	}
	epoch := k.w.store.epoch
	if !e.Fenced || n.core.Epoch() != epoch {
		k.w.failf("broker %d of epoch %d has %T applied in epoch %d, fenced: %v", n.id, n.core.Epoch(), e.Op, epoch, e.Fenced)
	}
	if w, ok := k.writers[epoch]; ok && w != n.core {
		k.w.failf("broker %d has %T applied in epoch %d, in which another process had writes applied", n.id, e.Op, epoch)
	}
	k.writers[epoch] = n.core
}

func isRead(op controller.StoreOp) bool {
	switch op.(type) {
	case controller.ReadController, controller.ReadControllerEpoch, controller.ReadBrokers, controller.ReadTopicNames,
		controller.ReadTopics, controller.ReadPartitionStates, controller.ReadDeletionMarkers, controller.ReadTopicConfigs,
		controller.ReadLogDirEvents, controller.ReadISRChanges, controller.ReadFeatures, controller.ReadProducerIDBlock, controller.ReadPreferredElection, controller.ReadReassignments:
		return true
	}
	return false
}

// core: the core's own invariants hold after every step, and no two controllers share an epoch.
func (k *checks) core(n *Node) {
	if err := n.core.CheckInvariants(); err != nil {
		k.w.failf("broker %d: %v", n.id, err)
	}
	for _, o := range k.w.nodes {
		if o != n && o.up && o.core.IsActive() && n.core.IsActive() && o.core.Epoch() == n.core.Epoch() {
			k.w.failf("brokers %d and %d are both active in epoch %d", n.id, o.id, n.core.Epoch())
		}
	}
}

// oneController: in the end exactly one is in office.
func (k *checks) oneController() {
	active := 0
	for _, n := range k.w.Nodes() {
		if n.up && n.core.IsActive() {
			active++
		}
	}
	if active != 1 {
		k.w.failf("%d controllers are active", active)
	}
}
