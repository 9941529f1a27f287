package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DescribeProducers, key 61, version 0 (KIP-664). Needs READ on each topic. The idempotent producers that partitions on this broker remember, led
// or followed here: what `kafka-transactions describe-producers` shows.
func (h *Handlers) handleDescribeProducers(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, t := range req.Topics {
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		mayRead := h.allowed(r, acl.Read, acl.Topic, t.Topic)
		for _, p := range t.Partitions {
			if !mayRead {
				denied := kmsg.NewDescribeProducersResponseTopicPartition()
				denied.Partition, denied.ErrorCode = p, int16(cluster.TopicAuthorizationFailed)
				out.Partitions = append(out.Partitions, denied)
				continue
			}
			out.Partitions = append(out.Partitions, h.describeProducers(cluster.TopicPartition{Topic: t.Topic, Partition: p}))
		}
		resp.Topics = append(resp.Topics, out)
	}
	r.Respond(resp, 0)
}

func (h *Handlers) describeProducers(tp cluster.TopicPartition) kmsg.DescribeProducersResponseTopicPartition {
	out := kmsg.NewDescribeProducersResponseTopicPartition()
	out.Partition = tp.Partition
	producers, code := h.d.Replicas.DescribeProducers(tp)
	out.ErrorCode = int16(code)
	for _, p := range producers {
		out.ActiveProducers = append(out.ActiveProducers, kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
			ProducerID: p.ProducerID, ProducerEpoch: int32(p.ProducerEpoch), LastSequence: p.LastSequence, LastTimestamp: p.LastTimestamp,
			CoordinatorEpoch: p.CoordinatorEpoch, CurrentTxnStartOffset: p.CurrentTxnStartOffset,
		})
	}
	return out
}
