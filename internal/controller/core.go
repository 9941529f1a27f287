// Package controller is the heart of klamm: the control plane of Kafka's ZooKeeper mode as a pure, deterministic core.
//
// A Core takes one event at a time and answers with effects: values that say what to read and write in the coordination
// store, what to send to which broker, which watches and timers to keep, which requests to answer. It does no IO, has no
// clock and no randomness of its own, and walks its state in sorted order wherever order reaches an effect: the same events
// give the same effects. The package controller/driver carries effects out and turns the world into events.
//
// Kafka's semantics are kept: one event is finished before the next begins. A handler that needs the store ends its Step
// with a Store effect and goes on, inside the core, when the StoreResult is fed. Each gap between two effects is
// a place where a controller may die, and the tests let it die in every one.
//
// Orientation, Kafka's names to files: KafkaController event loop core.go, event.go, effect.go; election and failover
// failover.go; ControllerContext context.go; PartitionStateMachine partition_state_machine.go; ReplicaStateMachine
// replica_state_machine.go; PartitionLeaderElectionAlgorithms election.go; elections by request and leader balancing
// leader_election.go; reassignments reassignment.go; UpdateFeatures features.go; ControllerBrokerRequestBatch request_batch.go; TopicDeletionManager topic_deletion_manager.go; DeletionClient deletion_client.go.
package controller

import (
	"fmt"
	"iter"
	"runtime/debug"

	"klamm/internal/cluster"
)

// Config is what the core must know about its broker. The zero value of every number means its default.
type Config struct {
	Broker cluster.BrokerID
	// DeleteTopicEnable is delete.topic.enable at start; the event TopicDeletionEnable changes it.
	DeleteTopicEnable bool
	// UncleanLeaderElectionEnable is the broker default of unclean.leader.election.enable at start; the event of the
	// same name changes it.
	UncleanLeaderElectionEnable bool
	// UseTopicIDs gives ids to topics that have none (inter.broker.protocol.version >= 2.8-IV0).
	UseTopicIDs bool
	// UseLeaderRecoveryState marks uncleanly elected leaders RECOVERING (inter.broker.protocol.version >= 3.2-IV0).
	UseLeaderRecoveryState bool
	// FeatureVersioning allows finalized features to change (inter.broker.protocol.version >= 2.7-IV0); SupportedFeatures are
	// those that this broker can finalize.
	FeatureVersioning bool
	SupportedFeatures map[string]cluster.VersionRange
	// LeadersWriteISR says that leaders write their ISRs into the state nodes themselves, and notify of it afterwards
	// (inter.broker.protocol.version < 2.7-IV2): what the context knows of an ISR may be old. Without it that holds as long as
	// a broker is registered that does so (cluster.Broker.WritesISR).
	LeadersWriteISR bool
	// NewTopicID makes ids for topics without one; required when UseTopicIDs is set.
	NewTopicID func() cluster.TopicID

	// RetryBackoffMs is the first pause before a failed store operation, deletion or election is tried again; pauses
	// double up to RetryBackoffMaxMs. Defaults 100 and 30000.
	RetryBackoffMs    int64
	RetryBackoffMaxMs int64
	// StoreBatchMax bounds the items of one Store effect. Default 10000.
	StoreBatchMax int

	// AutoLeaderRebalance is auto.leader.rebalance.enable, LeaderImbalanceCheckMs leader.imbalance.check.interval.seconds
	// (default 300 s), LeaderImbalancePercentage leader.imbalance.per.broker.percentage.
	AutoLeaderRebalance       bool
	LeaderImbalanceCheckMs    int64
	LeaderImbalancePercentage int

	// OfflineReplicas is topic.deletion.offline.replicas: whether a deletion waits for brokers that are gone.
	OfflineReplicas OfflineReplicas
	// OfflineReplicaTimeoutMs is topic.deletion.offline.replica.timeout.ms: a deletion that waits for offline replicas ends
	// without them after this time. 0 or less: it waits for ever.
	OfflineReplicaTimeoutMs int64
}

