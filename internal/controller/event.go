package controller

import "klamm/internal/cluster"

// Time is a moment in milliseconds since the Unix epoch, as the driver's clock reads it. The core has no clock of its own.
type Time int64

// Event is something that happened outside the core. Events are plain values; the driver feeds them one at a time.
//
// A StoreResult answers the Store effect that the last Step ended with and must be fed before anything else.
// Every other event may be fed only while no Store effect is unanswered (Core.AwaitsStore is false).
type Event interface{ event() }

// Events of the controller's own life. They are handled whether or not this broker is the active controller.
type (
	// Startup is the first event: watch /controller and stand for election.
	Startup struct{}

	// ControllerChange says that /controller was created, changed or deleted: resign if another broker holds it,
	// stand for election if nobody does (Kafka: ControllerChange and Reelect).
	ControllerChange struct{}

	// Expire says that the session is gone. The core gives up office without any write.
	Expire struct{}

	// RegisterBrokerAndReelect says that a new session exists and that the broker has been registered under it.
	RegisterBrokerAndReelect struct{}

	// Shutdown gives up office for good: nothing but Shutdown-safe clean-up effects follow, and no election is tried again.
	// /controller itself goes with the session that the driver closes next.
	Shutdown struct{}

	// TimerFired says that a timer started by StartTimer has run out.
	TimerFired struct{ Timer TimerID }

	// StoreResult answers a Store effect.
	StoreResult struct {
		Token   Token
		Outcome Outcome
		// Err is the text of what went wrong, for explanations and logs; empty when Outcome is Applied.
		Err string
		// Value is the result type named in the operation's comment; nil unless Outcome is Applied.
		Value StoreValue
	}
)

// Events from watches. Several changes may be one event, and an event may come without a change.
type (
	// BrokerChange says that the set of registered brokers may have changed.
	BrokerChange struct{}

	// BrokerModifications says that the registration of one broker may have changed.
	BrokerModifications struct{ Broker cluster.BrokerID }

	// TopicChange says that the set of topic nodes may have changed.
	TopicChange struct{}

	// PartitionModifications says that a topic's node may have changed, also that it was deleted or created again.
	PartitionModifications struct{ Topic string }

	// TopicDeletion says that the set of deletion markers may have changed.
	TopicDeletion struct{}

	// LogDirEventNotification says that a broker may have reported a failed log dir.
	LogDirEventNotification struct{}

	// ISRChangeNotification says that a leader may have reported an ISR that it wrote itself (brokers with
	// inter.broker.protocol.version below 2.7-IV2).
	ISRChangeNotification struct{}

	// ReassignmentISRChange says that the state node of a partition that is being reassigned may have changed, where
	// leaders write it (Kafka: PartitionReassignmentIsrChange).
	ReassignmentISRChange struct{ cluster.TopicPartition }

	// PartitionReassignmentChange says that /admin/reassign_partitions may have been written.
	PartitionReassignmentChange struct{}

	// PreferredReplicaElection says that /admin/preferred_replica_election may have been written.
	PreferredReplicaElection struct{}
)

// Replies of brokers. Each carries the request it answers exactly as the core issued it, so that late replies of an
// earlier term, registration or topic incarnation are recognised on the event thread.
type (
	// LeaderAndISRReply answers SendLeaderAndISR.
	LeaderAndISRReply struct {
		Request    SendLeaderAndISR
		Err        cluster.ErrorCode // top level
		Partitions []PartitionError  // by topic name; the driver maps ids back through Request
	}

	// UpdateMetadataReply answers SendUpdateMetadata.
	UpdateMetadataReply struct {
		Request SendUpdateMetadata
		Err     cluster.ErrorCode
	}

	// StopReplicaReply answers SendStopReplica. With inter-broker versions 0 to 2 the driver sends two requests per
	// effect and feeds one reply for each, with Request cut down to the partitions of that request.
	StopReplicaReply struct {
		Request    SendStopReplica
		Err        cluster.ErrorCode // top level
		Partitions []PartitionError
	}
)

// PartitionError is one partition's code in a reply.
type PartitionError struct {
	cluster.TopicPartition
	Err cluster.ErrorCode
}

