package driver

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// ElectLeaders asks the active controller for elections of the partitions that the request names; a request for all
// partitions must have been filled in. done is called exactly once, on any goroutine, with the leaders that
// successful elections made; it must not block. NOT_CONTROLLER for each partition when this broker is not it.
func (d *Driver) ElectLeaders(_ context.Context, req *kmsg.ElectLeadersRequest,
	done func(*kmsg.ElectLeadersResponse, map[cluster.TopicPartition]cluster.BrokerID)) {
	kind := controller.PreferredElection
	if req.Version >= 1 {
		kind = controller.ElectionType(req.ElectionType)
	}
	var tps []cluster.TopicPartition
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tps = append(tps, cluster.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	d.request(func(token controller.ReplyToken) controller.Event {
		return controller.ElectLeaders{Reply: token, Type: kind, Partitions: tps}
	}, func(v controller.ReplyValue) {
		answer := v.(controller.ElectLeadersResult)
		if answer.Err != cluster.None {
			for _, tp := range tps {
				answer.Partitions = append(answer.Partitions, controller.PartitionElection{TopicPartition: tp, Err: answer.Err})
			}
		}
		elected := map[cluster.TopicPartition]cluster.BrokerID{}
		resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
		for _, p := range answer.Partitions {
			if p.Err == cluster.None {
				elected[p.TopicPartition] = p.Leader
			}
			addElection(resp, p)
		}
		done(resp, elected)
	})
}

func addElection(resp *kmsg.ElectLeadersResponse, p controller.PartitionElection) {
	if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != p.Topic {
		t := kmsg.NewElectLeadersResponseTopic()
		t.Topic = p.Topic
		resp.Topics = append(resp.Topics, t)
	}
	rp := kmsg.NewElectLeadersResponseTopicPartition()
	rp.Partition, rp.ErrorCode = p.Partition, int16(p.Err)
	if p.Message != "" {
		rp.ErrorMessage = &p.Message
	}
	t := &resp.Topics[len(resp.Topics)-1]
	t.Partitions = append(t.Partitions, rp)
}
