package sim

import (
	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Every request is answered, once, and for everything that it asked for. (An answer without a request is found by answered.)

func (k *checks) everyRequestAnswered() {
	for token, r := range k.w.requests {
		k.w.failf("request %d to broker %d is not answered: %T", token, r.node, r.ev)
	}
}

func (k *checks) answer(req controller.Event, v controller.ReplyValue) {
	var asked, got []cluster.TopicPartition
	switch req := req.(type) {
	case controller.AllocateProducerIDs:
		k.blockAnswered(v.(controller.AllocateProducerIDsResult))
	case controller.ElectLeaders:
		res := v.(controller.ElectLeadersResult)
		if res.Err != cluster.None {
			return
		}
		asked = req.Partitions
		for _, p := range res.Partitions {
			got = append(got, p.TopicPartition)
		}
	case controller.AlterPartitionReassignments:
		res := v.(controller.AlterPartitionReassignmentsResult)
		if res.Err != cluster.None {
			return
		}
		for _, p := range req.Partitions {
			asked = append(asked, p.TopicPartition)
		}
		for _, p := range res.Partitions {
			got = append(got, p.TopicPartition)
		}
	case controller.UpdateFeatures:
		if res := v.(controller.UpdateFeaturesResult); res.Err == cluster.None && len(res.Features) != len(req.Updates) {
			k.w.failf("UpdateFeatures for %d features was answered for %d", len(req.Updates), len(res.Features))
		}
	case controller.AlterPartition:
		k.alterPartitionAnswered(req, v.(controller.AlterPartitionResult))
	}
	k.answeredEach(req, asked, got)
}

// answeredEach: every partition asked for is in the answer, once, and no other.
func (k *checks) answeredEach(req controller.Event, asked, got []cluster.TopicPartition) {
	count := map[cluster.TopicPartition]int{}
	for _, tp := range got {
		count[tp]++
	}
	for _, tp := range asked {
		if count[tp] != 1 {
			k.w.failf("%T asked for %s, which was answered %d times", req, tp, count[tp])
		}
		count[tp] = 1
	}
	distinct := map[cluster.TopicPartition]bool{}
	for _, tp := range asked {
		distinct[tp] = true
	}
	for tp := range count {
		if !distinct[tp] {
			k.w.failf("%T did not ask for %s, which was answered", req, tp)
		}
	}
}

// alterPartitionAnswered: topics and partitions come back in the order asked for.
func (k *checks) alterPartitionAnswered(req controller.AlterPartition, res controller.AlterPartitionResult) {
	if res.Err != cluster.None {
		return
	}
	if len(res.Topics) != len(req.Topics) {
		k.w.failf("AlterPartition for %d topics was answered for %d", len(req.Topics), len(res.Topics))
		return
	}
	for i, t := range req.Topics {
		for j, p := range t.Partitions {
			if j >= len(res.Topics[i].Partitions) || res.Topics[i].Partitions[j].Partition != p.Partition {
				k.w.failf("AlterPartition for %s-%d was not answered", t.Name, p.Partition)
			}
		}
	}
}