// Requests. Each is answered by exactly one Reply effect with the same ReplyToken, whatever happens to the event;
// a request that the driver drops before feeding it is answered with Preempted.
type (
	// AlterPartition is a leader's wish to change the ISR of its partitions (KIP-497). Answer: AlterPartitionResult.
	AlterPartition struct {
		Reply       ReplyToken
		Broker      cluster.BrokerID
		BrokerEpoch cluster.BrokerEpoch
		// Version of the request: from 2 on topics are addressed by id.
		Version int16
		Topics  []AlterPartitionTopic
	}

	// AllocateProducerIDs asks for a block of producer ids (KIP-730). Answer: AllocateProducerIDsResult.
	AllocateProducerIDs struct {
		Reply       ReplyToken
		Broker      cluster.BrokerID
		BrokerEpoch cluster.BrokerEpoch
	}

	// ControlledShutdown asks to move leaderships away from a broker that wants to stop. Answer: ControlledShutdownResult.
	ControlledShutdown struct {
		Reply       ReplyToken
		Broker      cluster.BrokerID
		BrokerEpoch cluster.BrokerEpoch // NoBrokerEpoch: not checked
	}

	// AlterPartitionReassignments starts, replaces or cancels reassignments (KIP-455). Answer:
	// AlterPartitionReassignmentsResult.
	AlterPartitionReassignments struct {
		Reply      ReplyToken
		Partitions []PartitionReassignment
	}

	// ListPartitionReassignments asks for the reassignments in progress: all, or those of the partitions. Answer:
	// ListPartitionReassignmentsResult.
	ListPartitionReassignments struct {
		Reply      ReplyToken
		All        bool
		Partitions []cluster.TopicPartition
	}

	// UpdateFeatures changes finalized features (KIP-584). Answer: UpdateFeaturesResult.
	UpdateFeatures struct {
		Reply        ReplyToken
		Updates      []FeatureUpdate
		ValidateOnly bool
	}

	// ElectLeaders asks for elections (KIP-460). Answer: ElectLeadersResult.
	ElectLeaders struct {
		Reply      ReplyToken
		Type       ElectionType
		Partitions []cluster.TopicPartition
	}

	// UncleanLeaderElectionEnable carries the new broker default of unclean.leader.election.enable.
	UncleanLeaderElectionEnable struct{ Enabled bool }

	// TopicDeletionEnable carries the new value of delete.topic.enable (KIP-688).
	TopicDeletionEnable struct{ Enabled bool }

	// TopicUncleanLeaderElectionEnable says that a topic's own unclean.leader.election.enable was set to true.
	TopicUncleanLeaderElectionEnable struct{ Topic string }
)

// PartitionReassignment is the wish for one partition; a nil target cancels what is in progress.
type PartitionReassignment struct {
	cluster.TopicPartition
	Target []cluster.BrokerID
}

// ReassignmentTarget is one entry of /admin/reassign_partitions.
type ReassignmentTarget struct {
	cluster.TopicPartition
	Replicas []cluster.BrokerID
}

// AlterPartitionTopic is one topic of an AlterPartition request; Name is used below version 2, ID from 2 on.
type AlterPartitionTopic struct {
	Name       string
	ID         cluster.TopicID
	Partitions []AlterPartitionPartition
}

// AlterPartitionPartition is one partition of an AlterPartition request.
type AlterPartitionPartition struct {
	Partition   int32
	LeaderEpoch cluster.LeaderEpoch
	ISR         []cluster.BrokerID
	// BrokerEpochs are those of the ISR's members as the leader knows them, NoBrokerEpoch where it does not; nil: of none.
	BrokerEpochs   []cluster.BrokerEpoch
	Recovery       cluster.LeaderRecoveryState
	PartitionEpoch cluster.PartitionEpoch
}

// FeatureUpdate is the wish for one feature; a level below 1 deletes it.
type FeatureUpdate struct {
	Feature string
	Level   int16
	Type    FeatureUpdateType
}

// FeatureUpdateType says which way a feature may go; the values are those of the wire.
type FeatureUpdateType int8

// The types. Others are refused.
const (
	UpgradeFeature         FeatureUpdateType = 1
	SafeDowngradeFeature   FeatureUpdateType = 2
	UnsafeDowngradeFeature FeatureUpdateType = 3
)

// ReplyToken names a request to the driver; the core only hands it back.
type ReplyToken uint64

