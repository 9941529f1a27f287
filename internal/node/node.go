// Package node is the composition root: it builds every part of a broker, starts them in the order in which they
// need each other, and stops them in the order that loses nothing. Nothing else imports a concrete coordination engine.
//
// Start: log dirs and identity, listeners bound (connections wait in the backlog), coordination, cluster id, configs,
// log recovery, registration, request handlers, controller, then requests are served (Kafka: KafkaServer.startup).
// Stop: not ready, the controller moves leaderships away, this one resigns if it is the controller, requests drain,
// background work ends, the registration goes, high watermarks and clean-shutdown marks are written, coordination closes.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"klamm/internal/api"
	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/config"
	"klamm/internal/controller"
	"klamm/internal/controller/driver"
	"klamm/internal/coord"
	"klamm/internal/coord/notify"
	"klamm/internal/group/coordinator"
	"klamm/internal/loglevel"
	"klamm/internal/metadata"
	"klamm/internal/replica"
	"klamm/internal/security/authorizer"
	"klamm/internal/security/token"
	"klamm/internal/security/users"
	"klamm/internal/wire"
)

// stopTimeout bounds a clean stop: past it the broker gives up waiting and reports what hangs. stopReserve of it is not for moving
// leaderships, but for requests to drain and logs to be closed.
const (
	stopTimeout = 45 * time.Second
	stopReserve = 15 * time.Second
)

// Options is what a broker is started with. Config is required, and Log or LogLevels.
type Options struct {
	Config *config.Broker
	Log    *slog.Logger
	// LogLevels holds the broker's loggers; nil for loggers that write to Log's handler, from info on.
	LogLevels *loglevel.Levels
	Banner    io.Writer // gets the start summary for people; nil for none
	Version   string    // of this build, shown in the banner
	Pprof     bool      // serve Go's profiles on the web address, which must be a loopback one then
	// Coordination opens the coordination engine; nil for the one that Config names.
	Coordination func(context.Context) (*Coordination, error)
	// Together is how many brokers, this one included, must know of each other before this one is ready; 0 for any.
	Together int
	// Ready is called once the broker serves; nil for nobody.
	Ready func(Endpoint)
}

// Endpoint is where a running broker is reached.
type Endpoint struct {
	Bootstrap string // host:port of the first listener
	Web       string // URL of the web address; "" when it is off
}

// broker holds the parts of a running broker; built step by step by start.
type broker struct {
	opts    Options
	cfg     *config.Broker
	log     *slog.Logger
	started time.Time

	parts   *supervisor
	close   cleanup
	serving bool // the start was completed

	coordination *Coordination

	dynamic     *config.Dynamic
	dirs        []commitlog.DirSpec
	bound       []boundListener
	store       coord.Store
	clientStore *migrationGuard // of store
	clusterID   string
	reg         *registration
	quotas      quotas
	cache       *metadata.Cache
	logs        *commitlog.Manager
	channel     *api.ControllerChannel
	replicas    *replica.Manager
	groups      *coordinator.Coordinator
	features    *api.FinalizedFeatures
	dirFailures *dirFailures
	leftovers   *leftovers
	driver      *driver.Driver
	handlers    *api.Handlers
	authorizer  *authorizer.Authorizer       // nil when none is configured
	secured     map[string]*listenerSecurity // by listener
	users       *users.Store
	tokens      *token.Manager // nil without a secret for them
	table       *wire.APITable
	server      *wire.Server
	web         *web
	webListener net.Listener // nil when web.listen is empty
}

// Run starts a broker, prints the banner once it serves, and blocks until ctx ends or a part fails; then it stops
// cleanly. It returns nil after a clean stop that ctx asked for.
func Run(ctx context.Context, o Options) error {
	if o.LogLevels == nil {
		o.LogLevels = loglevel.New(o.Log.Handler(), slog.LevelInfo)
	}
	b := &broker{opts: o, cfg: o.Config, log: o.LogLevels.Logger(loglevel.Root), started: time.Now(), parts: newSupervisor(), users: users.New()}
	err := b.start(ctx)
	if err == nil {
		b.serving = true
		b.printBanner(o.Banner)
		if o.Ready != nil {
			o.Ready(b.endpoint())
		}
		select {
		case <-ctx.Done():
			b.log.Info("stopping", "reason", "asked to stop")
		case err = <-b.parts.failed:
			b.log.Error("stopping", "reason", "a part of the broker failed", "err", err)
		}
	}
	return errors.Join(err, b.stop())
}

