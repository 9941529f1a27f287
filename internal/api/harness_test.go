package api

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
	"klamm/internal/group/coordinator"
	"klamm/internal/loglevel"
	"klamm/internal/metadata"
	"klamm/internal/quota"
	"klamm/internal/security/authorizer"
	"klamm/internal/security/users"
	"klamm/internal/wire"
	"klamm/internal/wire/wiretest"
)

// testBroker is broker 0 of three: the handlers behind wire's server on an in-memory network, a store in memory, and a
// controller that is a few lines of test code. Everything lives in one synctest bubble.
type testBroker struct {
	t      *testing.T
	ctx    context.Context
	h      *Handlers
	engine *memstore.Engine
	store  *memstore.Client // the broker's client: hooks go here
	cache  *metadata.Cache
	config *config.Dynamic
	ctl    *testController
	groups *coordinator.Coordinator
	net    *wiretest.Net
	client *wire.ClientConn // client id "tester", on listener PLAINTEXT
	calls  atomic.Int64     // store calls of the handlers

	background []func(context.Context) error // run beside the handlers
	closers    []*wire.ClientConn            // closed at the end
}

// inBubble runs the test with a broker. set changes what the broker is built of.
func inBubble(t *testing.T, properties map[string]string, test func(b *testBroker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		b := newTestBroker(t, ctx, properties)
		var running sync.WaitGroup
		b.start(ctx, &running)
		defer func() {
			for _, c := range append(b.closers, b.client) {
				_ = c.Close()
			}
			cancel()
			running.Wait()
		}()
		test(b)
	})
}

func newTestBroker(t *testing.T, ctx context.Context, properties map[string]string) *testBroker {
	t.Helper()
	props := map[string]string{"broker.id": "0", "listeners": "PLAINTEXT://b0:9092", "log.dirs": "/data"}
	for k, v := range properties {
		props[k] = v
	}
	static, _, err := config.FromProperties(props)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(panicWatch{slog.DiscardHandler, t})
	b := &testBroker{t: t, ctx: ctx, engine: memstore.New(), cache: metadata.New(log), config: config.NewDynamic(static), net: wiretest.NewNet()}
	b.store = b.engine.Client()
	b.store.SetHook(func(memstore.Call) memstore.Fault { b.calls.Add(1); return memstore.Fault{} })
	b.ctl = &testController{store: b.engine.Client(), cache: b.cache}
	b.ctl.active.Store(true)
	b.ctl.announces.Store(true)
	if err := coord.EnsurePersistentPaths(ctx, b.ctl.store); err != nil {
		t.Fatal(err)
	}
	replicas := newTestReplicas(t, ctx, b, log)
	b.groups = coordinator.New(coordinator.Options{Log: log, Config: b.config, Cache: b.cache, Replicas: replicas,
		TopicsGone: func(context.Context, []string) ([]string, error) { return nil, nil }})
	b.background = append(b.background, b.groups.Run)
	b.h = New(Deps{
		Log: log, BrokerID: 0, ClusterID: "test-cluster", BrokerEpoch: func() cluster.BrokerEpoch { return 7 },
		Table: wire.NewAPITable(), Config: b.config, Cache: b.cache, Store: b.store,
		Replicas: replicas, Groups: b.groups, Controller: b.ctl, Link: b.ctl, Features: NewFinalizedFeatures(b.store, nil, log),
		Quotas: quota.NewClients(quota.DefaultWindows, quota.DefaultWindows, time.Now()), Connections: quota.NewConnections(quota.DefaultWindows, time.Now()),
		Users: users.New(), LogLevels: loglevel.New(log.Handler(), slog.LevelInfo), Authorizer: newTestAuthorizer(t, ctx, b, log),
	})
	b.background = append(b.background, b.h.d.Features.Run)
	b.h.admin.intn = func(int) int { return 0 } // assignments start at the first broker
	return b
}

// newTestAuthorizer is nil unless the properties name an authorizer.
func newTestAuthorizer(t *testing.T, ctx context.Context, b *testBroker, log *slog.Logger) *authorizer.Authorizer {
	c := b.config.Broker().Authorizer
	if !c.Enabled {
		return nil
	}
	a := authorizer.New(authorizer.Options{Store: b.store, Log: log, SuperUsers: c.SuperUsers, AllowEveryoneIfNoACL: c.AllowEveryoneIfNoACL})
	if err := errors.Join(a.EnsureRoots(ctx), a.Load(ctx)); err != nil {
		t.Fatal(err)
	}
	b.background = append(b.background, a.Run)
	return a
}

