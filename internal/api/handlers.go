// Package api holds one handler per Kafka API: check, call the owner, build the answer (Kafka: KafkaApis, ZkAdminManager).
//
// Each API has its file, which opens with its behaviour and the versions served; New enters exactly those versions in
// wire's table, from which ApiVersions (0-4) is answered by wire itself.
//
// Which goroutine does what:
//
//   - Handle runs on the connection's reader. Metadata, Produce, Fetch and the other reads are done there: they take
//     microseconds, and produce must keep the order of a connection's batches, which idempotent producers rely on. What
//     has to wait (acks, long polls) waits in package replica, and the reader goes on.
//   - Requests that ask the coordination store run on workers (lanes), in order per connection. So do the controller's
//     requests, on workers of their own: they must not wait behind clients.
//   - Waits for metadata (topics created, deleted) are waiters of metadata.Cache, without a goroutine.
//
// Every request is answered exactly once, also while the broker stops.
//
// Each handler asks the authorizer, if there is one, see authorize.go.
//
// Not served yet, and therefore not advertised: transactions. A
// transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which no client retries.
package api

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/loglevel"
	"klamm/internal/metadata"
	"klamm/internal/quota"
	"klamm/internal/replica"
	"klamm/internal/security/authorizer"
	"klamm/internal/security/token"
	"klamm/internal/security/users"
	"klamm/internal/wire"
)

// Deps is everything the handlers work with. All fields are required but those that say so.
type Deps struct {
	Log       *slog.Logger
	BrokerID  cluster.BrokerID
	ClusterID string
	// BrokerEpoch gives this broker's current registration epoch; NoBrokerEpoch before registration.
	BrokerEpoch func() cluster.BrokerEpoch

	Table *wire.APITable // New enters the served versions here
	// LikeKafka39 offers clients no newer versions than Kafka 3.9 in ZooKeeper mode does: beside its brokers, and to the tools of
	// such a cluster's operators, this one is to look the same.
	LikeKafka39 bool
	Config      *config.Dynamic // broker config as it is now, and per-topic settings
	Cache       *metadata.Cache
	Store       coord.Store
	Replicas    *replica.Manager
	Quotas      *quota.Clients     // of clients; follows the store
	Connections *quota.Connections // of addresses; follows the store
	Groups      Groups             // this broker's group coordinator
	Controller  Controller         // this broker's own controller module
	Features    *FinalizedFeatures // what is finalized, as this broker knows it
	Link        ControllerLink     // requests to the active controller, wherever it is
	Users       *users.Store       // SCRAM credentials; follows the store
	LogLevels   *loglevel.Levels   // of this broker
	// Authorizer is optional: without one everybody may do everything.
	Authorizer *authorizer.Authorizer
	// Tokens is optional: without a secret for them there are none.
	Tokens *token.Manager
}

// Controller is what the handlers ask of this broker's controller module. Its methods are safe for concurrent use.
// Functions named done are called exactly once, on any goroutine.
type Controller interface {
	IsActive() bool
	ActiveControllerID() cluster.BrokerID
	// TopicName resolves an id in the active controller's context.
	TopicName(id cluster.TopicID) (string, bool)
	IsTopicQueuedForDeletion(topic string) bool
	// DeletionBlocked reports whether a queued deletion waits for a broker that is gone, or for something else that need not come; false for
	// one that is under way or has just ended.
	DeletionBlocked(ctx context.Context, topic string) bool
	// OnDeletionRefused has refused called for each deletion marker that this broker's controller removes because deletion is
	// disabled, with the topic's name and the marker's creation id, until stop. refused must not block.
	OnDeletionRefused(refused func(topic string, czxid int64)) (stop func())
	AllocateProducerIDs(ctx context.Context, req *kmsg.AllocateProducerIDsRequest, done func(*kmsg.AllocateProducerIDsResponse))
	AlterPartition(ctx context.Context, req *kmsg.AlterPartitionRequest, done func(*kmsg.AlterPartitionResponse))
	// AfterAnswers calls done once every broker has answered what the active controller has sent it up to now, at once where it is another
	// broker. done may run before AfterAnswers returns and must not block; brokers that do not answer are waited for until they are gone.
	AfterAnswers(done func())
}