// start brings every part up. What it has built when it fails is left to stop.
func (b *broker) start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		b.openDirs, b.secureListeners, b.bindListeners, b.bindWeb, b.openCoordination, b.loadConfigs, b.openLogs,
		b.loadAccessRules, b.loadTokens, b.register, b.buildBroker, b.removeLeftovers, b.serve, b.awaitReady,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *broker) openLogs(ctx context.Context) error {
	c := b.cfg
	deleted, err := b.deletedWhileAway(ctx)
	if err != nil {
		return err
	}
	logs, err := commitlog.Open(ctx, commitlog.Options{
		Deleted: deleted,
		Dirs:    b.dirs, BrokerID: c.ID, ClusterID: b.clusterID, Log: b.log,
		LogConfig:    b.dynamic.LogConfig,
		OnDirFailure: func(dir string, err error) { b.replicas.OnLogDirFailure(dir, err) },
		DeleteDelay:  func() time.Duration { return b.dynamic.Broker().LogDefaults.FileDeleteDelay },

		RecoveryThreads:            c.NumRecoveryThreadsPerDataDir,
		InitialTaskDelay:           c.LogInitialTaskDelay,
		RetentionInterval:          c.LogRetentionCheckInterval,
		FlushInterval:              c.LogFlushSchedulerInterval,
		CheckpointInterval:         c.LogFlushOffsetCheckpointInterval,
		LogStartCheckpointInterval: c.LogFlushStartOffsetCheckpointInterval,
		ProducerIDExpiration:       func() time.Duration { return b.dynamic.Broker().ProducerIDExpiration },
		ProducerIDCheckInterval:    c.ProducerIDExpirationCheckInterval,
		CleanerEnable:              c.LogCleanerEnable,
		CleanerBackoff:             func() time.Duration { return b.dynamic.Broker().LogCleanerBackoff },
		CleanerDedupeBytes:         func() int64 { return b.dynamic.Broker().LogCleanerDedupeBufferSize },
	})
	if err != nil {
		return fmt.Errorf("open log dirs: %w", err)
	}
	b.logs = logs
	b.dynamic.OnTopic(func(topic string, _ *config.LogConfig) { logs.UpdateConfig(topic) })
	b.dynamic.OnBroker(func([]string, *config.Broker) { logs.UpdateAllConfigs() })
	return nil
}

