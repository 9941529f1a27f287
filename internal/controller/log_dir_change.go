package controller

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// handleLogDirEventNotification probes the replicas of brokers that reported a failed log dir: each is sent LeaderAndIsr,
// whose answer tells which are lost (Kafka: LogDirEventNotification). Replicas known to be lost, and those of queued topics, are
// not probed.
func (c *Core) handleLogDirEventNotification() error {
	r, err := query[LogDirEventsRead](c, ReadLogDirEvents{})
	if err != nil || len(r.Events) == 0 {
		return err
	}
	var names []string
	brokers := map[cluster.BrokerID]bool{}
	for _, e := range r.Events {
		names = append(names, e.Name)
		if _, known := c.ctx.brokers[e.Broker]; known && e.Valid {
			brokers[e.Broker] = true
		}
	}
	probes := slices.DeleteFunc(c.ctx.replicasOn(slices.Sorted(maps.Keys(brokers))), func(r replicaRef) bool {
		return r.queued() || r.inOfflineDir(r.id)
	})
	if err := c.changeReplicaStates(probes, OnlineReplica); err != nil {
		return err
	}
	_, err = c.remove(DeleteLogDirEvents{names}, 1)
	return err
}

// handleLeaderAndISRReply learns from a broker's answer which replicas lie in failed log dirs. INCONSISTENT_TOPIC_ID means that the
// broker holds a log of another incarnation of the topic: it is removed and the replica created anew (W4: Kafka
// ignores it). Other errors need nothing: a later LeaderAndIsr is on its way, or the sender repeats the request.
func (c *Core) handleLeaderAndISRReply(ev LeaderAndISRReply) error {
	if !c.isCurrent(ev.Request.Target) {
		return nil
	}
	id := ev.Request.Target.Broker
	if ev.Err != cluster.None {
		c.noteBroker(Warn, "broker refused LeaderAndIsr", id, ev.Err.String())
		return nil
	}
	ids := make(map[string]TopicRef, len(ev.Request.Topics))
	for _, t := range ev.Request.Topics {
		ids[t.Name] = t.TopicRef
	}
	var lost, found, strays []replicaRef
	for _, pe := range ev.Partitions {
		ref, asked := ids[pe.Topic]
		if !asked {
			continue
		}
		p := c.ctx.partitionOf(ref, pe.Partition)
		if p == nil || p.replica(id) == nil {
			continue
		}
		r := p.replica(id)
		switch pe.Err {
		case cluster.None:
			if r.offlineDir {
				found = append(found, replicaRef{p, id})
			}
			r.offlineDir, r.stray = false, false
		case cluster.StaleControllerEpoch:
			r.stray = false // the broker compares ids before epochs
		case cluster.KafkaStorageError:
			if !r.offlineDir {
				r.offlineDir = true
				lost = append(lost, replicaRef{p, id})
			}
		case cluster.InconsistentTopicID:
			switch {
			case p.queued() || p.leadership == nil:
			case r.stray: // it could not be replaced: again after a pause
				c.armPartitionRetry()
			default:
				r.stray = true
				strays = append(strays, replicaRef{p, id})
			}
		}
	}
	c.recreate(id, strays)
	if len(lost) > 0 {
		c.noteBroker(Warn, "replicas are offline with their log dir", id, fmt.Sprintf("%d", len(lost)))
		if err := c.replicasOffline(lost); err != nil {
			return err
		}
	}
	return c.replicasFound(id, found)
}

// replicasFound handles replicas that a broker has after all in a dir that works: it made them anew when it was told that they are new. Kafka takes note of
// that and does nothing, until the broker starts the next time.
func (c *Core) replicasFound(id cluster.BrokerID, rs []replicaRef) error {
	if len(rs) == 0 {
		return nil
	}
	c.noteBroker(Info, "replicas are online again in another log dir", id, fmt.Sprintf("%d", len(rs)))
	var serving, queued []replicaRef
	for _, r := range rs {
		switch {
		case c.ctx.partition(r.TopicPartition) != r.partitionContext: // its topic's deletion has just ended
		case r.queued():
			queued = append(queued, r)
		case r.replicaState(id) == OfflineReplica:
			serving = append(serving, r)
		}
	}
	if err := c.changeReplicaStates(serving, OnlineReplica); err != nil {
		return err
	}
	if _, err := c.electOfflineAndNew(topicsOf(serving)); err != nil {
		return err
	}
	return c.tdm().resumeFor(topicsOf(queued))
}

// recreate has a broker delete logs of an earlier incarnation and then create the replicas. A broker that cannot do
// it says INCONSISTENT_TOPIC_ID again and is asked again by the retry timer.
func (c *Core) recreate(id cluster.BrokerID, rs []replicaRef) {
	if len(rs) == 0 {
		return
	}
	c.noteBroker(Warn, "broker holds logs of an earlier topic of the same name; they are replaced", id, rs[0].String())
	stop := c.newBatch()
	for _, r := range rs {
		stop.addStopReplicaAt(r.partitionContext, id, cluster.LeaderEpochDuringDelete, true)
	}
	stop.send()
	announce := c.newBatch()
	for _, r := range rs {
		announce.addLeaderAndISR(r.partitionContext, []cluster.BrokerID{id}, true)
	}
	announce.send()
}

func (r replicaRef) String() string {
	return cluster.TopicPartitionReplica{TopicPartition: r.TopicPartition, Replica: r.id}.String()
}
