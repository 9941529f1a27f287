package controller

import (
	"slices"

	"klamm/internal/cluster"
)

// handleAlterPartition lets a leader change the ISR of its partitions. Top level: not active NOT_CONTROLLER (by dispatch), sender not
// registered or its epoch another STALE_BROKER_EPOCH. Per partition the first match wins:
//
//	topic id unknown (v2+)                                    UNKNOWN_TOPIC_ID
//	no leadership known                                       UNKNOWN_TOPIC_OR_PARTITION
//	partition epoch or leader epoch greater than known        NOT_CONTROLLER
//	leader epoch smaller                                      FENCED_LEADER_EPOCH
//	leader, leader epoch, ISR and recovery equal,
//	  partition epoch not greater than known                  success with the known state
//	partition epoch smaller                                   INVALID_UPDATE_VERSION
//	RECOVERING with more than one ISR member                  INVALID_REQUEST
//	known RECOVERED, requested RECOVERING                     INVALID_REQUEST
//	ISR names a broker that is not live (shutting down is
//	  not live), or has registered again since the leader
//	  heard from it (KIP-903; Kafka: KRaft only)              INELIGIBLE_REPLICA, below v2 OPERATION_NOT_ATTEMPTED
//	ISR without the sender, or with a broker that is not
//	  assigned (as KRaft's controller)                        INVALID_REQUEST
//	write at the partition epoch: conflict                    INVALID_UPDATE_VERSION
//	write failed                                              UNKNOWN_SERVER_ERROR
//
// In v0 the last refusals are a success with the known state (refusal).
//
// All partitions asked for are then announced to all brokers. The leader epoch does not change, and topics queued for
// deletion are not refused (Kafka: processAlterPartition).
//
// A sender whose picture is behind is put right; in Kafka it asks in vain until somebody else causes the next leader epoch:
//
//	its leader epoch is behind: it missed a LeaderAndIsr              it alone is sent LeaderAndIsr again
//	its partition epoch is behind, or it names a broker that is not
//	  assigned: the state changed and nobody told it, since the
//	  controller died, an answer got lost and a late copy of the
//	  request was taken, or somebody else wrote the node              all replicas are told, with the next leader epoch
//
// The second needs a new leader epoch because LeaderAndIsr of an epoch that a broker has seen is ignored; what is asked on the books of the one
// before is then a case of the first, so a partition costs one write however often it is asked for.
func (c *Core) handleAlterPartition(ev AlterPartition) error {
	if b, known := c.ctx.brokers[ev.Broker]; !known || b.Epoch != ev.BrokerEpoch {
		c.reply(AlterPartitionResult{Err: cluster.StaleBrokerEpoch})
		return nil
	}
	result := AlterPartitionResult{Topics: make([]AlterPartitionTopicResult, len(ev.Topics))}
	var asked, able []*partitionContext
	var behind senderBehind
	var writes []PartitionStateWrite
	var answers []*AlterPartitionPartitionResult // of the writes
	for i, t := range ev.Topics {
		topic, unknown := c.alterPartitionTopic(t, ev.Version)
		result.Topics[i] = AlterPartitionTopicResult{Name: t.Name, ID: t.ID, Partitions: make([]AlterPartitionPartitionResult, len(t.Partitions))}
		for j, req := range t.Partitions {
			answer := &result.Topics[i].Partitions[j]
			answer.Partition = req.Partition
			if topic == nil {
				answer.Err = unknown
				continue
			}
			p := topic.partition(req.Partition)
			if p == nil || p.leadership == nil {
				answer.Err = cluster.UnknownTopicOrPartition
				continue
			}
			asked = append(asked, p)
			state, code, write := c.judgeAlterPartition(p, req, ev)
			answer.Err, answer.State = code, state
			if code == cluster.InvalidRequest || code == cluster.IneligibleReplica {
				*answer = p.refusal(code, ev.Version)
			}
			behind.note(p, code, req, ev.Broker)
			if write {
				able, answers = append(able, p), append(answers, answer)
				writes = append(writes, PartitionStateWrite{p.TopicPartition, state})
			}
		}
	}
	results, err := c.setStates(writes)
	if err != nil {
		return err
	}
	for i, p := range able {
		switch r := results[i]; r.Status {
		case ItemOK:
			p.leadership = &r.State
			answers[i].State = r.State
		case ItemConflict:
			p.leadership = &r.State
			*answers[i] = AlterPartitionPartitionResult{Partition: p.Partition, Err: cluster.InvalidUpdateVersion}
			behind.conflicted(p, writes[i].State, ev.Broker)
		default:
			*answers[i] = p.refusal(cluster.UnknownServerError, ev.Version)
		}
	}
	if len(asked) > 0 {
		c.sendUpdateMetadata(c.ctx.brokerIDs(), asked...)
	}
	c.reply(result)
	if err := c.putRight(behind, ev.Broker); err != nil {
		return err
	}
	return c.completeWhatCan(asked)
}

