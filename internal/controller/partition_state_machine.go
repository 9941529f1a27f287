package controller

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// PartitionState is a partition's state in the controller (Kafka: PartitionState).
type PartitionState uint8

// The partition states with their valid previous states; this table is validPreviousPartitionStates.
//
//	target                valid previous              effects
//	NonExistentPartition  Offline                     none
//	NewPartition          NonExistent                 none
//	OnlinePartition       New, Online, Offline        from New: first state written; else: leader elected; both announced
//	OfflinePartition      New, Online, Offline        none
const (
	NonExistentPartition PartitionState = iota
	NewPartition
	OnlinePartition
	OfflinePartition

	partitionStates = iota
)

var validPreviousPartitionStates = [partitionStates][]PartitionState{
	NonExistentPartition: {OfflinePartition},
	NewPartition:         {NonExistentPartition},
	OnlinePartition:      {NewPartition, OnlinePartition, OfflinePartition},
	OfflinePartition:     {NewPartition, OnlinePartition, OfflinePartition},
}

// String gives Kafka's name of the state.
func (s PartitionState) String() string {
	return [...]string{"NonExistentPartition", "NewPartition", "OnlinePartition", "OfflinePartition"}[s]
}

// changePartitionStates moves partitions to a state and sends what follows from it. Invalid transitions and failed
// elections are recorded and skipped; the others of the same call take place. It returns how many partitions were
// elected a leader. Strategy is needed for OnlinePartition only.
func (c *Core) changePartitionStates(ps []*partitionContext, target PartitionState, s ElectionStrategy) (int, error) {
	if len(ps) == 0 {
		return 0, nil
	}
	valid := make([]*partitionContext, 0, len(ps))
	for _, p := range ps {
		if !slices.Contains(validPreviousPartitionStates[target], p.state) {
			c.partitionFailed(p, target, "invalid transition")
			continue
		}
		valid = append(valid, p)
	}
	if target != OnlinePartition {
		for _, p := range valid {
			c.markPartition(p, target)
		}
		return 0, nil
	}
	b := c.newBatch()
	elections := filterPartitions(valid, OnlinePartition, OfflinePartition)
	adopted, err := c.initialise(b, filterPartitions(valid, NewPartition))
	if err != nil {
		return 0, err
	}
	elections = append(elections, adopted...)
	sortPartitions(elections)
	n, err := c.elect(b, elections, s)
	if err != nil {
		return 0, err
	}
	b.send()
	return n, nil
}

func filterPartitions(ps []*partitionContext, states ...PartitionState) []*partitionContext {
	var out []*partitionContext
	for _, p := range ps {
		if slices.Contains(states, p.state) {
			out = append(out, p)
		}
	}
	return out
}

func (c *Core) markPartition(p *partitionContext, to PartitionState) {
	t := Transition{TopicPartition: p.TopicPartition, Replica: cluster.NoBroker, From: p.state.String(), To: to.String()}
	if to == OnlinePartition {
		t.State = p.leadership
	}
	c.transitions = append(c.transitions, t)
	p.state = to
}

func (c *Core) partitionFailed(p *partitionContext, to PartitionState, why string) {
	c.transitions = append(c.transitions, Transition{
		TopicPartition: p.TopicPartition, Replica: cluster.NoBroker, From: p.state.String(), To: to.String(), Err: why,
	})
}

// initialise gives new partitions their first state: leader is the first online replica, ISR are the online replicas,
// all epochs 0. It returns the partitions whose state node existed and has a leader that is not online: they are
// OfflinePartition now and need an election (Kafka: initializeLeaderAndIsrForPartitions).
func (c *Core) initialise(b *requestBatch, ps []*partitionContext) (elections []*partitionContext, err error) {
	writes := make([]PartitionStateWrite, 0, len(ps))
	able := make([]*partitionContext, 0, len(ps))
	for _, p := range ps {
		live := filter(p.assignment.Replicas, func(id cluster.BrokerID) bool { return c.ctx.isReplicaOnline(p, id) })
		if len(live) == 0 {
			c.partitionFailed(p, OnlinePartition, "no replica is online")
			b.addUpdateMetadata(c.ctx.brokerIDs(), p)
			continue
		}
		able = append(able, p)
		writes = append(writes, PartitionStateWrite{p.TopicPartition, cluster.LeaderAndISR{Leader: live[0], ISR: live, ControllerEpoch: c.ctx.epoch}})
	}
	results, err := c.createStates(writes)
	if err != nil {
		return nil, err
	}
	for i, p := range able {
		switch r := results[i]; r.Status {
		case ItemOK:
			p.leadership = &r.State
			b.addLeaderAndISR(p, r.State.ISR, true)
			c.markPartition(p, OnlinePartition)
		case ItemExists:
			if c.adopt(b, p, r.State) {
				elections = append(elections, p)
			}
		default:
			c.partitionFailed(p, OnlinePartition, itemError("write the first state", r))
			c.armPartitionRetry()
		}
	}
	return elections, nil
}

