package controller

import (
	"fmt"
	"slices"

	"klamm/internal/cluster"
)

// ---- election

func (c *Core) handleStartup() error {
	c.emit(Watch{Watched{Kind: WatchController}})
	return c.handleControllerChange()
}

// handleControllerChange looks who holds /controller: it ends the term if that is not this broker any more, and stands for election
// if it is nobody (Kafka: maybeResign, then elect).
func (c *Core) handleControllerChange() error {
	if c.stopped {
		return nil
	}
	r, err := query[ControllerRead](c, ReadController{})
	if err != nil {
		return err
	}
	switch {
	case c.ctx != nil && r.Broker == c.cfg.Broker:
		return nil
	case c.ctx != nil:
		c.resign("another broker holds /controller, or nobody")
	}
	c.setActiveController(r.Broker)
	if r.Broker == cluster.NoBroker || r.Broker == c.cfg.Broker {
		return c.standForElection(r.Broker == c.cfg.Broker)
	}
	c.elections, c.electNotBefore = 0, 0
	return nil
}

func (c *Core) setActiveController(id cluster.BrokerID) {
	if id != c.activeController {
		c.activeController = id
		c.emit(ActiveController{id})
	}
}

// standForElection stands for election, unless the last one is too recent: a term that fails at once must not make the cluster
// elect in a loop (W2). leftover says that /controller is held in this broker's name without a term: by an earlier
// process, or by an election whose answer was lost and judged wrongly. It is removed first; Kafka would wait for a
// session to expire, or believe itself active.
func (c *Core) standForElection(leftover bool) error {
	if c.now < c.electNotBefore {
		c.emit(StartTimer{TimerElection, int64(c.electNotBefore - c.now)})
		return nil
	}
	if leftover {
		if gone, err := c.removeLeftover(); err != nil || !gone {
			return err
		}
	}
	c.elections++
	c.electNotBefore = c.now + Time(c.backoff(c.elections))
	epoch, version, won, err := c.registerAndIncrement()
	if err != nil || !won {
		return err
	}
	c.ctx = newContext(epoch, version)
	c.emit(Elected{epoch, version})
	c.setActiveController(c.cfg.Broker)
	if err := c.failover(); err != nil {
		return err
	}
	c.elections, c.electNotBefore = 0, 0
	return nil
}

// handleElectionTimer stands for election again after the pause.
func (c *Core) handleElectionTimer() error {
	if c.ctx != nil {
		return nil
	}
	return c.handleControllerChange()
}

// removeLeftover deletes /controller, on the condition that no election has happened since.
func (c *Core) removeLeftover() (gone bool, err error) {
	e, err := query[ControllerEpochRead](c, ReadControllerEpoch{})
	if err != nil {
		return false, err
	}
	c.token++
	c.emit(Store{Token: c.token, Fenced: true, ZkVersion: e.Version, Op: DeleteController{}})
	c.awaiting = true
	if !c.yield(struct{}{}) || c.result.Outcome == Closed {
		return false, errClosed
	}
	// Unless it went well /controller is read again after the pause.
	if c.result.Outcome != Applied {
		c.elections++
		c.electNotBefore = c.now + Time(c.backoff(c.elections))
		c.emit(StartTimer{TimerElection, c.backoff(c.elections)})
		return false, nil
	}
	return true, nil
}

// registerAndIncrement creates /controller and raises the controller epoch in one transaction, so that every write
// fenced by an older epoch is impossible from then on (Kafka: registerControllerAndIncrementControllerEpoch). An
// answer that was lost, or that says the node exists, is verified: the election is won if /controller is this
// broker's and the epoch is the one tried.
func (c *Core) registerAndIncrement() (epoch cluster.ControllerEpoch, version int32, won bool, err error) {
	cur, err := query[ControllerEpochRead](c, ReadControllerEpoch{})
	if err == nil && !cur.Exists {
		cur, err = query[ControllerEpochRead](c, CreateControllerEpoch{})
	}
	if err != nil {
		return 0, 0, false, err
	}
	op := Elect{Broker: c.cfg.Broker, At: c.now, Epoch: cur.Epoch + 1, Version: cur.Version}
	for attempt := 0; ; attempt++ {
		r := c.run(op, false, c.backoff(attempt))
		switch r.Outcome {
		case Applied:
			if e := valueAs[ElectResult](r, op); e.Status == ItemOK {
				return op.Epoch, e.Version, true, nil
			}
			return c.verifyElection(op)
		case Unavailable:
			c.noteStoreRetry(op, r, attempt)
		case UnknownOutcome:
			return c.verifyElection(op)
		default:
			return 0, 0, false, outcomeError(r, op)
		}
	}
}

func (c *Core) verifyElection(op Elect) (cluster.ControllerEpoch, int32, bool, error) {
	holder, err := query[ControllerRead](c, ReadController{})
	if err != nil {
		return 0, 0, false, err
	}
	if holder.Broker == c.cfg.Broker {
		e, err := query[ControllerEpochRead](c, ReadControllerEpoch{})
		if err != nil {
			return 0, 0, false, err
		}
		if e.Epoch == op.Epoch {
			return e.Epoch, e.Version, true, nil
		}
	}
	c.setActiveController(holder.Broker)
	if holder.Broker == cluster.NoBroker || holder.Broker == c.cfg.Broker {
		// Nobody, or an election of ours that is not this one: look again after the pause.
		c.emit(StartTimer{TimerElection, max(int64(c.electNotBefore-c.now), 1)})
	} else {
		c.elections, c.electNotBefore = 0, 0
	}
	return 0, 0, false, nil
}

