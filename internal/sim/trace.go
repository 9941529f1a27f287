package sim

import (
	"fmt"
	"reflect"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// FormatEvent prints an event on one line for traces.
func FormatEvent(ev controller.Event) string {
	switch ev := ev.(type) {
	case controller.StoreResult:
		s := fmt.Sprintf("store #%d ", ev.Token)
		switch ev.Outcome {
		case controller.Applied:
			return s + formatValue(ev.Value)
		default:
			return s + map[controller.Outcome]string{controller.Fenced: "FENCED", controller.UnknownOutcome: "UNKNOWN OUTCOME",
				controller.Unavailable: "UNAVAILABLE", controller.Closed: "CLOSED"}[ev.Outcome]
		}
	case controller.LeaderAndISRReply:
		return fmt.Sprintf("LeaderAndIsrResponseReceived broker %d: %s", ev.Request.Target.Broker, formatErrors(ev.Err, ev.Partitions))
	case controller.UpdateMetadataReply:
		return fmt.Sprintf("UpdateMetadataResponseReceived broker %d: %s", ev.Request.Target.Broker, ev.Err)
	case controller.StopReplicaReply:
		return fmt.Sprintf("StopReplicaResponseReceived broker %d: %s", ev.Request.Target.Broker, formatErrors(ev.Err, ev.Partitions))
	case controller.AlterPartition:
		s := fmt.Sprintf("AlterPartition v%d from %d", ev.Version, ev.Broker)
		for _, t := range ev.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d isr=%v le=%d pe=%d", t.Name, p.Partition, p.ISR, p.LeaderEpoch, p.PartitionEpoch)
			}
		}
		return s
	case controller.TimerFired:
		return "TimerFired " + timerName(ev.Timer)
	}
	return strings.TrimSuffix(fmt.Sprintf("%s%+v", reflect.TypeOf(ev).Name(), ev), "{}")
}

func timerName(t controller.TimerID) string {
	return map[controller.TimerID]string{controller.TimerElection: "election", controller.TimerDeletionRetry: "deletion-retry",
		controller.TimerPartitionRetry: "partition-retry", controller.TimerLeaderBalance: "leader-balance"}[t]
}

func formatErrors(top cluster.ErrorCode, ps []controller.PartitionError) string {
	s := top.String()
	for _, p := range ps {
		s += fmt.Sprintf(" %s:%s", p.TopicPartition, p.Err)
	}
	return s
}

func formatValue(v controller.StoreValue) string {
	switch v := v.(type) {
	case controller.BrokersRead:
		s := "brokers"
		for _, b := range v.Brokers {
			s += fmt.Sprintf(" %d(epoch %d)", b.ID, b.Epoch)
		}
		return s
	case controller.TopicsRead:
		s := "topics"
		for _, t := range v.Topics {
			if !t.Exists {
				s += fmt.Sprintf(" %s:absent", t.Name)
				continue
			}
			s += fmt.Sprintf(" %s(czxid %d, v%d", t.Name, t.Czxid, t.Version)
			for _, p := range t.Partitions {
				s += fmt.Sprintf(", %d:%v", p.Partition, p.Assignment.Replicas)
			}
			s += ")"
		}
		return s
	case controller.StatesRead:
		return "states" + formatItems(v.States)
	case controller.Written:
		return "written" + formatItems(v.Items)
	case controller.TopicConfigsRead:
		s := "unclean.leader.election.enable"
		for _, t := range v.Topics {
			if t.Unclean == nil {
				s += fmt.Sprintf(" %s:unset", t.Topic)
			} else {
				s += fmt.Sprintf(" %s:%v", t.Topic, *t.Unclean)
			}
		}
		return s
	case controller.MarkersRead:
		s := "markers"
		for _, k := range v.Markers {
			s += " " + k.Topic
		}
		return s
	}
	return fmt.Sprintf("%s%+v", reflect.TypeOf(v).Name(), v)
}

