package driver

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// outgoing is a request in a broker's queue: what it says, and how its answer becomes an event. It is built into its
// wire form by the broker's sender, so that the owner goroutine spends no time on it.
type outgoing interface {
	// build gives the request at the version of the sender's Versions.
	build(b requestBuilder) kmsg.Request
	// reply turns the answer into an event, or nil when nobody waits for it.
	reply(resp kmsg.Response) controller.Event
	// entries is the number of partitions it names: its weight in the queue's bound.
	entries() int
	// name is Kafka's name of the request.
	name() string
}

// requestBuilder knows what requests need beside the effect: the versions and the listener that brokers talk on.
type requestBuilder struct {
	versions Versions
	listener string
}

// int32s copies broker ids into the wire's type, cutting pieces off one allocation.
type int32s struct{ free []int32 }

func newInt32s(n int) *int32s { return &int32s{make([]int32, n)} }

func (a *int32s) take(ids []cluster.BrokerID) []int32 {
	if len(a.free) < len(ids) {
		a.free = make([]int32, max(len(ids), 1024))
	}
	out := a.free[:len(ids):len(ids)]
	a.free = a.free[len(ids):]
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// leaderAndISR is a queued LeaderAndIsr request.
type leaderAndISR struct {
	effect controller.SendLeaderAndISR
	count  int
}

func newLeaderAndISR(e controller.SendLeaderAndISR) *leaderAndISR {
	n := 0
	for _, t := range e.Topics {
		n += len(t.Partitions)
	}
	return &leaderAndISR{e, n}
}

func (r *leaderAndISR) entries() int { return r.count }
func (r *leaderAndISR) name() string { return "LeaderAndIsr" }

func (r *leaderAndISR) build(b requestBuilder) kmsg.Request {
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.Version = b.versions.LeaderAndISR
	req.ControllerID = int32(r.effect.Target.Controller)
	req.ControllerEpoch = int32(r.effect.Target.ControllerEpoch)
	req.BrokerEpoch = int64(r.effect.Target.BrokerEpoch)
	ids := newInt32s(6 * r.count)
	for _, t := range r.effect.Topics {
		states := make([]kmsg.LeaderAndISRRequestTopicPartition, 0, len(t.Partitions))
		for i := range t.Partitions {
			states = append(states, leaderAndISRState(t.Name, &t.Partitions[i], b.versions, ids))
		}
		if req.Version < 2 {
			req.PartitionStates = append(req.PartitionStates, states...)
			continue
		}
		ts := kmsg.NewLeaderAndISRRequestTopicState()
		ts.Topic, ts.TopicID, ts.PartitionStates = t.Name, t.ID, states
		req.TopicStates = append(req.TopicStates, ts)
	}
	for _, leader := range r.effect.LiveLeaders {
		// A leader without the listener cannot be reached by followers: it is left out (Kafka: broker.node throws).
		if e, ok := leader.Endpoint(b.listener); ok {
			l := kmsg.NewLeaderAndISRRequestLiveLeader()
			l.BrokerID, l.Host, l.Port = int32(leader.ID), e.Host, e.Port
			req.LiveLeaders = append(req.LiveLeaders, l)
		}
	}
	return req
}

func leaderAndISRState(topic string, p *controller.LeaderAndISRPartition, v Versions, ids *int32s) kmsg.LeaderAndISRRequestTopicPartition {
	s := kmsg.NewLeaderAndISRRequestTopicPartition()
	s.Topic = topic
	s.Partition = p.Partition
	// The epoch of the controller that decided this leadership, which may be older than the sender's.
	s.ControllerEpoch = int32(p.State.ControllerEpoch)
	s.Leader = int32(p.State.Leader)
	s.LeaderEpoch = int32(p.State.LeaderEpoch)
	s.ISR = ids.take(p.State.ISR)
	s.ZKVersion = int32(p.State.PartitionEpoch)
	s.Replicas = ids.take(p.Assignment.Replicas)
	s.AddingReplicas = ids.take(p.Assignment.Adding)
	s.RemovingReplicas = ids.take(p.Assignment.Removing)
	s.IsNew = p.IsNew
	if v.LeaderRecoveryState {
		s.LeaderRecoveryState = int8(p.State.Recovery)
	}
	return s
}

// metadataBody is the part of UpdateMetadata that the requests to all brokers share: built once, by whichever sender
// comes first.
type metadataBody struct {
	update  *controller.MetadataUpdate
	count   int
	once    sync.Once
	topics  []kmsg.UpdateMetadataRequestTopicState
	flat    []kmsg.UpdateMetadataRequestTopicPartition // versions 0 to 4
	brokers []kmsg.UpdateMetadataRequestLiveBroker
}

func newMetadataBody(u *controller.MetadataUpdate) *metadataBody {
	body := &metadataBody{update: u}
	for _, t := range u.Topics {
		body.count += len(t.Partitions)
	}
	return body
}

func (m *metadataBody) fill(v Versions) {
	ids := newInt32s(5*m.count + 1)
	for _, t := range m.update.Topics {
		states := make([]kmsg.UpdateMetadataRequestTopicPartition, 0, len(t.Partitions))
		for i := range t.Partitions {
			p := &t.Partitions[i]
			s := kmsg.NewUpdateMetadataRequestTopicPartition()
			s.Topic, s.Partition = t.Name, p.Partition
			s.ControllerEpoch = int32(p.State.ControllerEpoch)
			s.Leader, s.LeaderEpoch = int32(p.State.Leader), int32(p.State.LeaderEpoch)
			s.ISR, s.ZKVersion = ids.take(p.State.ISR), int32(p.State.PartitionEpoch)
			s.Replicas, s.OfflineReplicas = ids.take(p.Replicas), ids.take(p.OfflineReplicas)
			states = append(states, s)
		}
		if v.UpdateMetadata < 5 {
			m.flat = append(m.flat, states...)
			continue
		}
		ts := kmsg.NewUpdateMetadataRequestTopicState()
		ts.Topic, ts.TopicID, ts.PartitionStates = t.Name, t.ID, states
		m.topics = append(m.topics, ts)
	}
	for _, broker := range m.update.LiveBrokers {
		m.brokers = append(m.brokers, liveBroker(broker, v.UpdateMetadata))
	}
}

func liveBroker(broker cluster.Broker, version int16) kmsg.UpdateMetadataRequestLiveBroker {
	lb := kmsg.NewUpdateMetadataRequestLiveBroker()
	lb.ID = int32(broker.ID)
	if broker.Rack != "" {
		lb.Rack = &broker.Rack
	}
	for _, e := range broker.Endpoints {
		if version == 0 && e.SecurityProtocol == "PLAINTEXT" && lb.Host == "" {
			lb.Host, lb.Port = e.Host, e.Port // version 0 knows one address, in the clear
		}
		le := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
		le.Host, le.Port, le.ListenerName = e.Host, e.Port, e.Listener
		le.SecurityProtocol = securityProtocolID(e.SecurityProtocol)
		lb.Endpoints = append(lb.Endpoints, le)
	}
	return lb
}

// securityProtocolID gives the wire's number of a protocol (Kafka: SecurityProtocol.id).
func securityProtocolID(name string) int16 {
	switch name {
	case "SSL":
		return 1
	case "SASL_PLAINTEXT":
		return 2
	case "SASL_SSL":
		return 3
	default:
		return 0
	}
}

// updateMetadata is a queued UpdateMetadata request.
type updateMetadata struct {
	effect controller.SendUpdateMetadata
	body   *metadataBody
}

func (r *updateMetadata) entries() int { return r.body.count }
func (r *updateMetadata) name() string { return "UpdateMetadata" }

func (r *updateMetadata) build(b requestBuilder) kmsg.Request {
	r.body.once.Do(func() { r.body.fill(b.versions) })
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version = b.versions.UpdateMetadata
	req.ControllerID = int32(r.effect.Target.Controller)
	req.ControllerEpoch = int32(r.effect.Target.ControllerEpoch)
	req.BrokerEpoch = int64(r.effect.Target.BrokerEpoch)
	req.PartitionStates, req.TopicStates, req.LiveBrokers = r.body.flat, r.body.topics, r.body.brokers
	return req
}

// stopReplica is a queued StopReplica request. At versions 0 to 2, which have one delete flag per request, effect holds
// only partitions of one kind.
type stopReplica struct {
	effect controller.SendStopReplica
	delete bool // meant by versions 0 to 2 only
	count  int
}

// splitStopReplica gives the requests of one effect: one from version 3 on, else first those to delete, then the rest
// (Kafka: ControllerBrokerRequestBatch.sendStopReplicaRequests).
func splitStopReplica(e controller.SendStopReplica, version int16) []*stopReplica {
	if version >= 3 {
		return []*stopReplica{{e, false, countStops(e)}}
	}
	var out []*stopReplica
	for _, del := range []bool{true, false} {
		part := controller.SendStopReplica{Target: e.Target}
		for _, t := range e.Topics {
			cut := controller.StopReplicaTopic{TopicRef: t.TopicRef}
			for _, p := range t.Partitions {
				if p.Delete == del {
					cut.Partitions = append(cut.Partitions, p)
				}
			}
			if len(cut.Partitions) > 0 {
				part.Topics = append(part.Topics, cut)
			}
		}
		if len(part.Topics) > 0 {
			out = append(out, &stopReplica{part, del, countStops(part)})
		}
	}
	return out
}

func countStops(e controller.SendStopReplica) int {
	n := 0
	for _, t := range e.Topics {
		n += len(t.Partitions)
	}
	return n
}

func (r *stopReplica) entries() int { return r.count }
func (r *stopReplica) name() string { return "StopReplica" }

func (r *stopReplica) build(b requestBuilder) kmsg.Request {
	req := kmsg.NewPtrStopReplicaRequest()
	req.Version = b.versions.StopReplica
	req.ControllerID = int32(r.effect.Target.Controller)
	req.ControllerEpoch = int32(r.effect.Target.ControllerEpoch)
	req.BrokerEpoch = int64(r.effect.Target.BrokerEpoch)
	req.DeletePartitions = r.delete
	for _, t := range r.effect.Topics {
		switch {
		case req.Version == 0:
			for _, p := range t.Partitions {
				rt := kmsg.NewStopReplicaRequestTopic()
				rt.Topic, rt.Partition = t.Name, p.Partition
				req.Topics = append(req.Topics, rt)
			}
		case req.Version < 3:
			rt := kmsg.NewStopReplicaRequestTopic()
			rt.Topic = t.Name
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, p.Partition)
			}
			req.Topics = append(req.Topics, rt)
		default:
			rt := kmsg.NewStopReplicaRequestTopic()
			rt.Topic = t.Name
			for _, p := range t.Partitions {
				s := kmsg.NewStopReplicaRequestTopicPartitionState()
				s.Partition, s.LeaderEpoch, s.Delete = p.Partition, int32(p.LeaderEpoch), p.Delete
				rt.PartitionStates = append(rt.PartitionStates, s)
			}
			req.Topics = append(req.Topics, rt)
		}
	}
	return req
}
