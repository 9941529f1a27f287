package replica

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/metadata"
	"klamm/internal/quota"
)

// Config holds the settings, named after Kafka's. Zero values mean Kafka's defaults.
type Config struct {
	BrokerID              cluster.BrokerID
	ReplicaLagTimeMax     time.Duration // replica.lag.time.max.ms, 30 s
	CheckpointInterval    time.Duration // replica.high.watermark.checkpoint.interval.ms, 5 s
	NumFetchers           int           // num.replica.fetchers, 1; SetNumFetchers changes it at run time
	FetchMinBytes         int32         // replica.fetch.min.bytes, 1
	FetchMaxBytes         int32         // replica.fetch.max.bytes (of one partition), 1 MiB
	FetchResponseMaxBytes int32         // replica.fetch.response.max.bytes, 10 MiB
	FetchWaitMax          time.Duration // replica.fetch.wait.max.ms, 500 ms
	FetchBackoff          time.Duration // replica.fetch.backoff.ms, 1 s
	SocketTimeout         time.Duration // replica.socket.timeout.ms, 30 s: a fetcher's request that takes longer is given up
	NumLogDirMovers       int           // num.replica.alter.log.dirs.threads, one for each log dir
	Versions              Versions      // zero value: those of inter.broker.protocol.version 3.9
}

func (c Config) withDefaults() Config {
	c.ReplicaLagTimeMax = cmp.Or(c.ReplicaLagTimeMax, 30*time.Second)
	c.CheckpointInterval = cmp.Or(c.CheckpointInterval, 5*time.Second)
	c.NumFetchers = cmp.Or(c.NumFetchers, 1)
	c.FetchMinBytes = cmp.Or(c.FetchMinBytes, 1)
	c.FetchMaxBytes = cmp.Or(c.FetchMaxBytes, 1<<20)
	c.FetchResponseMaxBytes = cmp.Or(c.FetchResponseMaxBytes, 10<<20)
	c.FetchWaitMax = cmp.Or(c.FetchWaitMax, 500*time.Millisecond)
	c.FetchBackoff = cmp.Or(c.FetchBackoff, time.Second)
	c.SocketTimeout = cmp.Or(c.SocketTimeout, 30*time.Second)
	if c.Versions == (Versions{}) {
		c.Versions = DefaultVersions()
	}
	return c
}

// PartitionEpoch is a partition with a leader epoch; -1 where it is unknown.
type PartitionEpoch struct {
	TP          cluster.TopicPartition
	LeaderEpoch cluster.LeaderEpoch
}

// Hooks tell the node what control requests and failing disks did. Any may be nil. They are called in the order of the
// requests, while the next control request waits: they must not block and must not call HandleLeaderAndISR,
// HandleStopReplica or HandleUpdateMetadata.
type Hooks struct {
	// LeadershipChanged names partitions of the internal topics that this broker leads from now on, with their leader
	// epochs, or no longer leads (Kafka: RequestHandlerHelper.onLeadershipChange).
	LeadershipChanged func(elected, resigned []PartitionEpoch)
	// PartitionsRemoved names partitions that the controller announced as deleted: their committed offsets go.
	PartitionsRemoved func([]cluster.TopicPartition)
	// LogDirFailed follows OnLogDirFailure once the partitions of the dir are offline: the controller is to be told.
	LogDirFailed func(dir string)
}

// Options are what a Manager works with. All fields but Hooks, States, the throttles and LogDirMoveRate are required.
type Options struct {
	Config      Config
	Logs        *commitlog.Manager
	Metadata    *metadata.Cache
	BrokerEpoch func() cluster.BrokerEpoch // of this broker's registration; NoBrokerEpoch before it
	Registered  func() bool                // whether the registration's session lives, as far as this broker knows
	Controller  ControllerChannel
	// States is required where Config.Versions.WriteISR is set. Elsewhere it serves when the controller does not answer; nil: then nothing does.
	States StateStore
	// Dial connects to a broker on the inter-broker listener.
	Dial  func(ctx context.Context, broker cluster.BrokerID) (Conn, error)
	Hooks Hooks
	Log   *slog.Logger
	// LeaderThrottle bounds what throttled replicas led here send to followers that are not in sync, FollowerThrottle what
	// throttled replicas here fetch until they are (KIP-73). nil for none.
	LeaderThrottle, FollowerThrottle *quota.Replication
	// LogDirMoveRate is how many bytes per second may move between log dirs, now; nil: any number.
	LogDirMoveRate func() int64
}

