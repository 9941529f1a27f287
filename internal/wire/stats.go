package wire

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Stats counts what a Server does. Every field is safe to read at any time.
type Stats struct {
	ConnectionsOpen      atomic.Int64 // open now
	ConnectionsAccepted  atomic.Int64 // ever served
	ConnectionsRefused   atomic.Int64 // closed at once because of a limit
	ConnectionsThrottled atomic.Int64 // held and closed because their address made too many
	ConnectionsIdled     atomic.Int64 // closed by connections.max.idle.ms
	ConnectionsEvicted   atomic.Int64 // closed to make room for an inter-broker connection
	Authenticated        atomic.Int64 // authentications that were successful, repeated ones too
	AuthenticationFailed atomic.Int64 // connections closed because theirs was not
	InFlight             atomic.Int64 // requests read and not yet answered
	ProtocolErrors       atomic.Int64 // connections closed because of what they sent
	HandlerPanics        atomic.Int64 // panics contained
	BytesIn              atomic.Int64 // frame bytes read, lengths included
	BytesOut             atomic.Int64 // bytes written
	ThrottledTimeMs      atomic.Int64 // sum of throttle times given

	keys [kmsg.MaxKey + 1]KeyStats
}

// KeyStats counts the requests of one API key.
type KeyStats struct {
	Requests    atomic.Int64 // read and decoded
	Failed      atomic.Int64 // could not be decoded, or ended in the connection's close instead of an answer
	RequestSize atomic.Int64 // sum of frame bytes
	Answers     atomic.Int64 // handed to the connection, acks=0 included
	TimeNanos   atomic.Int64 // sum over Answers, from the frame's arrival to Respond
}

// Key returns the counters of an API key between 0 and kmsg.MaxKey.
func (s *Stats) Key(key int16) *KeyStats { return &s.keys[key] }
