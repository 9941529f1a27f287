package config

import (
	"maps"
	"time"

	"klamm/internal/cluster"
)

// Broker is the configuration of a broker, typed: what is set, else defaults. It is shared and never changed after it was made.
// Only keys that klamm acts on have a field, named as the key is; the others are accepted and described, without effect.
type Broker struct {
	// Identity and coordination.
	ID                       cluster.BrokerID // broker.id; negative: to be generated
	BrokerIDGenerationEnable bool             // broker.id.generation.enable
	ReservedBrokerMaxID      cluster.BrokerID // reserved.broker.max.id; larger ids are free for generation
	BrokerRack               string           // broker.rack; "" for none
	BrokerSessionTimeout     time.Duration    // broker.session.timeout.ms
	EtcdDataDir              string           // etcd.data.dir
	Etcd                     Etcd             // the other keys of etcd
	ZooKeeper                ZooKeeper        // zookeeper.*
	WebListen                string           // web.listen; "" for none
	LogDirs                  []string         // log.dirs, else log.dir; absolute or relative to the working directory
	ClusterID                string           // CLUSTER_ID of the environment; "" for the one the data has, or a new one
	InterBrokerProtocol      ProtocolVersion  // inter.broker.protocol.version

	// Listeners.
	Listeners            []Endpoint
	AdvertisedListeners  []Endpoint                  // an empty host was replaced by the machine's name; port 0 stays 0 until the listener is bound
	InterBrokerListener  string                      // name of the listener that brokers talk on
	ControlPlaneListener string                      // name of the controller's own listener, "" for none
	Security             map[string]ListenerSecurity // by listener name
	Authorizer           Authorizer
	Tokens               DelegationTokens

	// Topics.
	AutoCreateTopicsEnable      bool  // auto.create.topics.enable
	DeleteTopicEnable           bool  // delete.topic.enable
	NumPartitions               int   // num.partitions
	DefaultReplicationFactor    int16 // default.replication.factor
	MinInSyncReplicas           int   // min.insync.replicas
	UncleanLeaderElectionEnable bool  // unclean.leader.election.enable

	// Controller.
	AutoLeaderRebalanceEnable          bool          // auto.leader.rebalance.enable
	LeaderImbalanceCheckInterval       time.Duration // leader.imbalance.check.interval.seconds
	LeaderImbalancePerBrokerPercentage int           // leader.imbalance.per.broker.percentage
	TopicDeletionOfflineReplicas       string        // topic.deletion.offline.replicas: auto, complete or wait
	TopicDeletionOfflineReplicaTimeout time.Duration // topic.deletion.offline.replica.timeout.ms; negative: none
	ControllerSocketTimeout            time.Duration // controller.socket.timeout.ms
	ControlledShutdownEnable           bool          // controlled.shutdown.enable
	ControlledShutdownMaxRetries       int           // controlled.shutdown.max.retries
	ControlledShutdownRetryBackoff     time.Duration // controlled.shutdown.retry.backoff.ms

	// Connections and requests.
	SocketSendBufferBytes                int            // socket.send.buffer.bytes; negative: the system's choice
	SocketReceiveBufferBytes             int            // socket.receive.buffer.bytes; negative: the system's choice
	SocketRequestMaxBytes                int            // socket.request.max.bytes
	SocketConnectionSetupTimeout         time.Duration  // socket.connection.setup.timeout.ms
	SocketConnectionSetupTimeoutMax      time.Duration  // socket.connection.setup.timeout.max.ms
	ConnectionsMaxIdle                   time.Duration  // connections.max.idle.ms; negative: no limit
	MaxConnections                       int            // max.connections
	MaxConnectionsPerIP                  int            // max.connections.per.ip
	MaxConnectionCreationRate            int            // max.connection.creation.rate; per second
	RequestTimeout                       time.Duration  // request.timeout.ms
	FetchMaxBytes                        int            // fetch.max.bytes
	MaxIncrementalFetchSessionCacheSlots int            // max.incremental.fetch.session.cache.slots
	MaxRequestPartitionSizeLimit         int            // max.request.partition.size.limit; partitions in one DescribeTopicPartitions answer
	MaxConnectionsPerIPOverrides         map[string]int // max.connections.per.ip.overrides, by address or host name

	// Replication.
	ReplicaLagTimeMax                      time.Duration // replica.lag.time.max.ms
	ReplicaFetchMinBytes                   int           // replica.fetch.min.bytes
	ReplicaFetchMaxBytes                   int           // replica.fetch.max.bytes; per partition
	ReplicaFetchResponseMaxBytes           int           // replica.fetch.response.max.bytes
	ReplicaFetchWaitMax                    time.Duration // replica.fetch.wait.max.ms
	ReplicaFetchBackoff                    time.Duration // replica.fetch.backoff.ms
	ReplicaSocketTimeout                   time.Duration // replica.socket.timeout.ms
	ReplicaHighWatermarkCheckpointInterval time.Duration // replica.high.watermark.checkpoint.interval.ms
	NumReplicaFetchers                     int           // num.replica.fetchers

	// Logs; what single topics can set is in LogDefaults.
	LogRetentionCheckInterval             time.Duration // log.retention.check.interval.ms
	LogFlushSchedulerInterval             time.Duration // log.flush.scheduler.interval.ms; Forever for never
	LogFlushOffsetCheckpointInterval      time.Duration // log.flush.offset.checkpoint.interval.ms
	LogFlushStartOffsetCheckpointInterval time.Duration // log.flush.start.offset.checkpoint.interval.ms
	LogInitialTaskDelay                   time.Duration // log.initial.task.delay.ms
	NumRecoveryThreadsPerDataDir          int           // num.recovery.threads.per.data.dir
	NumReplicaAlterLogDirsThreads         int           // num.replica.alter.log.dirs.threads; 0: one per log dir
	ProducerIDExpiration                  time.Duration // producer.id.expiration.ms
	ProducerIDExpirationCheckInterval     time.Duration // producer.id.expiration.check.interval.ms
	LogCleanerEnable                      bool          // log.cleaner.enable
	LogCleanerBackoff                     time.Duration // log.cleaner.backoff.ms
	LogCleanerDedupeBufferSize            int64         // log.cleaner.dedupe.buffer.size; bytes
	LogDefaults                           *LogConfig    // of topics without settings of their own

	// Offsets and groups.
	OffsetsTopicNumPartitions     int           // offsets.topic.num.partitions
	OffsetsTopicReplicationFactor int16         // offsets.topic.replication.factor
	OffsetsTopicSegmentBytes      int           // offsets.topic.segment.bytes
	OffsetsTopicCompressionCodec  int           // offsets.topic.compression.codec; by number
	OffsetsRetention              time.Duration // offsets.retention.minutes
	OffsetsRetentionCheckInterval time.Duration // offsets.retention.check.interval.ms
	OffsetMetadataMaxBytes        int           // offset.metadata.max.bytes
	OffsetCommitTimeout           time.Duration // offsets.commit.timeout.ms
	OffsetsLoadBufferSize         int           // offsets.load.buffer.size; bytes
	GroupMinSessionTimeout        time.Duration // group.min.session.timeout.ms
	GroupMaxSessionTimeout        time.Duration // group.max.session.timeout.ms
	GroupInitialRebalanceDelay    time.Duration // group.initial.rebalance.delay.ms
	GroupMaxSize                  int           // group.max.size

	// Transactions.
	TransactionStateLogNumPartitions     int   // transaction.state.log.num.partitions
	TransactionStateLogReplicationFactor int16 // transaction.state.log.replication.factor
	TransactionStateLogMinISR            int   // transaction.state.log.min.isr
	TransactionStateLogSegmentBytes      int   // transaction.state.log.segment.bytes

	// Throttles. The rates, in bytes per second, are only set while brokers run.
	QuotaWindowNum                         int           // quota.window.num
	QuotaWindowSize                        time.Duration // quota.window.size.seconds
	ReplicationQuotaWindowNum              int           // replication.quota.window.num
	ReplicationQuotaWindowSize             time.Duration // replication.quota.window.size.seconds
	ControllerQuotaWindowNum               int           // controller.quota.window.num
	ControllerQuotaWindowSize              time.Duration // controller.quota.window.size.seconds
	LeaderReplicationThrottledRate         int64         // leader.replication.throttled.rate
	FollowerReplicationThrottledRate       int64         // follower.replication.throttled.rate
	ReplicaAlterLogDirsIOMaxBytesPerSecond int64         // replica.alter.log.dirs.io.max.bytes.per.second

	explicit map[string]string // what was set, as text
	values   map[string]any    // parsed value of every key that is not null
	topic    map[string]any    // parsed broker-wide value of every topic key
}