// senderBehind are the partitions of an AlterPartition whose sender's picture of them is behind, see handleAlterPartition.
type senderBehind struct {
	leaderEpoch []*partitionContext
	state       []*partitionContext
}

// note takes up a partition by its answer.
func (s *senderBehind) note(p *partitionContext, code cluster.ErrorCode, req AlterPartitionPartition, sender cluster.BrokerID) {
	if p.queued() || !slices.Contains(p.assignment.Replicas, sender) {
		return
	}
	switch {
	case code == cluster.FencedLeaderEpoch:
		s.leaderEpoch = append(s.leaderEpoch, p)
	case code == cluster.InvalidUpdateVersion, code == cluster.InvalidRequest && !p.assigns(req.ISR):
		s.state = append(s.state, p)
	}
}

// conflicted takes up a partition whose node turned out to be another than the controller knew as well.
func (s *senderBehind) conflicted(p *partitionContext, tried cluster.LeaderAndISR, sender cluster.BrokerID) {
	code := cluster.InvalidUpdateVersion
	if p.leadership.LeaderEpoch > tried.LeaderEpoch {
		code = cluster.FencedLeaderEpoch
	}
	s.note(p, code, AlterPartitionPartition{}, sender)
}

func (c *Core) putRight(s senderBehind, sender cluster.BrokerID) error {
	if err := c.announceAssignments(s.state); err != nil {
		return err
	}
	b := c.newBatch()
	for _, p := range s.leaderEpoch {
		b.addLeaderAndISR(p, []cluster.BrokerID{sender}, false)
	}
	b.send()
	return nil
}

// announceAssignments tells the replicas of partitions who they are, with a new leader epoch: LeaderAndIsr of an epoch that a broker has
// seen is ignored, also when the assignment differs.
func (c *Core) announceAssignments(ps []*partitionContext) error {
	bumped, err := c.bumpLeaderEpochs(ps)
	if err != nil {
		return err
	}
	b := c.newBatch()
	for _, p := range bumped {
		b.addLeaderAndISR(p, p.assignment.Replicas, false)
	}
	b.send()
	return nil
}

func (c *Core) alterPartitionTopic(t AlterPartitionTopic, version int16) (*topicContext, cluster.ErrorCode) {
	if version < 2 {
		return c.ctx.topics[t.Name], cluster.UnknownTopicOrPartition
	}
	return c.ctx.topics[c.ctx.topicNames[t.ID]], cluster.UnknownTopicID
}

