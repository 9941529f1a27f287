package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DescribeLogDirs, key 35, versions 0-5. Needs DESCRIBE on the cluster. Lists this broker's log dirs with the sizes of their partitions: of all (null)
// or of those asked for. Runs on a worker, as it asks the file system.
//
//	v3  top-level error
//	v4  total and usable bytes of the dir's file system
//	v5  cordoned dirs, of which there are none
func (h *Handlers) handleDescribeLogDirs(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	if !h.allowedOnCluster(r, acl.Describe) {
		resp.ErrorCode = int16(cluster.ClusterAuthorizationFailed)
		r.Respond(resp, 0)
		return
	}
	var want func(cluster.TopicPartition) bool
	if req.Topics != nil {
		asked := map[cluster.TopicPartition]bool{}
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				asked[cluster.TopicPartition{Topic: t.Topic, Partition: p}] = true
			}
		}
		want = func(tp cluster.TopicPartition) bool { return asked[tp] }
	}
	for _, dir := range h.d.Replicas.DescribeLogDirs(want) {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.ErrorCode, out.Dir, out.TotalBytes, out.UsableBytes = int16(dir.Err), dir.Path, dir.TotalBytes, dir.UsableBytes
		out.Topics = logDirTopics(dir.Replicas)
		resp.Dirs = append(resp.Dirs, out)
	}
	r.Respond(resp, 0)
}

// logDirTopics groups replicas, which come sorted, by topic.
func logDirTopics(replicas []replica.LogDirReplica) []kmsg.DescribeLogDirsResponseDirTopic {
	var out []kmsg.DescribeLogDirsResponseDirTopic
	for _, rep := range replicas {
		if len(out) == 0 || out[len(out)-1].Topic != rep.TP.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = rep.TP.Topic
			out = append(out, t)
		}
		p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		p.Partition, p.Size, p.OffsetLag, p.IsFuture = rep.TP.Partition, rep.Size, rep.OffsetLag, rep.Future
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, p)
	}
	return out
}