// Get returns the effective value of a key as text, and false where it is null or the key unknown.
func (b *Broker) Get(key string) (string, bool) {
	if v, ok := b.values[key]; ok {
		return render(v), true
	}
	v, ok := b.explicit[key]
	return v, ok
}

// Explicit returns what was set, as opposed to left at its default, as a copy.
func (b *Broker) Explicit() map[string]string { return maps.Clone(b.explicit) }

// LogConfig is the configuration of a topic with the given settings on this broker.
func (b *Broker) LogConfig(overrides map[string]string) *LogConfig {
	return buildLogConfig(effectiveTopic(b.topic, overrides), overrides)
}

// topicBase computes the broker-wide value of every topic key.
func topicBase(values map[string]any) map[string]any {
	m := topicDefaults()
	for _, d := range topicDefinitions {
		for _, s := range topicSynonyms[d.Name] {
			v, set := values[s.Key]
			if !set {
				continue
			}
			if s.Factor > 0 {
				v = max(v.(int64)*s.Factor, Unlimited) // log.retention.hours=-1 is no limit, not minus one hour
			}
			m[d.Name] = v
			break
		}
	}
	return m
}

// fill sets the typed fields from the parsed values and returns the keys it asked for: those that have an effect. Listeners,
// log dirs and the cluster id are not its business.
func (b *Broker) fill() map[string]bool {
	r := keyReader{b.values, map[string]bool{"node.id": true, "authorizer.class.name": true}}
	if b.Authorizer.Enabled {
		r.used[superUsersKey], r.used[allowEveryoneIfNoACLKey] = true, true
	}
	b.fillIdentity(r)
	b.fillTopics(r)
	b.fillController(r)
	b.fillNetwork(r)
	b.fillReplication(r)
	b.fillLogs(r)
	b.fillGroups(r)
	b.fillTransactions(r)
	b.fillQuotas(r)
	b.LogDefaults = buildLogConfig(b.topic, nil)
	for _, synonyms := range topicSynonyms {
		for _, s := range synonyms {
			r.used[s.Key] = true
		}
	}
	return r.used
}

