package api

import (
	"klamm/internal/cluster"
	"klamm/internal/replica"
)

// leaderNode is a partition's leader as answers tell it to clients that asked the wrong broker (KIP-951).
type leaderNode struct {
	id        cluster.BrokerID
	epoch     cluster.LeaderEpoch
	reachable bool // on the client's listener; then the fields below are set
	host      string
	port      int32
	rack      *string
}

// currentLeader looks at the partition if this broker hosts it, which it knows sooner than the metadata, else there
// (Kafka: KafkaApis.getCurrentLeader).
func (h *Handlers) currentLeader(tp cluster.TopicPartition, listener string) leaderNode {
	n := leaderNode{id: cluster.NoBroker, epoch: cluster.NoLeaderEpoch}
	im := h.d.Cache.Image()
	if p, state := h.d.Replicas.Partition(tp); state == replica.HostedOnline {
		s := p.State()
		n.id, n.epoch = s.Leader, s.LeaderEpoch
	} else if p, ok := im.Partition(tp); ok {
		n.id, n.epoch = p.Leader, p.LeaderEpoch
	}
	if e, ok := im.Endpoint(n.id, listener); ok {
		b, _ := im.Broker(n.id)
		n.reachable, n.host, n.port, n.rack = true, e.Host, e.Port, rackOf(b)
	}
	return n
}
