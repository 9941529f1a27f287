package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
	"klamm/internal/metadata"
	"klamm/internal/wire/wiretest"
)

const testTTL = 6 * time.Second

// testCluster is one store and one network, inside a synctest bubble.
type testCluster struct {
	t      *testing.T
	engine *memstore.Engine
	net    *wiretest.Net
	admin  *memstore.Client // what tools and other request handlers use
}

func newCluster(t *testing.T) *testCluster {
	t.Helper()
	c := &testCluster{t: t, engine: memstore.New(), net: wiretest.NewNet()}
	c.admin = c.engine.Client()
	if err := coord.EnsurePersistentPaths(t.Context(), c.admin); err != nil {
		t.Fatal(err)
	}
	return c
}

// testBroker is a broker with its own client of the store, a fake control face and a driver.
type testBroker struct {
	*Driver
	c       *testCluster
	id      cluster.BrokerID
	client  *memstore.Client
	session *atomic.Pointer[sessionBox]
	fake    *fakeBroker
	cache   *metadata.Cache // what the broker learned from UpdateMetadata
	klamm   bool
	refuse  atomic.Int32 // how many registrations fail
	epoch   atomic.Int64 // broker epoch of the newest registration
	highest int32        // controller epoch seen; guarded by fake.mu
	cancel  context.CancelFunc
	ended   chan error
}

type sessionBox struct{ coord.Session }

// brokerOptions change a broker before its driver is made.
type brokerOptions struct {
	store   func(coord.Store) coord.Store
	session func(coord.Session) coord.Session
	config  func(*Config)
	noFace  bool // nobody listens on the broker's address
	klamm   bool // its registration says that it is klamm's
}

// addBroker registers a broker; run starts its driver.
func (c *testCluster) addBroker(id cluster.BrokerID, o brokerOptions) *testBroker {
	c.t.Helper()
	b := &testBroker{c: c, id: id, client: c.engine.Client(), session: &atomic.Pointer[sessionBox]{}, klamm: o.klamm,
		fake: newFakeBroker(c.t, c.net, id), cache: metadata.New(quiet())}
	b.fake.setReply(b.answer)
	if !o.noFace {
		b.fake.start()
	}
	s, err := b.register(c.t.Context(), 0)
	if err != nil {
		c.t.Fatal(err)
	}
	opts := Options{
		Config:     Config{BrokerID: id, DeleteTopicEnable: true},
		Store:      b.client,
		Session:    s,
		Reregister: b.register,
		Dial:       dialer(c.net, id),
		Log:        testLog(),
	}
	if o.config != nil {
		o.config(&opts.Config)
	}
	if o.store != nil {
		opts.Store = o.store(b.client)
	}
	if o.session != nil {
		opts.Session = o.session(s)
	}
	b.Driver, err = New(opts)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// testLog is silent unless KLAMM_TEST_LOG asks for the log.
func testLog() *slog.Logger {
	if os.Getenv("KLAMM_TEST_LOG") == "" {
		return quiet()
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var errRefused = errors.New("registration refused by the test")

func (b *testBroker) register(ctx context.Context, previous int64) (coord.Session, error) {
	if b.refuse.Add(-1) >= 0 {
		return nil, errRefused
	}
	s, err := b.client.OpenSession(ctx, testTTL)
	if err != nil {
		return nil, err
	}
	node := coord.BrokerNode{Endpoints: brokerOf(b.id).Endpoints, JMXPort: -1}
	if b.klamm {
		node.Klamm = &coord.KlammRegistration{Version: 1}
	}
	epoch, err := coord.RegisterBroker(ctx, b.client, s, b.id, node, coord.RegisterOptions{PreviousSession: previous})
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	b.epoch.Store(int64(epoch))
	b.session.Store(&sessionBox{s})
	return s, nil
}

// answer is the broker's side of the control requests: behind the gate of broker epoch and controller epoch that
// every broker has, it applies metadata and finds everything well.
func (b *testBroker) answer(req kmsg.Request) kmsg.Response {
	controllerEpoch, brokerEpoch := controlHead(req)
	switch {
	case brokerEpoch < b.epoch.Load():
		return refusal(req, cluster.StaleBrokerEpoch)
	case controllerEpoch < b.highest:
		return refusal(req, cluster.StaleControllerEpoch)
	}
	b.highest = controllerEpoch
	if u, ok := req.(*kmsg.UpdateMetadataRequest); ok {
		b.cache.Apply(u)
	}
	return allWell(req)
}

func controlHead(req kmsg.Request) (controllerEpoch int32, brokerEpoch int64) {
	switch req := req.(type) {
	case *kmsg.LeaderAndISRRequest:
		return req.ControllerEpoch, req.BrokerEpoch
	case *kmsg.StopReplicaRequest:
		return req.ControllerEpoch, req.BrokerEpoch
	default:
		u := req.(*kmsg.UpdateMetadataRequest)
		return u.ControllerEpoch, u.BrokerEpoch
	}
}

func refusal(req kmsg.Request, code cluster.ErrorCode) kmsg.Response {
	resp := req.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.LeaderAndISRResponse:
		resp.ErrorCode = int16(code)
	case *kmsg.StopReplicaResponse:
		resp.ErrorCode = int16(code)
	case *kmsg.UpdateMetadataResponse:
		resp.ErrorCode = int16(code)
	}
	return resp
}

func (b *testBroker) run() *testBroker {
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel, b.ended = cancel, make(chan error, 1)
	reconciler := &Reconciler{Cache: b.cache, Store: b.client, Log: testLog()}
	go func() {
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := reconciler.Run(ctx); err != nil {
				b.c.t.Error(err)
			}
		})
		err := b.Driver.Run(ctx)
		wg.Wait()
		b.ended <- err
	}()
	return b
}

