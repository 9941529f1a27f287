package group

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// The records of __consumer_offsets are Kafka's: OffsetCommitKey v1 with OffsetCommitValue v3 (v1 where the client gave a
// retention), GroupMetadataKey v2 with GroupMetadataValue v3 (Kafka: GroupMetadataManager, inter.broker.protocol >= 2.3).

func offsetKey(group string, tp cluster.TopicPartition) []byte {
	k := kmsg.NewOffsetCommitKey()
	k.Version, k.Group, k.Topic, k.Partition = 1, group, tp.Topic, tp.Partition
	return k.AppendTo(nil)
}

func offsetRecord(group string, tp cluster.TopicPartition, o offset) Record {
	v := kmsg.NewOffsetCommitValue()
	v.Version, v.Offset, v.LeaderEpoch, v.Metadata = 3, o.offset, o.leaderEpoch, o.metadata
	v.CommitTimestamp = int64(o.committed)
	if o.expires >= 0 {
		v.Version, v.ExpireTimestamp = 1, int64(o.expires)
	}
	return Record{offsetKey(group, tp), v.AppendTo(nil)}
}

func offsetTombstone(group string, tp cluster.TopicPartition) Record {
	return Record{Key: offsetKey(group, tp)}
}

func groupKey(group string) []byte {
	k := kmsg.NewGroupMetadataKey()
	k.Version, k.Group = 2, group
	return k.AppendTo(nil)
}

func groupTombstone(group string) Record { return Record{Key: groupKey(group)} }

// groupRecord is the group as it is now, with the given assignments.
func groupRecord(g *group, assignments map[string][]byte) Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version, v.ProtocolType, v.Generation = 3, g.protocolType, g.generation
	v.CurrentStateTimestamp = int64(g.stateSince)
	if g.protocol != "" {
		v.Protocol = &g.protocol
	}
	if g.leader != "" {
		v.Leader = &g.leader
	}
	for _, m := range g.inOrder() {
		mv := kmsg.NewGroupMetadataValueMember()
		mv.MemberID, mv.ClientID, mv.ClientHost = m.id, m.clientID, m.clientHost
		if m.instance != "" {
			mv.InstanceID = &m.instance
		}
		mv.RebalanceTimeoutMillis, mv.SessionTimeoutMillis = int32(m.rebalanceTimeoutMs), int32(m.sessionTimeoutMs)
		mv.Subscription, mv.Assignment = m.metadata(g.protocol), assignments[m.id]
		v.Members = append(v.Members, mv)
	}
	return Record{groupKey(g.id), v.AppendTo(nil)}
}

// load applies one record of the log; later ones win. Records of kinds that this coordinator does not know are left
// alone: the newer protocol's groups, for one.
func (c *Core) load(r LoadRecord) {
	if len(r.Key) < 2 {
		return
	}
	switch version := binary.BigEndian.Uint16(r.Key); version {
	case 0, 1:
		c.loadOffset(r)
	case 2:
		c.loadGroup(r)
	}
}

func (c *Core) loadOffset(r LoadRecord) {
	k := kmsg.NewOffsetCommitKey()
	if err := k.ReadFrom(r.Key); err != nil {
		return
	}
	tp := cluster.TopicPartition{Topic: k.Topic, Partition: k.Partition}
	g := c.groups[k.Group]
	if r.Value == nil {
		switch {
		case g == nil:
		case r.Txn != nil:
			g.unstage(r.Txn.ID, tp)
		default:
			delete(g.offsets, tp)
		}
		return
	}
	v := kmsg.NewOffsetCommitValue()
	if err := v.ReadFrom(r.Value); err != nil {
		return
	}
	if g == nil {
		g = newGroup(k.Group, c.now)
		c.groups[k.Group] = g
	}
	c.nextAppend++
	o := offset{offset: v.Offset, leaderEpoch: v.LeaderEpoch, metadata: v.Metadata, committed: Time(v.CommitTimestamp), expires: -1, order: c.nextAppend}
	if v.Version < 3 {
		o.leaderEpoch = -1
	}
	if v.Version == 1 && v.ExpireTimestamp >= 0 {
		o.expires = Time(v.ExpireTimestamp)
	}
	if r.Txn != nil {
		g.stage(r.Txn.ID, tp, o)
	} else {
		g.put(tp, o)
	}
}

func (c *Core) loadGroup(r LoadRecord) {
	k := kmsg.NewGroupMetadataKey()
	if err := k.ReadFrom(r.Key); err != nil {
		return
	}
	g := newGroup(k.Group, c.now)
	if old := c.groups[k.Group]; old != nil {
		g.committed = old.committed // offsets have records of their own
	}
	if r.Value != nil {
		v := kmsg.NewGroupMetadataValue()
		if err := v.ReadFrom(r.Value); err != nil {
			return
		}
		g.restore(&v)
	}
	c.groups[k.Group] = g
}

