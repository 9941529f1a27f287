package driver

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// reply maps topic ids of version 5 and later back to the names of the request; ids that the request did not name are
// left out (Kafka skips those that the context no longer knows).
func (r *leaderAndISR) reply(resp kmsg.Response) controller.Event {
	answer := resp.(*kmsg.LeaderAndISRResponse)
	ev := controller.LeaderAndISRReply{Request: r.effect, Err: cluster.ErrorCode(answer.ErrorCode)}
	add := func(topic string, p kmsg.LeaderAndISRResponseTopicPartition) {
		tp := cluster.TopicPartition{Topic: topic, Partition: p.Partition}
		ev.Partitions = append(ev.Partitions, controller.PartitionError{TopicPartition: tp, Err: cluster.ErrorCode(p.ErrorCode)})
	}
	if answer.Version < 5 {
		for _, p := range answer.Partitions {
			add(p.Topic, p)
		}
		return ev
	}
	names := make(map[cluster.TopicID]string, len(r.effect.Topics))
	for _, t := range r.effect.Topics {
		names[t.ID] = t.Name
	}
	for _, t := range answer.Topics {
		if name, ok := names[t.TopicID]; ok {
			for _, p := range t.Partitions {
				add(name, p)
			}
		}
	}
	return ev
}

func (r *updateMetadata) reply(resp kmsg.Response) controller.Event {
	answer := resp.(*kmsg.UpdateMetadataResponse)
	return controller.UpdateMetadataReply{Request: r.effect, Err: cluster.ErrorCode(answer.ErrorCode)}
}

func (r *stopReplica) reply(resp kmsg.Response) controller.Event {
	answer := resp.(*kmsg.StopReplicaResponse)
	ev := controller.StopReplicaReply{Request: r.effect, Err: cluster.ErrorCode(answer.ErrorCode)}
	for _, p := range answer.Partitions {
		tp := cluster.TopicPartition{Topic: p.Topic, Partition: p.Partition}
		ev.Partitions = append(ev.Partitions, controller.PartitionError{TopicPartition: tp, Err: cluster.ErrorCode(p.ErrorCode)})
	}
	return ev
}
