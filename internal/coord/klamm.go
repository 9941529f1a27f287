package coord

import (
	"fmt"
	"slices"
	"strconv"

	"klamm/internal/cluster"
)

// The nodes of klamm's own, all below one root that Kafka's brokers and tools do not look at:
//
//	/klamm/brokers/N               a broker with id N has run klamm (see OwnPaths); empty
//	/klamm/leftovers/N/<topic id>  what broker N has to remove of a topic whose deletion ended without it:
//	                               {"version":1,"topic":s,"topic_id":"<22-char base64url>","partitions":[i],"timestamp":"ms"}
//
// Both are written under the controller's epoch, but for the first, which a broker creates before it registers. The
// second is removed by the broker that has done what it says.
const (
	KlammPath        = "/klamm"
	KlammBrokersPath = KlammPath + "/brokers"
	LeftoversPath    = KlammPath + "/leftovers"
)

// OwnPaths lists the nodes of klamm's own that every broker creates at start if they are absent, parents first.
func OwnPaths() []string { return []string{KlammPath, KlammBrokersPath, LeftoversPath} }

// KlammBrokerPath is the node that says that a broker has run klamm.
func KlammBrokerPath(id cluster.BrokerID) string {
	return KlammBrokersPath + "/" + strconv.Itoa(int(id))
}

// LeftoversOfPath is the parent of what one broker has to remove.
func LeftoversOfPath(id cluster.BrokerID) string { return LeftoversPath + "/" + strconv.Itoa(int(id)) }

// LeftoverPath is the node with what a broker has to remove of one topic.
func LeftoverPath(id cluster.BrokerID, topic cluster.TopicID) string {
	return LeftoversOfPath(id) + "/" + topic.String()
}

// KlammRegistration is what a klamm broker adds to its registration; readers of Kafka's ignore the key.
type KlammRegistration struct {
	// Version counts what klamm's brokers have agreed on: 1 = a broker removes what LeftoversPath names for it.
	Version int32
	// Web is the address of health checks, metrics and API, host:port; empty when it is off.
	Web string
}

// Leftover is what a broker has to remove of a topic whose deletion ended without it. The topic is meant by its id.
type Leftover struct {
	Topic       string
	TopicID     cluster.TopicID
	Partitions  []int32
	TimestampMs int64 // of the deletion's end
}

// EncodeLeftover writes a leftover.
func EncodeLeftover(l Leftover) []byte {
	b := appendString([]byte(`{"version":1,"topic":`), l.Topic)
	b = appendString(append(b, `,"topic_id":`...), l.TopicID.String())
	b = appendInts(append(b, `,"partitions":`...), l.Partitions)
	b = appendString(append(b, `,"timestamp":`...), strconv.FormatInt(l.TimestampMs, 10))
	return append(b, '}')
}

// DecodeLeftover reads a leftover; partitions come in ascending order.
func DecodeLeftover(data []byte) (Leftover, error) {
	var j struct {
		Version    int32    `json:"version"`
		Topic      string   `json:"topic"`
		TopicID    string   `json:"topic_id"`
		Partitions []int32  `json:"partitions"`
		Timestamp  looseInt `json:"timestamp"`
	}
	if err := decodeJSON("leftover", data, &j); err != nil {
		return Leftover{}, err
	}
	id, err := cluster.ParseTopicID(j.TopicID)
	if err != nil || j.Topic == "" || id.IsZero() {
		return Leftover{}, fmt.Errorf("decode leftover: want topic and topic_id in %q", data)
	}
	slices.Sort(j.Partitions)
	return Leftover{Topic: j.Topic, TopicID: id, Partitions: j.Partitions, TimestampMs: int64(j.Timestamp)}, nil
}
