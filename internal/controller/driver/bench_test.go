package driver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/etcdstore"
	"klamm/internal/metadata"
	"klamm/internal/wire/wiretest"
)

// benchCluster is the embedded etcd with one registered broker that answers at once.
type benchCluster struct {
	*testing.B
	store   coord.Store
	session coord.Session
	network *wiretest.Net
	cache   *metadata.Cache
}

// newBenchCluster starts it; the cleanup ends it.
func newBenchCluster(b *testing.B) *benchCluster {
	b.Helper()
	engine, err := etcdstore.Embedded(b.Context(), etcdstore.EmbeddedConfig{Dir: b.TempDir(), Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = engine.Close() })
	c := &benchCluster{B: b, store: engine.Store(), network: wiretest.NewNet(), cache: metadata.New(quiet())}
	if err := coord.EnsurePersistentPaths(b.Context(), c.store); err != nil {
		b.Fatal(err)
	}
	if c.session, err = c.store.OpenSession(b.Context(), testTTL); err != nil {
		b.Fatal(err)
	}
	node := coord.BrokerNode{Endpoints: []cluster.Endpoint{endpointOf(1)}, JMXPort: -1}
	if _, err := coord.RegisterBroker(b.Context(), c.store, c.session, 1, node, coord.RegisterOptions{}); err != nil {
		b.Fatal(err)
	}
	broker := newFakeBroker(b, c.network, 1)
	broker.setReply(func(req kmsg.Request) kmsg.Response {
		if u, ok := req.(*kmsg.UpdateMetadataRequest); ok {
			c.cache.Apply(u)
		}
		return allWell(req)
	})
	broker.start()
	b.Cleanup(broker.stop)
	c.background(c.cache.Run)
	return c
}

// background runs something until the returned function, or the cleanup, ends it.
func (c *benchCluster) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			c.Error(err)
		}
	}()
	stop = func() { cancel(); <-ended }
	c.Cleanup(stop)
	return stop
}

func (c *benchCluster) driver() *Driver {
	c.Helper()
	d, err := New(Options{Config: Config{BrokerID: 1, DeleteTopicEnable: true}, Store: c.store, Session: c.session, Log: quiet(), Dial: dialer(c.network, 1),
		Reregister: func(context.Context, int64) (coord.Session, error) { return nil, errRefused }})
	if err != nil {
		c.Fatal(err)
	}
	return d
}

func (c *benchCluster) createTopic(name string, partitions int32) {
	c.Helper()
	topic := coord.Topic{ID: cluster.NewTopicID(), Partitions: map[int32]cluster.ReplicaAssignment{}}
	for p := range partitions {
		topic.Partitions[p] = cluster.ReplicaAssignment{Replicas: on1}
	}
	if _, err := c.store.Multi(c.Context(), coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, name), coord.EncodeConfig(nil)),
		coord.Create(coord.TopicPath(name), coord.EncodeTopic(topic))); err != nil {
		c.Fatal(err)
	}
}

// await blocks until the broker knows what cond asks for.
func (c *benchCluster) await(cond func(*metadata.Image) bool) {
	c.Helper()
	told := make(chan bool, 1)
	c.cache.Await(nil, time.Now().Add(time.Minute), cond, func(ok bool) { told <- ok })
	if !<-told {
		c.Fatal("the cluster did not get there within a minute")
	}
}

// BenchmarkTopicOf2000Partitions measures how long after a topic's node is written the broker knows every leader, and how
// long after the deletion marker the topic's nodes are gone.
func BenchmarkTopicOf2000Partitions(b *testing.B) {
	c := newBenchCluster(b)
	c.background(c.driver().Run)
	c.await(func(im *metadata.Image) bool { return im.HasBroker(1) })
	var created, deleted time.Duration
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("t%d", i)
		start := time.Now()
		c.createTopic(name, 2000)
		c.await(func(im *metadata.Image) bool { return im.PartitionCount() == 2000 })
		created += time.Since(start)

		start = time.Now()
		gone := c.store.NewWatcher()
		gone.Add(coord.DeleteTopicsPath, coord.WatchChildren)
		if _, err := c.store.Multi(b.Context(), coord.Create(coord.DeleteTopicPath(name), nil)); err != nil {
			b.Fatal(err)
		}
		for {
			left, err := c.store.Children(b.Context(), coord.DeleteTopicsPath)
			if err != nil {
				b.Fatal(err)
			}
			if len(left) == 0 {
				break
			}
			if _, err := gone.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		gone.Close()
		deleted += time.Since(start)
	}
	b.ReportMetric(float64(created.Milliseconds())/float64(b.N), "ms/create")
	b.ReportMetric(float64(deleted.Milliseconds())/float64(b.N), "ms/delete")
}

// BenchmarkFailoverOf10000Partitions measures from the start of a controller until the broker has been told of every
// partition by it and nothing is left to send.
func BenchmarkFailoverOf10000Partitions(b *testing.B) {
	c := newBenchCluster(b)
	stop := c.background(c.driver().Run)
	for i := range 5 {
		c.createTopic(fmt.Sprintf("t%d", i), 2000)
	}
	c.await(func(im *metadata.Image) bool { return im.PartitionCount() == 10_000 })
	stop()
	for b.Loop() {
		d := c.driver()
		before := c.cache.Image().Generation()
		stop := c.background(d.Run)
		c.await(func(im *metadata.Image) bool {
			return im.Generation() > before && im.PartitionCount() == 10_000 && len(im.Unconfirmed()) == 0 && d.Metrics().TotalQueueSize == 0
		})
		b.StopTimer()
		stop()
		b.StartTimer()
	}
}
