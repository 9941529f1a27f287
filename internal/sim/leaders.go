package sim

import (
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// This file is what leaders do about their ISRs.

// proposal is an ISR that a leader has proposed and that is neither committed nor given up: it is asked for until it is, or a new
// leadership ends it (Kafka: PendingPartitionChange).
type proposal struct {
	req   controller.AlterPartitionPartition
	token controller.ReplyToken // of the request on its way; 0: none is, and the leader asks again some time
}

// ProposeISR has the leader of a partition propose an ISR, and lets the cluster run until it is the one of now or the leader waits for
// better days.
func (w *World) ProposeISR(tp cluster.TopicPartition, isr ...cluster.BrokerID) {
	for range 10 {
		leader := w.nodes[w.Leader(tp)]
		if leader == nil || !leader.up || !slices.Contains(isr, leader.id) {
			return
		}
		h := leader.hosted[tp]
		if h == nil || h.state.Leader != leader.id || h.proposed == nil && slices.Equal(h.state.ISR, isr) {
			return
		}
		if to := w.Active(); to != nil {
			w.propose(leader, to, tp, isr)
		}
		w.SettleUntil(func() bool { return h.proposed == nil || h.proposed.token == 0 })
		w.SettleFor(settleMs)
	}
}

// propose has a leader ask a controller for an ISR, or once more for the one that it has proposed before. It reports false while that
// is under way.
func (w *World) propose(leader, to *Node, tp cluster.TopicPartition, isr []cluster.BrokerID) bool {
	h := leader.hosted[tp]
	if h.proposed == nil {
		h.proposed = &proposal{req: controller.AlterPartitionPartition{
			Partition: tp.Partition, LeaderEpoch: h.state.LeaderEpoch, ISR: isr, BrokerEpochs: w.epochsAsTold(leader, isr), Recovery: cluster.Recovered,
			PartitionEpoch: h.state.PartitionEpoch,
		}}
	} else if h.proposed.token != 0 {
		return false
	}
	h.proposed.token = w.nextToken()
	ev := controller.AlterPartition{
		Reply: h.proposed.token, Broker: leader.id, BrokerEpoch: leader.epoch, Version: alterPartitionVersion(h.id),
		Topics: []controller.AlterPartitionTopic{{Name: tp.Topic, ID: h.id, Partitions: []controller.AlterPartitionPartition{h.proposed.req}}},
	}
	if w.chance(w.faults.breaks) {
		// Its connection breaks: it asks again on another, and what was on the first is read at any later time.
		w.inFlight = append(w.inFlight, flight{to: to.id, asked: &ev})
	}
	w.ask(to, ev)
	return true
}

// claim makes what a request says the proposal of the leader in whose name it is.
func (w *World) claim(req controller.AlterPartition) {
	t := req.Topics[0]
	for tp, h := range w.nodes[req.Broker].hosted {
		if (tp.Topic == t.Name || h.id == t.ID) && tp.Partition == t.Partitions[0].Partition {
			h.proposed = &proposal{t.Partitions[0], req.Reply}
		}
	}
}

// epochsAsTold are the registrations in which the leader has heard from the members of an ISR: its followers' fetches tell. Kafka's brokers do not
// pass that on.
func (w *World) epochsAsTold(leader *Node, isr []cluster.BrokerID) []cluster.BrokerEpoch {
	if leader.isKafka() {
		return nil
	}
	epochs := make([]cluster.BrokerEpoch, len(isr))
	for i, id := range isr {
		if epochs[i] = cluster.NoBrokerEpoch; id != leader.id && !w.nodes[id].isKafka() {
			epochs[i] = w.nodes[id].epoch
		}
	}
	return epochs
}

// proposedBy gives the partition whose proposal a request carries; nil when it is no longer one.
func (w *World) proposedBy(req controller.AlterPartition) *hosted {
	for _, h := range w.nodes[req.Broker].hosted {
		if h.proposed != nil && h.proposed.token == req.Reply {
			return h
		}
	}
	return nil
}

// proposalFailed: the controller that was asked is gone, and the connection with it.
func (w *World) proposalFailed(req controller.AlterPartition) {
	if h := w.proposedBy(req); h != nil {
		h.proposed.token = 0
	}
}

// proposalAnswered commits a proposal, gives it up, or leaves it to be asked for again.
func (w *World) proposalAnswered(req controller.AlterPartition, res controller.AlterPartitionResult) {
	h := w.proposedBy(req)
	if h == nil {
		return // the answer to a late copy, or to a leadership of the past
	}
	h.proposed.token = 0
	if res.Err != cluster.None {
		return
	}
	switch p := res.Topics[0].Partitions[0]; {
	case p.Err == cluster.OperationNotAttempted || p.Err == cluster.IneligibleReplica:
		h.proposed = nil
	case p.Err == cluster.None && p.State.LeaderEpoch == h.state.LeaderEpoch && p.State.PartitionEpoch >= h.state.PartitionEpoch:
		h.state, h.proposed = p.State.Clone(), nil
	}
}

// CatchUp lets every follower that has fallen out of its ISR catch up, until nothing changes any more: leaders ask for
// the ISR to grow, as brokers do by themselves.
func (w *World) CatchUp() {
	for range 20 {
		grown := w.Active() != nil && w.growISRs()
		w.tellISRs()
		if !grown || len(w.failures) > 0 {
			w.Settle()
			return
		}
		w.Settle()
	}
	w.failf("ISRs keep changing")
}

func (w *World) growISRs() (asked bool) {
	for _, name := range slices.Sorted(maps.Keys(w.store.topics)) {
		t := w.store.topics[name]
		for _, p := range slices.Sorted(maps.Keys(t.states)) {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if n := w.nodes[t.states[p].Leader]; n != nil && n.up && !n.frozen && w.growISR(n, tp) {
				asked = true
			}
		}
	}
	return asked
}

// growISR has the leader of a partition ask for an ISR of all replicas that live.
func (w *World) growISR(leader *Node, tp cluster.TopicPartition) bool {
	h := leader.hosted[tp]
	if h == nil || h.state.Leader != leader.id {
		return false
	}
	if h.proposed != nil {
		return w.propose(leader, w.Active(), tp, nil)
	}
	isr := slices.Clone(h.state.ISR)
	for _, id := range h.replicas {
		f := w.nodes[id]
		if f == nil || !f.up || f.frozen || f.stopping || slices.Contains(isr, id) || f.hosted[tp] == nil || f.hosted[tp].id != h.id {
			continue
		}
		isr = append(isr, id)
	}
	if len(isr) == len(h.state.ISR) {
		return false
	}
	if leader.writesISR {
		return w.WriteISR(tp, isr...)
	}
	return w.propose(leader, w.Active(), tp, isr)
}

// alterPartitionVersion is 1, by name, for a topic without an id.
func alterPartitionVersion(id cluster.TopicID) int16 {
	if id.IsZero() {
		return 1
	}
	return 3
}
