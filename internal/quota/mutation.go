package quota

import (
	"math"
	"time"
)

// tokenBucket pays for bursts out of what accumulated (Kafka: TokenBucket). It begins full: Kafka's begins empty at the
// beginning of time. left may be negative.
type tokenBucket struct {
	begun  bool
	left   float64
	filled time.Duration
}

// refill gives what is left at the time.
func (t *tokenBucket) refill(w Windows, limit float64, now time.Duration) float64 {
	burst := limit * w.total().Seconds()
	if !t.begun {
		t.begun, t.left = true, burst
	} else {
		t.left += limit * (now - t.filled).Seconds()
	}
	t.filled = now
	t.left = min(t.left, burst)
	return t.left
}

// take pays; the bucket may go below zero.
func (t *tokenBucket) take(amount float64) { t.left -= amount }

// Mutation is the mutation quota of one request (Kafka: ControllerMutationQuota). It is used by one goroutine at a time.
// nil is a quota without limit.
type Mutation struct {
	c      *Clients
	who    Client
	strict bool

	throttle time.Duration // as of decided; 0 while nothing was over
	decided  time.Time
}

// MutationQuota is the quota for one request of a client, nil when the client has no limit. A strict one refuses what comes
// while the bucket is below zero; the other one lets everything pass and throttles afterwards.
func (c *Clients) MutationQuota(who Client, strict bool) *Mutation {
	if !c.Active(Mutations) {
		return nil
	}
	if _, ok := c.Limit(Mutations, who); !ok {
		return nil
	}
	return &Mutation{c: c, who: who, strict: strict}
}

// Charge asks for partitions to create or delete; false refuses them and charges nothing. A strict quota looks before it
// charges, so a request that came while something was left may take any number.
func (m *Mutation) Charge(partitions int, now time.Time) bool {
	if m == nil {
		return true
	}
	limit, key, ok := m.c.limits[Mutations].of(m.who)
	if !ok {
		return true
	}
	at := now.Sub(m.c.start)
	w := m.c.mutate
	b := m.c.used[Mutations].get(key, at, w.total())
	b.last.Store(int64(at))
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left.refill(w, limit, at)
	if m.strict && left < 0 {
		m.over(left, limit, now)
		return false
	}
	b.left.take(float64(partitions))
	b.used.record(w, float64(partitions), at)
	if !m.strict && b.left.left < 0 {
		m.over(b.left.left, limit, now)
	}
	return true
}

func (m *Mutation) over(left, limit float64, now time.Time) {
	ms := math.Round(-left / limit * 1000)
	m.throttle, m.decided = time.Duration(min(ms, math.MaxInt32))*time.Millisecond, now
}

// Throttle is what is left of the throttle when the answer is given: waiting for the operation counts.
func (m *Mutation) Throttle(now time.Time) time.Duration {
	if m == nil || m.throttle == 0 {
		return 0
	}
	left := max(0, m.throttle-now.Sub(m.decided).Truncate(time.Millisecond))
	if left > 0 {
		m.c.NoteThrottle(Mutations, m.who, left, now)
	}
	return left
}
