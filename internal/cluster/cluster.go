// Package cluster holds the nouns every other package shares: brokers, partitions,
// epochs, leadership and assignments. It has no behaviour beyond printing, comparing
// and copying, imports nothing of klamm and does no IO.
package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// BrokerID names a broker. Negative values mean "none".
type BrokerID int32

// NoBroker is the leader of a partition that has none, and the controller of a cluster without one.
const NoBroker BrokerID = -1

// LeaderDuringDelete is the leader that UpdateMetadata carries for a partition whose topic is
// queued for deletion: receivers drop the partition (Kafka: LeaderAndIsr.LeaderDuringDelete).
const LeaderDuringDelete BrokerID = -2

// LeaderEpoch counts the leaderships of one partition; it starts at 0.
type LeaderEpoch int32

// Sentinels of StopReplica (control-plane behaviour of Kafka 2.6+).
const (
	// LeaderEpochDuringDelete is accepted whatever leader epoch the receiver holds.
	LeaderEpochDuringDelete LeaderEpoch = -2
	// NoLeaderEpoch means unknown, also accepted by receivers.
	NoLeaderEpoch LeaderEpoch = -1
)

// ControllerEpoch counts controller elections; the first controller of a cluster has epoch 1.
type ControllerEpoch int32

// BrokerEpoch identifies one registration of a broker: the creation id of its registration node. -1 means unknown.
type BrokerEpoch int64

// NoBrokerEpoch is sent where the epoch is unknown; receivers then do not check it.
const NoBrokerEpoch BrokerEpoch = -1

// PartitionEpoch is the data version of a partition's state node.
type PartitionEpoch int32

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String gives Kafka's directory and log spelling, "topic-partition".
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

// Compare orders by topic, then by partition.
func (tp TopicPartition) Compare(o TopicPartition) int {
	if c := strings.Compare(tp.Topic, o.Topic); c != 0 {
		return c
	}
	return int(tp.Partition) - int(o.Partition)
}

// TopicPartitionReplica names one replica of a partition.
type TopicPartitionReplica struct {
	TopicPartition
	Replica BrokerID
}

// String gives "topic-partition@broker".
func (r TopicPartitionReplica) String() string {
	return fmt.Sprintf("%s@%d", r.TopicPartition, r.Replica)
}

// Compare orders by topic, partition, replica.
func (r TopicPartitionReplica) Compare(o TopicPartitionReplica) int {
	if c := r.TopicPartition.Compare(o.TopicPartition); c != 0 {
		return c
	}
	return int(r.Replica) - int(o.Replica)
}

// LeaderRecoveryState tells whether a leader came from an unclean election (KIP-704).
type LeaderRecoveryState int8

// The two recovery states.
const (
	Recovered  LeaderRecoveryState = 0
	Recovering LeaderRecoveryState = 1
)

// LeaderAndISR is the leadership of a partition as its state node holds it.
type LeaderAndISR struct {
	Leader      BrokerID // NoBroker when the partition has no leader
	LeaderEpoch LeaderEpoch
	ISR         []BrokerID
	Recovery    LeaderRecoveryState
	// PartitionEpoch is the state node's data version that this value was read at or written as.
	PartitionEpoch PartitionEpoch
	// ControllerEpoch is the epoch of the controller that decided this value.
	ControllerEpoch ControllerEpoch
}

// Clone returns a deep copy.
func (l LeaderAndISR) Clone() LeaderAndISR {
	l.ISR = slices.Clone(l.ISR)
	return l
}

// Equal compares all fields, the ISR as an ordered list.
func (l LeaderAndISR) Equal(o LeaderAndISR) bool {
	return slices.Equal(l.ISR, o.ISR) && l.Leader == o.Leader && l.LeaderEpoch == o.LeaderEpoch && l.Recovery == o.Recovery &&
		l.PartitionEpoch == o.PartitionEpoch && l.ControllerEpoch == o.ControllerEpoch
}

