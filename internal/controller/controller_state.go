package controller

// ControllerState is the value of the ControllerState gauge: what kind of event is being handled.
type ControllerState uint8

// The states of events that exist here, with Kafka's values.
const (
	StateIdle                             ControllerState = 0
	StateControllerChange                 ControllerState = 1
	StateBrokerChange                     ControllerState = 2
	StateTopicChange                      ControllerState = 3
	StateTopicDeletion                    ControllerState = 4
	StateAlterPartitionReassignment       ControllerState = 5
	StateAutoLeaderBalance                ControllerState = 6
	StateManualLeaderBalance              ControllerState = 7
	StateControlledShutdown               ControllerState = 8
	StateISRChange                        ControllerState = 9
	StateLeaderAndISRResponseReceived     ControllerState = 10
	StateLogDirChange                     ControllerState = 11
	StateControllerShutdown               ControllerState = 12
	StateUncleanLeaderElectionEnable      ControllerState = 13
	StateTopicUncleanLeaderElectionEnable ControllerState = 14
	StateListPartitionReassignment        ControllerState = 15
	StateUpdateMetadataResponseReceived   ControllerState = 16
	StateUpdateFeatures                   ControllerState = 17

	// ControllerStates is how many there are: they are numbered from 0.
	ControllerStates = 18
)

var stateNames = [ControllerStates]string{
	StateIdle: "Idle", StateControllerChange: "ControllerChange", StateBrokerChange: "BrokerChange", StateTopicChange: "TopicChange", StateTopicDeletion: "TopicDeletion", StateControlledShutdown: "ControlledShutdown",
	StateISRChange: "IsrChange", StateLeaderAndISRResponseReceived: "LeaderAndIsrResponseReceived", StateLogDirChange: "LogDirChange",
	StateAlterPartitionReassignment: "AlterPartitionReassignment", StateListPartitionReassignment: "ListPartitionReassignment",
	StateAutoLeaderBalance: "AutoLeaderBalance", StateManualLeaderBalance: "ManualLeaderBalance",
	StateControllerShutdown: "ControllerShutdown", StateUncleanLeaderElectionEnable: "UncleanLeaderElectionEnable",
	StateTopicUncleanLeaderElectionEnable: "TopicUncleanLeaderElectionEnable", StateUpdateMetadataResponseReceived: "UpdateMetadataResponseReceived",
	StateUpdateFeatures: "UpdateFeatures",
}

// String gives Kafka's name of the state.
func (s ControllerState) String() string { return stateNames[s] }

// RateAndTimeMetric names the timer of the state; empty for states that have none (Kafka: ControllerState.rateAndTimeMetricName).
func (s ControllerState) RateAndTimeMetric() string {
	switch s {
	case StateIdle, StateUpdateMetadataResponseReceived:
		return ""
	case StateBrokerChange:
		return "LeaderElectionRateAndTimeMs"
	case StateAlterPartitionReassignment:
		return "PartitionReassignmentRateAndTimeMs"
	}
	return s.String() + "RateAndTimeMs"
}

// StateOf returns the state in which an event is handled; Idle for those without one.
func StateOf(ev Event) ControllerState {
	switch ev := ev.(type) {
	case Startup, ControllerChange, Expire, RegisterBrokerAndReelect:
		return StateControllerChange
	case Shutdown:
		return StateControllerShutdown
	case BrokerChange, BrokerModifications:
		return StateBrokerChange
	case TopicChange, PartitionModifications:
		return StateTopicChange
	case TopicDeletion, StopReplicaReply, TopicDeletionEnable:
		return StateTopicDeletion
	case AlterPartitionReassignments, PartitionReassignmentChange, ReassignmentISRChange:
		return StateAlterPartitionReassignment
	case ListPartitionReassignments:
		return StateListPartitionReassignment
	case ElectLeaders, PreferredReplicaElection:
		return StateManualLeaderBalance
	case UpdateFeatures:
		return StateUpdateFeatures
	case ControlledShutdown:
		return StateControlledShutdown
	case AlterPartition, ISRChangeNotification:
		return StateISRChange
	case LeaderAndISRReply:
		return StateLeaderAndISRResponseReceived
	case UpdateMetadataReply:
		return StateUpdateMetadataResponseReceived
	case LogDirEventNotification:
		return StateLogDirChange
	case UncleanLeaderElectionEnable:
		return StateUncleanLeaderElectionEnable
	case TopicUncleanLeaderElectionEnable:
		return StateTopicUncleanLeaderElectionEnable
	case TimerFired:
		switch ev.Timer {
		case TimerElection:
			return StateControllerChange
		case TimerDeletionRetry:
			return StateTopicDeletion
		case TimerPartitionRetry:
			return StateBrokerChange
		case TimerLeaderBalance:
			return StateAutoLeaderBalance
		}
	}
	return StateIdle
}