func (cfg Config) withDefaults() Config {
	if cfg.RetryBackoffMs <= 0 {
		cfg.RetryBackoffMs = 100
	}
	if cfg.RetryBackoffMaxMs <= 0 {
		cfg.RetryBackoffMaxMs = 30_000
	}
	if cfg.LeaderImbalanceCheckMs <= 0 {
		cfg.LeaderImbalanceCheckMs = 300_000
	}
	if cfg.StoreBatchMax <= 0 {
		cfg.StoreBatchMax = 10_000
	}
	if cfg.UseTopicIDs && cfg.NewTopicID == nil {
		panic("controller: UseTopicIDs without NewTopicID")
	}
	return cfg
}

// Core is the controller of one broker, in office or not. It is owned by one goroutine.
type Core struct {
	cfg Config
	now Time

	// Office. ctx is nil while not active; everything a term knows lives in it, so a term leaves nothing behind (W17).
	ctx              *controllerContext
	activeController cluster.BrokerID
	stopped          bool // after Shutdown
	// elections counts elections since the last failover that went through; it spaces the next one (W2).
	elections int
	// electNotBefore is when the next election may be tried.
	electNotBefore Time
	// uncleanElections counts over all terms, like the metric of the broker.
	uncleanElections int64

	// The event in progress.
	next     func() (struct{}, bool) // resumes the suspended handler; nil when idle
	stop     func()
	yield    func(struct{}) bool
	token    Token
	awaiting bool // a Store effect is unanswered
	result   StoreResult
	owed     *Reply // what the request in progress is answered with should its handler end early

	out         []Effect
	transitions []Transition // recorded since the last effect, see emit
}

// New returns a core that waits for Startup. It panics on a Config that cannot work.
func New(cfg Config) *Core {
	return &Core{cfg: cfg.withDefaults(), activeController: cluster.NoBroker}
}

// Step takes one event at the given time and returns what is to be done, in order.
func (c *Core) Step(now Time, ev Event) []Effect {
	c.now = max(c.now, now)
	if r, ok := ev.(StoreResult); ok {
		if !c.awaiting || r.Token != c.token {
			panic(fmt.Sprintf("controller: store result %d, awaiting=%v token=%d", r.Token, c.awaiting, c.token))
		}
		c.awaiting, c.result = false, r
	} else {
		if c.next != nil {
			panic(fmt.Sprintf("controller: %T fed while store effect %d is unanswered", ev, c.token))
		}
		// The handler is a coroutine: it runs on this goroutine's time, and only inside Step.
		c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) {
			c.yield = yield
			defer keepStack()
			c.dispatch(ev)
		})
	}
	if _, suspended := c.next(); !suspended {
		c.next, c.stop, c.yield = nil, nil, nil
	}
	c.flushTransitions()
	out := c.out
	c.out = nil
	return out
}

// BrokenInvariant is what Step panics with when a handler panics. A handler's own stack is gone by the time that the panic has
// left its coroutine.
type BrokenInvariant struct {
	Value any
	Stack string
}

// Error gives the text of the value.
func (b *BrokenInvariant) Error() string { return fmt.Sprint(b.Value) }

func keepStack() {
	if p := recover(); p != nil {
		panic(&BrokenInvariant{p, string(debug.Stack())})
	}
}

// AwaitsStore reports whether a Store effect is unanswered; then nothing but its StoreResult may be fed.
func (c *Core) AwaitsStore() bool { return c.awaiting }

// IsActive reports whether this broker is the active controller.
func (c *Core) IsActive() bool { return c.ctx != nil }

// Epoch returns the controller epoch of the term, 0 when not active.
func (c *Core) Epoch() cluster.ControllerEpoch {
	if c.ctx == nil {
		return 0
	}
	return c.ctx.epoch
}

// Close abandons the core and the event in progress, without any effect. The core must not be used afterwards.
func (c *Core) Close() {
	if c.stop != nil {
		c.stop()
		c.next, c.stop, c.yield = nil, nil, nil
	}
	c.awaiting, c.ctx, c.stopped, c.out, c.transitions = false, nil, true, nil, nil
}