func formatItems(items []controller.ItemResult) string {
	var s string
	for _, it := range items {
		switch it.Status {
		case controller.ItemOK:
			s += " ok"
		case controller.ItemConflict:
			s += " conflict"
		case controller.ItemNoNode:
			s += " absent"
		case controller.ItemExists:
			s += " exists"
		case controller.ItemFailed:
			s += " failed"
		}
		if it.HasState {
			s += fmt.Sprintf("(%s)", it.State)
		}
	}
	return s
}

// FormatEffect prints an effect on one or more lines for traces.
func FormatEffect(e controller.Effect) string {
	switch e := e.(type) {
	case controller.Store:
		return formatStore(e)
	case controller.Transitions:
		lines := make([]string, len(e.Records))
		for i, t := range e.Records {
			lines[i] = formatTransition(t)
		}
		return strings.Join(lines, "\n  ")
	case controller.SendLeaderAndISR:
		s := fmt.Sprintf("LeaderAndIsr to %d:", e.Target.Broker)
		for _, t := range e.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d{%s replicas=%s", t.Name, p.Partition, p.State, formatAssignment(p.Assignment))
				if p.IsNew {
					s += " new"
				}
				s += "}"
			}
		}
		return s
	case controller.SendUpdateMetadata:
		s := fmt.Sprintf("UpdateMetadata to %d: live", e.Target.Broker)
		for _, b := range e.Update.LiveBrokers {
			s += fmt.Sprintf(" %d", b.ID)
		}
		for _, t := range e.Update.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d{leader=%d le=%d isr=%v", t.Name, p.Partition, p.State.Leader, p.State.LeaderEpoch, p.State.ISR)
				if len(p.OfflineReplicas) > 0 {
					s += fmt.Sprintf(" offline=%v", p.OfflineReplicas)
				}
				s += "}"
			}
		}
		return s
	case controller.SendStopReplica:
		s := fmt.Sprintf("StopReplica to %d:", e.Target.Broker)
		for _, t := range e.Topics {
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %s-%d(le %d", t.Name, p.Partition, p.LeaderEpoch)
				if p.Delete {
					s += ", delete"
				}
				s += ")"
			}
		}
		return s
	case controller.Watch:
		return "watch " + formatWatched(e.Watched)
	case controller.Unwatch:
		return "unwatch " + formatWatched(e.Watched)
	case controller.StartTimer:
		return fmt.Sprintf("start timer %s in %d ms", timerName(e.Timer), e.AfterMs)
	case controller.CancelTimer:
		return "cancel timer " + timerName(e.Timer)
	case controller.StartSender:
		return fmt.Sprintf("start sender %d (epoch %d)", e.Broker.ID, e.Broker.Epoch)
	case controller.StopSender:
		return fmt.Sprintf("stop sender %d", e.Broker)
	case controller.Note:
		return formatNote(e)
	case controller.TopicsKnown:
		return "topics known:" + formatRefs(e.Topics)
	case controller.TopicsForgotten:
		return "topics forgotten:" + formatRefs(e.Topics)
	case controller.Reply:
		if r, ok := e.Value.(controller.ElectLeadersResult); ok && r.Err == cluster.None {
			s := fmt.Sprintf("reply %d: ElectLeaders", e.Token)
			for _, p := range r.Partitions {
				s += fmt.Sprintf(" %s:%s(leader %d)", p.TopicPartition, p.Err, p.Leader)
			}
			return s
		}
		if r, ok := e.Value.(controller.AlterPartitionReassignmentsResult); ok && r.Err == cluster.None {
			s := fmt.Sprintf("reply %d: AlterPartitionReassignments", e.Token)
			for _, p := range r.Partitions {
				s += fmt.Sprintf(" %s:%s(%s)", p.TopicPartition, p.Err, p.Message)
			}
			return s
		}
		if r, ok := e.Value.(controller.ListPartitionReassignmentsResult); ok && r.Err == cluster.None {
			s := fmt.Sprintf("reply %d: ListPartitionReassignments", e.Token)
			for _, p := range r.Partitions {
				s += fmt.Sprintf(" %s:%s", p.TopicPartition, formatAssignment(p.Assignment))
			}
			return s
		}
		return fmt.Sprintf("reply %d: %s%+v", e.Token, reflect.TypeOf(e.Value).Name(), e.Value)
	}
	return fmt.Sprintf("%s%+v", reflect.TypeOf(e).Name(), e)
}