// Manager holds all partitions of this broker. All methods are safe for concurrent use.
type Manager struct {
	cfg         Config
	logs        *commitlog.Manager
	metadata    *metadata.Cache
	brokerEpoch func() cluster.BrokerEpoch
	registered  func() bool
	hooks       Hooks
	log         *slog.Logger

	env      environment
	counters counters
	topics   topicTable

	unannounced unannounced

	timers   *timerQueue
	produces *purgatory
	fetches  *purgatory
	deletes  *purgatory
	isr      *alterPartitions
	fetchers *fetcherManager
	throttle *quota.Replication // of followers here
	moves    *logDirMoves

	// control serialises the controller's requests and holds what admitLocked compares them with, the highest controller epoch met first.
	control struct {
		sync.Mutex
		epoch cluster.ControllerEpoch
		conn  ControlConn // the latest of the controller of that epoch
		// registration is this broker's own, and the latest that a request was meant for since it is known.
		registration struct{ own, met cluster.BrokerEpoch }
		// orphans could not follow because their leaders were not known to be alive; UpdateMetadata may bring them.
		orphans map[cluster.TopicPartition]transition
		// lost are the topic ids of HostedOffline partitions, as far as they are known.
		lost map[cluster.TopicPartition]cluster.TopicID
	}
	// checkpointing starts with the first LeaderAndIsr request: before it, logs are there without their partitions.
	checkpointing atomic.Bool
	leaving       atomic.Bool // no fetch waits any more

	hosted struct {
		sync.RWMutex
		partitions map[cluster.TopicPartition]*Partition // nil value: offline
	}
}

// New builds a manager. Run must run for requests to time out and for replication.
func New(o Options) (*Manager, error) {
	if o.Logs == nil || o.Metadata == nil || o.BrokerEpoch == nil || o.Registered == nil || o.Controller == nil || o.Dial == nil || o.Log == nil {
		return nil, errors.New("replica manager: an option is missing")
	}
	if o.Config = o.Config.withDefaults(); o.Config.Versions.WriteISR && o.States == nil {
		return nil, errors.New("replica manager: nowhere to write ISRs to")
	}
	if o.LeaderThrottle == nil {
		o.LeaderThrottle = quota.NewReplication(quota.DefaultWindows, time.Now())
	}
	if o.FollowerThrottle == nil {
		o.FollowerThrottle = quota.NewReplication(quota.DefaultWindows, time.Now())
	}
	if o.LogDirMoveRate == nil {
		o.LogDirMoveRate = func() int64 { return math.MaxInt64 }
	}
	m := &Manager{
		throttle: o.FollowerThrottle,
		cfg:      o.Config, logs: o.Logs, metadata: o.Metadata, brokerEpoch: o.BrokerEpoch, registered: o.Registered, hooks: o.Hooks, log: o.Log,
		timers: newTimerQueue(), isr: newAlterPartitions(o),
	}
	m.topics.topics = map[string]*topicStats{}
	m.unannounced.topics, m.unannounced.names = map[string]*unannouncedTopic{}, map[cluster.TopicID]string{}
	m.control.orphans = map[cluster.TopicPartition]transition{}
	m.control.registration.own, m.control.registration.met = cluster.NoBrokerEpoch, cluster.NoBrokerEpoch
	m.control.lost = map[cluster.TopicPartition]cluster.TopicID{}
	m.hosted.partitions = map[cluster.TopicPartition]*Partition{}
	m.produces, m.fetches, m.deletes = newPurgatory(m.timers), newPurgatory(m.timers), newPurgatory(m.timers)
	m.env = environment{
		self: o.Config.BrokerID, lagMax: o.Config.ReplicaLagTimeMax, logs: o.Logs, metadata: o.Metadata, isr: m.isr, counters: &m.counters, throttle: o.LeaderThrottle,
		highWatermarkMoved: m.wakeAll,
	}
	m.fetchers = newFetcherManager(m, o.Dial)
	m.moves = newLogDirMoves(m, cmp.Or(o.Config.NumLogDirMovers, len(o.Logs.Dirs())), o.LogDirMoveRate)
	return m, nil
}

// Run does the background work until the context ends: deadlines of waiting requests, high watermark checkpoints, ISR
// checks and changes, doubts, fetchers, moves between log dirs. At the end all waiting requests are answered and the high watermarks are written.
func (m *Manager) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { m.timers.run(ctx); return nil })
	g.Go(func() error { m.isr.run(ctx); return nil })
	if m.isr.states != nil {
		g.Go(func() error { m.isr.runNotices(ctx); return nil })
	}
	g.Go(func() error { m.runCheckpoints(ctx); return nil })
	g.Go(func() error { m.runISRChecks(ctx); return nil })
	g.Go(func() error { m.runDoubts(ctx); return nil })
	g.Go(func() error { m.fetchers.run(ctx); return nil })
	g.Go(func() error { m.moves.run(ctx); return nil })
	return g.Wait()
}

