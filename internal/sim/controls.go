package sim

import (
	"fmt"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// This file is what scripts and scenarios steer a world with.

// Active returns the node whose controller is in office; nil when none is.
func (w *World) Active() *Node {
	var active *Node
	for _, n := range w.Nodes() {
		if n.up && n.core.IsActive() && (active == nil || n.core.Epoch() > active.core.Epoch()) {
			active = n
		}
	}
	return active
}

// ID returns the node's broker id.
func (n *Node) ID() cluster.BrokerID { return n.id }

// Core returns the node's controller, for looking at.
func (n *Node) Core() *controller.Core { return n.core }

// Bounce lets the session of a running broker expire; it registers anew.
func (w *World) Bounce(id cluster.BrokerID) {
	w.tracef(nil, "session of broker %d expires", id)
	w.nodes[id].expire()
}

// Pause stops a process and lets its session expire: a long garbage collection, a suspended machine.
func (w *World) Pause(id cluster.BrokerID) {
	w.tracef(nil, "broker %d is suspended and its session expires", id)
	n := w.nodes[id]
	w.store.expire(n.session)
	n.frozen, n.paused = true, true
}

// Resume lets a paused process go on; it does not know what it missed until NoticeExpiry.
func (w *World) Resume(id cluster.BrokerID) {
	w.tracef(nil, "broker %d goes on", id)
	w.nodes[id].paused = false
}

// NoticeExpiry tells a process that its session has expired.
func (w *World) NoticeExpiry(id cluster.BrokerID) { w.Bounce(id) }

// FailDir breaks one of the two log dirs of a broker until it is healed.
func (w *World) FailDir(id cluster.BrokerID, dir int) {
	w.tracef(nil, "log dir %d of broker %d fails", dir, id)
	w.nodes[id].failDir(dir)
}

// RepairDirs makes the log dirs of a broker that is down usable again.
func (w *World) RepairDirs(id cluster.BrokerID) { w.nodes[id].badDirs = [2]bool{} }

// FailDeletions makes brokers answer a part of their replica deletions, in per cent, with KAFKA_STORAGE_ERROR.
func (w *World) FailDeletions(percent int) { w.faults.deleteFails = percent }

// RefuseItems makes the store refuse a part of the single items of writes, in per cent.
func (w *World) RefuseItems(percent int) { w.faults.itemFails = percent }

// FaultNext makes the next store operation whose name contains the text fail: "unavailable", "lost-before",
// "lost-after" or "lost-middle".
func (w *World) FaultNext(op, fault string) { w.planned = &plannedFault{op, faultNames[fault]} }

// RefuseNext has a broker answer the next request whose text contains the given one with UNKNOWN_SERVER_ERROR, and not apply it: for its
// controller it is done, and lost.
func (w *World) RefuseNext(request string) { w.refused = request }

func (w *World) refuses(req controller.Effect) bool {
	if w.refused == "" || !strings.Contains(FormatEffect(req), w.refused) {
		return false
	}
	w.tracef(nil, "is refused: %s", FormatEffect(req))
	w.refused = ""
	return true
}

// refusal is the answer to a refused request.
func refusal(req controller.Effect) controller.Event {
	const code = cluster.UnknownServerError
	switch req := req.(type) {
	case controller.SendLeaderAndISR:
		return controller.LeaderAndISRReply{Request: req, Err: code}
	case controller.SendUpdateMetadata:
		return controller.UpdateMetadataReply{Request: req, Err: code}
	case controller.SendStopReplica:
		return controller.StopReplicaReply{Request: req, Err: code}
	}
	panic("sim: not a request")
}

type plannedFault struct {
	op string
	f  fault
}

var faultNames = map[string]fault{"unavailable": unavailable, "lost-before": lostBefore, "lost-after": lostAfter, "lost-middle": lostMiddle}

// Ask sends a request of a broker to the active controller. The event's Reply is set.
func (w *World) Ask(make func(controller.ReplyToken, cluster.BrokerEpoch) controller.Event, from cluster.BrokerID) {
	ev := make(w.nextToken(), w.nodes[from].epoch)
	if a, ok := ev.(controller.AlterPartition); ok {
		w.claim(a)
	}
	w.ask(w.Active(), ev)
}

// Feed puts an event into the active controller's queue.
func (w *World) Feed(ev controller.Event) { w.Active().enqueue(ev) }

// RunUntil settles, but stops when the next thing that any controller does is an effect whose text contains the given one; it
// reports whether it got there.
func (w *World) RunUntil(effect string) bool {
	hit := false
	w.SettleUntil(func() bool {
		for _, n := range w.Nodes() {
			if n.up && len(n.effects) > 0 && strings.Contains(FormatEffect(n.effects[0]), effect) {
				hit = true
			}
		}
		return hit
	})
	return hit
}

// Step carries out the next effect, or feeds the next event, of the active controller.
func (w *World) Step() { w.Active().step() }

// RequestPreferredElection writes /admin/preferred_replica_election, as old tools do; false when it is there already.
func (w *World) RequestPreferredElection(tps ...cluster.TopicPartition) bool {
	if w.store.preferred != nil {
		return false
	}
	w.tracef(nil, "preferred elections are asked for of %v", tps)
	w.store.preferred = append([]cluster.TopicPartition{}, tps...)
	w.store.preferredVersion = 0
	w.store.fire(controller.Watched{Kind: controller.WatchPreferredElection})
	return true
}

// BalanceLeaders lets the timer of the leader balancer run out.
func (w *World) BalanceLeaders() {
	if n := w.Active(); n != nil && n.timers[controller.TimerLeaderBalance] != 0 {
		n.fireTimer(controller.TimerLeaderBalance)
	}
}

// Leader returns the leader of a partition by the store.
func (w *World) Leader(tp cluster.TopicPartition) cluster.BrokerID {
	if t := w.store.topics[tp.Topic]; t != nil {
		if s, ok := t.states[tp.Partition]; ok {
			return s.Leader
		}
	}
	return cluster.NoBroker
}

// UseTopicIDs sets whether the inter-broker protocol has topic ids, for every process that starts from now on.
func (w *World) UseTopicIDs(on bool) { w.opts.NoTopicIDs = !on }

// CreateWithoutID creates a topic as brokers of an inter-broker protocol below 2.8-IV0 do.
func (w *World) CreateWithoutID(name string, assignment ...[]cluster.BrokerID) {
	w.createNode(name, cluster.TopicID{}, assignment)
}

// TopicID returns the id of a topic by the store.
func (w *World) TopicID(name string) cluster.TopicID {
	if t := w.store.topics[name]; t != nil {
		return t.id
	}
	return cluster.TopicID{}
}

// SetUnclean sets the topic's unclean.leader.election.enable.
func (w *World) SetUnclean(topic string, on bool) {
	w.checks.uncleanTopics[topic] = w.checks.uncleanTopics[topic] || on
	w.store.configs[topic] = &on
}

// MarkForIncarnation creates a deletion marker with the id of an incarnation, as a slow request does that looked the topic
// up long ago.
func (w *World) MarkForIncarnation(name string, id cluster.TopicID) {
	w.tracef(nil, "topic %s is marked for deletion by a late request", name)
	w.store.createMarker(name, id)
}

// Request asks the controller in office and lets the cluster run until it has answered; a request that dies with its
// controller, or is answered with NOT_CONTROLLER, is asked again, as clients do. It returns nil when nobody answers.
func (w *World) Request(from cluster.BrokerID, make func(controller.ReplyToken, cluster.BrokerEpoch) controller.Event) controller.ReplyValue {
	for range 10 {
		n := w.Active()
		if n == nil || !w.nodes[from].up {
			return nil
		}
		token := w.nextToken()
		w.ask(n, make(token, w.nodes[from].epoch))
		w.SettleUntil(func() bool {
			_, open := w.requests[token]
			return !open
		})
		switch v := w.replies[token].(type) {
		case controller.ControlledShutdownResult:
			if v.Err != cluster.StaleControllerEpoch {
				return v
			}
		case controller.ElectLeadersResult:
			if v.Err != cluster.NotController {
				return v
			}
		case controller.AlterPartitionReassignmentsResult:
			if v.Err != cluster.NotController {
				return v
			}
		case controller.AllocateProducerIDsResult:
			if v.Err != cluster.NotController {
				return v
			}
		case controller.UpdateFeaturesResult:
			if v.Err != cluster.NotController {
				return v
			}
		case nil:
		default:
			return v
		}
		w.SettleFor(settleMs)
	}
	return nil
}

// Shutdown stops a broker in order: its controller gives up office, its session is closed.
func (w *World) Shutdown(id cluster.BrokerID) {
	w.tracef(nil, "broker %d stops", id)
	w.nodes[id].enqueue(controller.Shutdown{})
	w.SettleFor(settleMs)
}

// SwitchDeletion changes delete.topic.enable on all brokers, for good.
func (w *World) SwitchDeletion(on bool) {
	w.tracef(nil, "delete.topic.enable is %v", on)
	w.opts.DeletionDisabled = !on
	for _, n := range w.Nodes() {
		if n.up {
			n.enqueue(controller.TopicDeletionEnable{Enabled: on})
		}
	}
}

// ChangeRack gives the registration of a broker that runs another rack.
func (w *World) ChangeRack(id cluster.BrokerID, rack string) {
	if r, ok := w.store.brokers[id]; ok {
		r.Rack = rack
		w.store.brokers[id] = r
		w.store.fire(controller.Watched{Kind: controller.WatchBroker, Broker: id})
	}
}

// WriteISR has the leader of a partition write its ISR into the store itself and tell by a notification, as brokers of an inter-broker
// protocol below 2.7-IV2 do. It reports whether the leader could. (Leaders of a topic that was removed by hand do not meet the next of its name here:
// to that protocol they are one.)
func (w *World) WriteISR(tp cluster.TopicPartition, isr ...cluster.BrokerID) bool {
	t := w.store.topics[tp.Topic]
	if t == nil {
		return false
	}
	s, ok := t.states[tp.Partition]
	n := w.nodes[s.Leader]
	if !ok || n == nil || !n.up || n.frozen || n.hosted[tp] == nil || n.hosted[tp].id != t.id || n.hosted[tp].state.PartitionEpoch != s.PartitionEpoch {
		return false
	}
	s = s.Clone()
	s.ISR = isr
	s.PartitionEpoch++
	t.states[tp.Partition] = s
	n.hosted[tp].state = s.Clone()
	w.tracef(n, "writes the ISR of %s itself: %v", tp, isr)
	w.store.fire(controller.Watched{Kind: controller.WatchPartition, Topic: tp.Topic, Partition: tp.Partition})
	n.untold = append(n.untold, tp)
	if !n.writesISR || w.rng.IntN(3) > 0 {
		n.tellISRs()
	}
	return true
}

// WriteStateByHand gives a partition another ISR in the store, outside of any protocol: neither its leader nor the controller is told.
func (w *World) WriteStateByHand(tp cluster.TopicPartition, isr ...cluster.BrokerID) {
	t := w.store.topics[tp.Topic]
	if t == nil {
		return
	}
	s := t.states[tp.Partition].Clone()
	s.ISR = isr
	s.PartitionEpoch++
	t.states[tp.Partition] = s
	w.tracef(nil, "the state of %s is written by hand: {%s}", tp, s)
}

// tellISRs leaves the controller a note of the ISRs that the broker has written since the last one.
func (n *Node) tellISRs() {
	if len(n.untold) == 0 {
		return
	}
	w := n.w
	w.store.zxid++
	name := fmt.Sprintf("isr_change_%010d", w.store.zxid)
	w.tracef(n, "tells of its ISRs: %v", n.untold)
	w.store.isrChanges[name] = controller.ISRChange{Name: name, Partitions: n.untold}
	n.untold = nil
	w.store.fire(controller.Watched{Kind: controller.WatchISRChanges})
}

// tellISRs has every leader tell what it has not told yet, as brokers do after a while.
func (w *World) tellISRs() {
	for _, n := range w.sorted {
		if n.up && !n.frozen {
			n.tellISRs()
		}
	}
}

// settleMs is how long the cluster may take to settle, in simulated time, where something may be tried again for ever.
const settleMs controller.Time = 60_000