func (b *testBroker) start(ctx context.Context, running *sync.WaitGroup) {
	b.t.Helper()
	ln, err := b.net.Listen("b0:9092")
	if err != nil {
		b.t.Fatal(err)
	}
	inter, err := b.net.Listen("b0:9093")
	if err != nil {
		b.t.Fatal(err)
	}
	server, err := wire.NewServer(wire.ServerConfig{
		Listeners: []wire.Listener{{Name: "PLAINTEXT", Net: ln}, {Name: "INTERNAL", Net: inter, InterBroker: true}},
		API:       b.h.d.Table, Handler: b.h, Log: b.h.d.Log, Quota: b.h.RequestQuota(),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	running.Go(func() { _ = b.cache.Run(ctx) })
	running.Go(func() { _ = b.h.Run(ctx) })
	for _, run := range b.background {
		running.Go(func() { _ = run(ctx) })
	}
	running.Go(func() { _ = server.Run(ctx) })
	running.Go(func() { b.ctl.run(ctx) })
	b.brokersUp(0, 1, 2)
	b.client = b.dial("b0:9092", "tester")
}

func (b *testBroker) dial(addr, clientID string) *wire.ClientConn {
	b.t.Helper()
	c, err := wire.Dial(b.ctx, addr, wire.ClientConfig{Dial: b.net.Dial, ClientID: clientID})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// do sends a request at a version and returns the answer.
func (b *testBroker) do(version int16, req kmsg.Request) kmsg.Response {
	b.t.Helper()
	return b.doOn(b.client, version, req)
}

func (b *testBroker) doOn(c *wire.ClientConn, version int16, req kmsg.Request) kmsg.Response {
	b.t.Helper()
	req.SetVersion(version)
	resp, err := c.Request(b.ctx, req)
	if err != nil {
		b.t.Fatalf("%T version %d: %v", req, version, err)
	}
	return resp
}

// brokersUp tells the cache which brokers live, with two listeners each, and registers them in the store.
func (b *testBroker) brokersUp(ids ...cluster.BrokerID) {
	b.t.Helper()
	b.ctl.brokers.Store(&ids)
	b.ctl.announce(nil)
	for _, id := range ids {
		node := coord.EncodeBroker(coord.BrokerNode{Endpoints: []cluster.Endpoint{{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: "b" + brokerName(id), Port: 9092}}, JMXPort: -1})
		if _, err := b.ctl.store.Multi(b.ctx, coord.Create(coord.BrokerPath(id), node)); err != nil && !errors.Is(err, coord.ErrNodeExists) {
			b.t.Fatal(err)
		}
	}
}

// topic makes a topic in the store and waits until it is announced.
func (b *testBroker) topic(name string, partitions ...[]cluster.BrokerID) cluster.TopicID {
	b.t.Helper()
	id := cluster.NewTopicID()
	topic := coord.Topic{ID: id, Partitions: map[int32]cluster.ReplicaAssignment{}}
	for i, replicas := range partitions {
		topic.Partitions[int32(i)] = cluster.ReplicaAssignment{Replicas: replicas}
	}
	b.put(coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, name), coord.EncodeConfig(nil)), coord.Create(coord.TopicPath(name), coord.EncodeTopic(topic)))
	synctest.Wait()
	return id
}

func (b *testBroker) put(ops ...coord.Op) {
	b.t.Helper()
	if _, err := b.ctl.store.Multi(b.ctx, ops...); err != nil {
		b.t.Fatal(err)
	}
}

// inStore reads a topic; false when it is not there.
func (b *testBroker) inStore(name string) (coord.Topic, bool) {
	b.t.Helper()
	n, err := b.ctl.store.Get(b.ctx, coord.TopicPath(name))
	if errors.Is(err, coord.ErrNoNode) {
		return coord.Topic{}, false
	}
	if err != nil {
		b.t.Fatal(err)
	}
	topic, err := coord.DecodeTopic(n.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return topic, true
}

func (b *testBroker) storedConfig(kind, name string) map[string]string {
	b.t.Helper()
	n, err := b.ctl.store.Get(b.ctx, coord.ConfigEntityPath(kind, name))
	if err != nil {
		b.t.Fatal(err)
	}
	settings, err := coord.DecodeConfig(n.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return settings
}

const second = time.Second

// panicWatch fails the test when a handler's panic is logged, by wire or by lanes.
type panicWatch struct {
	slog.Handler
	t *testing.T
}

func (p panicWatch) Enabled(context.Context, slog.Level) bool { return true }
func (p panicWatch) WithAttrs([]slog.Attr) slog.Handler       { return p }
func (p panicWatch) WithGroup(string) slog.Handler            { return p }
func (p panicWatch) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panic") {
		r.Attrs(func(a slog.Attr) bool { p.t.Errorf("%s: %s=%v", r.Message, a.Key, a.Value); return true })
	}
	return nil
}

// same compares whole answers. The codec does not tell empty lists from absent ones.
func same(t *testing.T, want, got any) {
	t.Helper()
	noTags := cmp.Comparer(func(a, b kmsg.Tags) bool { return a.Len() == b.Len() })
	if d := cmp.Diff(want, got, noTags, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("answer differs (-want +got):\n%s", d)
	}
}

// testController stands for the controller: topics in the store get the first live replica as leader and are announced
// to the cache; marked topics leave the cache and then the store. It also is the link to itself.
type testController struct {
	reassigned      atomic.Int64 // requests to reassign
	blocked         atomic.Bool  // deletions wait for a broker that is gone
	featuresVersion int32        // of /feature, as the answer to UpdateFeatures tells
	store           *memstore.Client
	cache           *metadata.Cache
	active          atomic.Bool
	announces       atomic.Bool
	brokers         atomic.Pointer[[]cluster.BrokerID]
	queued          sync.Map // topic names queued for deletion
	blocks          atomic.Int64
	refuse          atomic.Int32 // error code for AllocateProducerIDs
	elections       elections

	mu        sync.Mutex
	deaf      bool                                    // some broker does not answer the controller
	untold    []func()                                // what waits for that
	listening map[int]func(topic string, czxid int64) // for refused deletions
	listened  int
}

func (c *testController) OnDeletionRefused(refused func(topic string, czxid int64)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listening == nil {
		c.listening = map[int]func(string, int64){}
	}
	c.listened++
	n := c.listened
	c.listening[n] = refused
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.listening, n)
	}
}