func (b *Broker) fillIdentity(r keyReader) {
	b.ID = cluster.BrokerID(r.int("broker.id"))
	b.BrokerIDGenerationEnable = r.bool("broker.id.generation.enable")
	b.ReservedBrokerMaxID = cluster.BrokerID(r.int("reserved.broker.max.id"))
	b.BrokerRack = r.string("broker.rack")
	b.BrokerSessionTimeout = r.ms("broker.session.timeout.ms")
	b.EtcdDataDir = r.string("etcd.data.dir")
	b.WebListen = r.string("web.listen")
	b.fillEtcd(r)
	b.fillZooKeeper(r)
	b.fillTokens(r)
	b.InterBrokerProtocol, _ = parseProtocolVersion(r.string("inter.broker.protocol.version"))
}

func (b *Broker) fillTopics(r keyReader) {
	b.AutoCreateTopicsEnable = r.bool("auto.create.topics.enable")
	b.DeleteTopicEnable = r.bool("delete.topic.enable")
	b.NumPartitions = r.int("num.partitions")
	b.DefaultReplicationFactor = int16(r.int("default.replication.factor"))
	b.MinInSyncReplicas = r.int("min.insync.replicas")
	b.UncleanLeaderElectionEnable = r.bool("unclean.leader.election.enable")
}

