package controller

import (
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// handleBrokerChange compares the registered brokers with those known: new, gone, and bounced ones, whose epoch
// grew. A bounce counts as a failure and a start even if nobody saw the broker gone (Kafka: BrokerChange).
func (c *Core) handleBrokerChange() error {
	r, err := query[BrokersRead](c, ReadBrokers{})
	if err != nil {
		return err
	}
	if err := c.learnKlammBrokers(r); err != nil {
		return err
	}
	x := c.ctx
	isrWriters := slices.ContainsFunc(r.Brokers, writesISR)
	x.isrWriters = x.isrWriters || isrWriters
	current := map[cluster.BrokerID]cluster.Broker{}
	for _, b := range c.compatible(r.Brokers) {
		current[b.ID] = b
	}
	var added, bounced, dead []cluster.BrokerID
	for _, id := range slices.Sorted(maps.Keys(current)) {
		switch old, known := x.brokers[id]; {
		case !known:
			added = append(added, id)
		case current[id].Epoch != old.Epoch:
			bounced = append(bounced, id)
		}
	}
	for _, id := range x.brokerIDs() {
		if _, ok := current[id]; !ok {
			dead = append(dead, id)
		}
	}
	for _, id := range added {
		c.emit(StartSender{current[id]})
	}
	if err := c.brokersStarted(added, current); err != nil {
		return err
	}
	if err := c.brokersBounced(bounced, current); err != nil {
		return err
	}
	for _, id := range dead {
		c.noteBroker(Info, "broker is gone", id, "")
		c.emit(StopSender{id})
	}
	if err := c.brokersFailed(dead); err != nil {
		return err
	}
	x.isrWriters = isrWriters // what those who are gone had written has been read
	return nil
}

func (c *Core) brokersBounced(ids []cluster.BrokerID, current map[cluster.BrokerID]cluster.Broker) error {
	for _, id := range ids {
		c.noteBroker(Info, "broker bounced", id, "")
		c.emit(StopSender{id})
		c.ctx.bouncing[id] = true // it is back: deletions need not end without it
	}
	err := c.brokersFailed(ids)
	clear(c.ctx.bouncing)
	if err != nil {
		return err
	}
	for _, id := range ids {
		c.emit(StartSender{current[id]})
	}
	return c.brokersStarted(ids, current)
}

// brokersStarted brings brokers into the cluster (Kafka: onBrokerStartup). They first learn what there is, then what they lead
// and follow. Replicas of queued topics get no LeaderAndIsr, which would only create logs to be deleted (W16): their
// deletion goes on.
func (c *Core) brokersStarted(ids []cluster.BrokerID, current map[cluster.BrokerID]cluster.Broker) error {
	if len(ids) == 0 {
		return nil
	}
	x := c.ctx
	for _, id := range ids {
		x.addBroker(current[id])
		c.noteBroker(Info, "broker started", id, "")
	}
	x.forgetBrokerState(ids)
	others := slices.DeleteFunc(slices.Clone(x.brokerIDs()), func(id cluster.BrokerID) bool { return slices.Contains(ids, id) })
	c.sendUpdateMetadata(others)
	var all []*partitionContext
	for p := range x.partitions() {
		if !p.queued() {
			all = append(all, p)
		}
	}
	c.sendUpdateMetadata(ids, all...)

	var serving, queued []replicaRef
	for _, r := range x.replicasOn(ids) {
		if r.queued() {
			queued = append(queued, r)
		} else {
			serving = append(serving, r)
		}
	}
	if err := c.changeReplicaStates(serving, OnlineReplica); err != nil {
		return err
	}
	if _, err := c.electOfflineAndNew(x.sorted()); err != nil {
		return err
	}
	if err := c.resumeReassignmentsOn(ids); err != nil {
		return err
	}
	c.deleteAgain(ids)
	for _, id := range ids {
		c.emit(Watch{Watched{Kind: WatchBroker, Broker: id}})
	}
	return c.tdm().resumeFor(topicsOf(queued))
}

// brokersFailed takes brokers out of the cluster (Kafka: onBrokerFailure).
func (c *Core) brokersFailed(ids []cluster.BrokerID) error {
	if len(ids) == 0 {
		return nil
	}
	c.ctx.forgetBrokerState(ids)
	ready := false
	for _, id := range ids {
		c.ctx.removeBroker(id)
		c.emit(Unwatch{Watched{Kind: WatchBroker, Broker: id}})
		// It begins with an empty cache when it returns.
		ready = c.tdm().forgotten(id, func(*topicDeletion) bool { return true }) || ready
	}
	if err := c.replicasOffline(c.ctx.replicasOn(ids)); err != nil || !ready {
		return err
	}
	return c.tdm().resume()
}

// replicasOffline handles replicas that are lost with their broker or log dir (Kafka: onReplicasBecomeOffline): partitions
// without an online leader elect one, the replicas leave their ISR, deletions are blocked.
func (c *Core) replicasOffline(rs []replicaRef) error {
	x := c.ctx
	var serving, queued []replicaRef
	for _, r := range rs {
		if r.queued() {
			queued = append(queued, r)
		} else {
			serving = append(serving, r)
		}
	}
	var leaderless []*partitionContext
	for p := range x.partitions() {
		if !p.queued() && p.leadership != nil && p.state != OfflinePartition && !x.leaderOnline(p) {
			leaderless = append(leaderless, p)
		}
	}
	if _, err := c.changePartitionStates(leaderless, OfflinePartition, 0); err != nil {
		return err
	}
	elections, err := c.electOfflineAndNew(x.sorted())
	if err != nil {
		return err
	}
	if err := c.changeReplicaStates(serving, OfflineReplica); err != nil {
		return err
	}
	if len(queued) > 0 {
		if err := c.tdm().lost(queued); err != nil {
			return err
		}
	}
	if len(serving) == 0 && elections == 0 {
		// Otherwise the batches have told everybody already.
		c.sendUpdateMetadata(x.brokerIDs())
	}
	return nil
}

// handleBrokerModifications takes over a changed registration of a live broker: endpoints, features or rack (W24: Kafka ignores the rack).
func (c *Core) handleBrokerModifications(id cluster.BrokerID) error {
	r, err := query[BrokersRead](c, ReadBrokers{})
	if err != nil {
		return err
	}
	old, known := c.ctx.brokers[id]
	i := slices.IndexFunc(r.Brokers, func(b cluster.Broker) bool { return b.ID == id })
	if known && i >= 0 && unsupported(r.Brokers[i].Features, c.ctx.features) != "" {
		return c.handleBrokerChange() // to the cluster it is gone
	}
	if !known || i < 0 || r.Brokers[i].Epoch != old.Epoch {
		return nil // BrokerChange tells
	}
	if b := r.Brokers[i]; b.Rack != old.Rack || !slices.Equal(b.Endpoints, old.Endpoints) || !maps.Equal(b.Features, old.Features) {
		c.ctx.addBroker(b)
		c.noteBroker(Info, "broker changed its registration", id, "")
		c.sendUpdateMetadata(c.ctx.brokerIDs())
	}
	return nil
}

// handleUncleanLeaderElectionEnable takes over the broker default and tries leaderless partitions again.
func (c *Core) handleUncleanLeaderElectionEnable(enabled bool) error {
	c.cfg.UncleanLeaderElectionEnable = enabled
	if c.ctx == nil || !enabled {
		return nil
	}
	_, err := c.electOfflineAndNew(c.ctx.sorted())
	return err
}

// handleTopicUncleanLeaderElectionEnable tries the leaderless partitions of one topic again.
func (c *Core) handleTopicUncleanLeaderElectionEnable(topic string) error {
	t := c.ctx.topics[topic]
	if t == nil {
		return nil
	}
	_, err := c.electOfflineAndNew([]*topicContext{t})
	return err
}