// judgeAlterPartition is the table of handleAlterPartition; write says that the state is to be written.
func (c *Core) judgeAlterPartition(p *partitionContext, req AlterPartitionPartition, ev AlterPartition) (_ cluster.LeaderAndISR, _ cluster.ErrorCode, write bool) {
	known := *p.leadership
	switch {
	case req.PartitionEpoch > known.PartitionEpoch || req.LeaderEpoch > known.LeaderEpoch:
		return cluster.LeaderAndISR{}, cluster.NotController, false
	case req.LeaderEpoch < known.LeaderEpoch:
		return cluster.LeaderAndISR{}, cluster.FencedLeaderEpoch, false
	case ev.Broker == known.Leader && slices.Equal(req.ISR, known.ISR) && req.Recovery == known.Recovery:
		return known, cluster.None, false
	case req.PartitionEpoch < known.PartitionEpoch:
		return cluster.LeaderAndISR{}, cluster.InvalidUpdateVersion, false
	case req.Recovery == cluster.Recovering && len(req.ISR) > 1,
		req.Recovery == cluster.Recovering && known.Recovery == cluster.Recovered:
		return cluster.LeaderAndISR{}, cluster.InvalidRequest, false
	case !c.eligible(req):
		return cluster.LeaderAndISR{}, cluster.IneligibleReplica, false
	case !p.assigns(req.ISR) || !slices.Contains(req.ISR, ev.Broker):
		return cluster.LeaderAndISR{}, cluster.InvalidRequest, false
	}
	// Kafka takes the leader from the sender; so a broker that is not the leader by the controller's books becomes it.
	return cluster.LeaderAndISR{
		Leader: ev.Broker, LeaderEpoch: known.LeaderEpoch, ISR: slices.Clone(req.ISR), Recovery: req.Recovery,
		PartitionEpoch: req.PartitionEpoch, ControllerEpoch: c.ctx.epoch,
	}, cluster.None, true
}

// refusal answers a leader that the ISR stays as it is. Leaders of Kafka 2.7 to 3.1 send v0. Those of 2.8 know none of these errors: trying again fails
// in them, the proposed ISR stays pending, and they propose no other until somebody is elected. Of a success they take over the ISR,
// whatever they had proposed.
func (p *partitionContext) refusal(code cluster.ErrorCode, version int16) AlterPartitionPartitionResult {
	switch {
	case version == 0:
		return AlterPartitionPartitionResult{Partition: p.Partition, State: *p.leadership}
	case version == 1 && code == cluster.IneligibleReplica:
		code = cluster.OperationNotAttempted
	}
	return AlterPartitionPartitionResult{Partition: p.Partition, Err: code}
}

// eligible reports whether all members of a proposed ISR are live, in the registrations in which the leader found them in sync. A member that
// has gone since and come back may have lost its disk; and a request that was refused while it was away, and is read again from a connection that
// broke, must not come true behind the leader's back.
func (c *Core) eligible(req AlterPartitionPartition) bool {
	for i, id := range req.ISR {
		if !c.ctx.isLive(id) {
			return false
		}
		if req.BrokerEpochs != nil && req.BrokerEpochs[i] != cluster.NoBrokerEpoch && req.BrokerEpochs[i] != c.ctx.brokers[id].Epoch {
			return false
		}
	}
	return true
}

// assigns reports whether all brokers are replicas of the partition.
func (p *partitionContext) assigns(ids []cluster.BrokerID) bool {
	return len(difference(ids, p.assignment.Replicas)) == 0
}

// handleISRChangeNotification refreshes the leaderships that leaders of an old inter-broker protocol wrote themselves, and
// announces them (Kafka: IsrChangeNotification).
func (c *Core) handleISRChangeNotification() error {
	r, err := query[ISRChangesRead](c, ReadISRChanges{})
	if err != nil || len(r.Changes) == 0 {
		return err
	}
	var names []string
	var ps []*partitionContext
	var tps []cluster.TopicPartition
	seen := map[cluster.TopicPartition]bool{}
	for _, change := range r.Changes {
		names = append(names, change.Name)
		for _, tp := range change.Partitions {
			if p := c.ctx.partition(tp); p != nil && !seen[tp] {
				seen[tp] = true
				ps, tps = append(ps, p), append(tps, tp)
			}
		}
	}
	states, err := c.readStates(tps)
	if err != nil {
		return err
	}
	for i, p := range ps {
		if s := states[i]; s.Status == ItemOK {
			p.leadership = &s.State
		}
	}
	if len(ps) > 0 {
		c.sendUpdateMetadata(c.ctx.brokerIDs(), ps...)
	}
	if err := c.completeWhatCan(ps); err != nil {
		return err
	}
	_, err = c.remove(DeleteISRChanges{names}, 1)
	return err
}