// buildBroker makes the parts that only need each other and starts their background work.
func (b *broker) buildBroker(context.Context) error {
	c := b.cfg
	dial := b.dialer(c.InterBrokerListener)
	b.cache = metadata.New(b.log)
	b.dirFailures = newDirFailures(b)
	b.channel = api.NewControllerChannel(api.ControllerChannelOptions{
		Log: b.log, Cache: b.cache, Listener: c.InterBrokerListener, SocketTimeout: c.ControllerSocketTimeout,
		Dial: func(ctx context.Context, addr string) (*wire.ClientConn, error) { return dial(ctx, addr) },
	})
	b.close.add("controller channel", func() error { b.channel.Close(); return nil })
	var err error
	if b.replicas, err = replica.New(b.replicaOptions(dial)); err != nil {
		return fmt.Errorf("build replica manager: %w", err)
	}
	b.groups = coordinator.New(coordinator.Options{Log: b.log, Config: b.dynamic, Cache: b.cache, Replicas: b.replicas,
		TopicsGone: b.topicsGone})
	if b.driver, err = driver.New(b.driverOptions()); err != nil {
		return fmt.Errorf("build controller: %w", err)
	}
	b.features = api.NewFinalizedFeatures(b.store, nil, b.log)
	b.table = wire.NewAPITable()
	b.handlers = api.New(api.Deps{
		Log: b.log, BrokerID: c.ID, ClusterID: b.clusterID, BrokerEpoch: b.reg.epoch,
		Table: b.table, LikeKafka39: c.ZooKeeper.Connect != "", Config: b.dynamic, Cache: b.cache, Store: b.clientStore,
		Replicas: b.replicas, Groups: b.groups, Controller: b.driver, Link: b.channel, Features: b.features,
		Quotas: b.quotas.clients, Connections: b.quotas.connections,
		Users: b.users, LogLevels: b.opts.LogLevels, Authorizer: b.authorizer, Tokens: b.tokens,
	})
	changes := &notify.Consumer{Root: coord.ConfigChangesPath, Log: b.log,
		Handle: b.handlers.HandleConfigChange, OnStart: b.handlers.LoadAllConfigs}
	b.parts.start("metadata cache", b.cache.Run)
	b.parts.start("log manager", b.logs.Run)
	b.parts.start("replica manager", b.replicas.Run)
	b.parts.start("request workers", b.handlers.Run)
	b.parts.start("log dir failures", b.dirFailures.run)
	if b.authorizer != nil {
		b.parts.start("access rules", b.authorizer.Run)
	}
	if b.tokens != nil {
		b.parts.start("delegation tokens", b.tokens.Run)
	}
	b.parts.start("forgotten topics", (&driver.Reconciler{
		Cache: b.cache, Store: b.store, Log: b.log,
		Forgotten: func(c metadata.Changes) { b.groups.PartitionsRemoved(c.Removed) },
	}).Run)
	b.parts.start("finalized features", b.features.Run)
	b.parts.start("config changes", func(ctx context.Context) error { return changes.Run(ctx, b.store) })
	return nil
}

func (b *broker) replicaOptions(dial dialFunc) replica.Options {
	c := b.cfg
	return replica.Options{
		Config: replica.Config{
			BrokerID: c.ID, ReplicaLagTimeMax: c.ReplicaLagTimeMax,
			CheckpointInterval: c.ReplicaHighWatermarkCheckpointInterval, NumFetchers: c.NumReplicaFetchers,
			FetchMinBytes: int32(c.ReplicaFetchMinBytes), FetchMaxBytes: int32(c.ReplicaFetchMaxBytes),
			FetchResponseMaxBytes: int32(c.ReplicaFetchResponseMaxBytes), FetchWaitMax: c.ReplicaFetchWaitMax,
			FetchBackoff: c.ReplicaFetchBackoff, SocketTimeout: c.ReplicaSocketTimeout, NumLogDirMovers: c.NumReplicaAlterLogDirsThreads,
			Versions: replica.VersionsFor(c.InterBrokerProtocol),
		},
		LeaderThrottle: b.quotas.leader, FollowerThrottle: b.quotas.follower,
		Logs: b.logs, Metadata: b.cache, BrokerEpoch: b.reg.epoch, Registered: b.reg.alive, Controller: b.channel, States: stateStore{b.store}, Log: b.log,
		LogDirMoveRate: func() int64 { return b.dynamic.Broker().ReplicaAlterLogDirsIOMaxBytesPerSecond },
		Dial: func(ctx context.Context, id cluster.BrokerID) (replica.Conn, error) {
			e, ok := b.cache.Image().Endpoint(id, c.InterBrokerListener)
			if !ok {
				return nil, fmt.Errorf("broker %d has no live endpoint on listener %s", id, c.InterBrokerListener)
			}
			return dial(ctx, hostPort(e.Host, e.Port))
		},
		Hooks: replica.Hooks{
			LeadershipChanged: func(elected, resigned []replica.PartitionEpoch) { b.groups.LeadershipChanged(elected, resigned) },
			PartitionsRemoved: func(tps []cluster.TopicPartition) { b.groups.PartitionsRemoved(tps) },
			LogDirFailed:      b.dirFailures.report,
		},
	}
}

