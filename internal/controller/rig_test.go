package controller

import (
	"fmt"
	"iter"
	"testing"

	"klamm/internal/cluster"
)

// rig is a core in office whose context a test fills by hand, with a store that answers by a function.
type rig struct {
	t       *testing.T
	c       *Core
	answer  func(Store) StoreResult
	effects []Effect
}

func newRig(t *testing.T, brokers ...cluster.BrokerID) *rig {
	r := &rig{t: t, c: New(Config{Broker: 1, DeleteTopicEnable: true, UseLeaderRecoveryState: true})}
	r.c.ctx = newContext(5, 50)
	r.c.ctx.takingOffice = false
	for _, id := range brokers {
		r.c.ctx.addBroker(cluster.Broker{ID: id, Epoch: cluster.BrokerEpoch(100 + id)})
	}
	r.answer = r.accept
	return r
}

// accept answers every store operation with success.
func (r *rig) accept(s Store) StoreResult {
	res := StoreResult{Token: s.Token, Outcome: Applied}
	switch op := s.Op.(type) {
	case CreatePartitionStates:
		res.Value = Written{itemsOK(len(op.States))}
	case SetPartitionStates:
		items := itemsOK(len(op.States))
		for i := range items {
			items[i].State.PartitionEpoch = op.States[i].State.PartitionEpoch + 1
		}
		res.Value = Written{items}
	case ReadTopicConfigs:
		v := TopicConfigsRead{}
		for _, t := range op.Topics {
			v.Topics = append(v.Topics, TopicConfigRead{Topic: t})
		}
		res.Value = v
	default:
		panic(fmt.Sprintf("rig: no answer for %T", s.Op))
	}
	return res
}

func itemsOK(n int) []ItemResult {
	items := make([]ItemResult, n)
	for i := range items {
		items[i].Status = ItemOK
	}
	return items
}

// do runs a part of a handler to its end, answering the store operations it asks for.
func (r *rig) do(f func() error) (err error) {
	r.c.next, r.c.stop = iter.Pull(func(yield func(struct{}) bool) {
		r.c.yield = yield
		err = f()
	})
	for {
		_, suspended := r.c.next()
		r.c.flushTransitions()
		out := r.c.out
		r.c.out = nil
		r.effects = append(r.effects, out...)
		if !suspended {
			r.c.next, r.c.stop, r.c.yield = nil, nil, nil
			return err
		}
		r.c.awaiting = false
		r.c.result = r.answer(out[len(out)-1].(Store))
	}
}

// topic puts a topic with one partition into the context: its replicas, its leadership (nil: none).
func (r *rig) topic(name string, replicas []cluster.BrokerID, l *cluster.LeaderAndISR) *partitionContext {
	t := r.c.ctx.addTopic(TopicRead{Name: name, Exists: true, Czxid: int64(len(r.c.ctx.topics) + 1), ID: cluster.TopicID{1, byte(len(r.c.ctx.topics))},
		Partitions: []PartitionAssignment{{0, cluster.ReplicaAssignment{Replicas: replicas}}}})
	t.partitions[0].leadership = l
	return t.partitions[0]
}

// queue marks a partition's topic as queued for deletion.
func (r *rig) queue(p *partitionContext) {
	p.topic.deletion = &topicDeletion{name: p.Topic, topic: p.topic}
	r.c.ctx.deletions[p.Topic] = p.topic.deletion
}

func ids(list ...cluster.BrokerID) []cluster.BrokerID { return list }

// effectsOf returns the effects of one type.
func effectsOf[T Effect](r *rig) []T {
	var out []T
	for _, e := range r.effects {
		if e, ok := e.(T); ok {
			out = append(out, e)
		}
	}
	return out
}