// stop ends the driver and, as a clean stop does, the session.
func (b *testBroker) stop() {
	b.c.t.Helper()
	b.stopDriver()
	if err := b.session.Load().Close(context.Background()); err != nil {
		b.c.t.Error(err)
	}
	if b.fake.stop != nil {
		b.fake.stop()
	}
}

// die ends a broker that runs no driver, and its session.
func (b *testBroker) die() {
	b.fake.stop()
	b.c.engine.ExpireSession(b.session.Load().ID())
	synctest.Wait()
}

func (b *testBroker) stopDriver() {
	b.c.t.Helper()
	b.cancel()
	if err := <-b.ended; err != nil {
		b.c.t.Errorf("driver ended with %v", err)
	}
}

// start is addBroker and run for a broker without surprises.
func (c *testCluster) start(id cluster.BrokerID) *testBroker {
	c.t.Helper()
	return c.addBroker(id, brokerOptions{}).run()
}

// startTwo starts brokers 1, which becomes the controller, and 2, until the test ends.
func (c *testCluster) startTwo() (one, two *testBroker) {
	c.t.Helper()
	one = c.start(1)
	c.t.Cleanup(one.stop)
	synctest.Wait()
	two = c.start(2)
	c.t.Cleanup(two.stop)
	synctest.Wait()
	return one, two
}

// createTopic writes what CreateTopics writes.
func (c *testCluster) createTopic(name string, replicas ...[]cluster.BrokerID) {
	c.t.Helper()
	topic := coord.Topic{ID: cluster.NewTopicID(), Partitions: map[int32]cluster.ReplicaAssignment{}}
	for p, r := range replicas {
		topic.Partitions[int32(p)] = cluster.ReplicaAssignment{Replicas: r}
	}
	_, err := c.admin.Multi(c.t.Context(),
		coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, name), coord.EncodeConfig(nil)),
		coord.Create(coord.TopicPath(name), coord.EncodeTopic(topic)))
	if err != nil {
		c.t.Fatal(err)
	}
}

// deleteTopic writes what DeleteTopics writes.
func (c *testCluster) deleteTopic(name string) {
	c.t.Helper()
	if _, err := c.admin.Multi(c.t.Context(), coord.Create(coord.DeleteTopicPath(name), nil)); err != nil {
		c.t.Fatal(err)
	}
}

// paths lists the nodes below a path, itself included.
func (c *testCluster) paths(root string) []string {
	var out []string
	for _, n := range c.engine.Dump() {
		if n.Path == root || strings.HasPrefix(n.Path, root+"/") {
			out = append(out, n.Path)
		}
	}
	return out
}

// state reads a partition's state; false when there is none.
func (c *testCluster) state(topic string, partition int32) (cluster.LeaderAndISR, bool) {
	c.t.Helper()
	n, err := c.admin.Get(c.t.Context(), coord.PartitionStatePath(cluster.TopicPartition{Topic: topic, Partition: partition}))
	if errors.Is(err, coord.ErrNoNode) {
		return cluster.LeaderAndISR{}, false
	}
	if err != nil {
		c.t.Fatal(err)
	}
	s, err := coord.DecodePartitionState(n.Data, n.Stat.Version)
	if err != nil {
		c.t.Fatal(err)
	}
	return s, true
}

