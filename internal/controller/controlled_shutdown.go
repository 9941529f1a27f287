package controller

import "klamm/internal/cluster"

// handleControlledShutdown moves leaderships away from a broker that wants to stop, and takes its followers out of their ISRs. Errors:
// not active STALE_CONTROLLER_EPOCH (by dispatch), epoch given and broker unknown UNKNOWN_SERVER_ERROR, epoch given and older
// STALE_BROKER_EPOCH, broker not registered BROKER_NOT_AVAILABLE. The answer lists the partitions with more than one
// replica that the broker still leads; partitions with one replica stay until the process ends, and those of queued topics are
// not touched (Kafka: ControlledShutdown).
func (c *Core) handleControlledShutdown(ev ControlledShutdown) error {
	x := c.ctx
	b, known := x.brokers[ev.Broker]
	switch {
	case ev.BrokerEpoch != cluster.NoBrokerEpoch && !known:
		c.reply(ControlledShutdownResult{Err: cluster.UnknownServerError})
		return nil
	case ev.BrokerEpoch != cluster.NoBrokerEpoch && ev.BrokerEpoch < b.Epoch:
		c.reply(ControlledShutdownResult{Err: cluster.StaleBrokerEpoch})
		return nil
	case !known:
		c.reply(ControlledShutdownResult{Err: cluster.BrokerNotAvailable})
		return nil
	}
	x.shuttingDown[ev.Broker] = true
	c.noteBroker(Info, "broker shuts down", ev.Broker, "")
	var led []*partitionContext
	var followed []replicaRef
	for _, r := range x.replicasOn([]cluster.BrokerID{ev.Broker}) {
		switch {
		case r.queued() || r.leadership == nil || len(r.assignment.Replicas) < 2:
		case r.leadership.Leader == ev.Broker:
			led = append(led, r.partitionContext)
		default:
			followed = append(followed, r)
		}
	}
	if _, err := c.changePartitionStates(led, OnlinePartition, ControlledShutdownStrategy); err != nil {
		return err
	}
	stop := c.newBatch()
	for _, r := range followed {
		stop.addStopReplica(r.partitionContext, ev.Broker, false)
	}
	stop.send()
	var remaining []cluster.TopicPartition
	for p := range x.partitions() {
		if !p.queued() && len(p.assignment.Replicas) > 1 && p.leadership != nil && p.leadership.Leader == ev.Broker {
			remaining = append(remaining, p.TopicPartition)
		}
	}
	// Another broker may go on: what it follows is no reason to wait, and there is more of that than of what it leads (Kafka
	// answers after the ISRs have shrunk). The controller's own broker waits, since its end would cut short what the others are told.
	if ev.Broker != c.cfg.Broker {
		c.reply(ControlledShutdownResult{Remaining: remaining})
	}
	err := c.changeReplicaStates(followed, OfflineReplica)
	if err == nil && c.owed != nil {
		c.reply(ControlledShutdownResult{Remaining: remaining})
	}
	return err
}
