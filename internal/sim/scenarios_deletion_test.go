package sim

import (
	"fmt"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// deletions are scenarios about topics that are deleted, and brokers and disks that fail meanwhile.
func deletions() []scenario {
	four := Options{Brokers: 4}
	wait := Options{Brokers: 4, OfflineReplicas: controller.OfflineReplicasWait}
	twoTopics := inTurn(creates("a", brokers(2, 4), brokers(4, 3)), creates("b", brokers(4)), creates("keep", brokers(1, 2, 3)))
	return []scenario{
		{name: "topics are deleted", before: all(creates("a", brokers(1, 2), brokers(2, 3)), creates("b", brokers(3, 1, 2)), creates("keep", brokers(1, 2, 3))),
			acts: does(deletes("a", "b")), expect: isThere("keep")},
		{name: "a topic is deleted while others are created", before: creates("a", brokers(1, 2)), acts: does(all(deletes("a"), half(7), creates("b", brokers(2, 3))))},
		{name: "topics are deleted one while the other is being deleted", before: all(creates("a", brokers(1, 2)), creates("b", brokers(2, 3))),
			acts: does(all(deletes("a"), half(7), deletes("b")))},
		{name: "a topic is deleted by a marker without an id, as Kafka's tools write it", before: creates("a", brokers(1, 2)),
			acts: does(func(w *World) { w.DeleteTopic("a", false) })},
		{name: "a topic without an id is deleted", before: func(w *World) {
			w.createNode("a", cluster.TopicID{}, [][]cluster.BrokerID{brokers(1, 2), brokers(3)})
		}, acts: does(deletes("a"))},
		{name: "a topic is deleted while a broker is dead; the deletion ends without it", opts: four, before: inTurn(twoTopics, dies(4)), acts: does(deletes("a", "b")),
			expect: nothingLeft},
		{name: "a topic is deleted while a broker is dead; the broker returns in the middle", opts: four, before: inTurn(twoTopics, dies(4)),
			acts: does(all(deletes("a", "b"), half(30), starts(4))), expect: nothingLeft},
		{name: "a topic is deleted while a broker is dead; the deletion waits for it", opts: wait, before: inTurn(twoTopics, dies(4)), acts: does(deletes("a", "b"), starts(4))},
		{name: "a topic is deleted while a broker is dead, with patience that ends", opts: Options{Brokers: 4, OfflineReplicas: controller.OfflineReplicasWait, OfflineReplicaTimeoutMs: 500},
			before: inTurn(twoTopics, dies(4)), acts: does(deletes("a", "b"), starts(4)), expect: nothingLeft},
		{name: "a topic is deleted while a Kafka broker is dead; the deletion waits for it", opts: Options{Brokers: 4, Kafka: brokers(4)}, before: inTurn(twoTopics, dies(4)),
			acts: does(deletes("a", "b"), starts(4))},
		{name: "a topic without an id waits for its dead broker", opts: four, before: inTurn(func(w *World) {
			w.createNode("a", cluster.TopicID{}, [][]cluster.BrokerID{brokers(2, 4)})
		}, dies(4)), acts: does(deletes("a"), starts(4))},
		{name: "a broker dies in the middle of a deletion", opts: four, before: twoTopics, acts: does(all(deletes("a", "b"), half(14), dies(4)))},
		{name: "a broker dies in the middle of a deletion, which waits for it", opts: wait, before: twoTopics, acts: does(all(deletes("a", "b"), half(14), dies(4)), starts(4))},
		{name: "a broker bounces in the middle of a deletion", opts: four, before: twoTopics, acts: does(all(deletes("a", "b"), half(12), bounces(4)))},
		{name: "a topic without a leader is deleted", opts: four, before: inTurn(dies(4), creates("a", brokers(4))), acts: does(deletes("a"), starts(4))},
		{name: "a topic is deleted with a replica in a failed log dir", opts: four, before: inTurn(twoTopics, fails(4, 0), fails(2, 1)), acts: does(deletes("a", "b"), repairs(4, 2))},
		{name: "a log dir fails in the middle of a deletion", opts: four, before: twoTopics, acts: does(all(deletes("a", "b"), half(10), fails(4, 0)), repairs(4))},
		{name: "a broker refuses to delete its replicas for a while", opts: four, before: twoTopics, acts: does(
			all(func(w *World) { w.FailDeletions(100) }, deletes("a", "b")), func(w *World) { w.FailDeletions(0) })},
		{name: "the store refuses for a while what the end of a deletion writes", opts: four, before: inTurn(twoTopics, dies(4)), acts: does(
			all(deletes("a", "b"), half(25), func(w *World) { w.RefuseItems(100) }), func(w *World) { w.RefuseItems(0) }, starts(4)), expect: nothingLeft},
		{name: "the store refuses half of all single writes for a while", opts: four, before: twoTopics, acts: does(
			all(func(w *World) { w.RefuseItems(50) }, deletes("a"), creates("c", brokers(2, 4)), reassigns("b", 0, 3)), func(w *World) { w.RefuseItems(0) }, catchesUp)},
		{name: "markers of topics that do not exist are removed", acts: does(func(w *World) { w.MarkForIncarnation("ghost", cluster.TopicID{1}) }), expect: noMarkers},
		{name: "a marker of an earlier incarnation spares the topic of now", before: creates("a", brokers(1, 2)),
			acts: does(func(w *World) { w.MarkForIncarnation("a", cluster.TopicID{0: 0xff}) }), expect: isThere("a")},
		{name: "markers are removed where deletion is disabled", opts: Options{DeletionDisabled: true}, before: creates("a", brokers(1, 2)),
			acts: does(func(w *World) { w.markOnly("a") }), expect: isThere("a")},
		{name: "deletion is switched off in the middle of a deletion, and on again", opts: four, before: all(creates("a", brokers(1, 2), brokers(4)), creates("keep", brokers(1, 2))),
			acts:  does(all(deletes("a"), half(8), switchesDeletion(false)), func(w *World) { w.markOnly("keep") }, switchesDeletion(true)),
			after: all(switchesDeletion(true), deletes("a")), expect: isThere("keep")},
		{name: "a frozen broker forgets a topic that was deleted meanwhile", opts: four, before: twoTopics, acts: does(
			func(w *World) { w.suspend(4) }, deletes("a", "b"), func(w *World) { w.wakeUp(4) })},
	}
}

// deletionsMeet are scenarios about deletions that meet other things which happen to the same topic.
func deletionsMeet() []scenario {
	four := Options{Brokers: 4}
	topic := creates("a", brokers(1, 2), brokers(2, 3))
	return []scenario{
		{name: "a topic is deleted that is being reassigned", opts: four, before: inTurn(topic, reassigns("a", 0, 2, 4)), acts: does(deletes("a"))},
		{name: "a reassignment is asked for in the middle of a deletion", opts: four, before: topic, acts: does(all(deletes("a"), half(6), reassigns("a", 0, 2, 4)))},
		{name: "a topic is deleted that old tools reassign", opts: four, before: inTurn(topic, creates("b", brokers(1))), acts: does(all(func(w *World) {
			w.RequestReassignment(controller.ReassignmentTarget{TopicPartition: partition("a", 0), Replicas: brokers(3, 4)},
				controller.ReassignmentTarget{TopicPartition: partition("b", 0), Replicas: brokers(4)})
		}, half(4), deletes("a")), catchesUp), after: reassigns("b", 0, 4), expect: isOn("b", 0, 4)},
		{name: "a topic is deleted whose reassignment has removed a replica from a dead broker", opts: four, before: inTurn(
			creates("a", brokers(2, 4)), dies(4), reassigns("a", 0, 2, 3), catchesUp), acts: does(deletes("a"), starts(4))},
		{name: "partitions are added to a topic that is being deleted", before: topic, acts: does(all(deletes("a"), half(5), adds("a", 3, 1)))},
		{name: "partitions are added to a topic whose deletion waits", opts: Options{Brokers: 4, OfflineReplicas: controller.OfflineReplicasWait},
			before: inTurn(creates("a", brokers(1, 4)), dies(4)), acts: does(deletes("a"), adds("a", 3, 1), starts(4))},
		{name: "a topic is deleted while its partitions are being created", before: topic, acts: does(all(adds("a", 3, 1), half(4), deletes("a")))},
		{name: "a topic is deleted while it is being created", acts: does(all(topic, half(6), deletes("a")))},
		{name: "a name is used again at once", before: topic, acts: does(deletes("a"), creates("a", brokers(3, 1))), after: creates("a", brokers(3, 1)), expect: isThere("a")},
		{name: "a name is used again while the old topic's broker is dead", opts: four, before: inTurn(creates("a", brokers(2, 4)), dies(4)),
			acts: does(deletes("a"), creates("a", brokers(4, 2), brokers(3, 4)), starts(4)), after: creates("a", brokers(4, 2)), expect: isThere("a")},
		{name: "a name is used again three times", before: topic, acts: does(deletes("a"), creates("a", brokers(2)), deletes("a"), creates("a", brokers(3, 2, 1)), deletes("a"))},
		{name: "a topic is removed from the store by hand", before: topic, acts: does(removesByHand("a"))},
		{name: "a topic is removed from the store by hand and created again at once", before: topic, acts: does(all(removesByHand("a"), createsByHand("a", brokers(3, 2)))), expect: isThere("a")},
		{name: "a topic is removed from the store by hand while it is being deleted", before: topic, acts: does(all(deletes("a"), half(8), removesByHand("a")))},
		{name: "a topic is replaced by hand while it is being deleted", before: topic, acts: does(all(deletes("a"), half(8), removesByHand("a"), createsByHand("a", brokers(3)))), expect: isThere("a")},
		{name: "state nodes of a topic that is being deleted are removed by hand", before: topic, acts: does(all(func(w *World) {
			delete(w.store.topics["a"].states, 0)
		}, deletes("a")))},
		{name: "elections are asked for of a topic that is being deleted", before: topic, acts: does(all(deletes("a"), half(5), func(w *World) {
			w.RequestPreferredElection(partition("a", 0), partition("a", 1))
		}, elects(controller.PreferredElection, partition("a", 0))))},
		{name: "a broker leaves in order in the middle of a deletion", opts: four, before: creates("a", brokers(4, 2), brokers(1, 4)), acts: does(all(deletes("a"), half(6), stopsInOrder(4)), starts(4))},
		{name: "a broker returns with the disks from before a deletion", opts: four, before: creates("a", brokers(2, 4)), acts: does(func(w *World) {
			disk := w.CopyDisk(4)
			deletes("a")(w)
			w.SettleFor(settleMs)
			w.CreateTopic("a", brokers(4, 2), brokers(3, 4))
			w.SettleFor(settleMs)
			dies(4)(w)
			w.SettleFor(settleMs)
			w.RestoreDisk(4, disk)
			starts(4)(w)
		}), after: creates("a", brokers(4, 2))},
		{name: "a broker loses its disks in the middle of a deletion", opts: four, before: creates("a", brokers(2, 4), brokers(4)), acts: does(all(deletes("a"), half(9), dies(4), losesDisk(4)), starts(4))},
	}
}

func nothingLeft(w *World) string {
	for id, records := range w.store.leftovers {
		if len(records) > 0 {
			return fmt.Sprintf("records are left of what broker %d has to remove", id)
		}
	}
	return ""
}

func noMarkers(w *World) string {
	if len(w.store.markers) > 0 {
		return "markers are left"
	}
	return ""
}

// markOnly writes a marker that is not to be obeyed.
func (w *World) markOnly(name string) { w.store.createMarker(name, cluster.TopicID{}) }

func switchesDeletion(on bool) func(w *World) {
	return func(w *World) { w.SwitchDeletion(on) }
}

func removesByHand(name string) func(w *World) {
	return func(w *World) {
		if w.store.topics[name] != nil {
			w.RemoveByHand(name)
		}
	}
}

func createsByHand(name string, assignment ...[]cluster.BrokerID) func(w *World) {
	return func(w *World) { w.CreateByHand(name, assignment...) }
}

func fails(id cluster.BrokerID, dir int) func(w *World) {
	return func(w *World) {
		if w.nodes[id].up {
			w.FailDir(id, dir)
		}
	}
}

// repairs starts brokers again with working disks.
func repairs(ids ...cluster.BrokerID) func(w *World) {
	return func(w *World) {
		for _, id := range ids {
			dies(id)(w)
			w.RepairDirs(id)
			w.Start(id)
		}
	}
}

func losesDisk(id cluster.BrokerID) func(w *World) {
	return func(w *World) {
		if !w.nodes[id].up {
			w.LoseDisk(id)
		}
	}
}

func (w *World) suspend(id cluster.BrokerID) {
	if n := w.nodes[id]; n.up && n.session != 0 && !n.frozen {
		w.Pause(id)
	}
}

// wakeUp lets a suspended broker go on, which notices only later that its session has expired.
func (w *World) wakeUp(id cluster.BrokerID) {
	n := w.nodes[id]
	if !n.up || !n.paused {
		return
	}
	w.Resume(id)
	w.SettleFor(settleMs)
	if n.up && n.frozen {
		w.NoticeExpiry(id)
	}
}

// stopsInOrder has a broker ask for a controlled shutdown until nothing remains, and stop.
func stopsInOrder(id cluster.BrokerID) func(w *World) {
	return func(w *World) {
		for range 4 {
			if !w.nodes[id].up {
				return
			}
			w.nodes[id].stopping = true
			v := w.Request(id, func(token controller.ReplyToken, epoch cluster.BrokerEpoch) controller.Event {
				return controller.ControlledShutdown{Reply: token, Broker: id, BrokerEpoch: epoch}
			})
			w.SettleFor(settleMs)
			if r, ok := v.(controller.ControlledShutdownResult); ok && r.Err == cluster.None && len(r.Remaining) == 0 {
				break
			}
		}
		if w.nodes[id].up {
			w.Shutdown(id)
		}
	}
}

func isr(tp cluster.TopicPartition, ids ...cluster.BrokerID) func(w *World) {
	return func(w *World) { w.ProposeISR(tp, ids...) }
}
