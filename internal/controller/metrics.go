package controller

import "slices"

// Metrics are the gauges of kafka.controller:type=KafkaController; all but UncleanLeaderElections are 0 when not active.
type Metrics struct {
	ActiveControllerCount int
	// OfflinePartitionsCount counts OfflinePartition and, unlike Kafka, NewPartition (W6), of topics whose deletion has not started.
	OfflinePartitionsCount int
	// PreferredReplicaImbalanceCount counts partitions not led by their first replica. A first replica that is being
	// added counts once it is in the ISR. Queued topics do not count.
	PreferredReplicaImbalanceCount int
	// GlobalTopicCount counts topics, queued ones included.
	GlobalTopicCount int
	// GlobalPartitionCount counts partitions with leadership, queued ones included.
	GlobalPartitionCount            int
	TopicsToDeleteCount             int
	ReplicasToDeleteCount           int // of queued topics, not yet ReplicaDeletionSuccessful
	TopicsIneligibleToDeleteCount   int
	ReplicasIneligibleToDeleteCount int
	// ActiveBrokerCount counts live and shutting-down brokers.
	ActiveBrokerCount int
	// UncleanLeaderElections is the count behind UncleanLeaderElectionsPerSec, over all terms of this process.
	UncleanLeaderElections int64
}

// Metrics counts the state of now. It walks all partitions.
func (c *Core) Metrics() Metrics {
	m := Metrics{UncleanLeaderElections: c.uncleanElections}
	x := c.ctx
	if x == nil {
		return m
	}
	m.ActiveControllerCount = 1
	m.GlobalTopicCount = len(x.topics)
	m.TopicsToDeleteCount = len(x.deletions)
	m.ActiveBrokerCount = len(x.brokers)
	for _, d := range x.deletions {
		if d.ineligible {
			m.TopicsIneligibleToDeleteCount++
		}
		if t := d.topic; t != nil {
			m.ReplicasToDeleteCount += t.replicaCount() - t.replicas[ReplicaDeletionSuccessful]
			m.ReplicasIneligibleToDeleteCount += t.replicas[ReplicaDeletionIneligible]
		}
	}
	for _, t := range x.topics {
		started := t.deletion != nil && t.deletion.started
		for _, p := range t.partitions {
			if !started && (p.state == OfflinePartition || p.state == NewPartition) {
				m.OfflinePartitionsCount++
			}
			if p.leadership != nil {
				m.GlobalPartitionCount++
			}
			if !p.queued() && p.imbalanced() {
				m.PreferredReplicaImbalanceCount++
			}
		}
	}
	return m
}

func (p *partitionContext) imbalanced() bool {
	if p.leadership == nil || len(p.assignment.Replicas) == 0 {
		return false
	}
	preferred := p.assignment.Replicas[0]
	if slices.Contains(p.assignment.Adding, preferred) && !slices.Contains(p.leadership.ISR, preferred) {
		return false
	}
	return p.leadership.Leader != preferred
}
