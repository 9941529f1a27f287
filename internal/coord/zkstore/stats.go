package zkstore

import (
	"sync/atomic"
	"time"
)

// Stats counts what happens to the connections of a Store, over its life (Kafka: the meters of SessionExpireListener, and
// ZooKeeperClientMetrics). The counters are safe for concurrent use.
type Stats struct {
	Connects     atomic.Int64 // connections taken into use
	Disconnects  atomic.Int64 // of those, lost before the Store was closed
	AuthFailures atomic.Int64 // attempts to connect where one side did not accept the other
	Logins       atomic.Int64 // by SASL
	Expires      atomic.Int64 // sessions that ended without being closed
	// Latency is called with the time from the sending of each request to its answer; nil for nobody. It must not block, and is set
	// before Open.
	Latency func(time.Duration)
}
