package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// client is an application's franz-go client.
func client(srv *server, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(srv.addr), kgo.MetadataMinAge(10 * time.Millisecond), kgo.UnknownTopicRetries(-1),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond })}, opts...)...)
}

// load produces records of 1 KiB, consumes them, and produces records of 100 bytes, as fast as one client can.
func load(ctx context.Context, o options, c *column, round int) error {
	kib, small := fmt.Sprint("kib-", round), fmt.Sprint("small-", round)
	cl, err := rawClient(c.srv.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := createTopics(ctx, cl, 6, kib, small); err != nil {
		return err
	}
	if round == 0 {
		if err := warmUp(ctx, o, c, cl); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	cpu, rate, err := produceAll(ctx, c.srv, kib, 1024, o.records, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	c.add(kibRateFigure, rate)
	c.add(kibCPUFigure, cpu)
	if cpu, rate, err = consumeAll(ctx, c.srv, kib, o.records); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	c.add(readRateFigure, rate)
	c.add(readCPUFigure, cpu)
	if cpu, rate, err = produceAll(ctx, c.srv, small, 100, 2*o.records, kgo.RequiredAcks(kgo.AllISRAcks())); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	c.add(smallRateFigure, rate)
	c.add(smallCPUFigure, cpu)
	c.add(loadRSSFigure, c.srv.rssMiB())
	return deleteTopics(ctx, cl, kib, small)
}

// warmUp lets a JVM compile what the load uses, so that it is not measured for that.
func warmUp(ctx context.Context, o options, c *column, cl *kgo.Client) error {
	if err := createTopics(ctx, cl, 6, "warm"); err != nil {
		return err
	}
	for _, opts := range [][]kgo.Opt{{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}, {kgo.RequiredAcks(kgo.AllISRAcks())}} {
		if _, _, err := produceAll(ctx, c.srv, "warm", 1024, o.records/4, opts...); err != nil {
			return err
		}
	}
	if _, _, err := consumeAll(ctx, c.srv, "warm", o.records/2); err != nil {
		return err
	}
	return deleteTopics(ctx, cl, "warm")
}

// produceAll gives the server's CPU microseconds per record and records per second.
func produceAll(ctx context.Context, srv *server, topic string, size, records int, opts ...kgo.Opt) (cpu, rate float64, err error) {
	cl, err := client(srv, append(opts, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchMaxBytes(65536), kgo.MaxBufferedRecords(50_000), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
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
func oneByOne(ctx context.Context, o options, c *column, round int) error {
	p50, p99, err := oneAtATime(ctx, c.srv, "first", 3500)
	if err != nil {
		return err
	}
	c.add(p50Figure, ms(p50))
	c.add(p99Figure, ms(p99))
	return nil
}

// oneAtATime gives the times of all records but the first 500.
func oneAtATime(ctx context.Context, srv *server, topic string, records int) (p50, p99 time.Duration, err error) {
	cl, err := client(srv, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	if err != nil {
		return 0, 0, err
	}
	defer cl.Close()
	var took []time.Duration
	value := strings.Repeat("x", 100)
	for i := range records {
		t := time.Now()
		if err := cl.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			return 0, 0, fmt.Errorf("one record: %w", err)
		}
		if i >= 500 {
			took = append(took, time.Since(t))
		}
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}