// Token names a Store effect; it grows by one with every one of them.
type Token uint64

// Outcome says what became of a Store effect as a whole.
type Outcome uint8

// Outcomes of a Store effect.
const (
	// Applied: the operation ran and Value holds its result, item by item where it has several.
	Applied Outcome = iota + 1
	// Fenced: the guard on /controller_epoch no longer holds. Another controller has been elected.
	Fenced
	// UnknownOutcome: the write was sent and its answer lost. All, some or none of it may have been applied.
	UnknownOutcome
	// Unavailable: the engine could not be reached. Nothing was applied.
	Unavailable
	// Closed: the session expired or the driver is stopping; the driver did not run the operation, or no longer knows.
	// The core ends the event at once, gives up office and asks for nothing more until the next event.
	Closed
)

// StoreValue is the result of a Store operation.
type StoreValue interface{ storeValue() }

// Results of Store operations.
type (
	// ControllerRead is the result of ReadController.
	ControllerRead struct {
		Broker cluster.BrokerID // NoBroker when /controller is absent
	}

	// ControllerEpochRead is the result of ReadControllerEpoch and CreateControllerEpoch.
	ControllerEpochRead struct {
		Exists  bool // false only from ReadControllerEpoch
		Epoch   cluster.ControllerEpoch
		Version int32
	}

	// ElectResult is the result of Elect.
	ElectResult struct {
		Status  ItemStatus // ItemOK, or ItemExists (somebody holds /controller), or ItemConflict (the epoch moved)
		Version int32      // of /controller_epoch when ItemOK
	}

	// BrokersRead is the result of ReadBrokers.
	BrokersRead struct {
		Brokers []cluster.Broker
		// Klamm are the brokers, registered or not, that have run klamm and no other broker since, as far as is known.
		Klamm []cluster.BrokerID
	}

	// TopicNamesRead is the result of ReadTopicNames.
	TopicNamesRead struct{ Names []string }

	// TopicsRead is the result of ReadTopics: one entry per name asked for, in order.
	TopicsRead struct{ Topics []TopicRead }

	// StatesRead is the result of ReadPartitionStates: one entry per partition asked for, in order.
	StatesRead struct{ States []ItemResult }

	// MarkersRead is the result of ReadDeletionMarkers.
	MarkersRead struct{ Markers []Marker }

	// TopicConfigsRead is the result of ReadTopicConfigs: one entry per topic asked for, in order.
	TopicConfigsRead struct{ Topics []TopicConfigRead }

	// LogDirEventsRead is the result of ReadLogDirEvents.
	LogDirEventsRead struct{ Events []LogDirEvent }

	// ISRChangesRead is the result of ReadISRChanges.
	ISRChangesRead struct{ Changes []ISRChange }

	// ReassignmentsRead is the result of ReadReassignments.
	ReassignmentsRead struct {
		Exists  bool
		Err     string // set when the node cannot be decoded
		Version int32
		Targets []ReassignmentTarget // by topic and partition
	}

	// PreferredElectionRead is the result of ReadPreferredElection.
	PreferredElectionRead struct {
		Exists     bool
		Err        string // set when the node cannot be decoded
		Version    int32
		Partitions []cluster.TopicPartition
	}

	// FeaturesRead is the result of ReadFeatures and EnsureFeatures.
	FeaturesRead struct {
		Levels  map[string]int16 // finalized; none when the node is absent or disabled
		Version int32            // data version of the node, -1 when it is absent
		Err     string           // set when the node cannot be decoded, or set up
	}

	// ProducerIDBlockRead is the result of ReadProducerIDBlock.
	ProducerIDBlockRead struct {
		Exists  bool   // the node exists and holds a block
		Err     string // set when the node cannot be decoded
		Block   ProducerIDBlock
		Version int32 // data version of the node, 0 when it was never written
	}

	// Written is the result of every write that has items: one entry per item, in order.
	Written struct{ Items []ItemResult }
)

// ItemStatus is what became of one item of a Store operation.
type ItemStatus uint8

// Item statuses.
const (
	ItemOK       ItemStatus = iota + 1
	ItemConflict            // the version differed; State (or Topic) holds the fresh value
	ItemNoNode              // the node, or its parent, is absent
	ItemExists              // the node to create is there already
	ItemFailed              // any other failure, also undecodable data; Err says what
)