// ControlledShutdowner is what a Controller may offer besides; then ControlledShutdown is served.
type ControlledShutdowner interface {
	ControlledShutdown(ctx context.Context, req *kmsg.ControlledShutdownRequest, done func(*kmsg.ControlledShutdownResponse))
}

// ControllerLink sends one request to the active controller and waits for the answer. It is safe for concurrent use.
// ControllerChannel is the real one.
type ControllerLink interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

const (
	adminWorkers   = 8 // of requests that ask the store; more would not make a store faster
	controlWorkers = 2 // of the controller's requests: the old and the new controller's connection at a failover
	storeTimeout   = 30 * time.Second
)

// Handlers serves the Kafka protocol of one broker. It is safe for concurrent use.
type Handlers struct {
	d           Deps
	serve       map[int16]func(ctx context.Context, r *wire.Request)
	admin       *topicAdmin
	adminLanes  *lanes
	deferral    *deferral // of requests on adminLanes
	controlLane *lanes
	autoTopics  *autoTopicCreation
	configs     *configFollower
	producerIDs *producerIDManager
	sessions    *replica.FetchSessionCache
	allTopics   allTopicsCache
	denials     denialLog

	convertedUp, convertedDown atomic.Int64 // messages
}

// Conversions counts the messages that were converted from the formats of old producers and to those of old consumers.
func (h *Handlers) Conversions() (produced, fetched int64) {
	return h.convertedUp.Load(), h.convertedDown.Load()
}

// New builds the handlers and enters the served versions in d.Table. It starts nothing.
func New(d Deps) *Handlers {
	h := &Handlers{
		d:           d,
		serve:       map[int16]func(context.Context, *wire.Request){},
		admin:       &topicAdmin{log: d.Log, config: d.Config, cache: d.Cache, store: d.Store, afterAnswers: d.Controller.AfterAnswers},
		adminLanes:  newLanes(d.Log),
		controlLane: newLanes(d.Log),
		configs:     newConfigFollower(d),
		producerIDs: newProducerIDManager(d),
		denials:     denialLog{log: d.LogLevels.Logger(loglevel.Authorizer)},
		sessions:    replica.NewFetchSessionCache(d.Config.Broker().MaxIncrementalFetchSessionCacheSlots, 2*time.Minute),
	}
	h.deferral = newDeferral(h.adminLanes)
	h.autoTopics = newAutoTopicCreation(d, h.admin)
	for _, a := range h.apis() {
		a, offered := d.offered(a)
		if !offered {
			continue
		}
		if a.scope == wire.InterBrokerOnly {
			a.handle = h.betweenBrokers(a.handle)
		}
		h.serve[a.key.Int16()] = a.handle
		d.Table.Serve(a.key.Int16(), a.min, a.max, a.scope)
	}
	return h
}

// servedAPI is one line of the table of what is served.
type servedAPI struct {
	key      kmsg.Key
	min, max int16
	scope    wire.Scope
	handle   func(ctx context.Context, r *wire.Request)
}

