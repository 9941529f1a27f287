package controller

import "klamm/internal/cluster"

// Effect is something the core wants done. The driver carries the effects of one Step out in their order.
// Slices and maps inside effects are shared with the core and with other effects: they are read-only.
type Effect interface{ effect() }

// Effects on the controller's office and on the driver's own state.
type (
	// Elected says that this broker is the active controller from now on.
	Elected struct {
		Epoch     cluster.ControllerEpoch
		ZkVersion int32 // data version of /controller_epoch; every write of this term is fenced by it
	}

	// ActiveController says which broker holds /controller as far as the core knows; NoBroker when nobody does.
	ActiveController struct{ Broker cluster.BrokerID }

	// Resigned ends the term: the driver stops all senders and drops their queues, cancels all timers but
	// TimerElection, removes all watches but the one on /controller, and forgets topics and queued deletions.
	Resigned struct{ Reason string }

	// TopicsKnown adds topics to those that the controller knows.
	TopicsKnown struct{ Topics []TopicRef }

	// TopicsForgotten removes topics from those that the controller knows.
	TopicsForgotten struct{ Topics []TopicRef }

	// DeletionsQueued adds topics to those queued for deletion.
	DeletionsQueued struct{ Topics []string }

	// DeletionsEnded removes topics from those queued for deletion: they are deleted, or their marker was void.
	DeletionsEnded struct{ Topics []string }

	// DeletionsRefused says that markers were removed because delete.topic.enable is false: their topics stay, and who waits
	// for their deletion is to be told.
	DeletionsRefused struct{ Markers []NodeRef }

	// Note is a fact worth a log line, in Kafka's sense of its controller log.
	Note struct {
		Level   NoteLevel
		Message string // a constant phrase
		// Attributes of the line; zero values are left out.
		Topic  string
		Broker cluster.BrokerID // NoBroker when none
		Detail string
	}

	// Transitions records state changes of partitions and replicas, for the state-change log. It never has to be
	// carried out before the effects after it.
	Transitions struct{ Records []Transition }

	// StartTimer feeds TimerFired after the given time. Starting a timer that runs replaces it.
	StartTimer struct {
		Timer   TimerID
		AfterMs int64
	}

	// CancelTimer stops a timer; a TimerFired that is already queued may still come and does no harm.
	CancelTimer struct{ Timer TimerID }

	// Reply answers a request event.
	Reply struct {
		Token ReplyToken
		Value ReplyValue
	}
)

// TopicRef names one incarnation of a topic.
type TopicRef struct {
	Name string
	ID   cluster.TopicID
}

// NoteLevel is the level of a Note.
type NoteLevel uint8

// Levels: a Warn is degraded and self-healing, an Info is worth a line a day later.
const (
	Debug NoteLevel = iota
	Info
	Warn
)

// TimerID names a timer; each exists once.
type TimerID uint8

// The core's timers.
const (
	// TimerElection spaces elections after a failed term. It runs while not in office.
	TimerElection TimerID = iota + 1
	// TimerDeletionRetry tries failed topic deletions again.
	TimerDeletionRetry
	// TimerPartitionRetry tries partitions again whose state could not be written or read.
	TimerPartitionRetry
	// TimerLeaderBalance looks at the balance of leaders.
	TimerLeaderBalance
)

// Watches. The driver turns each into the event named; watches are persistent.
type (
	// Watch arms a watch before the effects after it run.
	Watch struct{ Watched Watched }
	// Unwatch drops it; an event that is already queued may still come and does no harm.
	Unwatch struct{ Watched Watched }
)

// Watched is what a watch looks at.
type Watched struct {
	Kind      WatchKind
	Topic     string           // WatchTopic, WatchPartition
	Partition int32            // WatchPartition
	Broker    cluster.BrokerID // WatchBroker
}

// WatchKind is a kind of node or of set of children.
type WatchKind uint8

// Watch kinds with the event each one feeds.
const (
	WatchController        WatchKind = iota + 1 // node /controller -> ControllerChange
	WatchBrokers                                // children of /brokers/ids -> BrokerChange
	WatchBroker                                 // node /brokers/ids/N -> BrokerModifications
	WatchTopics                                 // children of /brokers/topics -> TopicChange
	WatchTopic                                  // node /brokers/topics/T -> PartitionModifications
	WatchMarkers                                // children of /admin/delete_topics -> TopicDeletion
	WatchLogDirEvents                           // children of /log_dir_event_notification -> LogDirEventNotification
	WatchISRChanges                             // children of /isr_change_notification -> ISRChangeNotification
	WatchPreferredElection                      // node /admin/preferred_replica_election -> PreferredReplicaElection
	WatchPartition                              // node /brokers/topics/T/partitions/P/state -> ReassignmentISRChange
	WatchReassignments                          // node /admin/reassign_partitions -> PartitionReassignmentChange
)

