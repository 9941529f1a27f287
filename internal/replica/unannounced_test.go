package replica

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// existing tells which of the partitions t-0 and t-1 exist, and whether the id's topic does.
func (b *testBroker) existing(id cluster.TopicID) [3]bool {
	im := b.cache.Image()
	_, named := b.TopicName(im, id)
	return [3]bool{b.Exists(im, testTP(0)), b.Exists(im, testTP(1)), named}
}

func TestPartitionsExistFromTheirFirstLeaderAndISROn(t *testing.T) {
	first, second := cluster.NewTopicID(), cluster.NewTopicID()
	given := func(id cluster.TopicID, partitions ...int32) func(*testBroker) {
		return func(b *testBroker) {
			for _, p := range partitions {
				b.HandleLeaderAndISR(leaderAndISRRequest(7, leadState{topic: testTP(0).Topic, id: id, partition: p, leader: 1, isr: []int32{1}, isNew: true}))
			}
		}
	}
	announced := func(leader cluster.BrokerID, id cluster.TopicID, partitions ...int32) func(*testBroker) {
		return func(b *testBroker) {
			req := kmsg.NewPtrUpdateMetadataRequest()
			req.Version, req.ControllerEpoch, req.BrokerEpoch = 8, 1, -1
			s := kmsg.UpdateMetadataRequestTopicState{Topic: testTP(0).Topic, TopicID: id}
			for _, p := range partitions {
				s.PartitionStates = append(s.PartitionStates, kmsg.UpdateMetadataRequestTopicPartition{Partition: p, Leader: int32(leader)})
			}
			req.TopicStates = append(req.TopicStates, s)
			b.HandleUpdateMetadata(req)
		}
	}
	deleted := func(b *testBroker) {
		req := kmsg.NewPtrStopReplicaRequest()
		req.Version, req.ControllerEpoch, req.BrokerEpoch = 1, 1, -1
		req.DeletePartitions = true
		req.Topics = []kmsg.StopReplicaRequestTopic{{Topic: testTP(0).Topic, Partitions: []int32{0, 1}}}
		b.HandleStopReplica(req)
	}
	for _, tc := range []struct {
		name  string
		steps []func(*testBroker)
		want  [3]bool
	}{
		{"nothing", nil, [3]bool{}},
		{"one is given", []func(*testBroker){given(first, 0)}, [3]bool{true, false, true}},
		{"both are given", []func(*testBroker){given(first, 0, 1)}, [3]bool{true, true, true}},
		{"given and announced", []func(*testBroker){given(first, 0, 1), announced(1, first, 0, 1)}, [3]bool{true, true, true}},
		{"one of two is announced", []func(*testBroker){given(first, 0, 1), announced(1, first, 0)}, [3]bool{true, true, true}},
		{"the deletion of one is announced", []func(*testBroker){given(first, 0, 1), announced(cluster.LeaderDuringDelete, first, 0)}, [3]bool{false, true, true}},
		{"announced, then the deletion", []func(*testBroker){given(first, 0, 1), announced(1, first, 0, 1), announced(cluster.LeaderDuringDelete, first, 0, 1)}, [3]bool{}},
		{"given again after the deletion is announced", []func(*testBroker){given(first, 0), announced(cluster.LeaderDuringDelete, first, 0), given(first, 0)}, [3]bool{}},
		{"stopped before it is announced", []func(*testBroker){given(first, 0, 1), deleted}, [3]bool{}},
		{"another topic of the name is given", []func(*testBroker){given(first, 0, 1), deleted, given(second, 0)}, [3]bool{true, false, false}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{})
			for _, step := range tc.steps {
				step(b)
			}
			if diff := cmp.Diff(tc.want, b.existing(first)); diff != "" {
				t.Errorf("t-0, t-1 and the topic's id (-want +got):\n%s", diff)
			}
			if u := &b.unannounced; len(u.topics) < len(u.names) {
				t.Errorf("names are left of topics that are gone: %v", u.names)
			}
		})
	}
}