// dispatch handles one event to its end. A handler returns an error only when the term is over.
func (c *Core) dispatch(ev Event) {
	c.owed = nil
	if r, ok := Preempted(ev); ok {
		c.owed = &r
	}
	if err := c.handle(ev); err != nil {
		c.resign(err.Error())
	}
	if c.owed != nil { // W3: whatever happened, a request is answered
		c.emit(*c.owed)
		c.owed = nil
	}
}

// reply answers the request in progress.
func (c *Core) reply(v ReplyValue) {
	c.emit(Reply{c.owed.Token, v})
	c.owed = nil
}

func (c *Core) handle(ev Event) error {
	switch ev := ev.(type) {
	case Startup:
		return c.handleStartup()
	case ControllerChange:
		return c.handleControllerChange()
	case RegisterBrokerAndReelect:
		return c.handleControllerChange()
	case Expire:
		c.handleExpire()
		return nil
	case Shutdown:
		return c.handleShutdown()
	case TimerFired:
		return c.handleTimerFired(ev.Timer)
	case UncleanLeaderElectionEnable:
		return c.handleUncleanLeaderElectionEnable(ev.Enabled)
	case TopicDeletionEnable:
		c.handleTopicDeletionEnable(ev.Enabled)
		return nil
	}
	if c.ctx == nil {
		return nil
	}
	switch ev := ev.(type) {
	case BrokerChange:
		return c.handleBrokerChange()
	case BrokerModifications:
		return c.handleBrokerModifications(ev.Broker)
	case TopicChange:
		return c.handleTopicChange()
	case PartitionModifications:
		return c.handlePartitionModifications(ev.Topic)
	case TopicDeletion:
		return c.handleTopicDeletion()
	case LogDirEventNotification:
		return c.handleLogDirEventNotification()
	case ISRChangeNotification:
		return c.handleISRChangeNotification()
	case ReassignmentISRChange:
		return c.handleReassignmentISRChange(ev.TopicPartition)
	case LeaderAndISRReply:
		return c.handleLeaderAndISRReply(ev)
	case UpdateMetadataReply:
		return c.handleUpdateMetadataReply(ev)
	case StopReplicaReply:
		return c.handleStopReplicaReply(ev)
	case AlterPartition:
		return c.handleAlterPartition(ev)
	case AllocateProducerIDs:
		return c.handleAllocateProducerIDs(ev)
	case ControlledShutdown:
		return c.handleControlledShutdown(ev)
	case AlterPartitionReassignments:
		return c.handleAlterPartitionReassignments(ev)
	case ListPartitionReassignments:
		return c.handleListPartitionReassignments(ev)
	case PartitionReassignmentChange:
		return c.handlePartitionReassignment()
	case ElectLeaders:
		return c.handleElectLeaders(ev)
	case UpdateFeatures:
		return c.handleUpdateFeatures(ev)
	case PreferredReplicaElection:
		return c.handlePreferredReplicaElection()
	case TopicUncleanLeaderElectionEnable:
		return c.handleTopicUncleanLeaderElectionEnable(ev.Topic)
	}
	panic(fmt.Sprintf("controller: unknown event %T", ev))
}

func (c *Core) handleTimerFired(t TimerID) error {
	switch {
	case t == TimerElection:
		return c.handleElectionTimer()
	case c.ctx == nil:
		return nil
	case t == TimerDeletionRetry:
		return c.retryDeletions()
	case t == TimerPartitionRetry:
		return c.retryPartitions()
	case t == TimerLeaderBalance:
		return c.balanceLeaders()
	}
	panic(fmt.Sprintf("controller: unknown timer %d", t))
}

// emit appends an effect, after the transitions recorded before it.
func (c *Core) emit(e Effect) {
	c.flushTransitions()
	c.out = append(c.out, e)
}

func (c *Core) flushTransitions() {
	if len(c.transitions) > 0 {
		c.out = append(c.out, Transitions{c.transitions})
		c.transitions = nil
	}
}

func (c *Core) note(level NoteLevel, message, topic, detail string) {
	c.emit(Note{Level: level, Message: message, Topic: topic, Broker: cluster.NoBroker, Detail: detail})
}

func (c *Core) noteBroker(level NoteLevel, message string, broker cluster.BrokerID, detail string) {
	c.emit(Note{Level: level, Message: message, Broker: broker, Detail: detail})
}
