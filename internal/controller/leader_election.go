package controller

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// ElectionType is what an election by request is for; the values are those of the wire.
type ElectionType int8

// Election types.
const (
	// PreferredElection makes the first replica of the assignment the leader.
	PreferredElection ElectionType = 0
	// UncleanElection elects for a partition without a leader, if need be a replica outside the ISR.
	UncleanElection ElectionType = 1
)

// electionTrigger is who asks for an election: only a request may elect uncleanly whatever the topic says.
type electionTrigger uint8

const (
	electionByRequest electionTrigger = iota
	electionByNode
	electionAuto
)

// handleElectLeaders elects by request. Per partition the first match wins:
//
//	unknown                                              UNKNOWN_TOPIC_OR_PARTITION
//	topic queued for deletion                            INVALID_TOPIC_EXCEPTION
//	preferred: led by the first replica                  ELECTION_NOT_NEEDED
//	unclean: led by a replica that is online             ELECTION_NOT_NEEDED
//	no leadership (W3: Kafka never answers), or the
//	  strategy finds nobody                              PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE
//	the state could not be written                       UNKNOWN_SERVER_ERROR
//
// Not active: NOT_CONTROLLER, by dispatch (Kafka: ReplicaLeaderElection).
func (c *Core) handleElectLeaders(ev ElectLeaders) error {
	results, err := c.electByRequest(ev.Partitions, ev.Type, electionByRequest)
	if err != nil {
		return err
	}
	c.reply(ElectLeadersResult{Partitions: results})
	return nil
}

func (c *Core) electByRequest(tps []cluster.TopicPartition, kind ElectionType, by electionTrigger) ([]PartitionElection, error) {
	tps = slices.Clone(tps)
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	tps = slices.Compact(tps)
	results := make([]PartitionElection, len(tps))
	var able []*partitionContext
	var at []int
	for i, tp := range tps {
		p := c.ctx.partition(tp)
		results[i] = PartitionElection{TopicPartition: tp, Leader: cluster.NoBroker}
		if results[i].Err, results[i].Message = c.judgeElection(p, kind); results[i].Err == cluster.None {
			able, at = append(able, p), append(at, i)
		}
	}
	strategy := PreferredReplicaStrategy
	if kind == UncleanElection {
		strategy = OfflineStrategy
		if by == electionByRequest {
			strategy = UncleanStrategy
		}
	}
	if _, err := c.changePartitionStates(able, OnlinePartition, strategy); err != nil {
		return nil, err
	}
	for k, p := range able {
		results[at[k]].Leader = p.leadership.Leader
		results[at[k]].Err, results[at[k]].Message = c.electionOutcome(p, kind, strategy)
	}
	return results, nil
}

// judgeElection is the table of handleElectLeaders up to the election itself.
func (c *Core) judgeElection(p *partitionContext, kind ElectionType) (cluster.ErrorCode, string) {
	switch {
	case p == nil:
		return cluster.UnknownTopicOrPartition, "The partition does not exist."
	case p.queued():
		return cluster.InvalidTopicException, "The topic is being deleted"
	case p.leadership == nil:
		return noLeaderCode(kind), fmt.Sprintf("Partition %s has never had a leader: none of its replicas %v is online.", p, p.assignment.Replicas)
	case kind == PreferredElection && p.preferred() == p.leadership.Leader, kind == UncleanElection && c.ctx.leaderOnline(p):
		return cluster.ElectionNotNeeded, ""
	}
	return cluster.None, ""
}

func (c *Core) electionOutcome(p *partitionContext, kind ElectionType, s ElectionStrategy) (cluster.ErrorCode, string) {
	if kind == PreferredElection && p.leadership.Leader == p.preferred() || kind == UncleanElection && c.ctx.leaderOnline(p) {
		return cluster.None, ""
	}
	view := c.candidates(p, s)
	view.UncleanAllowed = true
	if _, possible := electLeader(s, view); possible && s != OfflineStrategy {
		return cluster.UnknownServerError, fmt.Sprintf("The state of partition %s could not be written.", p)
	}
	return noLeaderCode(kind), fmt.Sprintf("Failed to elect leader for partition %s under strategy %s", p, s)
}

