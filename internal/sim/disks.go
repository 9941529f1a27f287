package sim

import (
	"maps"

	"klamm/internal/cluster"
)

// LoseDisk empties the disks of a broker that is down: it comes back with new ones.
func (w *World) LoseDisk(id cluster.BrokerID) {
	w.tracef(nil, "the disks of broker %d are replaced by empty ones", id)
	w.nodes[id].logs = map[cluster.TopicPartition]diskLog{}
}

// Disk is the content of a broker's disks at some time.
type Disk map[cluster.TopicPartition]diskLog

// CopyDisk makes a copy of a broker's disks.
func (w *World) CopyDisk(id cluster.BrokerID) Disk { return maps.Clone(w.nodes[id].logs) }

// RestoreDisk gives a broker that is down the copy of its disks back: a backup, or the snapshot of a machine. What was
// deleted since is there again, and must never be served or taken for a later topic of its name.
func (w *World) RestoreDisk(id cluster.BrokerID, d Disk) {
	w.tracef(nil, "the disks of broker %d are as they were before", id)
	n := w.nodes[id]
	n.logs = maps.Clone(d)
	for tp, log := range n.logs {
		w.checks.restored[stray{id, tp, log.id}] = true
	}
}
