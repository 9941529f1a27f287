package api

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// AlterPartitionReassignments starts everything.
func (c *testController) AlterPartitionReassignments(_ context.Context, req *kmsg.AlterPartitionAssignmentsRequest, done func(*kmsg.AlterPartitionAssignmentsResponse)) {
	c.reassigned.Add(1)
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	for _, t := range req.Topics {
		out := kmsg.AlterPartitionAssignmentsResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, kmsg.AlterPartitionAssignmentsResponseTopicPartition{Partition: p.Partition})
		}
		resp.Topics = append(resp.Topics, out)
	}
	done(resp)
}

// ListPartitionReassignments has one that is never asked for.
func (c *testController) ListPartitionReassignments(_ context.Context, req *kmsg.ListPartitionReassignmentsRequest, done func(*kmsg.ListPartitionReassignmentsResponse)) {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	resp.Topics = []kmsg.ListPartitionReassignmentsResponseTopic{{Topic: "t", Partitions: []kmsg.ListPartitionReassignmentsResponseTopicPartition{{
		Replicas: []int32{0, 1}, AddingReplicas: []int32{1}, RemovingReplicas: []int32{0}}}}}
	done(resp)
}

// Who may not is refused as a whole, and nothing of what was asked for reaches the controller, nor is anything told.
func TestReassignmentsAreRefusedAsAWhole(t *testing.T) {
	alter := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	alter.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{1}}}}}
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	inBubble(t, withAuthorizer, func(b *testBroker) {
		refused := alter.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		refused.ErrorCode, refused.ErrorMessage = int16(cluster.ClusterAuthorizationFailed), ptr(clusterDenied.Message)
		same(t, refused, b.do(0, alter).(*kmsg.AlterPartitionAssignmentsResponse))
		unseen := list.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		unseen.ErrorCode, unseen.ErrorMessage = int16(cluster.ClusterAuthorizationFailed), ptr(clusterDenied.Message)
		same(t, unseen, b.do(0, list).(*kmsg.ListPartitionReassignmentsResponse))
		if n := b.ctl.reassigned.Load(); n != 0 {
			t.Errorf("the controller was asked %d times", n)
		}
	})
	inBubble(t, nil, func(b *testBroker) {
		if got := b.do(0, alter).(*kmsg.AlterPartitionAssignmentsResponse); got.ErrorCode != 0 || len(got.Topics) != 1 || b.ctl.reassigned.Load() != 1 {
			t.Errorf("without rules: %+v, the controller was asked %d times", got, b.ctl.reassigned.Load())
		}
		if got := b.do(0, list).(*kmsg.ListPartitionReassignmentsResponse); got.ErrorCode != 0 || len(got.Topics) != 1 {
			t.Errorf("without rules: %+v", got)
		}
	})
}