func noLeaderCode(kind ElectionType) cluster.ErrorCode {
	if kind == PreferredElection {
		return cluster.PreferredLeaderNotAvailable
	}
	return cluster.EligibleLeadersNotAvailable
}

// preferred is the first replica of the assignment; NoBroker of none.
func (p *partitionContext) preferred() cluster.BrokerID {
	if len(p.assignment.Replicas) == 0 {
		return cluster.NoBroker
	}
	return p.assignment.Replicas[0]
}

// handlePreferredReplicaElection elects what old tools wrote into /admin/preferred_replica_election and removes the node, whatever
// became of each partition (W2: in Kafka one partition without leadership ends every term).
func (c *Core) handlePreferredReplicaElection() error {
	r, err := query[PreferredElectionRead](c, ReadPreferredElection{})
	if err != nil || !r.Exists {
		return err
	}
	if r.Err != "" {
		c.note(Warn, "request for preferred replica elections cannot be decoded and is removed", "", r.Err)
	}
	results, err := c.electByRequest(r.Partitions, PreferredElection, electionByNode)
	if err != nil {
		return err
	}
	for _, e := range results {
		if e.Err != cluster.None && e.Err != cluster.ElectionNotNeeded {
			c.note(Warn, "preferred replica was not elected", e.Topic, fmt.Sprintf("%s: %s %s", e.TopicPartition, e.Err, e.Message))
		}
	}
	// At the version read: a request that was written meanwhile raises the event again.
	items, err := c.remove(DeletePreferredElection{r.Version}, 1)
	if err == nil && items[0].Status == ItemFailed {
		c.note(Warn, "request for preferred replica elections could not be removed", "", items[0].Err)
	}
	return err
}

// leaderBalanceDelayMs is the time from a failover to the first look at the balance of leaders.
const leaderBalanceDelayMs = 5000

// scheduleLeaderBalance starts the timer of the balancer, if it is enabled (auto.leader.rebalance.enable).
func (c *Core) scheduleLeaderBalance(afterMs int64) {
	if c.cfg.AutoLeaderRebalance {
		c.emit(StartTimer{TimerLeaderBalance, afterMs})
	}
}

// balanceLeaders elects preferred replicas where too many partitions of one broker are led elsewhere
// (Kafka: AutoPreferredReplicaLeaderElection, checkAndTriggerAutoLeaderRebalance).
func (c *Core) balanceLeaders() error {
	c.scheduleLeaderBalance(c.cfg.LeaderImbalanceCheckMs)
	total := map[cluster.BrokerID]int{}
	elsewhere := map[cluster.BrokerID][]*partitionContext{}
	for p := range c.ctx.partitions() {
		if id := p.preferred(); !p.queued() && id != cluster.NoBroker {
			total[id]++
			if p.leadership != nil && p.leadership.Leader != id {
				elsewhere[id] = append(elsewhere[id], p)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(elsewhere)) {
		if len(elsewhere[id])*100 <= total[id]*c.cfg.LeaderImbalancePercentage {
			continue
		}
		var tps []cluster.TopicPartition
		for _, p := range elsewhere[id] {
			if c.ctx.isReplicaOnline(p, id) && slices.Contains(p.leadership.ISR, id) {
				tps = append(tps, p.TopicPartition)
			}
		}
		if len(tps) == 0 {
			continue
		}
		c.noteBroker(Info, "leaders are moved to their preferred replica", id, fmt.Sprintf("%d of %d partitions, %d led elsewhere", len(tps), total[id], len(elsewhere[id])))
		if _, err := c.electByRequest(tps, PreferredElection, electionAuto); err != nil {
			return err
		}
	}
	return nil
}