func (b *Broker) fillController(r keyReader) {
	b.AutoLeaderRebalanceEnable = r.bool("auto.leader.rebalance.enable")
	b.LeaderImbalanceCheckInterval = r.seconds("leader.imbalance.check.interval.seconds")
	b.LeaderImbalancePerBrokerPercentage = r.int("leader.imbalance.per.broker.percentage")
	b.TopicDeletionOfflineReplicas = r.string("topic.deletion.offline.replicas")
	b.TopicDeletionOfflineReplicaTimeout = r.ms("topic.deletion.offline.replica.timeout.ms")
	b.ControllerSocketTimeout = r.ms("controller.socket.timeout.ms")
	b.ControlledShutdownEnable = r.bool("controlled.shutdown.enable")
	b.ControlledShutdownMaxRetries = r.int("controlled.shutdown.max.retries")
	b.ControlledShutdownRetryBackoff = r.ms("controlled.shutdown.retry.backoff.ms")
}

func (b *Broker) fillNetwork(r keyReader) {
	b.SocketSendBufferBytes = r.int("socket.send.buffer.bytes")
	b.SocketReceiveBufferBytes = r.int("socket.receive.buffer.bytes")
	b.SocketRequestMaxBytes = r.int("socket.request.max.bytes")
	b.SocketConnectionSetupTimeout = r.ms("socket.connection.setup.timeout.ms")
	b.SocketConnectionSetupTimeoutMax = r.ms("socket.connection.setup.timeout.max.ms")
	b.ConnectionsMaxIdle = r.ms("connections.max.idle.ms")
	b.MaxConnections = r.int("max.connections")
	b.MaxConnectionsPerIP = r.int("max.connections.per.ip")
	b.MaxConnectionCreationRate = r.int("max.connection.creation.rate")
	b.RequestTimeout = r.ms("request.timeout.ms")
	b.FetchMaxBytes = r.int("fetch.max.bytes")
	b.MaxIncrementalFetchSessionCacheSlots = r.int("max.incremental.fetch.session.cache.slots")
	b.MaxRequestPartitionSizeLimit = r.int("max.request.partition.size.limit")
	b.MaxConnectionsPerIPOverrides, _ = parsePerIP(r.string("max.connections.per.ip.overrides"))
}

func (b *Broker) fillReplication(r keyReader) {
	b.ReplicaLagTimeMax = r.ms("replica.lag.time.max.ms")
	b.ReplicaFetchMinBytes = r.int("replica.fetch.min.bytes")
	b.ReplicaFetchMaxBytes = r.int("replica.fetch.max.bytes")
	b.ReplicaFetchResponseMaxBytes = r.int("replica.fetch.response.max.bytes")
	b.ReplicaFetchWaitMax = r.ms("replica.fetch.wait.max.ms")
	b.ReplicaFetchBackoff = r.ms("replica.fetch.backoff.ms")
	b.ReplicaSocketTimeout = r.ms("replica.socket.timeout.ms")
	b.ReplicaHighWatermarkCheckpointInterval = r.ms("replica.high.watermark.checkpoint.interval.ms")
	b.NumReplicaFetchers = r.int("num.replica.fetchers")
}

func (b *Broker) fillLogs(r keyReader) {
	b.LogRetentionCheckInterval = r.ms("log.retention.check.interval.ms")
	b.LogFlushSchedulerInterval = r.ms("log.flush.scheduler.interval.ms")
	b.LogFlushOffsetCheckpointInterval = r.ms("log.flush.offset.checkpoint.interval.ms")
	b.LogFlushStartOffsetCheckpointInterval = r.ms("log.flush.start.offset.checkpoint.interval.ms")
	b.LogInitialTaskDelay = r.ms("log.initial.task.delay.ms")
	b.NumRecoveryThreadsPerDataDir = r.int("num.recovery.threads.per.data.dir")
	b.NumReplicaAlterLogDirsThreads = r.int("num.replica.alter.log.dirs.threads")
	b.ProducerIDExpiration = r.ms("producer.id.expiration.ms")
	b.ProducerIDExpirationCheckInterval = r.ms("producer.id.expiration.check.interval.ms")
	b.LogCleanerEnable = r.bool("log.cleaner.enable")
	b.LogCleanerBackoff = r.ms("log.cleaner.backoff.ms")
	b.LogCleanerDedupeBufferSize = int64(r.int("log.cleaner.dedupe.buffer.size"))
}