// adopt takes over a state node that was there already, by an earlier term or by a write whose answer was lost (W5).
// It reports whether the partition needs an election.
func (c *Core) adopt(b *requestBatch, p *partitionContext, state cluster.LeaderAndISR) bool {
	if state.ControllerEpoch > c.ctx.epoch {
		c.partitionFailed(p, OnlinePartition, "state node was written by a later controller")
		return false
	}
	p.leadership = &state
	if foreign := p.dropForeignISR(); foreign || !c.ctx.leaderOnline(p) {
		c.markPartition(p, OfflinePartition)
		return true
	}
	online := filter(p.assignment.Replicas, func(id cluster.BrokerID) bool { return c.ctx.isReplicaOnline(p, id) })
	b.addLeaderAndISR(p, online, state.ControllerEpoch == c.ctx.epoch)
	c.markPartition(p, OnlinePartition)
	return false
}

// dropForeignISR takes brokers out of the known ISR that are not assigned, and reports whether there were any. The
// state was then written for another assignment, while the topic was replaced by hand; an election must follow.
func (p *partitionContext) dropForeignISR() bool {
	assigned := func(id cluster.BrokerID) bool { return slices.Contains(p.assignment.Replicas, id) }
	isr := filter(p.leadership.ISR, assigned)
	if len(isr) == len(p.leadership.ISR) {
		return false
	}
	if len(isr) == 0 {
		isr = p.assignment.Replicas
	}
	state := *p.leadership
	if state.ISR = isr; !assigned(state.Leader) {
		state.Leader = cluster.NoBroker
	}
	p.leadership = &state
	return true
}

// elect elects leaders by a strategy. A state is written at the cached partition epoch; on a conflict the election
// is decided again on the fresh state. A partition that fails never holds up the others (Kafka: doElectLeaderForPartitions).
func (c *Core) elect(b *requestBatch, ps []*partitionContext, s ElectionStrategy) (n int, err error) {
	if err := c.refreshISRs(ps); err != nil {
		return 0, err
	}
	remaining, err := c.readMissingLeadership(ps)
	if err != nil {
		return 0, err
	}
	for round := 0; len(remaining) > 0; round++ {
		if round == maxConflictRounds {
			for _, p := range remaining {
				c.partitionFailed(p, OnlinePartition, "another writer keeps changing the state node")
			}
			c.armPartitionRetry()
			return n, nil
		}
		able, decided, err := c.decide(remaining, s)
		if err != nil {
			return n, err
		}
		writes := make([]PartitionStateWrite, len(able))
		for i, p := range able {
			writes[i] = PartitionStateWrite{p.TopicPartition, c.electedState(p, decided[i])}
		}
		results, err := c.setStates(writes)
		if err != nil {
			return n, err
		}
		remaining = nil
		for i, p := range able {
			switch r := results[i]; r.Status {
			case ItemOK:
				p.leadership = &r.State
				c.countUnclean(p, decided[i])
				b.addLeaderAndISR(p, decided[i].Recipients, false)
				c.markPartition(p, OnlinePartition)
				n++
			case ItemConflict:
				p.leadership = &r.State
				remaining = append(remaining, p)
			default:
				c.partitionFailed(p, OnlinePartition, itemError("write the elected state", r))
				c.retryIfTransient(r)
			}
		}
	}
	return n, nil
}

