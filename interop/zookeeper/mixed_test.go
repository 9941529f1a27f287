//go:build interop

package zookeeper

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	core "klamm/internal/cluster"
	"klamm/internal/coord"
)

func clusterID(id int32) core.BrokerID { return core.BrokerID(id) }

// load produces numbered records with acks=all until it is stopped, and knows which were acknowledged.
type load struct {
	client *kgo.Client
	topic  string
	next   uint64
	acked  atomic.Int64
	failed atomic.Pointer[error]
	quit   chan struct{}
	wg     sync.WaitGroup
}

func (c *cluster) seeds() (out []string) {
	for _, b := range c.brokers {
		out = append(out, b.addr)
	}
	return out
}

func (c *cluster) startLoad(topic string) *load {
	c.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(2*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordDeliveryTimeout(2*time.Minute), kgo.UnknownTopicRetries(-1))
	if err != nil {
		c.Fatal(err)
	}
	l := &load{client: client, topic: topic, quit: make(chan struct{})}
	l.wg.Go(l.run)
	c.Cleanup(func() { l.client.Close() })
	return l
}

func (l *load) run() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.quit:
			return
		}
		for range 5 {
			value := binary.BigEndian.AppendUint64(nil, l.next)
			l.next++
			l.client.Produce(context.Background(), &kgo.Record{Value: append(value, make([]byte, 92)...)}, func(_ *kgo.Record, err error) {
				if err != nil {
					l.failed.CompareAndSwap(nil, &err)
					return
				}
				l.acked.Add(1)
			})
		}
	}
}

// progress waits until more records have been acknowledged since the call.
func (c *cluster) progress(l *load) {
	c.Helper()
	before := l.acked.Load()
	c.eventually(60*time.Second, "records are acknowledged", func() (bool, string) {
		return l.acked.Load() > before+100, fmt.Sprintf("%d after %d", l.acked.Load(), before)
	})
}

// finish stops the load and reads everything back: all that was acknowledged, each once.
func (c *cluster) finish(l *load) {
	c.Helper()
	close(l.quit)
	l.wg.Wait()
	ctx, cancel := context.WithTimeout(c.Context(), 60*time.Second)
	defer cancel()
	if err := l.client.Flush(ctx); err != nil {
		c.Fatal(err)
	}
	if err := l.failed.Load(); err != nil {
		c.Fatalf("a record was refused: %v", *err)
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.ConsumeTopics(l.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		c.Fatal(err)
	}
	defer consumer.Close()
	seen := make([]int, l.next)
	for n := uint64(0); n < l.next; {
		fetches := consumer.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			c.Fatalf("%d of %d records read: %v", n, l.next, fetches.Errors())
		}
		fetches.EachRecord(func(r *kgo.Record) {
			seen[binary.BigEndian.Uint64(r.Value)]++
			n++
		})
	}
	for i, n := range seen {
		if n != 1 {
			c.Fatalf("record %d of %d was read %d times", i, l.next, n)
		}
	}
	c.Logf("%d records acknowledged and read back", l.next)
}

// TestMixedCluster takes a cluster of two Kafka brokers and one of klamm through what clusters go through, while records
// are produced with acks=all.
func TestMixedCluster(t *testing.T) {
	c := newCluster(t, kafka, kafka, klamm)
	step := func(what string) { c.step("%s", what) }
	c.start(0, 1)
	step("two Kafka brokers serve")
	c.start(2)
	c.moveController(0, 1)
	c.createTopic("load", 6, nil)
	c.awaitISR("load")
	l := c.startLoad("load")
	c.progress(l)
	step("klamm serves under Kafka's controller")

	c.createTopic("first", 6, nil)
	c.awaitISR("first")
	c.deleteTopic("first")
	c.awaitGone("first")
	step("topic deleted by Kafka's controller")

	c.moveReplicas(l)
	step("replicas moved from Kafka to klamm and back by Kafka's controller")

	c.moveController(2)
	c.createTopic("second", 6, nil)
	c.awaitISR("second")
	c.deleteTopic("second")
	c.awaitGone("second")
	c.progress(l)
	step("topic created and deleted by klamm's controller")

	for range 5 {
		c.moveController(0, 1)
		c.progress(l)
		c.moveController(2)
		c.progress(l)
	}
	step("office handed over ten times")

	c.createTopic("third", 6, nil)
	c.awaitISR("third")
	c.kill(0)
	c.deleteTopic("third")
	c.progress(l)
	step("topic queued for deletion, a Kafka broker dead")
	c.start(0)
	c.awaitGone("third")
	c.awaitISR("load")
	step("dead Kafka broker is back and its replicas are gone")

	c.createTopic("fourth", 6, nil)
	c.kill(2)
	c.eventually(30*time.Second, "Kafka takes the office over", func() (bool, string) {
		now := c.controller()
		return now == 0 || now == 1, fmt.Sprint(now)
	})
	c.deleteTopic("fourth")
	c.start(2)
	c.awaitGone("fourth")
	c.awaitISR("load")
	c.progress(l)
	step("klamm as controller killed, topic deleted by Kafka's while it was dead")

	c.stop(c.controller())
	c.progress(l)
	for _, b := range c.brokers {
		if !b.proc.running() {
			c.start(b.id)
		}
	}
	c.awaitISR("load")
	step("Kafka's controller stopped and back")

	c.swap(0, klamm)
	c.awaitISR("load")
	c.progress(l)
	step("Kafka's disk taken over by klamm")
	c.swap(2, kafka)
	c.awaitISR("load")
	c.progress(l)
	step("klamm's disk taken over by Kafka")
	c.swap(0, kafka)
	c.awaitISR("load")
	c.progress(l)
	step("the swapped disk given back to Kafka")
	c.finish(l)
	step("all records read")
	c.sameReplicas("load")
}

// moveReplicas takes a partition with data from a Kafka broker to klamm's and back, under Kafka's controller.
func (c *cluster) moveReplicas(l *load) {
	c.Helper()
	for _, target := range [][]int32{{2, 1}, {0, 1}, {1, 2, 0}} {
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign("load", 0, target)
		ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
		r, err := c.admin.AlterPartitionAssignments(ctx, req)
		cancel()
		if err != nil || r.Error() != nil {
			c.Fatalf("reassign to %v: %v, %v", target, err, r.Error())
		}
		path := coord.PartitionStatePath(core.TopicPartition{Topic: "load", Partition: 0})
		c.eventually(60*time.Second, fmt.Sprintf("partition 0 is on %v", target), func() (bool, string) {
			n, err := c.store.Get(c.Context(), path)
			if err != nil {
				return false, err.Error()
			}
			state, err := coord.DecodePartitionState(n.Data, n.Stat.Version)
			if err != nil {
				c.Fatal(err)
			}
			topic, err := c.store.Get(c.Context(), coord.TopicPath("load"))
			if err != nil {
				return false, err.Error()
			}
			a, err := coord.DecodeTopic(topic.Data)
			if err != nil {
				c.Fatal(err)
			}
			p := a.Partitions[0]
			done := len(p.Adding)+len(p.Removing) == 0 && len(p.Replicas) == len(target) && len(state.ISR) == len(target)
			return done && slices.Contains(target, int32(state.Leader)), string(n.Data) + string(topic.Data)
		})
		c.progress(l)
	}
}