// Effects on brokers. A sender delivers in order, one request at a time, and repeats a request until it is answered or
// the sender is stopped (control-plane behaviour of Kafka: ControllerChannelManager).
type (
	// StartSender opens the queue to a broker.
	StartSender struct{ Broker cluster.Broker }

	// StopSender closes the queue to a broker and drops what is in it.
	StopSender struct{ Broker cluster.BrokerID }

	// SendLeaderAndISR tells a broker what it leads and follows.
	SendLeaderAndISR struct {
		Target Target
		Topics []LeaderAndISRTopic
		// LiveLeaders are the live or shutting-down brokers that lead a partition of the request, by id; the driver
		// picks the endpoint of the inter-broker listener.
		LiveLeaders []cluster.Broker
	}

	// SendUpdateMetadata tells a broker what every broker should know.
	SendUpdateMetadata struct {
		Target Target
		// Update is shared by the requests to all brokers of one batch.
		Update *MetadataUpdate
	}

	// SendStopReplica tells a broker to stop replicas, and to delete those marked so.
	SendStopReplica struct {
		Target Target
		Topics []StopReplicaTopic
	}
)

// Target is the head of a request to a broker.
type Target struct {
	Broker          cluster.BrokerID
	BrokerEpoch     cluster.BrokerEpoch
	Controller      cluster.BrokerID
	ControllerEpoch cluster.ControllerEpoch
}

// LeaderAndISRTopic is one topic of a SendLeaderAndISR.
type LeaderAndISRTopic struct {
	TopicRef
	Partitions []LeaderAndISRPartition
}

// LeaderAndISRPartition is one partition of a SendLeaderAndISR.
type LeaderAndISRPartition struct {
	Partition  int32
	State      cluster.LeaderAndISR
	Assignment cluster.ReplicaAssignment
	IsNew      bool
}

// MetadataUpdate is the body of UpdateMetadata: the whole set of live brokers and a delta of partitions.
type MetadataUpdate struct {
	LiveBrokers []cluster.Broker // live and shutting-down brokers, by id
	Topics      []UpdateMetadataTopic
}

// UpdateMetadataTopic is one topic of a MetadataUpdate.
type UpdateMetadataTopic struct {
	TopicRef
	Partitions []UpdateMetadataPartition
}

// UpdateMetadataPartition is one partition of a MetadataUpdate. State.Leader is cluster.LeaderDuringDelete, with leader
// epoch and partition epoch 0, when its topic is queued for deletion.
type UpdateMetadataPartition struct {
	Partition       int32
	State           cluster.LeaderAndISR
	Replicas        []cluster.BrokerID
	OfflineReplicas []cluster.BrokerID
}

// StopReplicaTopic is one topic of a SendStopReplica. The id is not sent; it identifies the incarnation when the reply comes.
type StopReplicaTopic struct {
	TopicRef
	Partitions []StopReplicaPartition
}

// StopReplicaPartition is one partition of a SendStopReplica.
type StopReplicaPartition struct {
	Partition   int32
	LeaderEpoch cluster.LeaderEpoch // LeaderEpochDuringDelete, NoLeaderEpoch or an epoch
	Delete      bool
	// ForTopicDeletion is not sent: it tells the deletion of a queued topic's replica from the removal of a stray when
	// the reply comes.
	ForTopicDeletion bool
}

// Store asks for one operation on the coordination store. It is always the last effect of a Step; the driver feeds
// the StoreResult with the same token next, ahead of all queued events, whatever happened.
type Store struct {
	Token Token
	// DelayMs is how long the driver waits before it runs the operation: back-off after Unavailable or UnknownOutcome.
	DelayMs int64
	// Fenced demands that the write is conditional on /controller_epoch having version ZkVersion (reads, and the
	// operations of the election itself, are not fenced).
	Fenced    bool
	ZkVersion int32
	Op        StoreOp
}

// StoreOp is an operation on the coordination store, in the controller's terms.
type StoreOp interface{ storeOp() }

