package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/replica"
	"klamm/internal/wire"
)

// The controller's requests to brokers: LeaderAndIsr (key 4, versions 0-7), StopReplica (key 5, 0-4) and UpdateMetadata
// (key 6, 0-8), on the inter-broker listener only, which stands for Kafka's ClusterAction while there is no authorizer.
// Epoch checks and effects are package replica's. They run on workers of their own, in the order of the connection: the
// controller counts on a broker seeing LeaderAndIsr before the UpdateMetadata that announces it.

// handleLeaderAndISR reads the configs of topics that are new to this broker before their logs are made: creating a
// topic sends no config notification, and a log with the wrong cleanup policy would lose data.
func (h *Handlers) handleLeaderAndISR(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.LeaderAndISRRequest)
	if err := h.configs.readTopics(ctx, h.newTopics(req)); err != nil {
		r.Close("broker stops before it could read topic configs", nil)
		return
	}
	resp := h.d.Replicas.HandleLeaderAndISR(req, connOf(r))
	if resp == nil {
		r.Close(superseded, nil)
		return
	}
	r.Respond(resp, 0)
}

// superseded is why a connection is closed whose controller has another by now. Closing it also makes a controller that does use it connect
// again, as its newest.
const superseded = "the controller has a newer connection"

func connOf(r *wire.Request) replica.ControlConn { return replica.ControlConn(r.Conn.ID()) }

// newTopics lists the topics with a partition that this broker does not host.
func (h *Handlers) newTopics(req *kmsg.LeaderAndISRRequest) []string {
	var names []string
	seen := map[string]bool{}
	note := func(topic string, partition int32) {
		if seen[topic] {
			return
		}
		if _, state := h.d.Replicas.Partition(cluster.TopicPartition{Topic: topic, Partition: partition}); state == replica.HostedNone {
			seen[topic] = true
			names = append(names, topic)
		}
	}
	for _, p := range req.PartitionStates {
		note(p.Topic, p.Partition)
	}
	for _, t := range req.TopicStates {
		for _, p := range t.PartitionStates {
			note(t.Topic, p.Partition)
		}
	}
	return names
}

func (h *Handlers) handleStopReplica(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.StopReplicaRequest)
	resp := h.d.Replicas.HandleStopReplica(req, connOf(r))
	if resp == nil {
		r.Close(superseded, nil)
		return
	}
	if resp.ErrorCode == 0 {
		im := h.d.Cache.Image()
		for _, t := range req.Topics {
			if _, exists := im.Topic(t.Topic); !exists && stopDeletes(req, &t) {
				h.configs.forgetTopic(t.Topic)
			}
		}
	}
	r.Respond(resp, 0)
}

func stopDeletes(req *kmsg.StopReplicaRequest, t *kmsg.StopReplicaRequestTopic) bool {
	if req.Version <= 2 {
		return req.DeletePartitions
	}
	for _, p := range t.PartitionStates {
		if p.Delete {
			return true
		}
	}
	return false
}

// handleUpdateMetadata forgets the settings of deleted topics of which nothing lies here; where something does, they
// count until StopReplica.
func (h *Handlers) handleUpdateMetadata(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.UpdateMetadataRequest)
	resp := h.d.Replicas.HandleUpdateMetadata(req, connOf(r))
	if resp == nil {
		r.Close(superseded, nil)
		return
	}
	r.Respond(resp, 0)
	if resp.ErrorCode != 0 {
		return
	}
	here, gone := map[string]bool{}, map[string]bool{}
	note := func(topic string, p *kmsg.UpdateMetadataRequestTopicPartition) {
		if cluster.BrokerID(p.Leader) == cluster.LeaderDuringDelete {
			_, state := h.d.Replicas.Partition(cluster.TopicPartition{Topic: topic, Partition: p.Partition})
			gone[topic] = true
			here[topic] = here[topic] || state != replica.HostedNone
		}
	}
	for i := range req.PartitionStates {
		note(req.PartitionStates[i].Topic, &req.PartitionStates[i])
	}
	for _, t := range req.TopicStates {
		for i := range t.PartitionStates {
			note(t.Topic, &t.PartitionStates[i])
		}
	}
	im := h.d.Cache.Image()
	for topic := range gone {
		if _, exists := im.Topic(topic); !exists && !here[topic] {
			h.configs.forgetTopic(topic)
		}
	}
}

// handleAlterPartition is AlterPartition, key 56, versions 0-3: a leader asks the controller to change the ISR.
func (h *Handlers) handleAlterPartition(ctx context.Context, r *wire.Request) {
	h.d.Controller.AlterPartition(ctx, r.Msg.(*kmsg.AlterPartitionRequest), func(resp *kmsg.AlterPartitionResponse) { r.Respond(resp, 0) })
}

// handleAllocateProducerIDs is AllocateProducerIds, key 67, version 0: a broker asks the controller for a block of ids.
func (h *Handlers) handleAllocateProducerIDs(ctx context.Context, r *wire.Request) {
	h.d.Controller.AllocateProducerIDs(ctx, r.Msg.(*kmsg.AllocateProducerIDsRequest),
		func(resp *kmsg.AllocateProducerIDsResponse) { r.Respond(resp, 0) })
}

// handleControlledShutdown is ControlledShutdown, key 7, versions 0-3: a broker asks the controller to take its leaderships.
func (h *Handlers) handleControlledShutdown(ctx context.Context, r *wire.Request) {
	h.d.Controller.(ControlledShutdowner).ControlledShutdown(ctx, r.Msg.(*kmsg.ControlledShutdownRequest),
		func(resp *kmsg.ControlledShutdownResponse) { r.Respond(resp, 0) })
}
