package api

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// AlterReplicaLogDirs, key 34, versions 0-2. Needs ALTER on the cluster. Begins to move this broker's replicas to other of its log dirs (KIP-113); DescribeLogDirs
// shows how far they are. Runs on a worker: a move that is given up is waited for.
func (h *Handlers) handleAlterReplicaLogDirs(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	var want []replica.ReplicaLogDir
	for _, dir := range req.Dirs {
		for _, t := range dir.Topics {
			for _, p := range t.Partitions {
				want = append(want, replica.ReplicaLogDir{TP: cluster.TopicPartition{Topic: t.Topic, Partition: p}, Dir: dir.Dir})
			}
		}
	}
	var codes []cluster.ErrorCode
	if h.allowedOnCluster(r, acl.Alter) {
		codes = h.d.Replicas.AlterReplicaLogDirs(want)
	} else {
		codes = slices.Repeat([]cluster.ErrorCode{cluster.ClusterAuthorizationFailed}, len(want))
	}
	at := map[string]int{}
	for i, code := range codes {
		tp := want[i].TP
		t, known := at[tp.Topic]
		if !known {
			t = len(resp.Topics)
			at[tp.Topic] = t
			topic := kmsg.NewAlterReplicaLogDirsResponseTopic()
			topic.Topic = tp.Topic
			resp.Topics = append(resp.Topics, topic)
		}
		p := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
		p.Partition, p.ErrorCode = tp.Partition, int16(code)
		resp.Topics[t].Partitions = append(resp.Topics[t].Partitions, p)
	}
	r.Respond(resp, 0)
}