// Operations of the election. None is fenced but DeleteController.
type (
	// ReadController reads /controller. Result: ControllerRead.
	ReadController struct{}
	// ReadControllerEpoch reads /controller_epoch. Result: ControllerEpochRead.
	ReadControllerEpoch struct{}
	// CreateControllerEpoch creates /controller_epoch with 0; when it exists it is read. Result: ControllerEpochRead.
	CreateControllerEpoch struct{}
	// Elect atomically creates the ephemeral /controller and sets /controller_epoch at the version. Result: ElectResult.
	Elect struct {
		Broker  cluster.BrokerID
		At      Time // written into /controller
		Epoch   cluster.ControllerEpoch
		Version int32 // expected data version of /controller_epoch
	}
	// DeleteController removes /controller, fenced. Result: Written with one item.
	DeleteController struct{}
)

// Reads.
type (
	// ReadBrokers reads all registrations. Result: BrokersRead.
	ReadBrokers struct{}
	// ReadTopicNames lists the topics. Result: TopicNamesRead.
	ReadTopicNames struct{}
	// ReadTopics reads topic nodes. Result: TopicsRead.
	ReadTopics struct{ Names []string }
	// ReadPartitionStates reads partition states; an absent one is ItemNoNode. Result: StatesRead.
	ReadPartitionStates struct{ Partitions []cluster.TopicPartition }
	// ReadDeletionMarkers reads the children of /admin/delete_topics. Result: MarkersRead.
	ReadDeletionMarkers struct{}
	// ReadTopicConfigs reads topic configurations. Result: TopicConfigsRead.
	ReadTopicConfigs struct{ Topics []string }
	// ReadLogDirEvents reads log dir notifications. Result: LogDirEventsRead.
	ReadLogDirEvents struct{}
	// ReadISRChanges reads ISR change notifications. Result: ISRChangesRead.
	ReadISRChanges struct{}
	// ReadFeatures reads /feature. Result: FeaturesRead.
	ReadFeatures struct{}
	// ReadProducerIDBlock reads /latest_producer_id_block. Result: ProducerIDBlockRead.
	ReadProducerIDBlock struct{}
	// ReadReassignments reads /admin/reassign_partitions. Result: ReassignmentsRead.
	ReadReassignments struct{}
	// ReadPreferredElection reads /admin/preferred_replica_election. Result: PreferredElectionRead.
	ReadPreferredElection struct{}
)

// Writes; all are fenced. Items are independent: each succeeds or fails alone.
type (
	// EnsureFeatures creates /feature for the inter-broker protocol version if it is absent, and enables it if it is
	// disabled. Result: FeaturesRead, as it is afterwards.
	EnsureFeatures struct{}

	// SetFeatures replaces the finalized levels in /feature at the version; -1 creates it. Result: Written with one item.
	SetFeatures struct {
		Levels  map[string]int16
		Version int32
	}

	// CreatePartitionStates creates the state nodes, each after its parents T/partitions and T/partitions/P (those may
	// exist). Result: Written; ItemExists carries the state found, ItemNoNode means that the topic node is gone.
	CreatePartitionStates struct{ States []PartitionStateWrite }

	// SetPartitionStates sets state nodes, each expected at the version State.PartitionEpoch. Result: Written.
	SetPartitionStates struct{ States []PartitionStateWrite }

	// SetTopics rewrites topic nodes at the expected data version, if they have the creation id: a topic that was deleted and
	// created again by hand can be at the same version. Result: Written.
	SetTopics struct{ Topics []TopicWrite }

	// DeleteTopicTrees removes /brokers/topics/T with everything below, if the topic node has the creation id (an absent
	// node is ItemOK; another incarnation is ItemConflict and stays). Not atomic: a part may be gone after a failure.
	// Result: Written.
	DeleteTopicTrees struct{ Topics []NodeRef }

	// DeleteTopicConfigs removes /config/topics/T; an absent node is ItemOK. Result: Written.
	DeleteTopicConfigs struct{ Topics []string }

	// DeleteMarkers removes /admin/delete_topics/T if it has the creation id (absent is ItemOK). Result: Written.
	DeleteMarkers struct{ Markers []NodeRef }

	// RecordLeftovers writes down what absent brokers still have to remove, on top of what is written already. Result:
	// Written.
	RecordLeftovers struct{ Leftovers []Leftover }

	// ForgetKlammBrokers removes brokers from those known to run klamm; an absent one is ItemOK. Result: Written.
	ForgetKlammBrokers struct{ Brokers []cluster.BrokerID }

	// DeleteLogDirEvents removes notifications by name; nil removes all. Result: Written with one item.
	DeleteLogDirEvents struct{ Names []string }

	// DeleteISRChanges removes notifications by name; nil removes all. Result: Written with one item.
	DeleteISRChanges struct{ Names []string }

	// SetReassignments rewrites /admin/reassign_partitions at the version; without targets it removes the node. Result: Written
	// with one item.
	SetReassignments struct {
		Targets []ReassignmentTarget
		Version int32
	}

	// DeletePreferredElection removes /admin/preferred_replica_election at the version; absent is ItemOK. Result: Written
	// with one item.
	DeletePreferredElection struct{ Version int32 }

	// SetProducerIDBlock sets /latest_producer_id_block at the expected version. Result: Written with one item.
	SetProducerIDBlock struct {
		Block   ProducerIDBlock
		Version int32
	}
)

