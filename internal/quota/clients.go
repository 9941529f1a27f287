package quota

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Clients holds the quotas of clients and what they have used. The zero value is not ready; see NewClients.
type Clients struct {
	start   time.Time
	windows Windows // of bytes and request time
	mutate  Windows // of mutations
	limits  [kinds]limits
	used    [kinds]buckets
}

// NewClients takes the windows of the client quotas (quota.window.*) and of the mutation quota (controller.quota.window.*).
// Times given to the methods are counted from start.
func NewClients(windows, mutations Windows, start time.Time) *Clients {
	return &Clients{start: start, windows: windows, mutate: mutations}
}

// SetEntity replaces the limits of an entity; a kind that is not in rates has none. A limit that is not positive counts as
// none: Kafka's arithmetic makes no throttle of it.
func (c *Clients) SetEntity(e Entity, rates map[Kind]float64) {
	for k := range Kind(kinds) {
		limit, ok := rates[k]
		c.limits[k].set(e, limit, ok && limit > 0 && !math.IsNaN(limit))
	}
}

// Active reports whether anyone has a limit of the kind. It costs one atomic read.
func (c *Clients) Active(k Kind) bool { return c.limits[k].n.Load() > 0 }

// Limit gives the limit of a client; false when it has none.
func (c *Clients) Limit(k Kind, who Client) (float64, bool) {
	l, _, ok := c.limits[k].of(who)
	return l, ok
}

// Charge records what a client used and returns for how long it is to be throttled. Amounts are bytes, or percents times
// seconds for request time. A throttle of request time is one window at most (Kafka: ClientRequestQuotaManager).
func (c *Clients) Charge(k Kind, who Client, amount float64, now time.Time) time.Duration {
	if !c.Active(k) {
		return 0
	}
	limit, key, ok := c.limits[k].of(who)
	if !ok {
		return 0
	}
	at := now.Sub(c.start)
	b := c.used[k].get(key, at, c.windows.total())
	throttle := b.charge(c.windows, amount, limit, at)
	if k == Request {
		throttle = min(throttle, c.windows.Length)
	}
	return throttle
}

// TakeBack removes what was charged for an answer that is not given.
func (c *Clients) TakeBack(k Kind, who Client, amount float64, now time.Time) {
	if _, key, ok := c.limits[k].of(who); ok {
		at := now.Sub(c.start)
		c.used[k].get(key, at, c.windows.total()).record(c.windows, -amount, at)
	}
}

// NoteThrottle records a throttle that a client is given, for the metrics.
func (c *Clients) NoteThrottle(k Kind, who Client, throttle time.Duration, now time.Time) {
	if _, key, ok := c.limits[k].of(who); ok {
		at := now.Sub(c.start)
		c.used[k].get(key, at, c.windows.total()).noteThrottle(throttle, at)
	}
}

// WindowMax is what a client may use at once without being throttled for certain; false when there is no bound.
func (c *Clients) WindowMax(k Kind, who Client) (float64, bool) {
	if !c.Active(k) {
		return 0, false
	}
	limit, ok := c.Limit(k, who)
	return limit * float64(c.windows.Samples-1) * c.windows.Length.Seconds(), ok
}

// Usage is what one client, or the users or client ids that share a limit, use.
type Usage struct {
	Kind     Kind
	Who      Client        // a part that the limit does not look at is empty
	Rate     float64       // per second
	Throttle time.Duration // mean of the last minute's throttles
	Tokens   float64       // of Mutations: what is left
}

// Usage lists what is measured, in no order.
func (c *Clients) Usage(now time.Time) []Usage {
	at := now.Sub(c.start)
	var out []Usage
	for k := range Kind(kinds) {
		for key, b := range c.used[k].all() {
			u := Usage{Kind: k, Who: Client(key)}
			windows := c.windows
			if k == Mutations {
				windows = c.mutate
				limit, _, ok := c.limits[k].of(Client(key))
				u.Tokens = b.tokens(windows, limit, ok, at)
			}
			u.Rate, u.Throttle = b.usage(windows, at)
			out = append(out, u)
		}
	}
	return out
}

// throttleWindows are those of Kafka's throttle-time metrics, which have no quota and so the metrics' defaults.
var throttleWindows = Windows{Samples: 2, Length: 30 * time.Second}

// bucket is what was measured of one client.
type bucket struct {
	mu        sync.Mutex
	used      rate
	throttles rate // milliseconds
	left      tokenBucket
	last      atomic.Int64 // time of the last charge
}

// charge records and judges in one step: (O-T)/T*W brings an observed rate O over the window W down to the limit T.
func (b *bucket) charge(w Windows, amount, limit float64, now time.Duration) time.Duration {
	b.last.Store(int64(now))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.record(w, amount, now)
	observed, window := b.used.perSecond(w, now)
	if observed <= limit {
		return 0
	}
	ms := math.Round((observed - limit) / limit * float64(window.Milliseconds()))
	return time.Duration(min(ms, math.MaxInt32)) * time.Millisecond
}

func (b *bucket) record(w Windows, amount float64, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.record(w, amount, now)
}

func (b *bucket) noteThrottle(throttle, now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.throttles.record(throttleWindows, float64(throttle.Milliseconds()), now)
}

func (b *bucket) usage(w Windows, now time.Duration) (perSecond float64, throttle time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	perSecond, _ = b.used.perSecond(w, now)
	return perSecond, time.Duration(b.throttles.average(throttleWindows, now) * float64(time.Millisecond))
}

func (b *bucket) tokens(w Windows, limit float64, limited bool, now time.Duration) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !limited {
		return math.MaxInt64
	}
	return b.left.refill(w, limit, now)
}
