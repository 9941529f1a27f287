package replica

import (
	"runtime"
	"sync"
	"sync/atomic"

	"klamm/internal/cluster"
)

// brokerEpochStale is the first gate of the controller's requests: one meant for an earlier registration of this broker
// is refused. A newer epoch is accepted: the controller may learn of a registration before the broker itself.
func (m *Manager) brokerEpochStale(epoch int64) bool {
	return cluster.BrokerEpoch(epoch) != cluster.NoBrokerEpoch && cluster.BrokerEpoch(epoch) < m.brokerEpoch()
}

// controllerEpochStaleLocked is the second gate: a request of an older controller is refused, any other makes its
// epoch the highest met. control is held.
func (m *Manager) controllerEpochStaleLocked(request string, controller, epoch int32) bool {
	if ce := cluster.ControllerEpoch(epoch); ce < m.control.epoch {
		m.log.Warn("request of an old controller refused", "request", request, "broker", controller, "controller_epoch", ce,
			"known_controller_epoch", m.control.epoch)
		return true
	}
	m.control.epoch = cluster.ControllerEpoch(epoch)
	return false
}

// takeOfflineLocked marks partitions as lying on a failed disk. control is held.
func (m *Manager) takeOfflineLocked(tps []cluster.TopicPartition) {
	m.fetchers.remove(tps)
	m.moves.remove(tps)
	closing := make([]*Partition, 0, len(tps))
	m.hosted.Lock()
	for _, tp := range tps {
		if p := m.hosted.partitions[tp]; p != nil {
			closing = append(closing, p)
			if log := p.Log(); log != nil {
				m.control.lost[tp] = log.TopicID()
			}
		}
		m.hosted.partitions[tp] = nil
	}
	m.hosted.Unlock()
	for _, p := range closing {
		p.close()
		m.topics.leave(p.tp.Topic)
	}
}

// OnLogDirFailure takes the partitions of a failed log dir offline; the others go on (Kafka:
// ReplicaManager.handleLogDirFailure). It is made for commitlog.Options.OnDirFailure.
func (m *Manager) OnLogDirFailure(dir string, err error) {
	m.control.Lock()
	var lost []cluster.TopicPartition
	online, _ := m.online()
	for _, p := range online {
		if log := p.Log(); log != nil && log.Dir() == dir {
			lost = append(lost, p.tp)
		}
	}
	m.takeOfflineLocked(lost)
	if m.hooks.LogDirFailed != nil {
		m.hooks.LogDirFailed(dir)
	}
	m.control.Unlock()
	m.log.Error("log dir failed, its partitions are offline", "dir", dir, "partitions", len(lost), "err", err)
	for _, tp := range lost {
		m.wakeAll(tp)
	}
}

// parallelFrom is the number of partitions from which a request's disk work is spread over goroutines.
const parallelFrom = 64

// parallel calls fn for 0 to n-1, spread over a few goroutines when there are many, and returns when all calls have:
// opening logs and writing their epoch files is bound by the disk's latency.
func parallel(n int, fn func(int)) {
	workers := min(4*runtime.GOMAXPROCS(0), 16)
	if n < parallelFrom {
		workers = 1
	}
	var next atomic.Int64
	var done sync.WaitGroup
	for range workers - 1 {
		done.Go(func() { takeTurns(&next, n, fn) })
	}
	takeTurns(&next, n, fn)
	done.Wait()
}

func takeTurns(next *atomic.Int64, n int, fn func(int)) {
	for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
		fn(int(i))
	}
}
