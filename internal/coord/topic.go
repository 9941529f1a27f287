package coord

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"klamm/internal/cluster"
)

// Topic is what the node of a topic holds. ID is zero for a topic of a writer before Kafka 2.8.
type Topic struct {
	ID         cluster.TopicID
	Partitions map[int32]cluster.ReplicaAssignment
}

// EncodeTopic writes version 3, as every Kafka since 2.8 does (Kafka: TopicZNode.encode).
func EncodeTopic(t Topic) []byte {
	keys := make([]string, 0, len(t.Partitions))
	for p := range t.Partitions {
		keys = append(keys, strconv.Itoa(int(p)))
	}
	scalaMapOrder(keys)
	byKey := func(k string) cluster.ReplicaAssignment {
		p, _ := strconv.Atoi(k)
		return t.Partitions[int32(p)]
	}
	b := make([]byte, 0, 128+16*len(keys))
	b = append(b, `{"partitions":{`...)
	for _, k := range keys {
		b = appendInts(appendKey(b, k), byKey(k).Replicas)
	}
	b = append(b, '}')
	if !t.ID.IsZero() {
		b = appendString(appendKey(b, "topic_id"), t.ID.String())
	}
	b = append(appendKey(b, "adding_replicas"), '{')
	for _, k := range keys {
		if a := byKey(k); len(a.Adding) > 0 {
			b = appendInts(appendKey(b, k), a.Adding)
		}
	}
	b = append(appendKey(append(b, '}'), "removing_replicas"), '{')
	for _, k := range keys {
		if a := byKey(k); len(a.Removing) > 0 {
			b = appendInts(appendKey(b, k), a.Removing)
		}
	}
	return append(b, `},"version":3}`...)
}

type topicJSON struct {
	ID         *string                       `json:"topic_id"`
	Partitions map[string][]cluster.BrokerID `json:"partitions"`
	Adding     map[string][]cluster.BrokerID `json:"adding_replicas"`
	Removing   map[string][]cluster.BrokerID `json:"removing_replicas"`
}

// DecodeTopic reads every version: it looks at keys, not at the version. An empty node is a topic without partitions.
func DecodeTopic(data []byte) (Topic, error) {
	t := Topic{Partitions: map[int32]cluster.ReplicaAssignment{}}
	if len(data) == 0 {
		return t, nil
	}
	var j topicJSON
	if err := decodeJSON("topic", data, &j); err != nil {
		return Topic{}, err
	}
	if j.ID != nil {
		id, err := cluster.ParseTopicID(*j.ID)
		if err != nil {
			return Topic{}, fmt.Errorf("decode topic: %w", err)
		}
		t.ID = id
	}
	for k, replicas := range j.Partitions {
		p, ok := parseID(k)
		if !ok {
			return Topic{}, fmt.Errorf("decode topic: %q is not a partition", k)
		}
		t.Partitions[p] = cluster.ReplicaAssignment{Replicas: replicas, Adding: j.Adding[k], Removing: j.Removing[k]}
	}
	return t, nil
}

// EncodePartitionState writes a partition's leadership (Kafka: TopicPartitionStateZNode.encode). The partition epoch
// is not in the bytes: it is the node's data version.
func EncodePartitionState(l cluster.LeaderAndISR) []byte {
	b := make([]byte, 0, 112+4*len(l.ISR))
	b = appendInt(append(b, `{"controller_epoch":`...), l.ControllerEpoch)
	b = appendInt(append(b, `,"leader":`...), l.Leader)
	b = append(b, `,"version":1`...)
	if l.Recovery != cluster.Recovered {
		b = appendInt(append(b, `,"leader_recovery_state":`...), l.Recovery)
	}
	b = appendInt(append(b, `,"leader_epoch":`...), l.LeaderEpoch)
	b = appendInts(append(b, `,"isr":`...), l.ISR)
	return append(b, '}')
}

type partitionStateJSON struct {
	ControllerEpoch *cluster.ControllerEpoch    `json:"controller_epoch"`
	Leader          *cluster.BrokerID           `json:"leader"`
	LeaderEpoch     *cluster.LeaderEpoch        `json:"leader_epoch"`
	ISR             []cluster.BrokerID          `json:"isr"`
	Recovery        cluster.LeaderRecoveryState `json:"leader_recovery_state"`
}