// tellRefused tells all who listen, and how many these are.
func (c *testController) tellRefused(topic string, czxid int64) (listeners int) {
	c.mu.Lock()
	listening := maps.Clone(c.listening)
	c.mu.Unlock()
	for _, refused := range listening {
		refused(topic, czxid)
	}
	return len(listening)
}

func (c *testController) run(ctx context.Context) {
	w := c.store.NewWatcher()
	defer w.Close()
	w.Add(coord.TopicsPath, coord.WatchChildren)
	w.Add(coord.DeleteTopicsPath, coord.WatchChildren)
	for {
		c.reconcile(ctx, w)
		if _, err := w.Next(ctx); err != nil {
			return
		}
	}
}

// reconcile announces what is in the store and deletes what is marked, while announces is set.
func (c *testController) reconcile(ctx context.Context, w coord.Watcher) {
	if !c.announces.Load() {
		return
	}
	marked, _ := c.store.Children(ctx, coord.DeleteTopicsPath)
	names, _ := c.store.Children(ctx, coord.TopicsPath)
	var states []kmsg.UpdateMetadataRequestTopicState
	for _, name := range names {
		w.Add(coord.TopicPath(name), coord.WatchNode) // partitions may be added
		n, err := c.store.Get(ctx, coord.TopicPath(name))
		if err != nil {
			continue
		}
		topic, _ := coord.DecodeTopic(n.Data)
		isMarked := slices.Contains(marked, name)
		if known, ok := c.cache.Image().Topic(name); ok && !isMarked && known.ID == topic.ID && len(known.Partitions) == len(topic.Partitions) {
			continue
		}
		states = append(states, c.state(name, topic, isMarked))
	}
	if len(states) > 0 {
		c.announce(states)
	}
	for _, name := range marked {
		_ = c.store.DeleteTree(ctx, nil, coord.TopicPath(name))
		_ = c.store.DeleteTree(ctx, nil, coord.ConfigEntityPath(coord.TopicConfigs, name))
		_ = c.store.DeleteTree(ctx, nil, coord.DeleteTopicPath(name))
	}
}

