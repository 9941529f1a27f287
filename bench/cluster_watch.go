package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/coord"
)

// partitionID names a partition.
type partitionID struct {
	topic     string
	partition int32
}

// view is what one broker says of the cluster.
type view struct {
	controller int32
	brokers    map[int32]bool
	partitions map[partitionID]partitionView
}

type partitionView struct {
	leader        int32
	replicas, isr int
	preferred     int32
	ready         bool // has a leader that the broker knows
}

// look asks a broker for topics; for all of them when none is named.
func (m *member) look(ctx context.Context, topics ...string) (view, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	r, err := m.client.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return view{}, fmt.Errorf("metadata of broker %d: %w", m.id, err)
	}
	resp := r.(*kmsg.MetadataResponse)
	v := view{resp.ControllerID, map[int32]bool{}, map[partitionID]partitionView{}}
	for _, b := range resp.Brokers {
		v.brokers[b.NodeID] = true
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			pv := partitionView{leader: p.Leader, replicas: len(p.Replicas), isr: len(p.ISR), preferred: -1, ready: p.ErrorCode == 0 && p.Leader >= 0}
			if len(p.Replicas) > 0 {
				pv.preferred = p.Replicas[0]
			}
			v.partitions[partitionID{*t.Topic, p.Partition}] = pv
		}
	}
	return v, nil
}

// until asks again and again until done says so; errors of single questions are borne until the context ends.
func (m *member) until(ctx context.Context, every time.Duration, topics []string, done func(view) bool) error {
	for {
		v, err := m.look(ctx, topics...)
		if err == nil && done(v) {
			return nil
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// eachUntil does the same at several brokers and says when the last one was done.
func eachUntil(ctx context.Context, ms []*member, every time.Duration, topics []string, done func(*member, view) bool) (time.Time, error) {
	var wg sync.WaitGroup
	errs, at := make([]error, len(ms)), make([]time.Time, len(ms))
	for i, m := range ms {
		wg.Go(func() {
			errs[i] = m.until(ctx, every, topics, func(v view) bool { return done(m, v) })
			at[i] = time.Now()
		})
	}
	wg.Wait()
	var last time.Time
	for _, t := range at {
		if t.After(last) {
			last = t
		}
	}
	return last, errors.Join(errs...)
}

// without gives the members but one.
func (t *trio) without(id int32) []*member {
	var out []*member
	for _, m := range t.members {
		if m.id != id {
			out = append(out, m)
		}
	}
	return out
}

func (t *trio) member(id int32) (*member, error) {
	for _, m := range t.members {
		if m.id == id {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no broker %d", id)
}

// controller asks for the controller: the quorum's leader where there is a quorum, for KRaft's metadata names any broker.
func (t *trio) controller(ctx context.Context) (int32, error) {
	if t.registry == nil {
		req := kmsg.NewPtrDescribeQuorumRequest()
		rt := kmsg.NewDescribeQuorumRequestTopic()
		rt.Topic = "__cluster_metadata"
		rt.Partitions = append(rt.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
		req.Topics = append(req.Topics, rt)
		r, err := t.members[0].client.SeedBrokers()[0].Request(ctx, req)
		if err != nil {
			return 0, err
		}
		q := r.(*kmsg.DescribeQuorumResponse)
		if len(q.Topics) == 0 || len(q.Topics[0].Partitions) == 0 {
			return 0, fmt.Errorf("the quorum is not described: %w", kerr.ErrorForCode(q.ErrorCode))
		}
		return q.Topics[0].Partitions[0].LeaderID, nil
	}
	v, err := t.members[0].look(ctx, "first")
	return v.controller, err
}

// ready waits until all brokers know each other, each partition of the topics is in sync and led by its first replica.
// It asks for elections where that is needed.
func (t *trio) ready(ctx context.Context, topics []string) error {
	inSync := func(_ *member, v view) bool {
		for _, p := range v.partitions {
			if p.isr < p.replicas || !p.ready {
				return false
			}
		}
		return len(v.brokers) == clusterSize && len(v.partitions) > 0
	}
	if _, err := eachUntil(ctx, t.members, 200*time.Millisecond, topics, inSync); err != nil {
		return fmt.Errorf("wait until all is in sync: %w", err)
	}
	preferred := func(_ *member, v view) bool {
		for _, p := range v.partitions {
			if p.leader != p.preferred {
				return false
			}
		}
		return true
	}
	if v, err := t.members[0].look(ctx, topics...); err == nil && preferred(nil, v) {
		return nil
	}
	id, err := t.controller(ctx)
	if err != nil {
		return err
	}
	m, err := t.member(id)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis, req.Topics = 60_000, nil
	if _, err := m.client.SeedBrokers()[0].Request(ctx, req); err != nil {
		return fmt.Errorf("elect preferred leaders: %w", err)
	}
	_, err = eachUntil(ctx, t.members, 200*time.Millisecond, topics, preferred)
	return err
}

// awaitGone waits until the registration of a broker is gone. It gives the moment just before the question that first
// found it so, which makes what follows look too long rather than too short.
func awaitGone(ctx context.Context, r registry, id int32) (time.Time, error) {
	for {
		asked := time.Now()
		_, err := r.Get(ctx, fmt.Sprint("/brokers/ids/", id))
		switch {
		case errors.Is(err, coord.ErrNoNode):
			return asked, nil
		case ctx.Err() != nil:
			return asked, err
		}
		time.Sleep(3 * time.Millisecond)
	}
}
