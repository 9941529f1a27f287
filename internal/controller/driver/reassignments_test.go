package driver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

func (b *testBroker) reassign(topic string, replicas []int32) cluster.ErrorCode {
	b.c.t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic,
		Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: replicas}}}}
	var answer *kmsg.AlterPartitionAssignmentsResponse
	b.AlterPartitionReassignments(context.Background(), req, func(resp *kmsg.AlterPartitionAssignmentsResponse) { answer = resp })
	synctest.Wait()
	switch {
	case answer == nil:
		b.c.t.Fatal("no answer")
	case answer.ErrorCode != 0:
		return cluster.ErrorCode(answer.ErrorCode)
	}
	return cluster.ErrorCode(answer.Topics[0].Partitions[0].ErrorCode)
}

func (b *testBroker) reassignments() []kmsg.ListPartitionReassignmentsResponseTopic {
	b.c.t.Helper()
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.Topics = nil
	var answer *kmsg.ListPartitionReassignmentsResponse
	b.ListPartitionReassignments(context.Background(), req, func(resp *kmsg.ListPartitionReassignmentsResponse) { answer = resp })
	synctest.Wait()
	return answer.Topics
}

// growISR is what the leader does when all replicas have caught up.
func (b *testBroker) growISR(topic string, isr ...cluster.BrokerID) {
	b.c.t.Helper()
	s, _ := b.c.state(topic, 0)
	s.ISR = isr
	_, err := b.c.admin.Multi(context.Background(), coord.Set(coord.PartitionStatePath(cluster.TopicPartition{Topic: topic}), coord.EncodePartitionState(s), coord.AnyVersion),
		coord.CreateSequential(coord.ISRChangePrefix, coord.EncodeISRChange([]cluster.TopicPartition{{Topic: topic}})))
	if err != nil {
		b.c.t.Fatal(err)
	}
	synctest.Wait()
}

// R13: a reassignment goes on over a failover, and nothing of it stays listed when it has ended.
func TestAPartitionIsReassignedOverAFailover(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		synctest.Wait()
		two := c.start(2)
		defer two.stop()
		synctest.Wait()
		three := c.start(3)
		defer three.stop()
		synctest.Wait()
		c.createTopic("t", []cluster.BrokerID{2})
		synctest.Wait()
		if code := two.reassign("t", []int32{3}); code != cluster.NotController {
			t.Errorf("broker 2 answers %v", code)
		}
		if code := one.reassign("t", []int32{9}); code != cluster.InvalidReplicaAssignment {
			t.Errorf("to a broker that is not there: %v", code)
		}
		if code := one.reassign("t", []int32{3}); code != cluster.None {
			t.Errorf("to broker 3: %v", code)
		}
		one.stop()
		synctest.Wait()
		active := two
		if three.IsActive() {
			active = three
		}
		listed := active.reassignments()
		if len(listed) != 1 || !slices.Equal(listed[0].Partitions[0].AddingReplicas, []int32{3}) || !slices.Equal(listed[0].Partitions[0].RemovingReplicas, []int32{2}) {
			t.Errorf("in progress: %+v", listed)
		}
		active.growISR("t", 2, 3)
		if s, _ := c.state("t", 0); s.Leader != 3 || !slices.Equal(s.ISR, []cluster.BrokerID{3}) {
			t.Errorf("t-0 is %v", s)
		}
		if left := active.reassignments(); len(left) != 0 {
			t.Errorf("still listed: %+v", left)
		}
		told := strings.Join(requestLog(two.fake.take()), "\n")
		if !strings.Contains(told, "StopReplica t-0") || !strings.Contains(told, "delete=true") {
			t.Errorf("broker 2 was told\n%s", told)
		}
	})
}

// The node of old tools is worked off entry by entry, and goes with the last.
func TestReassignmentsOfOldToolsAreWorkedOff(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one, _ := c.startTwo()
		c.createTopic("t", on1)
		synctest.Wait()
		node := coord.EncodeReassignment(map[cluster.TopicPartition][]cluster.BrokerID{{Topic: "t"}: {2}, {Topic: "none"}: {1}})
		if _, err := c.admin.Multi(t.Context(), coord.Create(coord.ReassignPartitionsPath, node)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		left, err := c.admin.Get(t.Context(), coord.ReassignPartitionsPath)
		if err != nil {
			t.Fatal(err)
		}
		if targets, err := coord.DecodeReassignment(left.Data); err != nil || len(targets) != 1 {
			t.Errorf("in the node: %v, %v", targets, err)
		}
		one.growISR("t", 1, 2)
		if s, _ := c.state("t", 0); s.Leader != 2 {
			t.Errorf("t-0 is %v", s)
		}
		if _, err := c.admin.Get(t.Context(), coord.ReassignPartitionsPath); !errors.Is(err, coord.ErrNoNode) {
			t.Errorf("the node is still there: %v", err)
		}
	})
}