func (c *testController) state(name string, topic coord.Topic, deleted bool) kmsg.UpdateMetadataRequestTopicState {
	s := kmsg.UpdateMetadataRequestTopicState{Topic: name, TopicID: topic.ID}
	for i := range len(topic.Partitions) {
		replicas := topic.Partitions[int32(i)].Replicas
		p := kmsg.UpdateMetadataRequestTopicPartition{Partition: int32(i), ControllerEpoch: 1, Leader: -1, Replicas: wireIDs(replicas)}
		for _, id := range replicas {
			if slices.Contains(*c.brokers.Load(), id) {
				p.ISR = append(p.ISR, int32(id))
			} else {
				p.OfflineReplicas = append(p.OfflineReplicas, int32(id))
			}
		}
		if len(p.ISR) > 0 {
			p.Leader = p.ISR[0]
		}
		if deleted {
			p.Leader = int32(cluster.LeaderDuringDelete)
		}
		s.PartitionStates = append(s.PartitionStates, p)
	}
	return s
}

func (c *testController) announce(states []kmsg.UpdateMetadataRequestTopicState) {
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerID, req.ControllerEpoch, req.TopicStates = 8, 0, 1, states
	for _, id := range *c.brokers.Load() {
		host := "b" + strconv.Itoa(int(id))
		req.LiveBrokers = append(req.LiveBrokers, kmsg.UpdateMetadataRequestLiveBroker{ID: int32(id), Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{
			{Port: 9092, Host: host, ListenerName: "PLAINTEXT"}, {Port: 9093, Host: host, ListenerName: "INTERNAL"}}})
	}
	c.cache.Apply(req)
}

func (c *testController) IsActive() bool { return c.active.Load() }
func (c *testController) AfterAnswers(done func()) {
	c.mu.Lock()
	held := c.deaf
	if held {
		c.untold = append(c.untold, done)
	}
	c.mu.Unlock()
	if !held {
		done()
	}
}

// deafen has AfterAnswers wait until hear.
func (c *testController) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
}

// hear answers for the brokers that were deaf.
func (c *testController) hear() {
	c.mu.Lock()
	untold := c.untold
	c.deaf, c.untold = false, nil
	c.mu.Unlock()
	for _, done := range untold {
		done()
	}
}

func (c *testController) ActiveControllerID() cluster.BrokerID { return 0 }

func (c *testController) TopicName(id cluster.TopicID) (string, bool) {
	return c.cache.Image().TopicName(id)
}

func (c *testController) IsTopicQueuedForDeletion(topic string) bool {
	_, ok := c.queued.Load(topic)
	return ok
}

func (c *testController) DeletionBlocked(context.Context, string) bool { return c.blocked.Load() }

func (c *testController) AllocateProducerIDs(_ context.Context, req *kmsg.AllocateProducerIDsRequest, done func(*kmsg.AllocateProducerIDsResponse)) {
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	if code := c.refuse.Load(); code != 0 || req.BrokerEpoch != 7 {
		resp.ErrorCode = int16(code)
	} else {
		resp.ProducerIDStart, resp.ProducerIDLen = (c.blocks.Add(1)-1)*1000, 1000
	}
	done(resp)
}

func (c *testController) AlterPartition(_ context.Context, req *kmsg.AlterPartitionRequest, done func(*kmsg.AlterPartitionResponse)) {
	resp := kmsg.NewPtrAlterPartitionResponse()
	resp.ErrorCode = int16(cluster.StaleBrokerEpoch)
	done(resp)
}

// Request makes the controller its own ControllerLink.
func (c *testController) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	r, ok := req.(*kmsg.AllocateProducerIDsRequest)
	if !ok {
		return nil, errors.New("only AllocateProducerIds is expected here")
	}
	var out *kmsg.AllocateProducerIDsResponse
	c.AllocateProducerIDs(ctx, r, func(resp *kmsg.AllocateProducerIDsResponse) { out = resp })
	return out, nil
}
