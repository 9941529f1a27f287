package replica

import (
	"errors"
	"fmt"

	"klamm/internal/cluster"
)

// ErrMayLieOffline reports that a replica may lie in a log dir that is offline.
var ErrMayLieOffline = errors.New("the replica may lie in a log dir that is offline")

// RemoveLeftovers removes replicas of a topic whose deletion ended while this broker was absent (W15). The topic is meant
// by its id: a replica of a later topic of the name stays. It returns how many were removed; an error means that some
// may still be there, and that the call is to be made again.
func (m *Manager) RemoveLeftovers(topic string, id cluster.TopicID, partitions []int32) (int, error) {
	var stops []stop
	var errs []error
	m.control.Lock()
	for _, n := range partitions {
		tp := cluster.TopicPartition{Topic: topic, Partition: n}
		log, known := m.logs.Get(tp)
		p, state := m.Partition(tp)
		switch {
		case known && log.TopicID() != id && !(log.TopicID().IsZero() && state == HostedNone):
			// Of a later topic, whose replica has taken the place. The earlier one may lie in a dir that is offline.
			if m.logs.HasOfflineDir() {
				errs = append(errs, fmt.Errorf("%s: %w", tp, ErrMayLieOffline))
			}
		case known && state == HostedOffline, !known && (state == HostedOffline || m.logs.HasOfflineDir()):
			errs = append(errs, fmt.Errorf("%s: %w", tp, ErrMayLieOffline))
		case known:
			stops = append(stops, stop{tp: tp, epoch: cluster.LeaderEpochDuringDelete, delete: true, p: p})
		}
	}
	codes := make([]cluster.ErrorCode, len(stops))
	accepted := m.stopLocked(stops, codes)
	m.control.Unlock()
	removed := 0
	for i, s := range stops {
		if accepted[i] {
			m.wakeAll(s.tp)
		}
		if codes[i] != cluster.None {
			errs = append(errs, fmt.Errorf("%s: %v", s.tp, codes[i]))
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}