// readMissingLeadership reads the states of partitions whose leadership is not known and drops those that have none.
func (c *Core) readMissingLeadership(ps []*partitionContext) ([]*partitionContext, error) {
	var missing []*partitionContext
	var tps []cluster.TopicPartition
	for _, p := range ps {
		if p.leadership == nil {
			missing = append(missing, p)
			tps = append(tps, p.TopicPartition)
		}
	}
	if len(missing) == 0 {
		return ps, nil
	}
	results, err := c.readStates(tps)
	if err != nil {
		return nil, err
	}
	for i, p := range missing {
		if r := results[i]; r.Status == ItemOK {
			p.leadership = &r.State
		} else {
			c.partitionFailed(p, OnlinePartition, itemError("read the state", r))
			c.retryIfTransient(r)
		}
	}
	return slices.DeleteFunc(slices.Clone(ps), func(p *partitionContext) bool { return p.leadership == nil }), nil
}

// decide applies the strategy to each partition and drops those for which nobody can lead.
func (c *Core) decide(ps []*partitionContext, s ElectionStrategy) ([]*partitionContext, []elected, error) {
	allowed := map[string]string{}
	if s == OfflineStrategy {
		var topics []string
		for _, p := range ps {
			if c.candidates(p, s).needsUnclean() && (len(topics) == 0 || topics[len(topics)-1] != p.Topic) {
				topics = append(topics, p.Topic)
			}
		}
		slices.Sort(topics)
		var err error
		if allowed, err = c.uncleanAllowed(slices.Compact(topics)); err != nil {
			return nil, nil, err
		}
	}
	able := make([]*partitionContext, 0, len(ps))
	decided := make([]elected, 0, len(ps))
	for _, p := range ps {
		if p.leadership.ControllerEpoch > c.ctx.epoch {
			c.partitionFailed(p, OnlinePartition, "state node was written by a later controller")
			continue
		}
		view := c.candidates(p, s)
		view.UncleanAllowed = s == UncleanStrategy || allowed[p.Topic] == uncleanYes
		e, ok := electLeader(s, view)
		if !ok {
			c.partitionFailed(p, OnlinePartition, noLeaderReason(s, allowed[p.Topic]))
			continue
		}
		able, decided = append(able, p), append(decided, e)
	}
	return able, decided, nil
}

const (
	uncleanYes = "unclean election is allowed"
	uncleanNo  = "unclean election is not allowed"
)

func noLeaderReason(s ElectionStrategy, unclean string) string {
	if unclean != "" {
		return fmt.Sprintf("no replica is eligible by strategy %s, %s", s, unclean)
	}
	return fmt.Sprintf("no replica is eligible by strategy %s", s)
}

func (c *Core) candidates(p *partitionContext, s ElectionStrategy) candidates {
	assignment := p.assignment.Replicas
	if s == ReassignStrategy {
		assignment = filter(assignment, func(id cluster.BrokerID) bool { return !slices.Contains(p.assignment.Removing, id) })
	}
	v := candidates{Assignment: assignment, ISR: p.leadership.ISR}
	for _, id := range assignment {
		switch {
		case c.ctx.isReplicaOnline(p, id):
			v.Online = append(v.Online, id)
		case c.ctx.isReplicaOnlineOrShuttingDown(p, id):
			v.ShuttingDown = append(v.ShuttingDown, id)
		}
	}
	return v
}

// uncleanAllowed looks up unclean.leader.election.enable of topics over the broker default; the answer per topic is a
// text for the record. A configuration that cannot be read allows nothing.
func (c *Core) uncleanAllowed(topics []string) (map[string]string, error) {
	out := make(map[string]string, len(topics))
	err := chunks(c, topics, func(topics []string) error {
		r, err := query[TopicConfigsRead](c, ReadTopicConfigs{topics})
		for _, t := range r.Topics {
			switch {
			case t.Err != "":
				out[t.Topic] = "its configuration cannot be read: " + t.Err
			case t.Unclean != nil && *t.Unclean, t.Unclean == nil && c.cfg.UncleanLeaderElectionEnable:
				out[t.Topic] = uncleanYes
			default:
				out[t.Topic] = uncleanNo
			}
		}
		return err
	})
	return out, err
}

// electedState is the state node's next value: one leader epoch further, expected at the cached partition epoch.
func (c *Core) electedState(p *partitionContext, e elected) cluster.LeaderAndISR {
	s := *p.leadership
	s.Leader, s.ISR, s.LeaderEpoch, s.ControllerEpoch = e.Leader, e.ISR, s.LeaderEpoch+1, c.ctx.epoch
	if e.Unclean && c.cfg.UseLeaderRecoveryState {
		s.Recovery = cluster.Recovering
	}
	return s
}

