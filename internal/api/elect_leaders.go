package api

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// LeaderElector is what a Controller may offer besides; then ElectLeaders is served. The request names its partitions.
type LeaderElector interface {
	ElectLeaders(ctx context.Context, req *kmsg.ElectLeadersRequest,
		done func(resp *kmsg.ElectLeadersResponse, elected map[cluster.TopicPartition]cluster.BrokerID))
}

// handleElectLeaders is ElectLeaders, key 43, versions 0-2 (KIP-460). Needs ALTER on the cluster.
//
// No list of partitions means all that this broker knows; of those the answer leaves out the ones that need no election.
// The answer waits until this broker's metadata shows the elected leaders; what is missing at the timeout is
// REQUEST_TIMED_OUT, though elected. A partition that never had a leader is answered like the others (W3). On a broker
// that is not the controller each partition is answered NOT_CONTROLLER. An election type that does not exist is
// INVALID_REQUEST.
//
//	v0  preferred elections only
//	v1  unclean elections
//	v2  flexible
func (h *Handlers) handleElectLeaders(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.ElectLeadersRequest)
	if req.Version >= 1 && req.ElectionType != 0 && req.ElectionType != 1 {
		resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
		resp.ErrorCode = int16(cluster.InvalidRequest)
		r.Respond(resp, 0)
		return
	}
	if !h.allowedOnCluster(r, acl.Alter) {
		r.Respond(refusedElection(req), 0)
		return
	}
	all := req.Topics == nil
	if all {
		req.Topics = allPartitions(h.d.Cache.Image())
	}
	deadline := time.Now().Add(max(0, time.Duration(req.TimeoutMillis)*time.Millisecond))
	h.d.Controller.(LeaderElector).ElectLeaders(ctx, req, func(resp *kmsg.ElectLeadersResponse, elected map[cluster.TopicPartition]cluster.BrokerID) {
		if all {
			dropUnneeded(resp)
		}
		if len(elected) == 0 {
			r.Respond(resp, 0)
			return
		}
		h.awaitElected(elected, deadline, func(missing func(cluster.TopicPartition) bool) {
			for i := range resp.Topics {
				for j := range resp.Topics[i].Partitions {
					p := &resp.Topics[i].Partitions[j]
					if missing(cluster.TopicPartition{Topic: resp.Topics[i].Topic, Partition: p.Partition}) {
						p.ErrorCode = int16(cluster.RequestTimedOut)
					}
				}
			}
			r.Respond(resp, 0)
		})
	})
}

// refusedElection has the code for the whole and for each partition, as Kafka's answer.
func refusedElection(req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	resp.ErrorCode = int16(clusterDenied.Code)
	for _, t := range req.Topics {
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, id := range t.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition, p.ErrorCode, p.ErrorMessage = id, int16(clusterDenied.Code), clusterDenied.message()
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// awaitElected calls done once the metadata of this broker shows all elected leaders, or at the deadline (Kafka:
// DelayedElectLeader).
func (h *Handlers) awaitElected(elected map[cluster.TopicPartition]cluster.BrokerID, deadline time.Time,
	done func(missing func(cluster.TopicPartition) bool)) {
	var topics []string
	for tp := range elected {
		topics = append(topics, tp.Topic)
	}
	slices.Sort(topics)
	shown := func(im *metadata.Image, tp cluster.TopicPartition) bool {
		p, ok := im.Partition(tp)
		return ok && p.Leader == elected[tp]
	}
	h.d.Cache.Await(slices.Compact(topics), deadline, func(im *metadata.Image) bool {
		for tp := range elected {
			if !shown(im, tp) {
				return false
			}
		}
		return true
	}, func(ok bool) {
		im := h.d.Cache.Image()
		done(func(tp cluster.TopicPartition) bool {
			_, wanted := elected[tp]
			return !ok && wanted && !shown(im, tp)
		})
	})
}

func allPartitions(im *metadata.Image) []kmsg.ElectLeadersRequestTopic {
	topics := []kmsg.ElectLeadersRequestTopic{}
	for t := range im.Topics() {
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic = t.Name
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, p.Index)
		}
		topics = append(topics, rt)
	}
	return topics
}

func dropUnneeded(resp *kmsg.ElectLeadersResponse) {
	for i := range resp.Topics {
		t := &resp.Topics[i]
		t.Partitions = slices.DeleteFunc(t.Partitions, func(p kmsg.ElectLeadersResponseTopicPartition) bool {
			return cluster.ErrorCode(p.ErrorCode) == cluster.ElectionNotNeeded
		})
	}
	resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.ElectLeadersResponseTopic) bool { return len(t.Partitions) == 0 })
}