// String prints leader, epochs and ISR for logs and traces.
func (l LeaderAndISR) String() string {
	s := fmt.Sprintf("leader=%d le=%d isr=%v pe=%d ce=%d", l.Leader, l.LeaderEpoch, l.ISR, l.PartitionEpoch, l.ControllerEpoch)
	if l.Recovery == Recovering {
		s += " recovering"
	}
	return s
}

// ReplicaAssignment lists a partition's replicas. During a reassignment Replicas is the full list,
// targets first; Adding and Removing are its members that come and go (KIP-455).
type ReplicaAssignment struct {
	Replicas []BrokerID
	Adding   []BrokerID
	Removing []BrokerID
}

// Clone returns a deep copy.
func (a ReplicaAssignment) Clone() ReplicaAssignment {
	return ReplicaAssignment{slices.Clone(a.Replicas), slices.Clone(a.Adding), slices.Clone(a.Removing)}
}

// Equal compares the three lists in order.
func (a ReplicaAssignment) Equal(o ReplicaAssignment) bool {
	return slices.Equal(a.Replicas, o.Replicas) && slices.Equal(a.Adding, o.Adding) && slices.Equal(a.Removing, o.Removing)
}

// BeingReassigned reports whether replicas are being added or removed.
func (a ReplicaAssignment) BeingReassigned() bool { return len(a.Adding) > 0 || len(a.Removing) > 0 }

// Endpoint is one advertised address of a broker.
type Endpoint struct {
	Listener         string // listener name, e.g. "PLAINTEXT" or "INTERNAL"
	SecurityProtocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Host             string
	Port             int32
}

// VersionRange is a range of levels of a feature, both ends included; the zero value supports none.
type VersionRange struct{ Min, Max int16 }

// Contains reports whether a level, which is 1 or more, is in the range.
func (r VersionRange) Contains(level int16) bool { return r.Min <= level && level <= r.Max }

// Broker is a registered broker.
type Broker struct {
	ID        BrokerID
	Epoch     BrokerEpoch
	Endpoints []Endpoint
	Rack      string // empty when the broker has none
	// Features are those that the broker supports (KIP-584).
	Features map[string]VersionRange
	// Klamm says that the registration is a klamm broker's: it does what klamm's brokers have agreed on beyond Kafka's
	// protocol, such as removing what a deletion left on it.
	Klamm bool
	// WritesISR says that the broker writes the ISRs of partitions that it leads into the state nodes itself, and notifies of it
	// afterwards: its inter.broker.protocol.version is below 2.7.
	WritesISR bool
}

// Endpoint returns the broker's endpoint on the named listener.
func (b Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Listener == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Internal topic names (Kafka: Topic.java).
const (
	GroupOffsetsTopic     = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
)

// IsInternalTopic reports whether the topic belongs to the brokers themselves.
func IsInternalTopic(topic string) bool {
	return topic == GroupOffsetsTopic || topic == TransactionStateTopic
}

// MaxTopicNameLength is the longest legal topic name, in bytes.
const MaxTopicNameLength = 249

// ValidateTopicName returns what is wrong with a topic name in Kafka's words, or nil
// (Kafka: Topic.validate).
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the empty string is not allowed")
	case name == "." || name == "..":
		return fmt.Errorf("'%s' is not allowed", name)
	case len(name) > MaxTopicNameLength:
		return fmt.Errorf("the length of '%s' is longer than the max allowed length %d", name, MaxTopicNameLength)
	}
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			return fmt.Errorf("'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

// HasCollidingChars reports whether the name contains '.' or '_', which metric names cannot tell apart.
func HasCollidingChars(name string) bool { return strings.ContainsAny(name, "._") }

// TopicNamesCollide reports whether two names are equal once '.' is read as '_'.
func TopicNamesCollide(a, b string) bool {
	return strings.ReplaceAll(a, ".", "_") == strings.ReplaceAll(b, ".", "_")
}
