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

// BenchmarkTopicOf2000Partitions measures, on the embedded etcd and one broker that answers at once, how long after a
// topic's node is written the broker knows every leader, and how long after the deletion marker the topic's nodes are gone.
func BenchmarkTopicOf2000Partitions(b *testing.B) {
	ctx := b.Context()
	engine, err := etcdstore.Embedded(ctx, etcdstore.EmbeddedConfig{Dir: b.TempDir(), Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	store := engine.Store()
	if err := coord.EnsurePersistentPaths(ctx, store); err != nil {
		b.Fatal(err)
	}
	session, err := store.OpenSession(ctx, testTTL)
	if err != nil {
		b.Fatal(err)
	}
	network := wiretest.NewNet()
	node := coord.BrokerNode{Endpoints: []cluster.Endpoint{endpointOf(1)}, JMXPort: -1}
	if _, err := coord.RegisterBroker(ctx, store, session, 1, node, coord.RegisterOptions{}); err != nil {
		b.Fatal(err)
	}
	cache := metadata.New(quiet())
	broker := newFakeBroker(b, network, 1)
	broker.setReply(func(req kmsg.Request) kmsg.Response {
		if u, ok := req.(*kmsg.UpdateMetadataRequest); ok {
			cache.Apply(u)
		}
		return allWell(req)
	})
	broker.start()
	defer broker.stop()
	d, err := New(Options{Config: Config{BrokerID: 1, DeleteTopicEnable: true}, Store: store, Session: session, Log: quiet(), Dial: dialer(network, 1),
		Reregister: func(context.Context, int64) (coord.Session, error) { return nil, errRefused }})
	if err != nil {
		b.Fatal(err)
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Run(run)
	}()
	defer func() { stop(); <-ended }()
	waits, endWaits := context.WithCancel(ctx)
	defer endWaits()
	go func() { _ = cache.Run(waits) }()
	await := func(cond func(*metadata.Image) bool) {
		ok := make(chan bool, 1)
		cache.Await(nil, time.Now().Add(time.Minute), cond, func(v bool) { ok <- v })
		if !<-ok {
			b.Fatal("the cluster did not get there within a minute")
		}
	}
	await(func(im *metadata.Image) bool { return im.HasBroker(1) })
	topic := coord.Topic{ID: cluster.NewTopicID(), Partitions: map[int32]cluster.ReplicaAssignment{}}
	for p := range int32(2000) {
		topic.Partitions[p] = cluster.ReplicaAssignment{Replicas: on1}
	}
	var created, deleted time.Duration
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("t%d", i)
		start := time.Now()
		if _, err := store.Multi(ctx, coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, name), coord.EncodeConfig(nil)),
			coord.Create(coord.TopicPath(name), coord.EncodeTopic(topic))); err != nil {
			b.Fatal(err)
		}
		await(func(im *metadata.Image) bool { return im.PartitionCount() == 2000 })
		created += time.Since(start)

		start = time.Now()
		gone := store.NewWatcher()
		gone.Add(coord.DeleteTopicsPath, coord.WatchChildren)
		if _, err := store.Multi(ctx, coord.Create(coord.DeleteTopicPath(name), nil)); err != nil {
			b.Fatal(err)
		}
		for {
			if left, err := store.Children(ctx, coord.DeleteTopicsPath); err != nil || len(left) == 0 {
				break
			}
			if _, err := gone.Next(ctx); err != nil {
				b.Fatal(err)
			}
		}
		gone.Close()
		deleted += time.Since(start)
		topic.ID = cluster.NewTopicID()
	}
	b.ReportMetric(float64(created.Milliseconds())/float64(b.N), "ms/create")
	b.ReportMetric(float64(deleted.Milliseconds())/float64(b.N), "ms/delete")
}
