package replica

import (
	"errors"
	"fmt"

	"klamm/internal/cluster"
)

// ErrMayLieOffline reports that a replica may lie in a log dir that is offline.
var ErrMayLieOffline = errors.New("the replica may lie in a log dir that is offline")

// ErrGivenBack reports that a controller has given a replica to this broker meanwhile.
var ErrGivenBack = errors.New("the replica was given to this broker meanwhile")

// Hosted is which partitions of a topic are hosted, by the leader epochs under which they are.
type Hosted map[int32]cluster.LeaderEpoch

// Hosted looks which of the partitions are hosted and online.
func (m *Manager) Hosted(topic string, partitions []int32) Hosted {
	out := Hosted{}
	for _, n := range partitions {
		if p, state := m.Partition(cluster.TopicPartition{Topic: topic, Partition: n}); state == HostedOnline {
			_, out[n] = p.leadership()
		}
	}
	return out
}

// RemoveLeftovers removes replicas of a topic whose deletion ended while this broker was absent (W15), or that were moved away
// then (W20). The topic is meant by its id: a replica of a later topic of the name stays. before, unless nil, is what was hosted
// before the caller found in the store that the replicas are not assigned to this broker: one that has come to be hosted, or
// has another leader epoch since, stays, as a controller writes the assignment before it tells the broker. It returns how many were
// removed; an error means that some may still be there, and that the call is to be made again.
func (m *Manager) RemoveLeftovers(topic string, id cluster.TopicID, partitions []int32, before Hosted) (int, error) {
	var stops []stop
	var errs []error
	m.control.Lock()
	for _, n := range partitions {
		tp := cluster.TopicPartition{Topic: topic, Partition: n}
		log, known := m.logs.Get(tp)
		p, state := m.Partition(tp)
		switch {
		case before != nil && !before.holds(n, p):
			errs = append(errs, fmt.Errorf("%s: %w", tp, ErrGivenBack))
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

// holds reports whether the partition, nil where none is online, is hosted as it was.
func (h Hosted) holds(n int32, p *Partition) bool {
	epoch, was := h[n]
	if p == nil || !was {
		return p == nil && !was
	}
	_, now := p.leadership()
	return now == epoch
}
