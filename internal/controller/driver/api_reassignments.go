package driver

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// AlterPartitionReassignments asks the active controller to start, replace or cancel reassignments. done is called exactly
// once, on any goroutine; it must not block. NOT_CONTROLLER when this broker is not it, or ceases to be it.
func (d *Driver) AlterPartitionReassignments(_ context.Context, req *kmsg.AlterPartitionAssignmentsRequest, done func(*kmsg.AlterPartitionAssignmentsResponse)) {
	var wishes []controller.PartitionReassignment
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			w := controller.PartitionReassignment{TopicPartition: cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}}
			if p.Replicas != nil {
				w.Target = make([]cluster.BrokerID, len(p.Replicas))
				for i, id := range p.Replicas {
					w.Target[i] = cluster.BrokerID(id)
				}
			}
			wishes = append(wishes, w)
		}
	}
	d.request(func(token controller.ReplyToken) controller.Event {
		return controller.AlterPartitionReassignments{Reply: token, Partitions: wishes}
	}, func(v controller.ReplyValue) {
		answer := v.(controller.AlterPartitionReassignmentsResult)
		resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		resp.ErrorCode = int16(answer.Err)
		for i := range answer.Partitions {
			addOutcome(resp, &answer.Partitions[i])
		}
		done(resp)
	})
}

func addOutcome(resp *kmsg.AlterPartitionAssignmentsResponse, o *controller.ReassignmentOutcome) {
	if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != o.Topic {
		t := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		t.Topic = o.Topic
		resp.Topics = append(resp.Topics, t)
	}
	p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
	p.Partition, p.ErrorCode = o.Partition, int16(o.Err)
	if o.Message != "" {
		p.ErrorMessage = &o.Message
	}
	t := &resp.Topics[len(resp.Topics)-1]
	t.Partitions = append(t.Partitions, p)
}

// ListPartitionReassignments asks the active controller for the reassignments in progress. done is called exactly once, on
// any goroutine; it must not block. NOT_CONTROLLER when this broker is not it, or ceases to be it.
func (d *Driver) ListPartitionReassignments(_ context.Context, req *kmsg.ListPartitionReassignmentsRequest, done func(*kmsg.ListPartitionReassignmentsResponse)) {
	var tps []cluster.TopicPartition
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tps = append(tps, cluster.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	d.request(func(token controller.ReplyToken) controller.Event {
		return controller.ListPartitionReassignments{Reply: token, All: req.Topics == nil, Partitions: tps}
	}, func(v controller.ReplyValue) {
		answer := v.(controller.ListPartitionReassignmentsResult)
		resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		resp.ErrorCode = int16(answer.Err)
		for _, o := range answer.Partitions {
			if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != o.Topic {
				t := kmsg.NewListPartitionReassignmentsResponseTopic()
				t.Topic = o.Topic
				resp.Topics = append(resp.Topics, t)
			}
			t := &resp.Topics[len(resp.Topics)-1]
			t.Partitions = append(t.Partitions, kmsg.ListPartitionReassignmentsResponseTopicPartition{
				Partition: o.Partition, Replicas: wireIDs(o.Assignment.Replicas),
				AddingReplicas: wireIDs(o.Assignment.Adding), RemovingReplicas: wireIDs(o.Assignment.Removing),
			})
		}
		done(resp)
	})
}

func wireIDs(ids []cluster.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
