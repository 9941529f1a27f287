package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// firstRecord creates a topic and writes to it as soon as the broker lets it.
func firstRecord(ctx context.Context, addr string) error {
	for {
		err := tryFirstRecord(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		}
	}
}

func tryFirstRecord(ctx context.Context, addr string) error {
	cl, err := rawClient(addr, kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := createTopics(ctx, cl, 1, "first"); err != nil {
		return err
	}
	return oneRecordEach(ctx, cl, map[string]int{"first": 1})
}

// rawClient sends single requests. It stays below the produce versions that name topics by id.
func rawClient(addr string, opts ...kgo.Opt) (*kgo.Client, error) {
	versions := kversion.V3_9_0()
	versions.SetMaxKeyVersion(int16(kmsg.DescribeQuorum), 1) // only KRaft has it
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.MaxVersions(versions), kgo.RetryTimeout(stepTimeout),
		kgo.RetryBackoffFn(func(int) time.Duration { return 2 * time.Millisecond })}, opts...)...)
}

func createTopics(ctx context.Context, cl *kgo.Client, partitions int32, names ...string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(stepTimeout.Milliseconds())
	for _, n := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n, partitions, 1
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && err != kerr.TopicAlreadyExists {
			return fmt.Errorf("create %s: %w", t.Topic, err)
		}
	}
	return nil
}

// oneRecordEach writes a record to each partition of the topics, again and again where the broker is not ready for it:
// one request for all, so that the broker's time is seen and not a client's batching.
func oneRecordEach(ctx context.Context, cl *kgo.Client, topics map[string]int) error {
	left := map[string][]int32{}
	for t, n := range topics {
		for p := range int32(n) {
			left[t] = append(left[t], p)
		}
	}
	batch := recordBatch([]byte("one"))
	for len(left) > 0 {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = 1, 30_000
		for name, partitions := range left {
			t := kmsg.NewProduceRequestTopic()
			t.Topic = name
			for _, p := range partitions {
				rp := kmsg.NewProduceRequestTopicPartition()
				rp.Partition, rp.Records = p, batch
				t.Partitions = append(t.Partitions, rp)
			}
			req.Topics = append(req.Topics, t)
		}
		r, err := cl.SeedBrokers()[0].RetriableRequest(ctx, req)
		if err != nil {
			return err
		}
		left = map[string][]int32{}
		for _, t := range r.(*kmsg.ProduceResponse).Topics {
			for _, p := range t.Partitions {
				err := kerr.ErrorForCode(p.ErrorCode)
				if err == nil {
					continue
				}
				if !kerr.IsRetriable(err) {
					return fmt.Errorf("produce to %s-%d: %w", t.Topic, p.Partition, err)
				}
				left[t.Topic] = append(left[t.Topic], p.Partition)
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// recordBatch is a batch of one record without key.
func recordBatch(value []byte) []byte {
	record := []byte{0}                                                     // attributes
	record = kbin.AppendVarlong(record, 0)                                  // timestamp delta
	record = kbin.AppendVarint(record, 0)                                   // offset delta
	record = kbin.AppendVarint(record, -1)                                  // no key
	record = append(kbin.AppendVarint(record, int32(len(value))), value...) // value
	record = kbin.AppendVarint(record, 0)                                   // no headers
	records := append(kbin.AppendVarint(nil, int32(len(record))), record...)
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: records}
	b.Length = int32(49 + len(records)) // what follows the length field
	raw := b.AppendTo(nil)
	const crcAt, attributesAt = 17, 21
	crc := crc32.Checksum(raw[attributesAt:], crc32.MakeTable(crc32.Castagnoli))
	kbin.AppendInt32(raw[:crcAt], int32(crc))
	return raw
}
