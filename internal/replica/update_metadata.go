package replica

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// HandleUpdateMetadata applies an UpdateMetadata request, version 0 to 8, to the metadata cache behind the gates that
// the controller's requests share (Kafka: ReplicaManager.maybeUpdateMetadataCache). The caller has checked the
// ClusterAction permission.
func (m *Manager) HandleUpdateMetadata(req *kmsg.UpdateMetadataRequest) *kmsg.UpdateMetadataResponse {
	resp := kmsg.NewPtrUpdateMetadataResponse()
	resp.Version = req.Version
	if m.brokerEpochStale(req.BrokerEpoch) {
		resp.ErrorCode = int16(cluster.StaleBrokerEpoch)
		return resp
	}
	m.control.Lock()
	if m.controllerEpochStaleLocked("UpdateMetadata", req.ControllerID, req.ControllerEpoch) {
		m.control.Unlock()
		resp.ErrorCode = int16(cluster.StaleControllerEpoch)
		return resp
	}
	changes := m.metadata.Apply(req)
	if len(changes.Removed) > 0 && m.hooks.PartitionsRemoved != nil {
		m.hooks.PartitionsRemoved(changes.Removed)
	}
	adopted := m.adoptOrphansLocked()
	m.control.Unlock()
	for _, tp := range adopted.wake {
		m.wakeAll(tp)
	}
	return resp
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
