// Package controller is the heart of klamm: the control plane of Kafka's ZooKeeper mode as a pure, deterministic core.
//
// A Core takes one event at a time and answers with effects: values that say what to read and write in the coordination
// store, what to send to which broker, which watches and timers to keep, which requests to answer. It does no IO, has no
// clock and no randomness of its own, and walks its state in sorted order wherever order reaches an effect: the same events
// give the same effects. The package controller/driver carries effects out and turns the world into events.
//
// Kafka's semantics are kept: one event is finished before the next begins. A handler that needs the store ends its Step
// with a Store effect and goes on, inside the core, when the StoreResult is fed. Each gap between two effects is
// a place where a controller may die, and the tests let it die in every one.
//
// Orientation, Kafka's names to files: KafkaController event loop core.go, event.go, effect.go; election and failover
// failover.go; ControllerContext context.go; PartitionStateMachine partition_state_machine.go; ReplicaStateMachine
// replica_state_machine.go; PartitionLeaderElectionAlgorithms election.go; ControllerBrokerRequestBatch request_batch.go;
// TopicDeletionManager topic_deletion_manager.go; DeletionClient deletion_client.go.
package controller

import "klamm/internal/cluster"

// Config is what the core must know about its broker. The zero value of every number means its default.
type Config struct {
	Broker cluster.BrokerID
	// DeleteTopicEnable is delete.topic.enable.
	DeleteTopicEnable bool
	// UncleanLeaderElectionEnable is the broker default of unclean.leader.election.enable at start; the event of the
	// same name changes it.
	UncleanLeaderElectionEnable bool
	// UseTopicIDs gives ids to topics that have none (inter.broker.protocol.version >= 2.8-IV0).
	UseTopicIDs bool
	// UseLeaderRecoveryState marks uncleanly elected leaders RECOVERING (inter.broker.protocol.version >= 3.2-IV0).
	UseLeaderRecoveryState bool
	// NewTopicID makes ids for topics without one; required when UseTopicIDs is set.
	NewTopicID func() cluster.TopicID

	// RetryBackoffMs is the first pause before a failed store operation, deletion or election is tried again; pauses
	// double up to RetryBackoffMaxMs. Defaults 100 and 30000.
	RetryBackoffMs    int64
	RetryBackoffMaxMs int64
	// StoreBatchMax bounds the items of one Store effect. Default 10000.
	StoreBatchMax int
}
