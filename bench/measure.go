package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// measure takes all figures of one system: several starts on empty folders, then everything else on the last one.
func measure(o options, s system, work string) (column, error) {
	c := column{system: s.name(), values: map[string][]float64{}}
	for r := range o.runs {
		last := r == o.runs-1
		if err := oneRun(o, s, c, filepath.Join(work, fmt.Sprint(s.name(), "-", r)), last); err != nil {
			return c, err
		}
	}
	return c, nil
}

func oneRun(o options, s system, c column, dir string, last bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	srv, err := s.start(dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	err = figuresOf(ctx, o, c, srv, last)
	took, stopErr := srv.stop()
	c.add("SIGTERM to exit", ms(took))
	return errors.Join(err, stopErr)
}

func figuresOf(ctx context.Context, o options, c column, srv *server, last bool) error {
	if err := firstRecord(ctx, srv.addr); err != nil {
		return fmt.Errorf("first record: %w", err)
	}
	c.add("start to first acknowledged record", ms(time.Since(srv.began)))
	if last {
		idle(c, srv, 5*time.Second)
	}
	for _, f := range []func(context.Context, options, column, *server) error{oneTopic, bigTopic} {
		if err := f(ctx, o, c, srv); err != nil {
			return err
		}
	}
	for _, f := range []func(context.Context, options, column, *server) error{throughput, oneByOne} {
		if err := f(ctx, o, c, srv); err != nil {
			return err
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// firstRecord creates a topic and writes to it as soon as the broker lets it.
func firstRecord(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := tryFirstRecord(ctx, addr)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func tryFirstRecord(ctx context.Context, addr string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("first"), kgo.ProducerLinger(0), kgo.RetryTimeout(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "first")
	if err != nil && !errors.Is(r.Err, kerr.TopicAlreadyExists) {
		return err
	}
	return cl.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr()
}

func idle(c column, srv *server, d time.Duration) {
	time.Sleep(2 * time.Second)
	before, t := srv.cpu(), time.Now()
	time.Sleep(d)
	c.add("idle CPU of one core", 100*float64(srv.cpu()-before)/float64(time.Since(t)))
	c.add("idle RSS", srv.rssMiB())
}

func client(srv *server, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(srv.addr), kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond })}, opts...)...)
}

func oneTopic(ctx context.Context, o options, c column, srv *server) error {
	cl, err := client(srv)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for i := range 5 {
		name := fmt.Sprint("single-", i)
		t := time.Now()
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, name); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
		c.add("one topic: create, response", ms(time.Since(t)))
		t = time.Now()
		if _, err := adm.DeleteTopic(ctx, name); err != nil {
			return fmt.Errorf("delete %s: %w", name, err)
		}
		c.add("one topic: delete, response", ms(time.Since(t)))
	}
	return nil
}

// bigTopic creates 2,000 partitions, writes one record to each, and deletes them.
func bigTopic(ctx context.Context, o options, c column, srv *server) error {
	const topic, partitions = "big", 2000
	cl, err := client(srv, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0),
		kgo.AllowAutoTopicCreation(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.UnknownTopicRetries(-1))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	t := time.Now()
	if _, err := adm.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := allLed(ctx, adm, topic); err != nil {
		return err
	}
	c.add("2000-partition topic: request to all led", ms(time.Since(t)))
	var failed atomic.Pointer[error]
	for p := range int32(partitions) {
		cl.Produce(ctx, &kgo.Record{Partition: p, Value: []byte("one")}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return fmt.Errorf("produce to each partition: %w", *err)
	}
	c.add("2000-partition topic: request to every partition took a record", ms(time.Since(t)))
	c.add("RSS with 2000 partitions", srv.rssMiB())
	t = time.Now()
	if _, err := adm.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	for {
		left, err := filepath.Glob(filepath.Join(srv.data, topic+"-*"))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(left, func(d string) bool { return !strings.HasSuffix(d, "-delete") }) {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	c.add("2000-partition topic: delete request to gone and all dirs renamed", ms(time.Since(t)))
	return nil
}

func allLed(ctx context.Context, adm *kadm.Client, topic string) error {
	for ctx.Err() == nil {
		m, err := adm.Metadata(ctx, topic)
		if err == nil && m.Topics[topic].Err == nil && !slices.ContainsFunc(m.Topics[topic].Partitions.Sorted(),
			func(p kadm.PartitionDetail) bool { return p.Err != nil || p.Leader < 0 }) {
			return nil
		}
	}
	return ctx.Err()
}

func throughput(ctx context.Context, o options, c column, srv *server) error {
	cpu, rate, err := produceAll(ctx, srv, "kib", 1024, o.records, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	c.add("produce 1 KiB, acks=1, one client", rate)
	c.add("produce 1 KiB: server CPU per record", cpu)
	if cpu, rate, err = consumeAll(ctx, srv, "kib", o.records); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	c.add("consume 1 KiB, one client", rate)
	c.add("consume 1 KiB: server CPU per record", cpu)
	if _, rate, err = produceAll(ctx, srv, "small", 100, 2*o.records, kgo.RequiredAcks(kgo.AllISRAcks())); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	c.add("produce 100 B, acks=all, one client", rate)
	return nil
}

// produceAll gives the server's CPU microseconds per record and records per second.
func produceAll(ctx context.Context, srv *server, topic string, size, records int, opts ...kgo.Opt) (cpu, rate float64, err error) {
	cl, err := client(srv, append(opts, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchMaxBytes(65536), kgo.MaxBufferedRecords(50_000), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 6, 1, nil, topic); err != nil {
		return 0, 0, err
	}
	value := []byte(strings.Repeat("v", size))
	var failed atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Store(&err)
		}
	}
	before, t := srv.cpu(), time.Now()
	for range records {
		cl.Produce(ctx, &kgo.Record{Value: value}, done)
	}
	if err := cl.Flush(ctx); err != nil {
		return 0, 0, err
	}
	took := time.Since(t)
	if err := failed.Load(); err != nil {
		return 0, 0, *err
	}
	return float64((srv.cpu() - before).Microseconds()) / float64(records), float64(records) / took.Seconds(), nil
}

func consumeAll(ctx context.Context, srv *server, topic string, records int) (cpu, rate float64, err error) {
	cl, err := client(srv, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(1<<20))
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	before, t := srv.cpu(), time.Now()
	for n := 0; n < records; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return 0, 0, err
		}
		n += fs.NumRecords()
	}
	took := time.Since(t)
	return float64((srv.cpu() - before).Microseconds()) / float64(records), float64(records) / took.Seconds(), nil
}

// oneByOne is the latency of a single record, produced and acknowledged before the next.
func oneByOne(ctx context.Context, o options, c column, srv *server) error {
	cl, err := client(srv, kgo.DefaultProduceTopic("single"), kgo.ProducerLinger(0), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(-1))
	if err != nil {
		return err
	}
	defer cl.Close()
	var took []time.Duration
	for i := range 3500 {
		t := time.Now()
		if err := cl.ProduceSync(ctx, kgo.StringRecord(strings.Repeat("x", 100))).FirstErr(); err != nil {
			return fmt.Errorf("one record: %w", err)
		}
		if i >= 500 {
			took = append(took, time.Since(t))
		}
	}
	slices.Sort(took)
	c.add("one record at a time, acks=all: p50", ms(took[len(took)/2]))
	c.add("one record at a time, acks=all: p99", ms(took[len(took)*99/100]))
	return nil
}
