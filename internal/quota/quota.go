// Package quota measures and limits what clients and followers take: bytes produced and consumed, request time, partition
// mutations (KIP-599), new connections (KIP-612), and the traffic of throttled replicas (KIP-73). Its rules and its
// arithmetic are those of Kafka, so that a limit means the same on either broker.
//
// It is a measuring core: time comes in with every call, and what follows from a throttle (an answer with a throttle time,
// a muted connection, a partition left out of a fetch) is the caller's. A client without a limit costs one atomic read.
//
// # Locks
//
// Every type here is safe for concurrent use. limits.mu guards the limits of one kind, buckets.mu the map of what was
// measured, bucket.mu one measurement. At most one of them is held at a time.
package quota

import "time"

// Windows tells over what time a rate is taken: Samples stretches of Length, the current one included.
type Windows struct {
	Samples int
	Length  time.Duration
}

// DefaultWindows are Kafka's: ten whole seconds and the current one.
var DefaultWindows = Windows{Samples: 11, Length: time.Second}

// total is the length of all samples.
func (w Windows) total() time.Duration { return time.Duration(w.Samples) * w.Length }

// Kind is what a client quota limits.
type Kind uint8

// The kinds of client quotas.
const (
	Produce   Kind = iota // bytes per second that clients may produce
	Fetch                 // bytes per second that clients may consume
	Request               // percent of one processor that their requests may take
	Mutations             // partitions per second that they may create and delete

	kinds = iota
)

var kindKeys = [kinds]string{"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}

// Key is the kind's name in configs.
func (k Kind) Key() string { return kindKeys[k] }

// String is the name of the kind's metrics (Kafka: QuotaType).
func (k Kind) String() string {
	return [kinds]string{"Produce", "Fetch", "Request", "ControllerMutation"}[k]
}

// KindOfKey finds the kind of a config key.
func KindOfKey(key string) (Kind, bool) {
	for k, name := range kindKeys {
		if name == key {
			return Kind(k), true
		}
	}
	return 0, false
}

// ConnectionRateKey is the config key of the connections per second that may be made from one address.
const ConnectionRateKey = "connection_creation_rate"

// Part is one part of an entity: nothing, a name, or the default that holds for every name without an entry of its own.
type Part struct {
	Name string
	Is   PartIs
}

// PartIs tells what a Part is.
type PartIs uint8

// The forms of a part.
const (
	Absent PartIs = iota
	Named
	Default
)

// NamedPart is the part of a name.
func NamedPart(name string) Part { return Part{Name: name, Is: Named} }

// DefaultPart stands for every name.
func DefaultPart() Part { return Part{Is: Default} }

// Entity is whom a client quota is set for: a user, a client id, or both.
type Entity struct{ User, Client Part }

// Client is who sends a request: the name of the principal and the client id, neither encoded.
type Client struct{ User, ID string }
