// Package driver is the edge of the controller's pure core. It owns the one event queue and the one goroutine that feeds
// the core, carries the core's effects out (coordination store, requests to brokers, watches, timers, answers), and turns
// the world into events (Kafka: ControllerEventManager, ControllerChannelManager, the IO of KafkaController).
//
// Goroutines, all started and awaited by Run:
//
//	owner     pops events, steps the core, runs its store operations, starts and stops senders
//	watcher   coord watch events -> event queue
//	session   waits for the session to expire, then Expire, new session, RegisterBrokerAndReelect
//	senders   one per live broker while in office: requests in order, answers -> event queue
//
// One event is finished before the next begins: a store operation runs on the owner goroutine and its result is fed at
// once, ahead of the queue. What ends an operation early is the end of the session or of Run; its outcome is then
// Closed and the core gives up office.
//
// Bounds: the event queue holds Config.EventQueueMax events (see eventQueue for who waits and who is refused); a broker's
// queue holds Config.BrokerQueueMax requests with Config.BrokerQueueEntriesMax partitions in all. A broker so far behind
// cannot be caught up by dropping or merging requests, since each may carry a transition of its own. Waiting for it
// would stop all elections. So the driver gives up office: the queues go, and the next controller, maybe this one, sends
// every broker the whole state once. BrokerQueueOverflows counts it.
//
// Locks: eventQueue.mu, sender.mu, timings.mu, watches.mu, replies.mu, refusals.mu, status.mu, stateChangeLog.mu. None is held while another is taken,
// nor across IO, channel operations or callbacks.
package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/coord"
)

// ErrNotController is returned by calls that only the active controller can answer.
var ErrNotController = errors.New("this broker is not the active controller")

// Config holds the driver's settings. Zero values mean the defaults in the comments.
type Config struct {
	BrokerID            cluster.BrokerID
	InterBrokerProtocol string        // inter.broker.protocol.version, "3.9"
	InterBrokerListener string        // control.plane.listener.name if set, else the inter-broker listener; "PLAINTEXT"
	SocketTimeout       time.Duration // controller.socket.timeout.ms, 30 s: for a connect to a broker
	RequestTimeout      time.Duration // request.timeout.ms, 30 s: for an answer of a broker
	StoreTimeout        time.Duration // for one operation on the store, 30 s
	EventQueueMax       int           // waiting events, 65,536

	BrokerQueueMax        int // waiting requests of one broker, 16,384
	BrokerQueueEntriesMax int // partitions that they name together, 4,194,304

	DeleteTopicEnable           bool          // delete.topic.enable at start (Kafka's default is true: set it)
	UncleanLeaderElectionEnable bool          // unclean.leader.election.enable at start
	AutoLeaderRebalance         bool          // auto.leader.rebalance.enable (Kafka's default is true: set it)
	LeaderImbalanceCheck        time.Duration // leader.imbalance.check.interval.seconds, 300 s
	LeaderImbalancePercentage   int           // leader.imbalance.per.broker.percentage

	OfflineReplicas       controller.OfflineReplicas // topic.deletion.offline.replicas
	OfflineReplicaTimeout time.Duration              // topic.deletion.offline.replica.timeout.ms; 0 or less: none

	// SupportedFeatures are the features that this broker can finalize; klamm has none so far, as Kafka's brokers with ZooKeeper.
	SupportedFeatures map[string]cluster.VersionRange

	RetryBackoff    time.Duration // the core's first pause before a retry, 100 ms
	RetryBackoffMax time.Duration // where its doubling ends, 30 s
}