// ---- resignation

// resign ends the term, if there is one. All that the term knew goes with its context; the driver drops senders,
// watches and timers (W17: there is no way to end a term without it).
func (c *Core) resign(reason string) {
	if c.ctx == nil {
		return
	}
	c.ctx = nil
	c.emit(Resigned{reason})
	c.setActiveController(cluster.NoBroker)
}

func (c *Core) handleExpire() {
	c.resign("the session has expired")
	c.setActiveController(cluster.NoBroker)
}

// handleShutdown gives up office for good. /controller is removed at once so that others need not wait for the session; whether
// that went well makes no difference.
func (c *Core) handleShutdown() error {
	c.stopped = true
	if c.ctx == nil {
		return nil
	}
	version := c.ctx.zkVersion
	c.resign("the broker is stopping")
	c.token++
	c.emit(Store{Token: c.token, Fenced: true, ZkVersion: version, Op: DeleteController{}})
	c.awaiting = true
	c.yield(struct{}{})
	return nil
}

// ---- failover

// failover takes office: it arms the watches, reads the state of the cluster, and brings brokers and store in line with it. The
// numbers are the steps of Kafka's onControllerFailover; each one's place has a reason. Nothing that is wrong with
// one topic, partition or marker ends the term.
func (c *Core) failover() error {
	steps := []func() error{
		c.setUpFeatures,                  // 0: later steps depend on the finalized features
		c.watchAndClearEvents,            // 1, 2: the watches before the reads; notifications are void, everything is read anyway
		c.readBrokers,                    // 3
		c.readAllTopics,                  // 4
		c.readAllLeaderships,             // 5
		c.startSenders,                   // 6: only now is the set of brokers known
		c.readAllMarkers,                 // 7: queued topics must be known before any state machine runs
		c.tellLiveBrokers,                // 8: a broker follows only leaders that it knows to be alive
		c.startReplicas,                  // 9: the states alone
		c.startPartitions,                // 10: leaderless ones first, then all others, which is the rest of 9
		c.takeUpReassignments,            // 11
		c.tdm().resume,                   // 12
		c.handlePreferredReplicaElection, // 13
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	c.scheduleLeaderBalance(leaderBalanceDelayMs) // 14
	c.note(Info, "controller failover completed", "", fmt.Sprintf("epoch %d: %d brokers, %d topics, %d queued for deletion",
		c.ctx.epoch, len(c.ctx.brokers), len(c.ctx.topics), len(c.ctx.deletions)))
	return nil
}

func (c *Core) watchAndClearEvents() error {
	for _, k := range []WatchKind{WatchBrokers, WatchTopics, WatchMarkers, WatchLogDirEvents, WatchISRChanges, WatchReassignments, WatchPreferredElection} {
		c.emit(Watch{Watched{Kind: k}})
	}
	if _, err := c.remove(DeleteLogDirEvents{}, 1); err != nil {
		return err
	}
	_, err := c.remove(DeleteISRChanges{}, 1)
	return err
}

func (c *Core) readBrokers() error {
	r, err := query[BrokersRead](c, ReadBrokers{})
	if err != nil {
		return err
	}
	c.ctx.isrWriters = slices.ContainsFunc(r.Brokers, writesISR)
	for _, b := range c.compatible(r.Brokers) {
		c.ctx.addBroker(b)
		c.emit(Watch{Watched{Kind: WatchBroker, Broker: b.ID}})
	}
	return c.learnKlammBrokers(r)
}

func (c *Core) readAllTopics() error {
	r, err := query[TopicNamesRead](c, ReadTopicNames{})
	if err != nil {
		return err
	}
	slices.Sort(r.Names)
	_, err = c.readIntoContext(r.Names)
	return err
}

func (c *Core) readAllLeaderships() error {
	var ps []*partitionContext
	var tps []cluster.TopicPartition
	for p := range c.ctx.partitions() {
		ps = append(ps, p)
		tps = append(tps, p.TopicPartition)
	}
	results, err := c.readStates(tps)
	if err == nil {
		err = c.mustStillReign(results) // this failover may have been suspended for long
	}
	if err != nil {
		return err
	}
	for i, p := range ps {
		switch r := results[i]; r.Status {
		case ItemOK:
			p.leadership = &r.State
		case ItemNoNode: // never initialised
		default:
			c.note(Warn, "partition state cannot be read", p.Topic, fmt.Sprintf("%s: %s", p, r.Err))
		}
	}
	return nil
}

func (c *Core) startSenders() error {
	for _, b := range c.ctx.liveBrokers() {
		c.emit(StartSender{b})
	}
	return nil
}

func (c *Core) readAllMarkers() error {
	r, err := query[MarkersRead](c, ReadDeletionMarkers{})
	if err != nil {
		return err
	}
	// A topic may have been created and marked since the topics were read; its marker must not pass for an orphan.
	if _, err := c.readIntoContext(c.unknownTopics(r.Markers)); err != nil {
		return err
	}
	return c.tdm().init(r.Markers)
}

func (c *Core) tellLiveBrokers() error {
	c.ctx.takingOffice = false
	c.sendUpdateMetadata(c.ctx.brokerIDs())
	return nil
}