func (c *Core) countUnclean(p *partitionContext, e elected) {
	if e.Unclean {
		c.uncleanElections++
		c.note(Warn, "unclean leader election: records may be lost", p.Topic, fmt.Sprintf("%s leader %d", p, e.Leader))
	}
}

func itemError(what string, r ItemResult) string {
	switch r.Status {
	case ItemNoNode:
		return what + ": the node is gone"
	case ItemFailed:
		return what + ": " + r.Err
	}
	return fmt.Sprintf("%s: unexpected result %d", what, r.Status)
}

// electOfflineAndNew tries New and Offline partitions again, those of queued topics excepted
// (Kafka: triggerOnlinePartitionStateChange).
func (c *Core) electOfflineAndNew(topics []*topicContext) (int, error) {
	var ps []*partitionContext
	for _, t := range topics {
		if t.deletion == nil {
			ps = append(ps, filterPartitions(t.partitions, NewPartition, OfflinePartition)...)
		}
	}
	return c.changePartitionStates(ps, OnlinePartition, OfflineStrategy)
}

// startPartitions derives the states of all partitions at failover and elects where a leader is missing; those come
// first, with one write and one request. Then the others are announced.
func (c *Core) startPartitions() error {
	for p := range c.ctx.partitions() {
		switch {
		case p.leadership == nil:
			p.state = NewPartition
		case p.dropForeignISR(), !c.ctx.leaderOnline(p):
			p.state = OfflinePartition
		default:
			p.state = OnlinePartition
		}
	}
	var leaderless []*partitionContext
	for p := range c.ctx.partitions() {
		if !p.queued() && p.state != OnlinePartition {
			leaderless = append(leaderless, p)
		}
	}
	if _, err := c.changePartitionStates(leaderless, OnlinePartition, OfflineStrategy); err != nil {
		return err
	}
	elected := map[*partitionContext]bool{}
	for _, p := range leaderless {
		elected[p] = p.state == OnlinePartition
	}
	return c.announceReplicas(elected)
}

// armPartitionRetry starts the timer that tries failed partitions and replicas again (W5, W8 for partitions).
func (c *Core) armPartitionRetry() {
	if c.ctx.partitionRetryArmed {
		return
	}
	c.ctx.partitionRetryArmed = true
	c.ctx.partitionRetryAttempts++
	c.emit(StartTimer{TimerPartitionRetry, c.backoff(c.ctx.partitionRetryAttempts)})
}

func (c *Core) retryIfTransient(r ItemResult) {
	if r.Status == ItemFailed {
		c.armPartitionRetry()
	}
}

// retryPartitions runs when TimerPartitionRetry fires: replicas that are offline but could not be taken out of their
// ISR, partitions without a leader, and logs of earlier incarnations that a broker could not replace.
func (c *Core) retryPartitions() error {
	c.ctx.partitionRetryArmed = false
	if c.ctx.markersLeft {
		c.ctx.markersLeft = false
		if err := c.handleTopicDeletion(); err != nil {
			return err
		}
	}
	if err := c.retryTopicIDs(); err != nil {
		return err
	}
	var stuck []replicaRef
	strays := map[cluster.BrokerID][]replicaRef{}
	for p := range c.ctx.partitions() {
		for _, r := range p.replicas {
			serving := r.state == NewReplica || r.state == OnlineReplica || r.state == ReplicaDeletionIneligible
			if !p.queued() && serving && !c.ctx.isReplicaOnline(p, r.id) && !c.ctx.shuttingDown[r.id] {
				stuck = append(stuck, replicaRef{p, r.id})
			}
			if r.stray && !p.queued() && p.leadership != nil {
				strays[r.id] = append(strays[r.id], replicaRef{p, r.id})
			}
		}
	}
	if err := c.changeReplicaStates(stuck, OfflineReplica); err != nil {
		return err
	}
	if _, err := c.electOfflineAndNew(c.ctx.sorted()); err != nil {
		return err
	}
	if err := c.resumeReassignments(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(strays)) {
		c.recreate(id, strays[id])
	}
	if !c.ctx.partitionRetryArmed && len(strays) == 0 {
		c.ctx.partitionRetryAttempts = 0
	}
	return nil
}
