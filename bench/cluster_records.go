package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// spreadTopic asks for a topic whose replicas lie on all three brokers, with leaderships dealt out in turn.
func (t *trio) spreadTopic(name string, partitions int) kmsg.CreateTopicsRequestTopic {
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, -1, -1
	for p := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition = int32(p)
		for i := range clusterSize {
			a.Replicas = append(a.Replicas, t.members[(p+i)%clusterSize].id)
		}
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	return rt
}

// createSpread creates topics by one request.
func (t *trio) createSpread(ctx context.Context, partitions int, names ...string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 180_000
	for _, n := range names {
		req.Topics = append(req.Topics, t.spreadTopic(n, partitions))
	}
	resp, err := req.RequestWith(ctx, t.members[0].client)
	if err != nil {
		return err
	}
	for _, rt := range resp.Topics {
		if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
			return fmt.Errorf("create %s: %w", rt.Topic, err)
		}
	}
	return nil
}

// writeAll writes a record to each of the partitions, at their leaders, again and again where one is not ready for it.
func (t *trio) writeAll(ctx context.Context, at []*member, left map[partitionID]bool, acks int16) error {
	topics := topicsOf(left)
	for len(left) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		v, err := at[0].look(ctx, topics...)
		if err != nil {
			return err
		}
		byLeader := map[int32][]partitionID{}
		for p := range left {
			if leader := v.partitions[p].leader; v.partitions[p].ready {
				byLeader[leader] = append(byLeader[leader], p)
			}
		}
		var wg sync.WaitGroup
		var mu sync.Mutex // guards left and errs
		var errs []error
		for id, ps := range byLeader {
			m, err := t.member(id)
			if err != nil {
				return err
			}
			wg.Go(func() {
				taken, err := m.write(ctx, ps, acks)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				for _, p := range taken {
					delete(left, p)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if len(left) > 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}
	return nil
}

// write sends one request with a record for each partition, and returns those that took it.
func (m *member) write(ctx context.Context, ps []partitionID, acks int16) (taken []partitionID, err error) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 30_000
	batch := recordBatch([]byte("one"))
	at := map[string]int{}
	for _, p := range ps {
		i, ok := at[p.topic]
		if !ok {
			i = len(req.Topics)
			at[p.topic] = i
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic = p.topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p.partition, batch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	r, err := m.client.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("produce to broker %d: %w", m.id, err)
	}
	for _, t := range r.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err == nil:
				taken = append(taken, partitionID{t.Topic, p.Partition})
			case !kerr.IsRetriable(err):
				return taken, fmt.Errorf("produce to %s-%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return taken, nil
}

func topicsOf(ps map[partitionID]bool) []string {
	seen := map[string]bool{}
	var out []string
	for p := range ps {
		if !seen[p.topic] {
			seen[p.topic] = true
			out = append(out, p.topic)
		}
	}
	return out
}

// allOf names the partitions of topics that have equally many.
func allOf(topics []string, partitions int) map[partitionID]bool {
	out := map[partitionID]bool{}
	for _, t := range topics {
		for p := range int32(partitions) {
			out[partitionID{t, p}] = true
		}
	}
	return out
}

// deleteAll deletes topics by one request and waits until nothing of them is left: no broker has a directory by the old
// name, and the names can be taken again. It gives the time of the answer, and until all was gone.
func (t *trio) deleteAll(ctx context.Context, prefix string, names []string) (answered, gone time.Duration, err error) {
	began := time.Now()
	if err := deleteTopics(ctx, t.members[0].client, names...); err != nil {
		return 0, 0, err
	}
	answered = time.Since(began)
	for _, m := range t.members {
		if err := awaitDeleted(ctx, t.members[0].client, m.data, prefix, names[len(names)-1]); err != nil {
			return 0, 0, err
		}
	}
	if err := awaitDeleted(ctx, t.members[0].client, t.members[0].data, prefix, names[0]); err != nil {
		return 0, 0, err
	}
	return answered, time.Since(began), nil
}