// DecodePartitionState reads a partition's leadership; version is the data version that the bytes were read at.
func DecodePartitionState(data []byte, version int32) (cluster.LeaderAndISR, error) {
	var j partitionStateJSON
	if err := decodeJSON("partition state", data, &j); err != nil {
		return cluster.LeaderAndISR{}, err
	}
	if j.ControllerEpoch == nil || j.Leader == nil || j.LeaderEpoch == nil || j.ISR == nil {
		return cluster.LeaderAndISR{}, fmt.Errorf("decode partition state: leader, leader_epoch, controller_epoch and isr are required in %q", data)
	}
	if j.Recovery != cluster.Recovered && j.Recovery != cluster.Recovering {
		return cluster.LeaderAndISR{}, fmt.Errorf("decode partition state: unknown leader_recovery_state %d", j.Recovery)
	}
	return cluster.LeaderAndISR{
		Leader: *j.Leader, LeaderEpoch: *j.LeaderEpoch, ISR: j.ISR, Recovery: j.Recovery,
		PartitionEpoch: cluster.PartitionEpoch(version), ControllerEpoch: *j.ControllerEpoch,
	}, nil
}

type partitionListJSON struct {
	Partitions []struct {
		Topic     string             `json:"topic"`
		Partition *int32             `json:"partition"`
		Replicas  []cluster.BrokerID `json:"replicas"`
	} `json:"partitions"`
}

// EncodeISRChange writes the partitions whose ISR a leader changed (brokers below 2.7-IV2 notify so).
func EncodeISRChange(tps []cluster.TopicPartition) []byte { return encodePartitions(tps) }

// DecodeISRChange reads the partitions of an ISR change notification.
func DecodeISRChange(data []byte) ([]cluster.TopicPartition, error) {
	return decodePartitions("isr change", data)
}

// EncodePreferredElection writes the partitions for which an old tool asks for the preferred leader.
func EncodePreferredElection(tps []cluster.TopicPartition) []byte { return encodePartitions(tps) }

// DecodePreferredElection reads the partitions of a preferred election request.
func DecodePreferredElection(data []byte) ([]cluster.TopicPartition, error) {
	return decodePartitions("preferred election", data)
}

func encodePartitions(tps []cluster.TopicPartition) []byte {
	b := []byte(`{"version":1,"partitions":[`)
	for i, tp := range tps {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"topic":`...), tp.Topic)
		b = appendInt(append(b, `,"partition":`...), tp.Partition)
		b = append(b, '}')
	}
	return append(b, `]}`...)
}

func decodePartitions(what string, data []byte) ([]cluster.TopicPartition, error) {
	var j partitionListJSON
	if err := decodeJSON(what, data, &j); err != nil {
		return nil, err
	}
	tps := make([]cluster.TopicPartition, 0, len(j.Partitions))
	for _, p := range j.Partitions {
		if p.Topic == "" || p.Partition == nil {
			return nil, fmt.Errorf("decode %s: an entry lacks topic or partition", what)
		}
		tps = append(tps, cluster.TopicPartition{Topic: p.Topic, Partition: *p.Partition})
	}
	return tps, nil
}

// EncodeReassignment writes the target replicas of partitions, in order of the partitions.
func EncodeReassignment(targets map[cluster.TopicPartition][]cluster.BrokerID) []byte {
	tps := make([]cluster.TopicPartition, 0, len(targets))
	for tp := range targets {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	b := []byte(`{"version":1,"partitions":[`)
	for i, tp := range tps {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"topic":`...), tp.Topic)
		b = appendInt(append(b, `,"partition":`...), tp.Partition)
		b = appendInts(append(b, `,"replicas":`...), targets[tp])
		b = append(b, '}')
	}
	return append(b, `]}`...)
}

// DecodeReassignment reads the target replicas of partitions.
func DecodeReassignment(data []byte) (map[cluster.TopicPartition][]cluster.BrokerID, error) {
	var j partitionListJSON
	if err := decodeJSON("reassignment", data, &j); err != nil {
		return nil, err
	}
	targets := make(map[cluster.TopicPartition][]cluster.BrokerID, len(j.Partitions))
	for _, p := range j.Partitions {
		if p.Topic == "" || p.Partition == nil || p.Replicas == nil {
			return nil, fmt.Errorf("decode reassignment: an entry lacks topic, partition or replicas")
		}
		targets[cluster.TopicPartition{Topic: p.Topic, Partition: *p.Partition}] = p.Replicas
	}
	return targets, nil
}

// EncodeLogDirEvent writes that a log dir of the broker failed.
func EncodeLogDirEvent(broker cluster.BrokerID) []byte {
	b := appendInt([]byte(`{"version":1,"broker":`), broker)
	return append(b, `,"event":1}`...)
}

// DecodeLogDirEvent reads the broker whose log dir failed.
func DecodeLogDirEvent(data []byte) (cluster.BrokerID, error) {
	var j struct {
		Broker *cluster.BrokerID `json:"broker"`
		Event  json.Number       `json:"event"`
	}
	if err := decodeJSON("log dir event", data, &j); err != nil {
		return 0, err
	}
	if j.Broker == nil || j.Event != "1" {
		return 0, fmt.Errorf("decode log dir event: want a broker and event 1 in %q", data)
	}
	return *j.Broker, nil
}
