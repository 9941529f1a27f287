package driver

import (
	"strconv"

	"klamm/internal/controller"
)

// controllerState is a value of the ControllerState gauge with the timer that events of it are counted in
// (Kafka: ControllerState.scala).
type controllerState struct {
	value int
	name  string
	timer string // name of the metric without RateAndTimeMs; empty where Kafka has none
}

var (
	stateIdle                  = controllerState{0, "Idle", ""}
	stateControllerChange      = controllerState{1, "ControllerChange", "ControllerChange"}
	stateBrokerChange          = controllerState{2, "BrokerChange", "LeaderElection"}
	stateTopicChange           = controllerState{3, "TopicChange", "TopicChange"}
	stateTopicDeletion         = controllerState{4, "TopicDeletion", "TopicDeletion"}
	stateReassignment          = controllerState{5, "AlterPartitionReassignment", "PartitionReassignment"}
	stateListReassignments     = controllerState{15, "ListPartitionReassignment", "ListPartitionReassignment"}
	stateAutoLeaderBalance     = controllerState{6, "AutoLeaderBalance", "AutoLeaderBalance"}
	stateManualLeaderBalance   = controllerState{7, "ManualLeaderBalance", "ManualLeaderBalance"}
	stateControlledShutdown    = controllerState{8, "ControlledShutdown", "ControlledShutdown"}
	stateISRChange             = controllerState{9, "IsrChange", "IsrChange"}
	stateLeaderAndISRReply     = controllerState{10, "LeaderAndIsrResponseReceived", "LeaderAndIsrResponseReceived"}
	stateLogDirChange          = controllerState{11, "LogDirChange", "LogDirChange"}
	stateShutdown              = controllerState{12, "ControllerShutdown", "ControllerShutdown"}
	stateUncleanElectionEnable = controllerState{13, "UncleanLeaderElectionEnable", "UncleanLeaderElectionEnable"}
	stateTopicUncleanElection  = controllerState{14, "TopicUncleanLeaderElectionEnable", "TopicUncleanLeaderElectionEnable"}
	stateUpdateMetadataReply   = controllerState{16, "UpdateMetadataResponseReceived", ""}
)

var allStates = []*controllerState{&stateIdle, &stateControllerChange, &stateBrokerChange, &stateTopicChange, &stateTopicDeletion,
	&stateReassignment, &stateListReassignments, &stateAutoLeaderBalance, &stateManualLeaderBalance, &stateControlledShutdown, &stateISRChange, &stateLeaderAndISRReply, &stateLogDirChange, &stateShutdown,
	&stateUncleanElectionEnable, &stateTopicUncleanElection, &stateUpdateMetadataReply}

// stateOf gives the state that the controller is in while it handles the event.
func stateOf(ev controller.Event) *controllerState {
	switch ev := ev.(type) {
	case controller.Startup, controller.ControllerChange, controller.Expire, controller.RegisterBrokerAndReelect:
		return &stateControllerChange
	case controller.BrokerChange, controller.BrokerModifications:
		return &stateBrokerChange
	case controller.TopicChange, controller.PartitionModifications:
		return &stateTopicChange
	case controller.TopicDeletion, controller.StopReplicaReply:
		return &stateTopicDeletion
	case controller.AlterPartitionReassignments, controller.PartitionReassignmentChange:
		return &stateReassignment
	case controller.ListPartitionReassignments:
		return &stateListReassignments
	case controller.ElectLeaders, controller.PreferredReplicaElection:
		return &stateManualLeaderBalance
	case controller.ControlledShutdown:
		return &stateControlledShutdown
	case controller.AlterPartition, controller.ISRChangeNotification:
		return &stateISRChange
	case controller.LeaderAndISRReply:
		return &stateLeaderAndISRReply
	case controller.LogDirEventNotification:
		return &stateLogDirChange
	case controller.Shutdown:
		return &stateShutdown
	case controller.UncleanLeaderElectionEnable:
		return &stateUncleanElectionEnable
	case controller.TopicUncleanLeaderElectionEnable:
		return &stateTopicUncleanElection
	case controller.UpdateMetadataReply:
		return &stateUpdateMetadataReply
	case controller.TimerFired:
		// klamm's own timers count with what they retry.
		switch ev.Timer {
		case controller.TimerElection:
			return &stateControllerChange
		case controller.TimerDeletionRetry:
			return &stateTopicDeletion
		case controller.TimerLeaderBalance:
			return &stateAutoLeaderBalance
		default:
			return &stateBrokerChange
		}
	default:
		return &stateIdle
	}
}