func (b *Broker) fillGroups(r keyReader) {
	b.OffsetsTopicNumPartitions = r.int("offsets.topic.num.partitions")
	b.OffsetsTopicReplicationFactor = int16(r.int("offsets.topic.replication.factor"))
	b.OffsetsTopicSegmentBytes = r.int("offsets.topic.segment.bytes")
	b.OffsetsTopicCompressionCodec = r.int("offsets.topic.compression.codec")
	b.OffsetsRetention = r.minutes("offsets.retention.minutes")
	b.OffsetsRetentionCheckInterval = r.ms("offsets.retention.check.interval.ms")
	b.OffsetMetadataMaxBytes = r.int("offset.metadata.max.bytes")
	b.OffsetCommitTimeout = r.ms("offsets.commit.timeout.ms")
	b.OffsetsLoadBufferSize = r.int("offsets.load.buffer.size")
	b.GroupMinSessionTimeout = r.ms("group.min.session.timeout.ms")
	b.GroupMaxSessionTimeout = r.ms("group.max.session.timeout.ms")
	b.GroupInitialRebalanceDelay = r.ms("group.initial.rebalance.delay.ms")
	b.GroupMaxSize = r.int("group.max.size")
}

func (b *Broker) fillTransactions(r keyReader) {
	b.TransactionStateLogNumPartitions = r.int("transaction.state.log.num.partitions")
	b.TransactionStateLogReplicationFactor = int16(r.int("transaction.state.log.replication.factor"))
	b.TransactionStateLogMinISR = r.int("transaction.state.log.min.isr")
	b.TransactionStateLogSegmentBytes = r.int("transaction.state.log.segment.bytes")
}

func (b *Broker) fillQuotas(r keyReader) {
	b.QuotaWindowNum = r.int("quota.window.num")
	b.QuotaWindowSize = r.seconds("quota.window.size.seconds")
	b.ReplicationQuotaWindowNum = r.int("replication.quota.window.num")
	b.ReplicationQuotaWindowSize = r.seconds("replication.quota.window.size.seconds")
	b.ControllerQuotaWindowNum = r.int("controller.quota.window.num")
	b.ControllerQuotaWindowSize = r.seconds("controller.quota.window.size.seconds")
	b.LeaderReplicationThrottledRate = int64(r.int("leader.replication.throttled.rate"))
	b.FollowerReplicationThrottledRate = int64(r.int("follower.replication.throttled.rate"))
	b.ReplicaAlterLogDirsIOMaxBytesPerSecond = int64(r.int("replica.alter.log.dirs.io.max.bytes.per.second"))
}

// keyReader reads parsed values and notes which keys were asked for. A null value reads as zero.
type keyReader struct {
	values map[string]any
	used   map[string]bool
}

func (r keyReader) int(key string) int               { return int(read[int64](r, key)) }
func (r keyReader) bool(key string) bool             { return read[bool](r, key) }
func (r keyReader) string(key string) string         { return read[string](r, key) }
func (r keyReader) list(key string) []string         { return read[[]string](r, key) }
func (r keyReader) ms(key string) time.Duration      { return millis(read[int64](r, key)) }
func (r keyReader) seconds(key string) time.Duration { return scaled(read[int64](r, key), time.Second) }
func (r keyReader) minutes(key string) time.Duration { return scaled(read[int64](r, key), time.Minute) }

func read[T any](r keyReader, key string) T {
	if brokerIndex[key] == nil && throttleIndex[key] == nil {
		panic("config: no such key: " + key)
	}
	r.used[key] = true
	v, _ := r.values[key].(T)
	return v
}

// WithID returns a copy that has a generated broker id.
func (b *Broker) WithID(id cluster.BrokerID) *Broker {
	c := *b
	c.ID, c.values = id, maps.Clone(b.values)
	c.values["broker.id"], c.values["node.id"] = int64(id), int64(id)
	return &c
}
