package sim

import "klamm/internal/cluster"

// creations are scenarios about topics and partitions that begin.
func creations() []scenario {
	four := Options{Brokers: 4}
	return []scenario{
		{name: "topics are created", acts: does(all(creates("a", brokers(1, 2), brokers(2, 3)), creates("b", brokers(3, 1, 2))))},
		{name: "topics are created one after the other", acts: does(creates("a", brokers(1)), creates("b", brokers(2, 1)))},
		{name: "a topic is created with a replica on a dead broker", opts: four, before: dies(4), acts: does(creates("a", brokers(4, 2), brokers(1, 4)))},
		{name: "a topic is created with replicas on dead brokers only", opts: four, before: dies(4), acts: does(creates("a", brokers(4)), starts(4))},
		{name: "a topic is created while one of its brokers dies", opts: four, acts: does(all(creates("a", brokers(4, 2), brokers(4)), half(9), dies(4)), starts(4))},
		{name: "a topic is created without an id, as old brokers do", acts: does(func(w *World) {
			w.createNode("a", cluster.TopicID{}, [][]cluster.BrokerID{brokers(1, 2), brokers(3)})
		})},
		{name: "partitions are added", before: creates("a", brokers(1, 2)), acts: does(adds("a", 2, 3), adds("a", 3, 1))},
		{name: "partitions are added while the topic is being created", acts: does(all(creates("a", brokers(1, 2)), half(5), adds("a", 2, 3)))},
		{name: "a partition is added on a dead broker, which returns", opts: four, before: inTurn(creates("a", brokers(1, 2)), dies(4)),
			acts: does(adds("a", 4), starts(4))},
		{name: "a topic is created by a broker that starts for the first time", opts: four, before: dies(4), acts: does(all(starts(4), creates("a", brokers(4, 1))))},
	}
}

func adds(topic string, replicas ...cluster.BrokerID) func(w *World) {
	return func(w *World) {
		if w.store.topics[topic] != nil {
			w.AddPartition(topic, replicas)
		}
	}
}
