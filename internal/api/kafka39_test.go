package api

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire"
)

// ranges39 are the versions that a Kafka 3.9.1 broker in ZooKeeper mode offers of the APIs that klamm serves, as kafka-broker-api-versions
// prints them. OffsetCommit and OffsetFetch 0 keep offsets in ZooKeeper and are left out.
var ranges39 = map[kmsg.Key][2]int16{
	kmsg.Produce: {0, 11}, kmsg.Fetch: {0, 17}, kmsg.ListOffsets: {0, 9}, kmsg.Metadata: {0, 12}, kmsg.LeaderAndISR: {0, 7}, kmsg.StopReplica: {0, 4},
	kmsg.UpdateMetadata: {0, 8}, kmsg.ControlledShutdown: {0, 3}, kmsg.OffsetCommit: {1, 9}, kmsg.OffsetFetch: {1, 9}, kmsg.FindCoordinator: {0, 6},
	kmsg.JoinGroup: {0, 9}, kmsg.Heartbeat: {0, 4}, kmsg.LeaveGroup: {0, 5}, kmsg.SyncGroup: {0, 5}, kmsg.DescribeGroups: {0, 5}, kmsg.ListGroups: {0, 5},
	kmsg.SASLHandshake: {0, 1}, kmsg.ApiVersions: {0, 4}, kmsg.CreateTopics: {0, 7}, kmsg.DeleteTopics: {0, 6}, kmsg.DeleteRecords: {0, 2},
	kmsg.InitProducerID: {0, 5}, kmsg.OffsetForLeaderEpoch: {0, 4}, kmsg.DescribeACLs: {0, 3}, kmsg.CreateACLs: {0, 3}, kmsg.DeleteACLs: {0, 3},
	kmsg.DescribeConfigs: {0, 4}, kmsg.AlterConfigs: {0, 2}, kmsg.AlterReplicaLogDirs: {0, 2}, kmsg.DescribeLogDirs: {0, 4}, kmsg.SASLAuthenticate: {0, 2},
	kmsg.CreatePartitions: {0, 3}, kmsg.CreateDelegationToken: {0, 3}, kmsg.RenewDelegationToken: {0, 2}, kmsg.ExpireDelegationToken: {0, 2},
	kmsg.DescribeDelegationToken: {0, 3}, kmsg.DeleteGroups: {0, 2}, kmsg.ElectLeaders: {0, 2}, kmsg.IncrementalAlterConfigs: {0, 1},
	kmsg.AlterPartitionAssignments: {0, 0}, kmsg.ListPartitionReassignments: {0, 0}, kmsg.OffsetDelete: {0, 0}, kmsg.DescribeClientQuotas: {0, 1},
	kmsg.AlterClientQuotas: {0, 1}, kmsg.DescribeUserSCRAMCredentials: {0, 0}, kmsg.AlterUserSCRAMCredentials: {0, 0}, kmsg.AlterPartition: {0, 3},
	kmsg.UpdateFeatures: {0, 1}, kmsg.DescribeCluster: {0, 1}, kmsg.DescribeProducers: {0, 0}, kmsg.AllocateProducerIDs: {0, 0},
}

func TestOnZooKeeperTheVersionsOfKafka39AreOffered(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		deps := b.h.d
		deps.Table, deps.LikeKafka39 = wire.NewAPITable(), true
		New(deps)
		got, want := map[string]string{}, map[string]string{}
		for _, a := range deps.Table.APIs(true) {
			got[wire.APIName(a.Key)] = fmt.Sprint(a.Min, " to ", a.Max)
			if r, known := ranges39[kmsg.Key(a.Key)]; known {
				want[wire.APIName(a.Key)] = fmt.Sprint(r[0], " to ", r[1])
			}
		}
		if d := cmp.Diff(want, got); d != "" || len(got) < 40 {
			t.Errorf("Kafka - and klamm +, %d in all\n%s", len(got), d)
		}
	})
}