// PartitionStateWrite is a partition state to write.
type PartitionStateWrite struct {
	cluster.TopicPartition
	State cluster.LeaderAndISR
}

// TopicWrite is a topic node to write: the whole assignment, with both maps of a reassignment, and the id.
type TopicWrite struct {
	TopicRef
	Czxid      int64 // expected creation id
	Version    int32 // expected data version
	Partitions []PartitionAssignment
}

// NodeRef names a node of a topic by the topic and the node's creation id; AnyCzxid accepts every one.
type NodeRef struct {
	Topic string
	Czxid int64
}

// Leftover is what a broker still has to remove that was absent when a topic's deletion ended, or when a reassignment moved
// partitions away: replicas of one topic, known by its id.
type Leftover struct {
	Broker cluster.BrokerID
	TopicRef
	Partitions []int32 // ascending
	At         Time
}

// AnyCzxid in a NodeRef stands for every creation id.
const AnyCzxid int64 = -1

// ReplyValue is the answer to a request event.
type ReplyValue interface{ replyValue() }

// Answers.
type (
	// AlterPartitionResult answers AlterPartition. Topics is empty when Err is set.
	AlterPartitionResult struct {
		Err    cluster.ErrorCode
		Topics []AlterPartitionTopicResult
	}

	// AllocateProducerIDsResult answers AllocateProducerIDs with Len ids from Start.
	AllocateProducerIDsResult struct {
		Err   cluster.ErrorCode
		Start int64
		Len   int32
	}

	// AlterPartitionReassignmentsResult answers AlterPartitionReassignments: one entry per partition asked for, in order of
	// topic and partition; none when Err is set.
	AlterPartitionReassignmentsResult struct {
		Err        cluster.ErrorCode
		Partitions []ReassignmentOutcome
	}

	// ListPartitionReassignmentsResult answers ListPartitionReassignments, in order of topic and partition.
	ListPartitionReassignmentsResult struct {
		Err        cluster.ErrorCode
		Partitions []OngoingReassignment
	}

	// ElectLeadersResult answers ElectLeaders: one entry per partition asked for, in order of topic and partition; none when
	// Err is set.
	ElectLeadersResult struct {
		Err        cluster.ErrorCode
		Partitions []PartitionElection
	}

	// UpdateFeaturesResult answers UpdateFeatures: one entry per feature, in order of the request; none when Err is set.
	UpdateFeaturesResult struct {
		Err      cluster.ErrorCode
		Message  string
		Features []FeatureOutcome
		Version  int32 // of /feature after the change, -1 when nothing was written
	}

	// ControlledShutdownResult answers ControlledShutdown with the partitions that the broker still leads.
	ControlledShutdownResult struct {
		Err       cluster.ErrorCode
		Remaining []cluster.TopicPartition
	}
)

// ReassignmentOutcome is what became of the wish for one partition.
type ReassignmentOutcome struct {
	cluster.TopicPartition
	Err     cluster.ErrorCode
	Message string
}

// OngoingReassignment is a reassignment in progress.
type OngoingReassignment struct {
	cluster.TopicPartition
	Assignment cluster.ReplicaAssignment
}

// PartitionElection is what became of the election of one partition. Leader is the leader afterwards, NoBroker when there is none.
type PartitionElection struct {
	cluster.TopicPartition
	Err     cluster.ErrorCode
	Message string
	Leader  cluster.BrokerID
}

// FeatureOutcome is what became of the wish for one feature.
type FeatureOutcome struct {
	Feature string
	Err     cluster.ErrorCode
	Message string
}

// AlterPartitionTopicResult is one topic of an AlterPartitionResult, named the way the request named it.
type AlterPartitionTopicResult struct {
	Name       string
	ID         cluster.TopicID
	Partitions []AlterPartitionPartitionResult
}

// AlterPartitionPartitionResult is one partition of an AlterPartitionResult; State is valid when Err is None.
type AlterPartitionPartitionResult struct {
	Partition int32
	Err       cluster.ErrorCode
	State     cluster.LeaderAndISR
}