// apis lists what is served.
func (h *Handlers) apis() []servedAPI {
	out := []servedAPI{
		{kmsg.Produce, 0, 13, wire.AllListeners, h.handleProduce},
		{kmsg.Fetch, 0, 18, wire.AllListeners, h.handleFetch},
		{kmsg.ListOffsets, 0, 11, wire.AllListeners, h.handleListOffsets},
		{kmsg.Metadata, 0, 13, wire.AllListeners, h.handleMetadata},
		{kmsg.OffsetCommit, 1, 9, wire.AllListeners, h.handleOffsetCommit},
		{kmsg.OffsetFetch, 1, 9, wire.AllListeners, h.handleOffsetFetch},
		{kmsg.FindCoordinator, 0, 6, wire.AllListeners, h.handleFindCoordinator},
		{kmsg.JoinGroup, 0, 9, wire.AllListeners, h.handleJoinGroup},
		{kmsg.Heartbeat, 0, 4, wire.AllListeners, h.handleHeartbeat},
		{kmsg.LeaveGroup, 0, 5, wire.AllListeners, h.handleLeaveGroup},
		{kmsg.SyncGroup, 0, 5, wire.AllListeners, h.handleSyncGroup},
		{kmsg.DescribeGroups, 0, 5, wire.AllListeners, h.handleDescribeGroups},
		{kmsg.ListGroups, 0, 5, wire.AllListeners, h.handleListGroups},
		{kmsg.DeleteGroups, 0, 2, wire.AllListeners, h.handleDeleteGroups},
		{kmsg.OffsetDelete, 0, 0, wire.AllListeners, h.handleOffsetDelete},
		{kmsg.OffsetForLeaderEpoch, 0, 4, wire.AllListeners, h.handleOffsetForLeaderEpoch},
		{kmsg.CreateTopics, 0, 7, wire.AllListeners, h.inOrder(h.handleCreateTopics)},
		{kmsg.DeleteTopics, 0, 6, wire.AllListeners, h.inOrder(h.handleDeleteTopics)},
		{kmsg.DeleteRecords, 0, 2, wire.AllListeners, h.handleDeleteRecords},
		{kmsg.InitProducerID, 0, 5, wire.AllListeners, h.handleInitProducerID},
		{kmsg.CreatePartitions, 0, 3, wire.AllListeners, h.inOrder(h.handleCreatePartitions)},
		{kmsg.DescribeConfigs, 0, 4, wire.AllListeners, h.inOrder(h.handleDescribeConfigs)},
		{kmsg.AlterConfigs, 0, 2, wire.AllListeners, h.inOrder(h.handleAlterConfigs)},
		{kmsg.IncrementalAlterConfigs, 0, 1, wire.AllListeners, h.inOrder(h.handleIncrementalAlterConfigs)},
		{kmsg.DescribeClientQuotas, 0, 1, wire.AllListeners, h.inOrder(h.handleDescribeClientQuotas)},
		{kmsg.AlterClientQuotas, 0, 1, wire.AllListeners, h.inOrder(h.handleAlterClientQuotas)},
		{kmsg.AlterReplicaLogDirs, 0, 2, wire.AllListeners, h.inOrder(h.handleAlterReplicaLogDirs)},
		{kmsg.DescribeLogDirs, 0, 5, wire.AllListeners, h.inOrder(h.handleDescribeLogDirs)},
		{kmsg.DescribeUserSCRAMCredentials, 0, 0, wire.AllListeners, h.inOrder(h.handleDescribeUserSCRAM)},
		{kmsg.AlterUserSCRAMCredentials, 0, 0, wire.AllListeners, h.inOrder(h.handleAlterUserSCRAM)},
		{kmsg.CreateDelegationToken, 0, 3, wire.AllListeners, h.inOrder(h.handleCreateToken)},
		{kmsg.RenewDelegationToken, 0, 2, wire.AllListeners, h.inOrder(h.handleRenewToken)},
		{kmsg.ExpireDelegationToken, 0, 2, wire.AllListeners, h.inOrder(h.handleExpireToken)},
		{kmsg.DescribeDelegationToken, 0, 3, wire.AllListeners, h.handleDescribeTokens},
		{kmsg.DescribeACLs, 0, 3, wire.AllListeners, h.handleDescribeACLs},
		{kmsg.CreateACLs, 0, 3, wire.AllListeners, h.inOrder(h.handleCreateACLs)},
		{kmsg.DeleteACLs, 0, 3, wire.AllListeners, h.inOrder(h.handleDeleteACLs)},
		{kmsg.DescribeCluster, 0, 2, wire.AllListeners, h.handleDescribeCluster},
		{kmsg.DescribeProducers, 0, 0, wire.AllListeners, h.handleDescribeProducers},
		{kmsg.DescribeTopicPartitions, 0, 0, wire.AllListeners, h.handleDescribeTopicPartitions},

		{kmsg.LeaderAndISR, 0, 7, wire.InterBrokerOnly, h.controlInOrder(h.handleLeaderAndISR)},
		{kmsg.StopReplica, 0, 4, wire.InterBrokerOnly, h.controlInOrder(h.handleStopReplica)},
		{kmsg.UpdateMetadata, 0, 8, wire.InterBrokerOnly, h.controlInOrder(h.handleUpdateMetadata)},
		{kmsg.AlterPartition, 0, 3, wire.InterBrokerOnly, h.handleAlterPartition},
		{kmsg.AllocateProducerIDs, 0, 0, wire.InterBrokerOnly, h.handleAllocateProducerIDs},
	}
	if _, ok := h.d.Controller.(LeaderElector); ok {
		out = append(out, servedAPI{kmsg.ElectLeaders, 0, 2, wire.AllListeners, h.handleElectLeaders})
	}
	if _, ok := h.d.Controller.(FeatureUpdater); ok {
		out = append(out, servedAPI{kmsg.UpdateFeatures, 0, 1, wire.AllListeners, h.handleUpdateFeatures})
	}
	if _, ok := h.d.Controller.(Reassigner); ok {
		out = append(out, servedAPI{kmsg.AlterPartitionAssignments, 0, 0, wire.AllListeners, h.handleAlterPartitionReassignments},
			servedAPI{kmsg.ListPartitionReassignments, 0, 0, wire.AllListeners, h.handleListPartitionReassignments})
	}
	if _, ok := h.d.Controller.(ControlledShutdowner); ok {
		out = append(out, servedAPI{kmsg.ControlledShutdown, 0, 3, wire.InterBrokerOnly, h.handleControlledShutdown})
	}
	return out
}