func formatRefs(refs []controller.TopicRef) string {
	var s string
	for _, r := range refs {
		s += " " + r.Name
	}
	return s
}

func formatWatched(x controller.Watched) string {
	switch x.Kind {
	case controller.WatchBroker:
		return fmt.Sprintf("broker %d", x.Broker)
	case controller.WatchTopic:
		return "topic " + x.Topic
	case controller.WatchPartition:
		return fmt.Sprintf("state of %s-%d", x.Topic, x.Partition)
	}
	return map[controller.WatchKind]string{controller.WatchController: "controller", controller.WatchBrokers: "brokers",
		controller.WatchTopics: "topics", controller.WatchMarkers: "deletion markers", controller.WatchLogDirEvents: "log dir events",
		controller.WatchISRChanges: "isr changes", controller.WatchPreferredElection: "preferred elections",
		controller.WatchReassignments: "reassignments"}[x.Kind]
}

func formatNote(e controller.Note) string {
	s := "note: " + e.Message
	if e.Topic != "" {
		s += " topic=" + e.Topic
	}
	if e.Broker != cluster.NoBroker {
		s += fmt.Sprintf(" broker=%d", e.Broker)
	}
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

func formatTransition(t controller.Transition) string {
	s := "partition " + t.TopicPartition.String()
	if t.Replica != cluster.NoBroker {
		s = fmt.Sprintf("replica %s@%d", t.TopicPartition, t.Replica)
	}
	if t.Err != "" {
		return fmt.Sprintf("%s stays %s, not %s: %s", s, t.From, t.To, t.Err)
	}
	s += fmt.Sprintf(" %s -> %s", t.From, t.To)
	if t.State != nil {
		s += fmt.Sprintf(" {%s}", t.State)
	}
	return s
}

func formatStore(e controller.Store) string {
	s := fmt.Sprintf("store #%d", e.Token)
	if e.DelayMs > 0 {
		s += fmt.Sprintf(" after %d ms", e.DelayMs)
	}
	if e.Fenced {
		s += fmt.Sprintf(" fenced by %d", e.ZkVersion)
	}
	s += " " + reflect.TypeOf(e.Op).Name()
	switch op := e.Op.(type) {
	case controller.CreatePartitionStates:
		return s + formatWrites(op.States)
	case controller.SetPartitionStates:
		return s + formatWrites(op.States)
	case controller.ReadPartitionStates:
		for _, tp := range op.Partitions {
			s += " " + tp.String()
		}
		return s
	case controller.SetTopics:
		for _, t := range op.Topics {
			s += fmt.Sprintf(" %s at v%d", t.Name, t.Version)
			for _, p := range t.Partitions {
				s += fmt.Sprintf(" %d:%s", p.Partition, formatAssignment(p.Assignment))
			}
		}
		return s
	}
	return strings.TrimSuffix(fmt.Sprintf("%s%+v", s, e.Op), "{}")
}

func formatAssignment(a cluster.ReplicaAssignment) string {
	s := fmt.Sprint(a.Replicas)
	if len(a.Adding) > 0 {
		s += fmt.Sprintf("+%v", a.Adding)
	}
	if len(a.Removing) > 0 {
		s += fmt.Sprintf("-%v", a.Removing)
	}
	return s
}

func formatWrites(ws []controller.PartitionStateWrite) string {
	var s string
	for _, w := range ws {
		s += fmt.Sprintf(" %s{%s}", w.TopicPartition, w.State)
	}
	return s
}
