package sim

import (
	"fmt"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// brokerLives are scenarios about brokers and their disks.
func brokerLives() []scenario {
	four := Options{Brokers: 4}
	topics := inTurn(creates("a", brokers(4, 2), brokers(1, 4)), creates("b", brokers(4)))
	return []scenario{
		{name: "a broker dies and returns", opts: four, before: topics, acts: does(dies(4), starts(4))},
		{name: "a broker dies and returns before its session has expired", opts: four, before: topics, acts: does(func(w *World) {
			if w.nodes[4].up {
				w.Kill(4)
			}
			w.Start(4)
		})},
		{name: "a broker's session expires", opts: four, before: topics, acts: does(bounces(4))},
		{name: "a broker's session expires twice", opts: four, before: topics, acts: does(all(bounces(4), half(3), bounces(4)))},
		{name: "two brokers die at once", opts: four, before: topics, acts: does(all(dies(3), dies(4)), all(starts(3), starts(4)))},
		{name: "a broker starts for the first time", opts: four, before: inTurn(dies(4), creates("a", brokers(1, 2))), acts: does(starts(4))},
		{name: "a broker leaves in order", opts: four, before: topics, acts: does(stopsInOrder(4), starts(4))},
		{name: "the controller leaves in order", opts: four, before: creates("a", brokers(1, 2), brokers(3, 1)), acts: does(stopsInOrder(1), starts(1))},
		{name: "two brokers leave in order at once", opts: four, before: creates("a", brokers(3, 4, 1), brokers(4, 3)), acts: does(all(stopsInOrder(3), stopsInOrder(4)))},
		{name: "a broker that leaves in order dies before it has", opts: four, before: topics, acts: does(func(w *World) {
			if n := w.nodes[4]; n.up && w.Active() != nil {
				n.stopping = true
				w.Ask(func(token controller.ReplyToken, epoch cluster.BrokerEpoch) controller.Event {
					return controller.ControlledShutdown{Reply: token, Broker: 4, BrokerEpoch: epoch}
				}, 4)
				half(4)(w)
				dies(4)(w)
			}
		})},
		{name: "a log dir fails and is replaced", opts: four, before: topics, acts: does(fails(4, 0), repairs(4))},
		{name: "log dirs of two brokers fail at once", opts: four, before: topics, acts: does(all(fails(4, 1), fails(2, 0)), repairs(4, 2))},
		{name: "a broker returns with empty disks", opts: four, before: topics, acts: does(dies(4), losesDisk(4), starts(4))},
		{name: "a broker's rack changes", opts: four, before: topics, acts: does(func(w *World) { w.ChangeRack(4, "west") })},
		{name: "an ISR shrinks and grows by request", opts: four, before: creates("a", brokers(2, 3, 4)), acts: does(
			isr(partition("a", 0), 2), isr(partition("a", 0), 2, 3), isr(partition("a", 0), 2, 3, 4))},
		{name: "an ISR shrinks and grows by leaders that write it themselves", opts: four, before: creates("a", brokers(2, 3, 4)), acts: does(
			func(w *World) { w.WriteISR(partition("a", 0), 2) }, func(w *World) { w.WriteISR(partition("a", 0), 2, 3, 4) })},
		{name: "a leader changes its ISR while a follower dies", opts: four, before: creates("a", brokers(2, 3, 4)), acts: does(all(isr(partition("a", 0), 2, 3), dies(3)))},
		{name: "a frozen broker goes on with what it knew", opts: four, before: topics, acts: does(func(w *World) { w.suspend(4) }, creates("c", brokers(1, 2)), func(w *World) { w.wakeUp(4) })},
	}
}

// controllerLives are scenarios about the controller itself.
func controllerLives() []scenario {
	four := Options{Brokers: 4}
	topics := inTurn(creates("a", brokers(1, 2), brokers(2, 3)), creates("b", brokers(4, 1)))
	return []scenario{
		{name: "the controller dies", opts: four, before: topics, acts: does(dies(1), starts(1))},
		{name: "the controller stops in order", opts: four, before: topics, acts: does(func(w *World) { w.Shutdown(1) }, starts(1))},
		{name: "the controller's session expires", opts: four, before: topics, acts: does(bounces(1))},
		{name: "the controller is frozen and goes on in the middle of a deletion", opts: four, before: topics, acts: does(
			all(deletes("a"), half(8), func(w *World) { w.suspend(1) }), func(w *World) { w.wakeUp(1) })},
		{name: "the controller is frozen and goes on in the middle of a reassignment", opts: four, before: topics, acts: does(
			all(reassigns("a", 0, 3, 4), half(3), func(w *World) { w.suspend(1) }), func(w *World) { w.wakeUp(1) }, catchesUp)},
		{name: "two controllers believe to be in office", opts: four, before: topics, acts: does(all(func(w *World) {
			if n := w.nodes[1]; n.up && n.session != 0 && !n.frozen {
				w.store.expire(n.session)
				n.frozen = true
			}
		}, deletes("a"), creates("c", brokers(2, 3))))},
		{name: "all brokers die and return", opts: four, before: topics, acts: does(all(dies(1), dies(2), dies(3), dies(4)), (*World).StartAll)},
		{name: "all sessions expire at once", opts: four, before: topics, acts: does(all(bounces(1), bounces(2), bounces(3), bounces(4)))},
		{name: "producer ids are handed out", opts: four, acts: does(allocates(2), allocates(3), allocates(2))},
		{name: "a feature is finalized, raised and deleted", opts: four, acts: does(
			updatesFeature(1, controller.UpgradeFeature), updatesFeature(3, controller.UpgradeFeature), updatesFeature(0, controller.UnsafeDowngradeFeature)),
			after: updatesFeature(0, controller.UnsafeDowngradeFeature), expect: func(w *World) string { return isFinalized(w, 0) }},
		{name: "a broker without a finalized feature is left out until the feature is deleted", opts: Options{Brokers: 4, Behind: brokers(4)},
			before: inTurn(dies(4), creates("a", brokers(1, 2)), updatesFeature(2, controller.UpgradeFeature)),
			acts:   does(starts(4), updatesFeature(0, controller.UnsafeDowngradeFeature)),
			after:  updatesFeature(0, controller.UnsafeDowngradeFeature), expect: func(w *World) string { return isFinalized(w, 0) }},
		{name: "the store cannot be reached for a while", opts: four, before: topics, acts: does(all(func(w *World) { w.faults.storeUnavailable = 90 }, deletes("a"), half(30), func(w *World) {
			w.faults.storeUnavailable = 0
		}))},
		{name: "the first controller of a cluster takes office", opts: four, acts: does(func(w *World) {
			for _, n := range w.Nodes() {
				dies(n.id)(w)
			}
			w.store.epochExists, w.store.features = true, nil
			w.StartAll()
		}), expect: func(w *World) string {
			if w.store.features == nil {
				return "the finalized features are not set up"
			}
			return ""
		}},
	}
}

func updatesFeature(level int16, how controller.FeatureUpdateType) func(w *World) {
	return func(w *World) {
		w.Request(w.anyUp(), func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
			return controller.UpdateFeatures{Reply: token, Updates: []controller.FeatureUpdate{{Feature: "f", Level: level, Type: how}}}
		})
	}
}

func isFinalized(w *World, level int16) string {
	if got := w.store.features["f"]; got != level {
		return fmt.Sprintf("the feature is finalized at %d, not %d", got, level)
	}
	return ""
}

func allocates(id cluster.BrokerID) func(w *World) {
	return func(w *World) {
		w.Request(id, func(token controller.ReplyToken, epoch cluster.BrokerEpoch) controller.Event {
			return controller.AllocateProducerIDs{Reply: token, Broker: id, BrokerEpoch: epoch}
		})
	}
}