// Handle implements wire.Handler.
func (h *Handlers) Handle(ctx context.Context, r *wire.Request) {
	serve := h.serve[r.Key]
	if serve == nil {
		r.Close("api key in the table has no handler", nil)
		return
	}
	serve(ctx, r)
}

// Run works on queued requests, auto-creation and producer ids until the context ends; what is queued then is still
// answered. It must run once, and run before the wire server serves.
func (h *Handlers) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { h.adminLanes.run(ctx, adminWorkers) })
	all.Go(func() { h.deferral.run(ctx) })
	all.Go(func() { h.controlLane.run(ctx, controlWorkers) })
	all.Go(func() { h.producerIDs.run(ctx) })
	all.Wait()
	return nil
}

// inOrder gives a handler that runs on the workers for requests that ask the store. Its context ends with the broker or
// after storeTimeout, not with the connection: what a client asked for is finished though it hung up.
func (h *Handlers) inOrder(handle func(ctx context.Context, r *wire.Request)) func(context.Context, *wire.Request) {
	return func(connCtx context.Context, r *wire.Request) {
		h.onWorker(connCtx, r, bounded(handle, r))
	}
}

// onWorker hands a request to the workers; what it costs there is charged to its client.
func (h *Handlers) onWorker(connCtx context.Context, r *wire.Request, run func(context.Context)) {
	r.Queued()
	h.adminLanes.submit(connCtx, r, func(ctx context.Context) {
		r.Working()
		run(ctx)
		r.Waiting()
	})
}

func bounded(handle func(ctx context.Context, r *wire.Request), r *wire.Request) func(context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		handle(ctx, r)
	}
}

// controlInOrder is inOrder for the controller's requests.
func (h *Handlers) controlInOrder(handle func(ctx context.Context, r *wire.Request)) func(context.Context, *wire.Request) {
	return func(connCtx context.Context, r *wire.Request) {
		h.controlLane.submit(connCtx, r, func(ctx context.Context) { handle(ctx, r) })
	}
}
