package quota

import (
	"net/netip"
	"sync"
	"time"
)

// Connections limits the connections per second that one address may make (KIP-612; Kafka: ConnectionQuotas in
// SocketServer.scala). See NewConnections.
type Connections struct {
	start   time.Time
	windows Windows
	limits  struct {
		sync.RWMutex
		of       map[string]float64
		others   float64 // of addresses without a limit of their own
		hasOther bool
	}
	used buckets
}

// NewConnections takes the windows of the client quotas.
func NewConnections(windows Windows, start time.Time) *Connections {
	return &Connections{start: start, windows: windows}
}

// SetIP sets or, with ok false, removes the limit of an address, or of all that have none of their own. A limit of 0 lets
// nobody in.
func (c *Connections) SetIP(ip Part, perSecond float64, ok bool) {
	name := canonical(ip.Name)
	c.limits.Lock()
	defer c.limits.Unlock()
	if ip.Is == Default {
		c.limits.others, c.limits.hasOther = perSecond, ok
		return
	}
	if c.limits.of == nil {
		c.limits.of = map[string]float64{}
	}
	if ok {
		c.limits.of[name] = perSecond
	} else {
		delete(c.limits.of, name)
	}
}

// Admit counts a new connection of an address. Above zero it is one too many and not counted; it is to be held for that long,
// one window at most, and closed then: a client that is refused at once comes back at once.
func (c *Connections) Admit(ip string, now time.Time) time.Duration {
	limit, ok := c.limitOf(ip)
	if !ok {
		return 0
	}
	at := now.Sub(c.start)
	b := c.used.get(bucketKey{ID: ip}, at, c.windows.total())
	if limit <= 0 {
		return c.windows.Length
	}
	throttle := min(b.charge(c.windows, 1, limit, at), c.windows.Length)
	if throttle > 0 {
		b.record(c.windows, -1, at)
	}
	return throttle
}

// TakeBack uncounts a connection that is not made after all.
func (c *Connections) TakeBack(ip string, now time.Time) {
	if _, ok := c.limitOf(ip); ok {
		at := now.Sub(c.start)
		c.used.get(bucketKey{ID: ip}, at, c.windows.total()).record(c.windows, -1, at)
	}
}

func (c *Connections) limitOf(ip string) (float64, bool) {
	c.limits.RLock()
	defer c.limits.RUnlock()
	if len(c.limits.of) > 0 {
		if l, ok := c.limits.of[canonical(ip)]; ok {
			return l, true
		}
	}
	return c.limits.others, c.limits.hasOther
}

// canonical is the one spelling of an address: that of IPv6 has several.
func canonical(ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ip
	}
	return a.Unmap().String()
}