// Transition is one line of the state-change log: a partition's, or a replica's when Replica is not NoBroker.
type Transition struct {
	cluster.TopicPartition
	Replica cluster.BrokerID
	// From and To are the names of the states.
	From, To string
	// State is the partition's new leadership when an election or initialisation made one.
	State *cluster.LeaderAndISR
	// Err says why the transition did not take place; empty when it did.
	Err string
}

// Preempted returns the answer to a request event that the driver drops unprocessed, because the session expired or
// the broker stops. It reports false for events that carry no request.
func Preempted(ev Event) (Reply, bool) {
	switch ev := ev.(type) {
	case AlterPartition:
		return Reply{ev.Reply, AlterPartitionResult{Err: cluster.NotController}}, true
	case AllocateProducerIDs:
		return Reply{ev.Reply, AllocateProducerIDsResult{Err: cluster.NotController}}, true
	case AlterPartitionReassignments:
		return Reply{ev.Reply, AlterPartitionReassignmentsResult{Err: cluster.NotController}}, true
	case ListPartitionReassignments:
		return Reply{ev.Reply, ListPartitionReassignmentsResult{Err: cluster.NotController}}, true
	case ElectLeaders:
		return Reply{ev.Reply, ElectLeadersResult{Err: cluster.NotController}}, true
	case UpdateFeatures:
		return Reply{ev.Reply, UpdateFeaturesResult{Err: cluster.NotController, Version: -1}}, true
	case ControlledShutdown:
		return Reply{ev.Reply, ControlledShutdownResult{Err: cluster.StaleControllerEpoch}}, true
	}
	return Reply{}, false
}

func (Elected) effect()            {}
func (ActiveController) effect()   {}
func (Resigned) effect()           {}
func (TopicsKnown) effect()        {}
func (TopicsForgotten) effect()    {}
func (DeletionsQueued) effect()    {}
func (DeletionsEnded) effect()     {}
func (DeletionsRefused) effect()   {}
func (Note) effect()               {}
func (Transitions) effect()        {}
func (StartTimer) effect()         {}
func (CancelTimer) effect()        {}
func (Reply) effect()              {}
func (Watch) effect()              {}
func (Unwatch) effect()            {}
func (StartSender) effect()        {}
func (StopSender) effect()         {}
func (SendLeaderAndISR) effect()   {}
func (SendUpdateMetadata) effect() {}
func (SendStopReplica) effect()    {}
func (Store) effect()              {}

func (ReadController) storeOp()          {}
func (ReadControllerEpoch) storeOp()     {}
func (CreateControllerEpoch) storeOp()   {}
func (Elect) storeOp()                   {}
func (DeleteController) storeOp()        {}
func (ReadBrokers) storeOp()             {}
func (ReadTopicNames) storeOp()          {}
func (ReadTopics) storeOp()              {}
func (ReadPartitionStates) storeOp()     {}
func (ReadDeletionMarkers) storeOp()     {}
func (ReadTopicConfigs) storeOp()        {}
func (ReadLogDirEvents) storeOp()        {}
func (ReadISRChanges) storeOp()          {}
func (ReadProducerIDBlock) storeOp()     {}
func (ReadReassignments) storeOp()       {}
func (SetReassignments) storeOp()        {}
func (EnsureFeatures) storeOp()          {}
func (ReadFeatures) storeOp()            {}
func (SetFeatures) storeOp()             {}
func (CreatePartitionStates) storeOp()   {}
func (SetPartitionStates) storeOp()      {}
func (SetTopics) storeOp()               {}
func (DeleteTopicTrees) storeOp()        {}
func (DeleteTopicConfigs) storeOp()      {}
func (DeleteMarkers) storeOp()           {}
func (RecordLeftovers) storeOp()         {}
func (ForgetKlammBrokers) storeOp()      {}
func (DeleteLogDirEvents) storeOp()      {}
func (DeleteISRChanges) storeOp()        {}
func (SetProducerIDBlock) storeOp()      {}
func (ReadPreferredElection) storeOp()   {}
func (DeletePreferredElection) storeOp() {}

func (AlterPartitionResult) replyValue()              {}
func (AlterPartitionReassignmentsResult) replyValue() {}
func (ListPartitionReassignmentsResult) replyValue()  {}
func (AllocateProducerIDsResult) replyValue()         {}
func (ControlledShutdownResult) replyValue()          {}
func (ElectLeadersResult) replyValue()                {}
func (UpdateFeaturesResult) replyValue()              {}
