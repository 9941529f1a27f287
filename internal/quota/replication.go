package quota

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// NoReplicationLimit is the rate that throttles nothing; Kafka's default.
const NoReplicationLimit = math.MaxInt64

// Replication throttles the traffic of chosen replicas in one direction: what leaders here send to followers, or what
// followers here fetch (KIP-73; Kafka: ReplicationQuotaManager). Traffic of replicas that are not chosen is neither
// counted nor held. See NewReplication.
type Replication struct {
	start   time.Time
	windows Windows
	limit   atomic.Int64 // bytes per second
	topics  sync.Map     // topic to Replicas
	chosen  atomic.Int64 // topics in topics

	mu   sync.Mutex // guards used
	used rate
}

// NewReplication takes the windows of replication.quota.window.*; it throttles nothing until SetRate and SetTopic.
func NewReplication(windows Windows, start time.Time) *Replication {
	r := &Replication{start: start, windows: windows}
	r.limit.Store(NoReplicationLimit)
	return r
}

// Replicas are the throttled replicas of a topic on this broker.
type Replicas struct {
	All bool
	Of  map[int32]bool
}

// ParseReplicas reads a list of partition:broker pairs, or "*", for one broker. The list is valid: its config was checked.
func ParseReplicas(list []string, broker int32) Replicas {
	r := Replicas{Of: map[int32]bool{}}
	for _, pair := range list {
		partition, id, _ := strings.Cut(pair, ":")
		p, errP := strconv.ParseInt(partition, 10, 32)
		b, errB := strconv.ParseInt(id, 10, 32)
		switch {
		case pair == "*":
			r.All = true
		case errP == nil && errB == nil && int32(b) == broker:
			r.Of[int32(p)] = true
		}
	}
	return r
}

// SetRate sets the limit in bytes per second.
func (r *Replication) SetRate(bytesPerSecond int64) { r.limit.Store(bytesPerSecond) }

// SetTopic replaces which replicas of a topic are throttled.
func (r *Replication) SetTopic(topic string, replicas Replicas) {
	if !replicas.All && len(replicas.Of) == 0 {
		if _, was := r.topics.LoadAndDelete(topic); was {
			r.chosen.Add(-1)
		}
		return
	}
	if _, was := r.topics.Swap(topic, replicas); !was {
		r.chosen.Add(1)
	}
}

// Throttled reports whether a replica is a chosen one. Where none is, it costs one atomic read.
func (r *Replication) Throttled(topic string, partition int32) bool {
	if r.chosen.Load() == 0 {
		return false
	}
	v, ok := r.topics.Load(topic)
	return ok && (v.(Replicas).All || v.(Replicas).Of[partition])
}

// Active reports whether any replica is a chosen one.
func (r *Replication) Active() bool { return r.chosen.Load() > 0 }

// Record counts bytes of throttled replicas.
func (r *Replication) Record(bytes int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used.record(r.windows, float64(bytes), now.Sub(r.start))
}

// Exceeded reports whether throttled replicas have used more than the limit.
func (r *Replication) Exceeded(now time.Time) bool {
	limit := r.limit.Load()
	return limit != NoReplicationLimit && r.Rate(now) > float64(limit)
}

// Rate is what throttled replicas use, in bytes per second.
func (r *Replication) Rate(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used.perSecondSimple(r.windows, now.Sub(r.start))
}
