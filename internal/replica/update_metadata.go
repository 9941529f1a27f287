package replica

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
)

// HandleUpdateMetadata applies an UpdateMetadata request, version 0 to 8, to the metadata cache behind the gates that
// the controller's requests share (Kafka: ReplicaManager.maybeUpdateMetadataCache). The caller has checked the
// ClusterAction permission. It returns nil for a request whose connection is to be closed without an answer, see admitLocked.
func (m *Manager) HandleUpdateMetadata(req *kmsg.UpdateMetadataRequest, on ControlConn) *kmsg.UpdateMetadataResponse {
	resp := kmsg.NewPtrUpdateMetadataResponse()
	resp.Version = req.Version
	m.control.Lock()
	verdict, code := m.admitLocked(controlOrigin{"UpdateMetadata", cluster.BrokerEpoch(req.BrokerEpoch), cluster.BrokerID(req.ControllerID),
		cluster.ControllerEpoch(req.ControllerEpoch), on})
	if verdict != admitted {
		m.control.Unlock()
		if verdict == superseded {
			return nil
		}
		resp.ErrorCode = int16(code)
		return resp
	}
	before := m.metadata.Image()
	changes := m.metadata.Apply(req)
	m.unannounced.remove(changes.Partitions)
	m.unannounced.remove(changes.Removed)
	if len(changes.Removed) > 0 && m.hooks.PartitionsRemoved != nil {
		m.hooks.PartitionsRemoved(changes.Removed)
	}
	adopted := m.adoptOrphansLocked()
	m.control.Unlock()
	for _, tp := range adopted.wake {
		m.wakeAll(tp)
	}
	if brokersLeft(before, m.metadata.Image()) {
		m.goOnWithout()
	}
	return resp
}

// brokersLeft reports whether a broker that was alive before is no longer.
func brokersLeft(before, now *metadata.Image) bool {
	for _, b := range before.Brokers() {
		if !now.HasBroker(b.ID) {
			return true
		}
	}
	return false
}

// goOnWithout lets the partitions that are led here go on which waited for a follower that is gone now: one that was about to
// join the ISR holds the high watermark, any holds deletions of records. Nothing else would look at them: ISR members
// have fetched everything, and producers may all be waiting for acks (Kafka waits for the next append or fetch then).
func (m *Manager) goOnWithout() {
	now := time.Now()
	online, _ := m.online()
	for _, p := range online {
		p.mu.RLock()
		advanced := p.advanceHighWatermarkLocked(now)
		p.mu.RUnlock()
		if advanced {
			m.wakeAll(p.tp)
		} else {
			m.deletes.wake(p.tp)
		}
	}
}

// adoptOrphansLocked lets partitions follow whose leaders have become known. Kafka leaves them without a fetcher until
// the next leadership change.
func (m *Manager) adoptOrphansLocked() controlChange {
	image := m.metadata.Image()
	var states []transition
	for _, tp := range sortedKeys(m.control.orphans) {
		if t := m.control.orphans[tp]; image.HasBroker(t.leader) {
			states = append(states, t)
		}
	}
	if len(states) == 0 {
		return controlChange{}
	}
	m.log.Info("leaders have become known, partitions follow them", "partitions", len(states))
	return m.applyLeaderAndISRLocked(states, make([]cluster.ErrorCode, len(states)), false)
}
