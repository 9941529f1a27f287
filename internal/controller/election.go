package controller

import (
	"slices"

	"klamm/internal/cluster"
)

// ElectionStrategy says how a partition gets its leader (Kafka: PartitionLeaderElectionStrategy).
type ElectionStrategy uint8

// The strategies, see electLeader.
const (
	// OfflineStrategy elects for partitions without an online leader.
	OfflineStrategy ElectionStrategy = iota + 1
	// ReassignStrategy elects among the target replicas of a reassignment.
	ReassignStrategy
	// PreferredReplicaStrategy elects the first replica of the assignment or nobody.
	PreferredReplicaStrategy
	// ControlledShutdownStrategy moves leaderships away from brokers that shut down.
	ControlledShutdownStrategy
	// UncleanStrategy is OfflineStrategy that may elect uncleanly whatever the topic says: an administrator asked for it.
	UncleanStrategy
)

// String gives the strategy's name in Kafka.
func (s ElectionStrategy) String() string {
	return [...]string{"", "OfflinePartition", "Reassign", "PreferredReplica", "ControlledShutdown", "OfflinePartition(unclean)"}[s]
}

// candidates is what an election decides on. The function is pure so that its decision table can be tested whole.
type candidates struct {
	// Assignment is the partition's replicas, or the target replicas for ReassignStrategy. Order of preference.
	Assignment []cluster.BrokerID
	ISR        []cluster.BrokerID
	// Online are the replicas whose broker lives and whose log dir works, without brokers that shut down.
	Online []cluster.BrokerID
	// ShuttingDown are the replicas on brokers that shut down and whose log dir works.
	ShuttingDown []cluster.BrokerID
	// UncleanAllowed lets OfflineStrategy choose a leader outside the ISR when no ISR member is online.
	UncleanAllowed bool
}

// elected is the outcome of an election.
type elected struct {
	Leader cluster.BrokerID
	ISR    []cluster.BrokerID
	// Recipients get LeaderAndIsr, if their broker lives.
	Recipients []cluster.BrokerID
	// Unclean says that the leader was not in the ISR: records may be lost.
	Unclean bool
}

// electLeader applies a strategy; it reports false when nobody can lead. A = assignment, I = ISR, L = online, S = shutting down:
//
//	strategy            leader                                        new ISR                  recipients
//	OfflinePartition    first of A in L and I; else if unclean is     I in L, order of I;      A in L
//	                    allowed first of A in L                       unclean: [leader]
//	Reassign            first of A (= target) in L and I              I                        A
//	PreferredReplica    A[0] if in L and I                            I                        A
//	ControlledShutdown  first of A in L or S, in I, not in S          I without S              A in L or S
//
// Kafka: PartitionLeaderElectionAlgorithms and Election in Election.scala.
func electLeader(s ElectionStrategy, c candidates) (elected, bool) {
	isOnline := func(id cluster.BrokerID) bool { return slices.Contains(c.Online, id) }
	inSync := func(id cluster.BrokerID) bool { return slices.Contains(c.ISR, id) }
	switch s {
	case OfflineStrategy, UncleanStrategy:
		return electOffline(c, isOnline, inSync)
	case ReassignStrategy:
		leader, ok := first(c.Assignment, func(id cluster.BrokerID) bool { return isOnline(id) && inSync(id) })
		return elected{Leader: leader, ISR: c.ISR, Recipients: c.Assignment}, ok
	case PreferredReplicaStrategy:
		if len(c.Assignment) == 0 || !isOnline(c.Assignment[0]) || !inSync(c.Assignment[0]) {
			return elected{}, false
		}
		return elected{Leader: c.Assignment[0], ISR: c.ISR, Recipients: c.Assignment}, true
	case ControlledShutdownStrategy:
		leaving := func(id cluster.BrokerID) bool { return slices.Contains(c.ShuttingDown, id) }
		leader, ok := first(c.Assignment, func(id cluster.BrokerID) bool { return isOnline(id) && inSync(id) && !leaving(id) })
		return elected{
			Leader:     leader,
			ISR:        filter(c.ISR, func(id cluster.BrokerID) bool { return !leaving(id) }),
			Recipients: filter(c.Assignment, func(id cluster.BrokerID) bool { return isOnline(id) || leaving(id) }),
		}, ok
	}
	panic("controller: election without a strategy")
}

func electOffline(c candidates, isOnline, inSync func(cluster.BrokerID) bool) (elected, bool) {
	recipients := filter(c.Assignment, isOnline)
	if leader, ok := first(recipients, inSync); ok {
		return elected{Leader: leader, ISR: filter(c.ISR, isOnline), Recipients: recipients}, true
	}
	if !c.UncleanAllowed || len(recipients) == 0 {
		return elected{}, false
	}
	leader := recipients[0]
	return elected{Leader: leader, ISR: []cluster.BrokerID{leader}, Recipients: recipients, Unclean: true}, true
}

// needsUnclean reports whether only an unclean election can give the partition a leader.
func (c candidates) needsUnclean() bool {
	online := func(id cluster.BrokerID) bool { return slices.Contains(c.Online, id) }
	return !slices.ContainsFunc(c.ISR, online) && slices.ContainsFunc(c.Assignment, online)
}

func first(ids []cluster.BrokerID, ok func(cluster.BrokerID) bool) (cluster.BrokerID, bool) {
	for _, id := range ids {
		if ok(id) {
			return id, true
		}
	}
	return cluster.NoBroker, false
}

func filter(ids []cluster.BrokerID, keep func(cluster.BrokerID) bool) []cluster.BrokerID {
	out := make([]cluster.BrokerID, 0, len(ids))
	for _, id := range ids {
		if keep(id) {
			out = append(out, id)
		}
	}
	return out
}