func (m *Manager) runCheckpoints(ctx context.Context) {
	tick := time.NewTicker(m.cfg.CheckpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if err := m.CheckpointHighWatermarks(); err != nil {
			m.log.Error("high watermarks not written", "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// CheckpointHighWatermarks writes the high watermarks of all logs to the log dirs. Before the first LeaderAndIsr request
// it does nothing.
func (m *Manager) CheckpointHighWatermarks() error {
	if !m.checkpointing.Load() {
		return nil
	}
	return m.logs.CheckpointHighWatermarks()
}

func (m *Manager) runISRChecks(ctx context.Context) {
	tick := time.NewTicker(m.cfg.ReplicaLagTimeMax / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			online, _ := m.online()
			for _, p := range online {
				p.checkISR(now)
			}
		}
	}
}

// SetNumFetchers changes the number of fetchers per leader; partitions move to their new fetchers.
func (m *Manager) SetNumFetchers(n int) { m.fetchers.resize(max(n, 1)) }

// HostedState says whether a partition is on this broker.
type HostedState uint8

// The states (Kafka: HostedPartition).
const (
	HostedNone    HostedState = iota
	HostedOnline              // leader or follower
	HostedOffline             // its log dir has failed
)

// Partition returns a hosted partition; nil unless HostedOnline.
func (m *Manager) Partition(tp cluster.TopicPartition) (*Partition, HostedState) {
	m.hosted.RLock()
	p, known := m.hosted.partitions[tp]
	m.hosted.RUnlock()
	switch {
	case !known:
		return nil, HostedNone
	case p == nil:
		return nil, HostedOffline
	default:
		return p, HostedOnline
	}
}

// lookup returns the partition or the code that clients get. NOT_LEADER_OR_FOLLOWER for a partition that exists
// elsewhere makes them look for its new place, where UNKNOWN_TOPIC_OR_PARTITION would make them give up.
func (m *Manager) lookup(tp cluster.TopicPartition) (*Partition, cluster.ErrorCode) {
	p, state := m.Partition(tp)
	switch state {
	case HostedOnline:
		return p, cluster.None
	case HostedOffline:
		return nil, cluster.KafkaStorageError
	default:
		if _, exists := m.metadata.Image().Partition(tp); exists {
			return nil, cluster.NotLeaderOrFollower
		}
		return nil, cluster.UnknownTopicOrPartition
	}
}

// LeaderLog returns the log of a partition that this broker leads, with the leader epoch: coordinators load from it.
func (m *Manager) LeaderLog(tp cluster.TopicPartition) (*commitlog.Log, cluster.LeaderEpoch, cluster.ErrorCode) {
	p, code := m.lookup(tp)
	if code != cluster.None {
		return nil, cluster.NoLeaderEpoch, code
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	log, code := p.logForReadLocked(cluster.NoLeaderEpoch, true, false)
	return log, p.mu.leaderEpoch, code
}

// online lists the online partitions in no order, and counts the offline ones.
func (m *Manager) online() (list []*Partition, offline int) {
	m.hosted.RLock()
	defer m.hosted.RUnlock()
	list = make([]*Partition, 0, len(m.hosted.partitions))
	for _, p := range m.hosted.partitions {
		if p == nil {
			offline++
			continue
		}
		list = append(list, p)
	}
	return list, offline
}

// Partitions lists the hosted partitions that are online, sorted.
func (m *Manager) Partitions() []*Partition {
	list, _ := m.online()
	slices.SortFunc(list, func(a, b *Partition) int { return a.tp.Compare(b.tp) })
	return list
}

// wakeAll looks at every kind of request that waits for the partition.
func (m *Manager) wakeAll(tp cluster.TopicPartition) {
	m.produces.wake(tp)
	m.fetches.wake(tp)
	m.deletes.wake(tp)
}

// currentLeader names the leader for answers that refuse a client, as far as it is known here.
func (m *Manager) currentLeader(tp cluster.TopicPartition) *LeaderIDAndEpoch {
	if p, state := m.Partition(tp); state == HostedOnline {
		if leader, epoch := p.leadership(); leader != cluster.NoBroker {
			return &LeaderIDAndEpoch{leader, epoch}
		}
	}
	if p, known := m.metadata.Image().Partition(tp); known {
		return &LeaderIDAndEpoch{p.Leader, p.LeaderEpoch}
	}
	return nil
}

func sortedKeys[V any](m map[cluster.TopicPartition]V) []cluster.TopicPartition {
	return slices.SortedFunc(maps.Keys(m), cluster.TopicPartition.Compare)
}