// restore rebuilds a stored group: members make it Stable, none make it Empty.
func (g *group) restore(v *kmsg.GroupMetadataValue) {
	g.generation, g.protocolType = v.Generation, v.ProtocolType
	if v.Protocol != nil {
		g.protocol = *v.Protocol
	}
	for _, mv := range v.Members {
		m := &member{id: mv.MemberID, clientID: mv.ClientID, clientHost: mv.ClientHost, sessionTimeoutMs: int64(mv.SessionTimeoutMillis),
			rebalanceTimeoutMs: int64(mv.RebalanceTimeoutMillis), assignment: mv.Assignment,
			protocols: []Protocol{{g.protocol, mv.Subscription}}}
		if v.Version == 0 || m.rebalanceTimeoutMs < 0 {
			m.rebalanceTimeoutMs = m.sessionTimeoutMs
		}
		if mv.InstanceID != nil {
			m.instance = *mv.InstanceID
		}
		if g.members[m.id] == nil && (m.instance == "" || g.static[m.instance] == "") { // no broker stores one twice
			g.add(m)
		}
	}
	if v.Leader != nil && g.members[*v.Leader] != nil {
		g.leader = *v.Leader
	}
	if len(g.members) > 0 {
		g.state = Stable
	}
	g.stateSince = -1
	if v.Version >= 2 {
		g.stateSince = Time(v.CurrentStateTimestamp)
	}
	g.subscribed = g.subscribedTopics()
}

// finishLoading begins the service: members get a session's time to be heard of.
func (c *Core) finishLoading() {
	c.loading = false
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		for _, m := range g.inOrder() {
			c.keepAlive(g, m, m.sessionTimeoutMs)
		}
		if len(g.members) > c.cfg.MaxSize {
			c.maybeRebalance(g, "the loaded group is above group.max.size") // the limit was lowered: all rejoin, and those who come last find no place
		}
		c.maybeForget(g)
	}
	if c.deleted != nil {
		c.removePartitions(c.deleted)
		c.deleted = nil
	}
}

// consumerProtocol is the protocol type whose metadata the coordinator can read (Kafka: ConsumerProtocol.PROTOCOL_TYPE).
const consumerProtocol = "consumer"

// subscribedTopics are what the members of a consumer group subscribe to; nil when that is not known.
func (g *group) subscribedTopics() map[string]bool {
	if g.protocolType != consumerProtocol || g.protocol == "" && len(g.members) > 0 {
		return nil
	}
	topics := map[string]bool{}
	for _, m := range g.members {
		if !addSubscription(topics, m.metadata(g.protocol)) {
			return nil
		}
	}
	return topics
}

// addSubscription reads a member's topics. Every version of the consumer protocol begins as version 0 does, and clients
// are known whose later fields are not as they should be: no more than the topics is read.
func addSubscription(topics map[string]bool, metadata []byte) bool {
	if len(metadata) < 6 {
		return false
	}
	n := int32(binary.BigEndian.Uint32(metadata[2:]))
	rest := metadata[6:]
	for ; n > 0; n-- {
		if len(rest) < 2 {
			return false
		}
		size := int(int16(binary.BigEndian.Uint16(rest)))
		if size < 0 || len(rest) < 2+size {
			return false
		}
		topics[string(rest[2:2+size])] = true
		rest = rest[2+size:]
	}
	return true
}

// groupAppendError tells a member what a failed append of its group means (Kafka: GroupMetadataManager.storeGroup).
func groupAppendError(code cluster.ErrorCode) cluster.ErrorCode {
	switch code {
	case cluster.UnknownTopicOrPartition, cluster.NotEnoughReplicas, cluster.NotEnoughReplicasAfterAppend:
		return cluster.CoordinatorNotAvailable
	case cluster.NotLeaderOrFollower, cluster.KafkaStorageError:
		return cluster.NotCoordinator
	case cluster.RequestTimedOut:
		return cluster.RebalanceInProgress
	case cluster.MessageTooLarge, cluster.RecordListTooLarge, cluster.InvalidFetchSize:
		return cluster.UnknownServerError
	}
	return code
}

// commitAppendError tells a committer what a failed append means (Kafka: GroupMetadataManager.storeOffsets).
func commitAppendError(code cluster.ErrorCode) cluster.ErrorCode {
	switch code {
	case cluster.UnknownTopicOrPartition, cluster.NotEnoughReplicas, cluster.NotEnoughReplicasAfterAppend, cluster.RequestTimedOut:
		return cluster.CoordinatorNotAvailable
	case cluster.NotLeaderOrFollower, cluster.KafkaStorageError:
		return cluster.NotCoordinator
	case cluster.MessageTooLarge, cluster.RecordListTooLarge, cluster.InvalidFetchSize:
		return cluster.InvalidCommitOffsetSize
	}
	return code
}