// ItemResult is the result of one item.
type ItemResult struct {
	Status ItemStatus
	// State is the partition state read, or the fresh one with ItemConflict and ItemExists when the driver could read
	// it. After a write of partition states with ItemOK only its PartitionEpoch is set, to the new version.
	State cluster.LeaderAndISR
	// HasState says that State holds a whole value.
	HasState bool
	// Version is the data version after a write to a node that is not a partition state.
	Version int32
	Err     string
}

// TopicRead is a topic node with its stat.
type TopicRead struct {
	Name   string
	Exists bool
	// Err is set when the node exists and cannot be decoded; the topic is then left alone.
	Err     string
	Czxid   int64 // creation id of the node: it differs between two incarnations of a name
	Version int32 // data version
	ID      cluster.TopicID
	// Partitions lists the assignment in ascending order of partition.
	Partitions []PartitionAssignment
}

// PartitionAssignment is the assignment of one partition.
type PartitionAssignment struct {
	Partition  int32
	Assignment cluster.ReplicaAssignment
}

// Marker is a child of /admin/delete_topics.
type Marker struct {
	Topic string
	Czxid int64
	// ID of the topic incarnation to delete; zero in Kafka's layout, where the marker is empty.
	ID cluster.TopicID
}

// TopicConfigRead is what the controller needs of a topic's configuration.
type TopicConfigRead struct {
	Topic string
	// Unclean is unclean.leader.election.enable of the topic; nil when the topic does not set it.
	Unclean *bool
	Err     string // the configuration could not be read: no unclean election then
}

// LogDirEvent is a child of /log_dir_event_notification.
type LogDirEvent struct {
	Name   string // of the node
	Broker cluster.BrokerID
	// Valid is false for a node that could not be decoded; it is removed and otherwise ignored.
	Valid bool
}

// ISRChange is a child of /isr_change_notification.
type ISRChange struct {
	Name       string // of the node
	Partitions []cluster.TopicPartition
}

// ProducerIDBlock is a range of producer ids, both ends included (znode /latest_producer_id_block).
type ProducerIDBlock struct {
	Broker     cluster.BrokerID
	Start, End int64
}

func (Startup) event()                          {}
func (ControllerChange) event()                 {}
func (Expire) event()                           {}
func (RegisterBrokerAndReelect) event()         {}
func (Shutdown) event()                         {}
func (TimerFired) event()                       {}
func (StoreResult) event()                      {}
func (BrokerChange) event()                     {}
func (BrokerModifications) event()              {}
func (TopicChange) event()                      {}
func (PartitionModifications) event()           {}
func (TopicDeletion) event()                    {}
func (LogDirEventNotification) event()          {}
func (ISRChangeNotification) event()            {}
func (ReassignmentISRChange) event()            {}
func (LeaderAndISRReply) event()                {}
func (UpdateMetadataReply) event()              {}
func (StopReplicaReply) event()                 {}
func (AlterPartition) event()                   {}
func (AllocateProducerIDs) event()              {}
func (ControlledShutdown) event()               {}
func (ElectLeaders) event()                     {}
func (UpdateFeatures) event()                   {}
func (PreferredReplicaElection) event()         {}
func (PartitionReassignmentChange) event()      {}
func (AlterPartitionReassignments) event()      {}
func (ListPartitionReassignments) event()       {}
func (UncleanLeaderElectionEnable) event()      {}
func (TopicDeletionEnable) event()              {}
func (TopicUncleanLeaderElectionEnable) event() {}

func (ControllerRead) storeValue()        {}
func (ControllerEpochRead) storeValue()   {}
func (ElectResult) storeValue()           {}
func (BrokersRead) storeValue()           {}
func (TopicNamesRead) storeValue()        {}
func (TopicsRead) storeValue()            {}
func (StatesRead) storeValue()            {}
func (MarkersRead) storeValue()           {}
func (TopicConfigsRead) storeValue()      {}
func (LogDirEventsRead) storeValue()      {}
func (ISRChangesRead) storeValue()        {}
func (FeaturesRead) storeValue()          {}
func (ProducerIDBlockRead) storeValue()   {}
func (PreferredElectionRead) storeValue() {}
func (ReassignmentsRead) storeValue()     {}
func (Written) storeValue()               {}