func (b *broker) driverOptions() driver.Options {
	c := b.cfg
	listener := c.InterBrokerListener
	if c.ControlPlaneListener != "" {
		listener = c.ControlPlaneListener
	}
	dial := b.dialer(listener)
	return driver.Options{
		Config: driver.Config{
			BrokerID: c.ID, InterBrokerProtocol: c.InterBrokerProtocol.String(), InterBrokerListener: listener,
			SocketTimeout: c.ControllerSocketTimeout, RequestTimeout: c.RequestTimeout,
			DeleteTopicEnable: b.dynamic.Broker().DeleteTopicEnable, UncleanLeaderElectionEnable: b.dynamic.Broker().UncleanLeaderElectionEnable,
			AutoLeaderRebalance: c.AutoLeaderRebalanceEnable, LeaderImbalanceCheck: c.LeaderImbalanceCheckInterval,
			LeaderImbalancePercentage: c.LeaderImbalancePerBrokerPercentage,
			OfflineReplicas:           offlineReplicas(c.TopicDeletionOfflineReplicas), OfflineReplicaTimeout: c.TopicDeletionOfflineReplicaTimeout,
		},
		Store: b.store, Session: b.reg.session(), Reregister: b.reg.renew,
		Log: b.opts.LogLevels.Logger(loglevel.Controller), StateChange: b.opts.LogLevels.Logger(loglevel.StateChange),
		Dial: func(ctx context.Context, addr string) (driver.Conn, error) { return dial(ctx, addr) },
	}
}

func offlineReplicas(value string) controller.OfflineReplicas {
	for _, p := range []controller.OfflineReplicas{controller.OfflineReplicasComplete, controller.OfflineReplicasWait} {
		if p.String() == value {
			return p
		}
	}
	return controller.OfflineReplicasAuto
}

// serve opens the doors: requests first, since the controller's own broker must answer it, then the controller.
func (b *broker) serve(context.Context) error {
	server, err := wire.NewServer(b.serverConfig())
	if err != nil {
		return fmt.Errorf("build request server: %w", err)
	}
	b.server = server
	b.followConfigs()
	b.parts.start("request server", server.Run)
	b.parts.start("group coordinator", b.groups.Run)        // ends before the server: joins that wait are answered, and requests drain
	b.parts.start("waits for leaders", b.handlers.EndWaits) // likewise
	b.parts.start("controller", b.driver.Run)
	b.parts.start("leftovers", b.leftovers.run)
	if b.web, err = startWeb(b); err != nil {
		return err
	}
	return nil
}

// stop ends everything that was started, also after a start that failed half way.
func (b *broker) stop() error {
	if b.web != nil {
		b.web.setReady(false)
	}
	done := make(chan error, 1)
	go func() { done <- b.stopInOrder() }()
	select {
	case err := <-done:
		return err
	case <-time.After(stopTimeout):
		return fmt.Errorf("not stopped after %v; leaving without the clean-shutdown mark", stopTimeout)
	}
}

func (b *broker) stopInOrder() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if b.logs != nil {
		b.logs.SyncAhead() // the disk is at work while leaderships move
	}
	b.moveLeaderships(ctx)
	var errs []error
	began := time.Now()
	if b.replicas != nil {
		b.replicas.AnswerFetches()
	}
	// The parts end youngest first: web, controller, request server, then the background work under them.
	errs = append(errs, b.parts.stopAll())
	parts := time.Since(began)
	// A broker that serves no more leaves at once: what it led alone or could not hand over is elected anew, while it
	// closes its logs. Their locks keep a successor out until it is done.
	left := b.leave(ctx)
	if b.replicas != nil {
		errs = append(errs, b.replicas.CheckpointHighWatermarks())
	}
	if b.logs != nil {
		if err := b.logs.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close logs: %w", err))
		}
	}
	errs = append(errs, <-left)
	logs := time.Since(began) - parts
	errs = append(errs, b.close.run())
	b.log.Info("stopped", "parts", parts, "logs", logs, "rest", time.Since(began)-parts-logs)
	return errors.Join(errs...)
}

// leave takes the registration back in the background; the channel yields how that went.
func (b *broker) leave(ctx context.Context) <-chan error {
	left := make(chan error, 1)
	go func() {
		if b.reg == nil {
			left <- nil
			return
		}
		left <- b.reg.leave(ctx)
	}()
	return left
}
