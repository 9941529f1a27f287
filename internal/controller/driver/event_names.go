package driver

import (
	"strconv"

	"klamm/internal/controller"
)

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
	case controller.ReassignmentISRChange:
		return "PartitionReassignmentIsrChange"
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
	case controller.UpdateFeatures:
		return "UpdateFeatures"
	case controller.UncleanLeaderElectionEnable:
		return "UncleanLeaderElectionEnable"
	case controller.TopicUncleanLeaderElectionEnable:
		return "TopicUncleanLeaderElectionEnable"
	case controller.TopicDeletionEnable:
		return "TopicDeletionEnable"
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
