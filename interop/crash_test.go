//go:build interop

package interop

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// acked counts, per partition, the numbers 0..n-1 that a producer got acknowledged, in order.
type acked struct{ next [4]atomic.Int64 }

// produceUntil writes the numbers 0, 1, 2 ... to each of four partitions, with idempotence and acks=all, until ctx ends.
func (a *acked) produceUntil(ctx context.Context, t *testing.T, cl *kgo.Client, topic string) {
	for n := int64(0); ctx.Err() == nil; n++ {
		for p := range a.next {
			value := make([]byte, 300)
			binary.BigEndian.PutUint64(value, uint64(n))
			r := &kgo.Record{Topic: topic, Partition: int32(p), Value: value}
			cl.Produce(ctx, r, func(r *kgo.Record, err error) {
				if err != nil {
					return
				}
				if got := int64(binary.BigEndian.Uint64(r.Value)); a.next[r.Partition].Swap(got+1) > got {
					t.Errorf("partition %d: number %d acknowledged out of order", r.Partition, got)
				}
			})
		}
	}
	flush, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = cl.Flush(flush)
}

// verify reads everything back: each partition has the numbers from 0 in order, none twice, none missing up to the last acknowledged.
func (a *acked) verify(t *testing.T, b *broker, topic string) {
	t.Helper()
	cl := client(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var next [4]int64
	missing := func() string {
		for p := range a.next {
			if next[p] < a.next[p].Load() {
				return fmt.Sprintf("partition %d: read up to %d of %d acknowledged", p, next[p], a.next[p].Load())
			}
		}
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for missing() != "" {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatal(missing())
		}
		fs.EachRecord(func(r *kgo.Record) {
			if got := int64(binary.BigEndian.Uint64(r.Value)); got != next[r.Partition] {
				t.Fatalf("partition %d offset %d has number %d, want %d", r.Partition, r.Offset, got, next[r.Partition])
			}
			next[r.Partition]++
		})
	}
	cl.Close()
}

func numbersClient(t *testing.T, b *broker) *kgo.Client {
	return client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.MaxBufferedRecords(20_000))
}

func TestKillNineUnderLoadLosesNothingAcknowledged(t *testing.T) {
	b := startBroker(t)
	b.topics("--create", "--topic", "n", "--partitions", "4", "--config", "segment.bytes=1048576").ok(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cl := numbersClient(t, b)
	var a acked
	producing := make(chan struct{})
	go func() { defer close(producing); a.produceUntil(ctx, t, cl, "n") }()
	for round := range 5 {
		start := a.next[0].Load()
		eventually(t, 30*time.Second, "the producer goes on", func() (bool, string) {
			n := a.next[0].Load()
			return n > start+2000, fmt.Sprint("round ", round, ": ", n-start, " acknowledged")
		})
		b.kill()
		b.start()
	}
	cancel()
	<-producing
	cl.Close()
	a.verify(t, b, "n")
	b.kill()
	b.start()
	a.verify(t, b, "n")
}

func TestCleanStopUnderLoadLosesNothingAcknowledged(t *testing.T) {
	b := startBroker(t)
	b.topics("--create", "--topic", "n", "--partitions", "4").ok(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cl := numbersClient(t, b)
	var a acked
	producing := make(chan struct{})
	go func() { defer close(producing); a.produceUntil(ctx, t, cl, "n") }()
	for range 3 {
		start := a.next[0].Load()
		eventually(t, 30*time.Second, "the producer goes on", func() (bool, string) {
			return a.next[0].Load() > start+2000, "waiting"
		})
		if code := b.stop(); code != 0 {
			t.Fatalf("exit code %d after SIGTERM", code)
		}
		b.start()
	}
	cancel()
	<-producing
	cl.Close()
	a.verify(t, b, "n")
}
