package sim

import (
	"fmt"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// elections are scenarios about who leads.
func elections() []scenario {
	four := Options{Brokers: 4}
	// moved: a and b have lost their first replica for a while and are led by the second.
	moved := inTurn(creates("a", brokers(4, 2)), creates("b", brokers(4, 3)), dies(4), starts(4), catchesUp)
	// lost: the ISR of a is broker 4 alone, which is dead.
	lost := inTurn(creates("a", brokers(4, 2)), isr(partition("a", 0), 4), dies(4))
	return []scenario{
		{name: "preferred leaders are elected by request", opts: four, before: moved, acts: does(elects(controller.PreferredElection, partition("a", 0), partition("b", 0), partition("none", 7)))},
		{name: "preferred leaders are elected by the node of old tools", opts: four, before: moved, acts: does(func(w *World) {
			w.RequestPreferredElection(partition("a", 0), partition("b", 0))
		})},
		{name: "the node of old tools names a partition that never had a leader", opts: four, before: inTurn(creates("a", brokers(2, 1)), dies(4), creates("b", brokers(4))), acts: does(func(w *World) {
			w.RequestPreferredElection(partition("a", 0), partition("b", 0), partition("none", 0))
		}, starts(4))},
		{name: "the preferred leader is dead", opts: four, before: inTurn(creates("a", brokers(4, 2)), dies(4)), acts: does(elects(controller.PreferredElection, partition("a", 0)), starts(4))},
		{name: "elections are asked for twice", opts: four, before: moved, acts: does(all(
			func(w *World) { w.RequestPreferredElection(partition("a", 0)) }, elects(controller.PreferredElection, partition("a", 0), partition("b", 0))))},
		{name: "an unclean leader is elected by request", opts: four, before: lost, acts: does(elects(controller.UncleanElection, partition("a", 0)), starts(4))},
		{name: "an unclean leader is elected when the topic allows it", opts: four, before: lost, acts: does(func(w *World) {
			w.SetUnclean("a", true)
			if w.Active() != nil {
				w.Feed(controller.TopicUncleanLeaderElectionEnable{Topic: "a"})
			}
		}, starts(4))},
		{name: "an unclean leader is elected when the brokers allow it", opts: four, before: lost, acts: does(func(w *World) {
			for _, n := range w.Nodes() {
				if n.up {
					n.enqueue(controller.UncleanLeaderElectionEnable{Enabled: true})
				}
			}
		}, starts(4))},
		{name: "a partition without an in-sync replica waits for it", opts: four, before: lost, acts: does(elects(controller.PreferredElection, partition("a", 0)), starts(4))},
		{name: "leaders are balanced", opts: Options{Brokers: 4, AutoRebalance: true}, before: moved, acts: does((*World).BalanceLeaders)},
		{name: "leaders are balanced while the topic is reassigned", opts: Options{Brokers: 4, AutoRebalance: true}, before: inTurn(moved, reassigns("a", 0, 1, 3)),
			acts: does((*World).BalanceLeaders, catchesUp), expect: isOn("a", 0, 1, 3)},
		{name: "leaders are balanced while another topic is reassigned", opts: Options{Brokers: 4, AutoRebalance: true}, before: inTurn(moved, creates("c", brokers(1, 2)), reassigns("c", 0, 3)),
			acts: does((*World).BalanceLeaders, catchesUp), expect: isOn("c", 0, 3)},
		{name: "a leader dies", opts: four, before: creates("a", brokers(4, 2), brokers(3, 4)), acts: does(dies(4), starts(4))},
		{name: "all replicas of a partition die one after the other", opts: four, before: creates("a", brokers(3, 4)), acts: does(dies(3), dies(4), starts(4), starts(3))},
		{name: "a leader misses LeaderAndIsr and proposes an ISR", opts: four, before: creates("a", brokers(2, 3, 4)), acts: does(
			all(func(w *World) { w.RefuseNext("LeaderAndIsr to 2") }, dies(4)), isr(partition("a", 0), 2, 3), starts(4), catchesUp), expect: isInSync("a", 0, 2, 3, 4)},
		{name: "a leader's state is written by somebody else, and it proposes an ISR", opts: four, before: creates("a", brokers(2, 3, 4)), acts: does(
			func(w *World) {
				tp := partition("a", 0)
				leader := w.Leader(tp)
				if leader == cluster.NoBroker {
					return
				}
				w.WriteStateByHand(tp, append(without(brokers(2, 3, 4), leader)[:1], leader)...)
				w.ProposeISR(tp, leader)
			}, catchesUp), expect: isInSync("a", 0, 2, 3, 4)},
	}
}

// isInSync: the ISR of a partition is all of these, in any order.
func isInSync(topic string, n int32, isr ...cluster.BrokerID) func(w *World) string {
	return func(w *World) string {
		if got := w.store.topics[topic].states[n].ISR; !slices.Equal(slices.Sorted(slices.Values(got)), isr) {
			return fmt.Sprintf("the ISR of %s-%d is %v, not %v", topic, n, got, isr)
		}
		return ""
	}
}

func without(ids []cluster.BrokerID, id cluster.BrokerID) []cluster.BrokerID {
	return slices.DeleteFunc(ids, func(other cluster.BrokerID) bool { return other == id })
}

// reassignments are scenarios about partitions that move.
func reassignments() []scenario {
	four := Options{Brokers: 4}
	topic := creates("a", brokers(1, 2), brokers(2, 3))
	return []scenario{
		{name: "a partition moves", opts: four, before: topic, acts: does(reassigns("a", 0, 3, 4), catchesUp), expect: isOn("a", 0, 3, 4)},
		{name: "a partition gets more replicas", opts: four, before: topic, acts: does(reassigns("a", 0, 1, 2, 3, 4), catchesUp), expect: isOn("a", 0, 1, 2, 3, 4)},
		{name: "a partition gets fewer replicas", opts: four, before: topic, acts: does(reassigns("a", 0, 2)), expect: isOn("a", 0, 2)},
		{name: "replicas change their order", opts: four, before: topic, acts: does(reassigns("a", 0, 2, 1)), expect: isOn("a", 0, 2, 1)},
		{name: "a reassignment is replaced", opts: four, before: topic, acts: does(reassigns("a", 0, 3, 4), reassigns("a", 0, 4, 2), catchesUp), expect: isOn("a", 0, 4, 2)},
		{name: "a reassignment is cancelled", opts: four, before: topic, acts: does(reassigns("a", 0, 3, 4), reassigns("a", 0)), expect: isOn("a", 0, 1, 2)},
		{name: "a reassignment's target dies and returns", opts: four, before: topic, acts: does(reassigns("a", 0, 1, 4), dies(4), starts(4), catchesUp), expect: isOn("a", 0, 1, 4)},
		{name: "a reassignment with a dead target is cancelled", opts: four, before: topic, acts: does(reassigns("a", 0, 1, 4), dies(4), reassigns("a", 0), starts(4)), expect: isOn("a", 0, 1, 2)},
		{name: "a reassignment removes a replica from a dead broker", opts: four, before: inTurn(creates("a", brokers(4, 2)), dies(4)),
			acts: does(reassigns("a", 0, 2, 3), catchesUp, starts(4)), expect: isOn("a", 0, 2, 3)},
		{name: "a reassignment's leader dies", opts: four, before: creates("a", brokers(4, 2)), acts: does(reassigns("a", 0, 3, 1), dies(4), catchesUp), expect: isOn("a", 0, 3, 1)},
		{name: "old tools reassign, with wishes that make no sense among them", opts: four, before: topic, acts: does(func(w *World) {
			w.RequestReassignment(
				controller.ReassignmentTarget{TopicPartition: partition("a", 0), Replicas: brokers(3, 4)},
				controller.ReassignmentTarget{TopicPartition: partition("a", 1), Replicas: brokers(2, 2)},
				controller.ReassignmentTarget{TopicPartition: partition("none", 0), Replicas: brokers(1)})
		}, catchesUp), after: reassigns("a", 0, 3, 4), expect: isOn("a", 0, 3, 4)},
		{name: "old tools reassign to a dead broker, which returns", opts: four, before: inTurn(topic, dies(4)), acts: does(func(w *World) {
			w.RequestReassignment(controller.ReassignmentTarget{TopicPartition: partition("a", 0), Replicas: brokers(1, 4)})
		}, starts(4), catchesUp), after: reassigns("a", 0, 1, 4), expect: isOn("a", 0, 1, 4)},
		{name: "a request takes over from old tools", opts: four, before: topic, acts: does(func(w *World) {
			w.RequestReassignment(controller.ReassignmentTarget{TopicPartition: partition("a", 0), Replicas: brokers(3, 4)})
		}, reassigns("a", 0, 2, 4), catchesUp), expect: isOn("a", 0, 2, 4)},
		{name: "several partitions move at once", opts: four, before: topic, acts: does(all(reassigns("a", 0, 4, 3), reassigns("a", 1, 4, 1)), catchesUp), expect: isOn("a", 1, 4, 1)},
		{name: "partitions are added during a reassignment", opts: four, before: topic, acts: does(all(reassigns("a", 0, 3, 4), adds("a", 1, 4)), catchesUp), expect: isOn("a", 0, 3, 4)},
		{name: "a reassignment's target has a failed log dir", opts: four, before: inTurn(topic, creates("b", brokers(4)), fails(4, 0), fails(4, 1)),
			acts: does(reassigns("a", 0, 1, 4), repairs(4), catchesUp), expect: isOn("a", 0, 1, 4)},
		{name: "reassignments are listed", opts: four, before: inTurn(topic, reassigns("a", 0, 3, 4)), acts: does(func(w *World) {
			w.Request(w.anyUp(), func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
				return controller.ListPartitionReassignments{Reply: token, All: true}
			})
		}, catchesUp), expect: isOn("a", 0, 3, 4)},
	}
}
