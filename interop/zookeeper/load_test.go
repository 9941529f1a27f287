//go:build interop

package zookeeper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	core "klamm/internal/cluster"
)

func clusterID(id int32) core.BrokerID { return core.BrokerID(id) }

// load produces numbered records with acks=all until it is stopped, and reads them meanwhile.
type load struct {
	client *kgo.Client
	topic  string
	next   uint64
	acked  atomic.Int64
	failed atomic.Pointer[error]
	moves  chan struct{} // capacity 1: a record was acknowledged or read
	quit   chan struct{}
	wg     sync.WaitGroup

	reader  *kgo.Client
	read    atomic.Int64 // records
	reading sync.WaitGroup
}

func (c *cluster) seeds() (out []string) {
	for _, b := range c.brokers {
		out = append(out, b.addr)
	}
	return out
}

func (c *cluster) startLoad(topic string) *load {
	c.Helper()
	l := &load{topic: topic, moves: make(chan struct{}, 1), quit: make(chan struct{})}
	var err error
	l.client, err = kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(2*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RecordDeliveryTimeout(2*time.Minute), kgo.UnknownTopicRetries(-1))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(l.client.Close)
	l.reader = c.consumer(topic)
	c.Cleanup(func() { l.reader.Close(); l.reading.Wait() })
	l.wg.Go(l.run)
	l.reading.Go(l.follow)
	return l
}

// consumer reads a topic from its start.
func (c *cluster) consumer(topic string) *kgo.Client {
	c.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.seeds()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		c.Fatal(err)
	}
	return client
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
					l.fail(fmt.Errorf("a record was refused: %w", err))
					return
				}
				l.count(&l.acked)
			})
		}
	}
}

func (l *load) count(records *atomic.Int64) {
	records.Add(1)
	select {
	case l.moves <- struct{}{}:
	default:
	}
}

func (l *load) fail(err error) { l.failed.CompareAndSwap(nil, &err) }

// follow reads while the cluster goes through what the test does to it: every partition without a gap and in order,
// whoever leads it. The producer is idempotent and alone, so the numbers in a partition only grow.
func (l *load) follow() {
	next, last := map[int32]int64{}, map[int32]uint64{}
	for {
		fetches := l.reader.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(func(_ string, p int32, err error) {
			if lost := (*kgo.ErrDataLoss)(nil); errors.As(err, &lost) {
				l.fail(fmt.Errorf("the consumer lost records of partition %d: %w", p, err))
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			n := binary.BigEndian.Uint64(r.Value)
			if r.Offset != next[r.Partition] || r.Offset > 0 && n <= last[r.Partition] {
				l.fail(fmt.Errorf("partition %d at offset %d, where %d was due: record %d after %d", r.Partition, r.Offset, next[r.Partition], n, last[r.Partition]))
			}
			next[r.Partition], last[r.Partition] = r.Offset+1, n
			l.count(&l.read)
		})
	}
}

// progress waits until more records have been acknowledged since the call, and read.
func (c *cluster) progress(l *load) {
	c.Helper()
	acked, read := l.acked.Load(), l.read.Load()
	deadline := time.NewTimer(60 * time.Second)
	defer deadline.Stop()
	for l.acked.Load() <= acked+100 || l.read.Load() <= read+100 {
		select {
		case <-l.moves:
		case <-deadline.C:
			c.Fatalf("not within 60 s: acknowledged %d after %d, read %d after %d", l.acked.Load(), acked, l.read.Load(), read)
		}
	}
	l.check(c)
	if c.offsetsReplicas > 1 {
		c.audit(l.topic)
	}
}

// audit looks whether the offsets that it committed the last time are there, and commits the next: whichever kind of broker is
// the group's coordinator now reads what others have written.
func (c *cluster) audit(topic string) {
	c.Helper()
	const group = "audit"
	c.eventually(60*time.Second, "committed offsets are found and followed by others", func() (bool, string) {
		ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
		defer cancel()
		found, err := c.admin.FetchOffsets(ctx, group)
		if err == nil {
			err = found.Error()
		}
		if err != nil {
			return false, err.Error()
		}
		next := kadm.Offsets{}
		for p := range int32(4) {
			// One further: the answer to a commit was lost.
			if at, ok := found.Lookup(topic, p); c.committed > 0 && (!ok || at.At != c.committed+int64(p) && at.At != c.committed+1+int64(p)) {
				c.Fatalf("partition %d was committed at %d, and is at %v", p, c.committed+int64(p), at)
			}
			next.AddOffset(topic, p, c.committed+1+int64(p), -1)
		}
		if err := c.admin.CommitAllOffsets(ctx, group, next); err != nil {
			return false, err.Error()
		}
		c.committed++
		return true, ""
	})
}

func (l *load) check(c *cluster) {
	c.Helper()
	if err := l.failed.Load(); err != nil {
		c.Fatal(*err)
	}
}

// finish stops the load and reads everything back once more: all that was acknowledged, each once.
func (c *cluster) finish(l *load) {
	c.Helper()
	close(l.quit)
	l.wg.Wait()
	ctx, cancel := context.WithTimeout(c.Context(), 60*time.Second)
	defer cancel()
	if err := l.client.Flush(ctx); err != nil {
		c.Fatal(err)
	}
	c.eventually(30*time.Second, "the consumer has read all", func() (bool, string) {
		return l.read.Load() >= int64(l.next), fmt.Sprintf("%d of %d", l.read.Load(), l.next)
	})
	l.check(c)
	again := c.consumer(l.topic)
	defer again.Close()
	seen := make([]int, l.next)
	var errs []string
	for n := uint64(0); n < l.next; {
		fetches := again.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			c.Fatalf("%d of %d records read: %v\n%s", n, l.next, fetches.Errors(), strings.Join(errs, "\n"))
		}
		fetches.EachError(func(_ string, p int32, err error) { errs = append(errs, fmt.Sprintf("partition %d: %v", p, err)) })
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
