package replica

import (
	"runtime"
	"sync"
	"sync/atomic"

	"klamm/internal/cluster"
)

// ControlConn numbers the connections on which control requests arrive, in the order in which they were made. 0 stands for
// a connection that nothing is known of; it counts as the newest.
type ControlConn uint64

// controlOrigin is what a control request says of where it comes from, and what it is meant for.
type controlOrigin struct {
	request         string // its name, for the log
	brokerEpoch     cluster.BrokerEpoch
	controller      cluster.BrokerID
	controllerEpoch cluster.ControllerEpoch
	conn            ControlConn
}

// verdict is what the gates make of a control request.
type verdict uint8

const (
	admitted verdict = iota
	// refused: it is answered with the code.
	refused
	// superseded: it came on a connection that its controller has given up; it is neither applied nor answered.
	superseded
)

// admitLocked is the gate of the controller's requests. The first that holds wins:
//
//	meant for an earlier registration of this broker         STALE_BROKER_EPOCH
//	of a controller older than the latest met                STALE_CONTROLLER_EPOCH
//	of the latest controller, on a connection older than
//	  its latest                                             superseded
//
// A controller has one connection to a broker and one request in flight on it; when the connection breaks, it sends the request again on the next, and
// others after it. What the old connection had brought may be read after all that (Kafka applies it: a StopReplica, which names a topic
// and not its id, then deletes the data of a topic that was created again).
//
// control is held, and stays held while the request is applied: between the look at the epochs and that, no later request may be (Kafka looks
// at the broker epoch before it takes the lock).
func (m *Manager) admitLocked(o controlOrigin) (verdict, cluster.ErrorCode) {
	c := &m.control
	switch {
	case m.brokerEpochStaleLocked(o.brokerEpoch):
		return refused, cluster.StaleBrokerEpoch
	case o.controllerEpoch < c.epoch:
		m.log.Warn("request of an old controller refused", "request", o.request, "broker", o.controller, "controller_epoch", o.controllerEpoch,
			"known_controller_epoch", c.epoch)
		return refused, cluster.StaleControllerEpoch
	case o.controllerEpoch == c.epoch && o.conn != 0 && o.conn < c.conn:
		m.log.Warn("request of a connection that its controller has given up is not applied", "request", o.request, "broker", o.controller,
			"controller_epoch", o.controllerEpoch)
		return superseded, cluster.None
	}
	if o.controllerEpoch > c.epoch {
		c.conn = 0
	}
	c.epoch, c.conn = o.controllerEpoch, max(c.conn, o.conn)
	c.registration.met = max(c.registration.met, o.brokerEpoch)
	return admitted, cluster.None
}

// brokerEpochStaleLocked reports whether a request is meant for an earlier registration. A newer epoch than the broker's own is
// accepted, since the controller may learn of a registration before the broker itself; from then on the former one is over. control is held.
func (m *Manager) brokerEpochStaleLocked(epoch cluster.BrokerEpoch) bool {
	r := &m.control.registration
	if own := m.brokerEpoch(); own != r.own {
		r.own, r.met = own, own
	}
	return epoch != cluster.NoBrokerEpoch && epoch < r.met
}

// takeOfflineLocked marks partitions as lying on a failed disk. Coordinators give up what they led at once: another broker is about to
// (Kafka's go on until they have to write). control is held.
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
	var resigned []PartitionEpoch
	for _, p := range closing {
		if leader, epoch := p.leadership(); leader == m.cfg.BrokerID && cluster.IsInternalTopic(p.tp.Topic) {
			resigned = append(resigned, PartitionEpoch{p.tp, epoch})
		}
		p.close()
		m.topics.leave(p.tp.Topic)
	}
	if len(resigned) > 0 && m.hooks.LeadershipChanged != nil {
		m.hooks.LeadershipChanged(nil, resigned)
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
