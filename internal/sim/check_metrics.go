package sim

import (
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Metrics equal a recount: once the cluster has settled, also with brokers dead and log dirs failed, the gauges of the controller in office
// are what the store and the brokers say.

// CheckMetrics compares the gauges with a recount. It does nothing while anything is under way, while a broker is in a
// controlled shutdown (whether its partitions count as offline depends on what happened since), and while a topic is
// being deleted whose nodes somebody removed: the store no longer says what it had.
func (w *World) CheckMetrics() {
	n := w.Active()
	for name := range w.store.markers {
		if w.checks.touchedByHand[name] {
			return
		}
	}
	if n == nil || !w.settled() || slices.ContainsFunc(w.Nodes(), func(n *Node) bool { return n.up && n.stopping }) {
		return
	}
	got := n.core.Metrics()
	want, unsure := w.recount()
	want.ReplicasToDeleteCount = max(want.ReplicasToDeleteCount, min(got.ReplicasToDeleteCount, want.ReplicasToDeleteCount+unsure))
	want.UncleanLeaderElections = got.UncleanLeaderElections // see check_isr.go
	// A replica that cannot be deleted goes on to another state at once: see ReplicasIneligibleToDeleteCount of Kafka.
	want.ReplicasIneligibleToDeleteCount = got.ReplicasIneligibleToDeleteCount
	want.TopicsIneligibleToDeleteCount = got.TopicsIneligibleToDeleteCount
	if got.TopicsIneligibleToDeleteCount > want.TopicsToDeleteCount {
		w.failf("%d topics are ineligible of %d that are to be deleted", got.TopicsIneligibleToDeleteCount, want.TopicsToDeleteCount)
	}
	if got != want {
		w.failf("metrics of broker %d are %+v, a recount gives %+v", n.id, got, want)
	}
}

// finalMetrics: in the end nothing is offline and nothing is to be deleted.
func (k *checks) finalMetrics() {
	k.w.CheckMetrics()
	n := k.w.Active()
	if n == nil {
		return
	}
	m := n.core.Metrics()
	if m.GlobalTopicCount != len(k.w.store.topics) || m.TopicsToDeleteCount != 0 || m.ReplicasToDeleteCount != 0 ||
		m.TopicsIneligibleToDeleteCount != 0 || m.OfflinePartitionsCount != 0 || m.ActiveBrokerCount != len(k.w.nodes) {
		k.w.failf("metrics do not match %d topics in a cluster of %d brokers: %+v", len(k.w.store.topics), len(k.w.nodes), m)
	}
}

// recount counts what there is. Whether a replica counts as deleted that is not found on a broker that is absent, or has a
// failed log dir, depends on when it was looked for: those are the ones it is not sure of.
func (w *World) recount() (m controller.Metrics, unsure int) {
	m = controller.Metrics{
		ActiveControllerCount: 1, GlobalTopicCount: len(w.store.topics), ActiveBrokerCount: w.supporting(), TopicsToDeleteCount: len(w.store.markers),
	}
	for name, t := range w.store.topics {
		_, queued := w.store.markers[name]
		for p, a := range t.partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			state, led := t.states[p]
			if led {
				m.GlobalPartitionCount++
			}
			if queued {
				left, maybe := w.replicasToDelete(tp, t, a)
				m.ReplicasToDeleteCount += left
				unsure += maybe
				continue
			}
			if !led || !w.serves(state.Leader, tp, t) {
				m.OfflinePartitionsCount++
			}
			if led && imbalanced(a, state) {
				m.PreferredReplicaImbalanceCount++
			}
		}
	}
	return m, unsure
}

// supporting counts the registered brokers that support what is finalized; the others are left out of the cluster.
func (w *World) supporting() (count int) {
	for _, r := range w.store.brokers {
		if level, finalized := w.store.features["f"]; !finalized || r.Features["f"].Contains(level) {
			count++
		}
	}
	return count
}

// replicasToDelete: those that have their log, and those that may have it or count as if they had.
func (w *World) replicasToDelete(tp cluster.TopicPartition, t *topicNode, a cluster.ReplicaAssignment) (left, maybe int) {
	for _, id := range a.Replicas {
		_, registered := w.store.brokers[id]
		n := w.nodes[id]
		switch log, ok := n.logs[tp]; {
		case ok && log.id == t.id:
			left++
		case !registered || n.badDirs[0] || n.badDirs[1]:
			maybe++
		}
	}
	return left, maybe
}

// serves reports whether a broker is registered and has the log in a working dir.
func (w *World) serves(id cluster.BrokerID, tp cluster.TopicPartition, t *topicNode) bool {
	if _, registered := w.store.brokers[id]; !registered {
		return false
	}
	log, ok := w.nodes[id].logs[tp]
	return ok && log.id == t.id && !w.nodes[id].badDirs[log.dir]
}

func imbalanced(a cluster.ReplicaAssignment, s cluster.LeaderAndISR) bool {
	first := a.Replicas[0]
	adding := slices.Contains(a.Adding, first) && !slices.Contains(s.ISR, first)
	return s.Leader != first && !adding
}