// eventName gives an event's name, Kafka's where it has one.
func eventName(ev controller.Event) string {
	switch ev := ev.(type) {
	case controller.Startup:
		return "Startup"
	case controller.ControllerChange:
		return "ControllerChange"
	case controller.Expire:
		return "Expire"
	case controller.RegisterBrokerAndReelect:
		return "RegisterBrokerAndReelect"
	case controller.Shutdown:
		return "ShutdownEventThread"
	case controller.BrokerChange:
		return "BrokerChange"
	case controller.BrokerModifications:
		return "BrokerModifications"
	case controller.TopicChange:
		return "TopicChange"
	case controller.PartitionModifications:
		return "PartitionModifications"
	case controller.TopicDeletion:
		return "TopicDeletion"
	case controller.LogDirEventNotification:
		return "LogDirEventNotification"
	case controller.ISRChangeNotification:
		return "IsrChangeNotification"
	case controller.LeaderAndISRReply:
		return "LeaderAndIsrResponseReceived"
	case controller.UpdateMetadataReply:
		return "UpdateMetadataResponseReceived"
	case controller.StopReplicaReply:
		return "TopicDeletionStopReplicaResponseReceived"
	case controller.AlterPartition:
		return "AlterPartitionReceived"
	case controller.AllocateProducerIDs:
		return "AllocateProducerIds"
	case controller.ControlledShutdown:
		return "ControlledShutdown"
	case controller.AlterPartitionReassignments:
		return "ApiPartitionReassignment"
	case controller.PartitionReassignmentChange:
		return "ZkPartitionReassignment"
	case controller.ListPartitionReassignments:
		return "ListPartitionReassignments"
	case controller.ElectLeaders, controller.PreferredReplicaElection:
		return "ReplicaLeaderElection"
	case controller.UncleanLeaderElectionEnable:
		return "UncleanLeaderElectionEnable"
	case controller.TopicUncleanLeaderElectionEnable:
		return "TopicUncleanLeaderElectionEnable"
	case controller.TimerFired:
		return map[controller.TimerID]string{controller.TimerElection: "ElectionRetry", controller.TimerDeletionRetry: "DeletionRetry",
			controller.TimerPartitionRetry: "PartitionRetry", controller.TimerLeaderBalance: "AutoPreferredReplicaLeaderElection"}[ev.Timer]
	default:
		return "Event"
	}
}

// eventDetail says of which topic or broker an event speaks; empty where of none.
func eventDetail(ev controller.Event) string {
	broker := func(id int32) string { return "broker " + strconv.Itoa(int(id)) }
	switch ev := ev.(type) {
	case controller.BrokerModifications:
		return broker(int32(ev.Broker))
	case controller.PartitionModifications:
		return ev.Topic
	case controller.TopicUncleanLeaderElectionEnable:
		return ev.Topic
	case controller.LeaderAndISRReply:
		return broker(int32(ev.Request.Target.Broker))
	case controller.UpdateMetadataReply:
		return broker(int32(ev.Request.Target.Broker))
	case controller.StopReplicaReply:
		return broker(int32(ev.Request.Target.Broker))
	case controller.AlterPartition:
		return broker(int32(ev.Broker)) + ", " + strconv.Itoa(len(ev.Topics)) + " topics"
	case controller.AllocateProducerIDs:
		return broker(int32(ev.Broker))
	case controller.AlterPartitionReassignments:
		return strconv.Itoa(len(ev.Partitions)) + " partitions"
	case controller.ElectLeaders:
		return strconv.Itoa(len(ev.Partitions)) + " partitions"
	case controller.ControlledShutdown:
		return broker(int32(ev.Broker))
	default:
		return ""
	}
}