// controllerNode gives the id in /controller and the number in /controller_epoch.
func (c *testCluster) controllerNode() (cluster.BrokerID, cluster.ControllerEpoch) {
	c.t.Helper()
	id, err := coord.ActiveController(c.t.Context(), c.admin)
	if err != nil {
		c.t.Fatal(err)
	}
	n, err := c.admin.Get(c.t.Context(), coord.ControllerEpochPath)
	if err != nil {
		c.t.Fatal(err)
	}
	epoch, err := coord.DecodeControllerEpoch(n.Data)
	if err != nil {
		c.t.Fatal(err)
	}
	return id, epoch
}

// expectTopic checks that the topic is led in the store and in the broker's cache.
func (b *testBroker) expectTopic(name string, partitions int) {
	b.c.t.Helper()
	for p := range int32(partitions) {
		s, ok := b.c.state(name, p)
		if !ok || s.Leader < 0 {
			b.c.t.Errorf("%s-%d has state %v (%t)", name, p, s, ok)
			continue
		}
		cached, ok := b.cache.Image().Partition(cluster.TopicPartition{Topic: name, Partition: p})
		if !ok || cached.Leader != s.Leader || cached.LeaderEpoch != s.LeaderEpoch {
			b.c.t.Errorf("broker %d knows %s-%d as %+v (%t), the store has %v", b.id, name, p, cached, ok, s)
		}
	}
}

// expectGone checks that nothing of a topic is left in store or cache.
func (b *testBroker) expectGone(name string) {
	b.c.t.Helper()
	for _, root := range []string{coord.TopicPath(name), coord.ConfigEntityPath(coord.TopicConfigs, name), coord.DeleteTopicPath(name)} {
		if left := b.c.paths(root); len(left) > 0 {
			b.c.t.Errorf("left in the store: %v", left)
		}
	}
	if _, ok := b.cache.Image().Topic(name); ok {
		b.c.t.Errorf("broker %d still knows topic %s", b.id, name)
	}
}

// advance lets fake time pass until all is quiet again.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// bubble runs a test inside synctest.
func bubble(t *testing.T, f func(t *testing.T, c *testCluster)) {
	synctest.Test(t, func(t *testing.T) { f(t, newCluster(t)) })
}

// requestLog prints requests shortly, in order.
func requestLog(reqs []kmsg.Request) (out []string) {
	for _, r := range reqs {
		switch r := r.(type) {
		case *kmsg.LeaderAndISRRequest:
			for _, t := range r.TopicStates {
				for _, p := range t.PartitionStates {
					out = append(out, fmt.Sprintf("LeaderAndIsr %s-%d leader=%d le=%d isr=%v new=%t", t.Topic, p.Partition, p.Leader, p.LeaderEpoch, p.ISR, p.IsNew))
				}
			}
		case *kmsg.UpdateMetadataRequest:
			line := fmt.Sprintf("UpdateMetadata brokers=%d", len(r.LiveBrokers))
			for _, t := range r.TopicStates {
				for _, p := range t.PartitionStates {
					line += fmt.Sprintf(" %s-%d leader=%d", t.Topic, p.Partition, p.Leader)
				}
			}
			out = append(out, line)
		case *kmsg.StopReplicaRequest:
			for _, t := range r.Topics {
				for _, p := range t.PartitionStates {
					out = append(out, fmt.Sprintf("StopReplica %s-%d le=%d delete=%t", t.Topic, p.Partition, p.LeaderEpoch, p.Delete))
				}
			}
		}
	}
	return out
}

func contains(lines []string, line string) bool { return slices.Contains(lines, line) }

// announce lets the broker's cache learn of a topic from a controller.
func (b *testBroker) announce(controllerEpoch int32, topic string, id cluster.TopicID) {
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerEpoch = 8, controllerEpoch
	req.TopicStates = []kmsg.UpdateMetadataRequestTopicState{{Topic: topic, TopicID: id,
		PartitionStates: []kmsg.UpdateMetadataRequestTopicPartition{{Leader: 1}}}}
	b.cache.Apply(req)
}