func (c Config) withDefaults() Config {
	setDefault(&c.InterBrokerProtocol, DefaultInterBrokerProtocol)
	setDefault(&c.InterBrokerListener, "PLAINTEXT")
	setDefault(&c.SocketTimeout, 30*time.Second)
	setDefault(&c.RequestTimeout, 30*time.Second)
	setDefault(&c.StoreTimeout, 30*time.Second)
	setDefault(&c.EventQueueMax, 1<<16)
	setDefault(&c.BrokerQueueMax, 1<<14)
	setDefault(&c.BrokerQueueEntriesMax, 1<<22)
	setDefault(&c.RetryBackoff, 100*time.Millisecond)
	setDefault(&c.RetryBackoffMax, 30*time.Second)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Options is what a Driver works with. All fields but StateChange are required.
type Options struct {
	Config Config
	Store  coord.Store
	// Session is the one under which the broker is registered when Run starts.
	Session coord.Session
	// Reregister opens a new session after the former one expired, registers the broker under it and remembers the new
	// broker epoch. It is called once the core has given up office; an error is logged and it is called again a second later.
	Reregister func(ctx context.Context, previousSession int64) (coord.Session, error)
	// Dial connects to a broker's address, "host:port".
	Dial func(ctx context.Context, addr string) (Conn, error)
	Log  *slog.Logger
	// StateChange gets one debug record per transition of a partition or replica, as Kafka's state-change log; nil = Log.
	StateChange *slog.Logger
}

func (o *Options) validate() error {
	var faults []error
	need := func(ok bool, what string) {
		if !ok {
			faults = append(faults, fmt.Errorf("controller driver: %s is missing", what))
		}
	}
	need(o.Store != nil, "Store")
	need(o.Session != nil, "Session")
	need(o.Reregister != nil, "Reregister")
	need(o.Dial != nil, "Dial")
	need(o.Log != nil, "Log")
	return errors.Join(faults...)
}

// Driver runs a broker's controller module. Its exported methods are safe for concurrent use.
type Driver struct {
	cfg         Config
	versions    Versions
	store       coord.Store
	reregister  func(ctx context.Context, previousSession int64) (coord.Session, error)
	dial        func(ctx context.Context, addr string) (Conn, error)
	log         *slog.Logger
	stateChange *stateChangeLog

	queue    *eventQueue
	replies  *replies
	refusals refusals
	watches  *watches
	view     atomic.Pointer[view]       // who is active and what it knows; replaced by the owner
	session  atomic.Pointer[sessionRun] // replaced by the session goroutine
	status   *status
	senders  atomic.Pointer[map[cluster.BrokerID]*sender] // replaced by the owner
	running  sync.WaitGroup                               // senders
	unclean  atomic.Bool                                  // unclean.leader.election.enable now, for a core that starts anew
	deletes  atomic.Bool                                  // delete.topic.enable now, likewise

	own owner // state of the owner goroutine
}

// New returns a driver that does nothing before Run. It reports all faults of the options at once.
func New(o Options) (*Driver, error) {
	cfg := o.Config.withDefaults()
	versions, err := VersionsFor(cfg.InterBrokerProtocol)
	if err := errors.Join(err, o.validate()); err != nil {
		return nil, err
	}
	if o.StateChange == nil {
		o.StateChange = o.Log
	}
	d := &Driver{
		cfg: cfg, versions: versions, store: o.Store, reregister: o.Reregister, dial: o.Dial,
		log: o.Log, stateChange: newStateChangeLog(o.StateChange),
		queue: newEventQueue(cfg.EventQueueMax), replies: newReplies(), status: newStatus(),
	}
	d.watches = newWatches(o.Store)
	d.view.Store(newView(cluster.NoBroker))
	d.setSession(o.Session)
	d.senders.Store(&map[cluster.BrokerID]*sender{})
	d.unclean.Store(cfg.UncleanLeaderElectionEnable)
	d.deletes.Store(cfg.DeleteTopicEnable)
	d.own.core = d.newCore()
	return d, nil
}

func (d *Driver) newCore() *controller.Core {
	return controller.New(controller.Config{
		Broker:                      d.cfg.BrokerID,
		DeleteTopicEnable:           d.deletes.Load(),
		UncleanLeaderElectionEnable: d.unclean.Load(),
		FeatureVersioning:           d.versions.FeatureLayout > 0,
		SupportedFeatures:           d.cfg.SupportedFeatures,
		UseTopicIDs:                 d.versions.TopicIDs,
		UseLeaderRecoveryState:      d.versions.LeaderRecoveryState,
		LeadersWriteISR:             d.versions.LeadersWriteISR,
		NewTopicID:                  cluster.NewTopicID,
		AutoLeaderRebalance:         d.cfg.AutoLeaderRebalance,
		LeaderImbalanceCheckMs:      d.cfg.LeaderImbalanceCheck.Milliseconds(),
		LeaderImbalancePercentage:   d.cfg.LeaderImbalancePercentage,
		OfflineReplicas:             d.cfg.OfflineReplicas,
		OfflineReplicaTimeoutMs:     d.cfg.OfflineReplicaTimeout.Milliseconds(),
		RetryBackoffMs:              d.cfg.RetryBackoff.Milliseconds(),
		RetryBackoffMaxMs:           d.cfg.RetryBackoffMax.Milliseconds(),
	})
}

// Run stands for election, leads and serves until ctx ends. Then the core gives up office, waiting requests are
// answered, /controller is removed if it is still this broker's, and all goroutines have ended when Run returns. It must
// run once.
func (d *Driver) Run(ctx context.Context) error {
	own, endOwn := context.WithCancel(context.WithoutCancel(ctx)) // the owner outlives ctx by the clean-up
	defer endOwn()
	logging, endLogging := context.WithCancel(own)
	defer endLogging()
	var wg, log sync.WaitGroup
	log.Go(func() { d.stateChange.run(logging) })
	wg.Go(func() { d.watches.run(ctx, d.queue) })
	wg.Go(func() { d.watchSession(ctx) })
	wg.Go(func() { d.awaitShutdown(ctx) })
	d.queue.putOwn(&item{event: controller.Startup{}})
	d.runOwner(own)
	d.watches.close()
	wg.Wait()
	d.running.Wait()
	endLogging() // nobody adds to it any more
	log.Wait()
	return nil
}

// awaitShutdown ends the owner's loop once ctx has ended: the operation in hand is cut short, waiting events are
// preempted, and Shutdown is the last event.
func (d *Driver) awaitShutdown(ctx context.Context) {
	<-ctx.Done()
	d.session.Load().end()
	d.preempt(d.queue.clearAndPut(&item{event: controller.Shutdown{}}))
}

// preempt answers requests that the core will never see.
func (d *Driver) preempt(items []*item) {
	for _, it := range items {
		if it.event != nil {
			if r, ok := controller.Preempted(it.event); ok {
				d.replies.complete(r)
			}
		}
		it.finish()
	}
}
