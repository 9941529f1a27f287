package wire

import (
	"context"
	"sync"
	"time"
)

// Limits bounds what connections may cost. Zero fields take the defaults, which are Kafka's where Kafka has one.
type Limits struct {
	RequestMaxBytes              int            // socket.request.max.bytes; 100 MiB
	ConnectionsMaxIdle           time.Duration  // connections.max.idle.ms; 10 minutes, negative for no limit
	MaxConnections               int            // max.connections; no limit
	ListenerMaxConnections       map[string]int // listener.name.<name>.max.connections, by listener
	MaxConnectionsPerIP          int            // max.connections.per.ip; no limit; negative: none at all but the overrides
	MaxConnectionsPerIPOverrides map[string]int // max.connections.per.ip.overrides, by address
	SendBufferBytes              int            // socket.send.buffer.bytes; 100 KiB, negative for the system's choice
	ReceiveBufferBytes           int            // socket.receive.buffer.bytes; the system's choice
	InFlightRequests             int            // unanswered requests of a connection before it is read no more; 64
	InFlightBytes                int            // memory they may take before it is read no more; 16 MiB
	DrainTimeout                 time.Duration  // how long a stopping server waits for answers; 5 seconds
}

// unauthenticatedMaxBytes bounds frames on a listener with SASL, before the client is authenticated.
const unauthenticatedMaxBytes = 64 << 10

func (l Limits) withDefaults() *Limits {
	orInt := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	orInt(&l.RequestMaxBytes, 100<<20)
	orInt(&l.MaxConnections, 1<<31-1)
	if l.MaxConnectionsPerIP == 0 {
		l.MaxConnectionsPerIP = 1<<31 - 1
	}
	l.MaxConnectionsPerIP = max(0, l.MaxConnectionsPerIP)
	if l.SendBufferBytes == 0 {
		l.SendBufferBytes = 100 << 10
	}
	orInt(&l.InFlightRequests, 64)
	orInt(&l.InFlightBytes, 16<<20)
	if l.ConnectionsMaxIdle == 0 {
		l.ConnectionsMaxIdle = 10 * time.Minute
	}
	if l.DrainTimeout <= 0 {
		l.DrainTimeout = 5 * time.Second
	}
	return &l
}

// perIP is the limit of one address.
func (l *Limits) perIP(host string) int {
	if n, ok := l.MaxConnectionsPerIPOverrides[host]; ok {
		return n
	}
	return l.MaxConnectionsPerIP
}

// quotas counts connections against the limits (Kafka: ConnectionQuotas in SocketServer.scala).
type quotas struct {
	mu struct {
		sync.Mutex
		total       int
		perListener map[*Listener]int
		perIP       map[string]int
		freed       chan struct{} // closed when a connection has gone
	}
}

func newQuotas() *quotas {
	q := &quotas{}
	q.mu.perListener = map[*Listener]int{}
	q.mu.perIP = map[string]int{}
	q.mu.freed = make(chan struct{})
	return q
}

// admission is the verdict on a new connection.
type admission uint8

const (
	admitted        admission = iota
	admittedByEvict           // beyond max.connections: one of another listener has to go
	refused                   // its address has too many
	mustWait                  // no room now
)

// admit counts a connection if there is room; wait is closed when asking again may help.
func (q *quotas) admit(l *Listener, host string, protected bool, lim *Limits) (a admission, wait <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.mu.total >= lim.MaxConnections
	if most, ok := lim.ListenerMaxConnections[l.Name]; ok && q.mu.perListener[l] >= most || full && !protected {
		return mustWait, q.mu.freed
	}
	if q.mu.perIP[host] >= lim.perIP(host) {
		return refused, nil
	}
	q.mu.total++
	q.mu.perListener[l]++
	q.mu.perIP[host]++
	if full {
		return admittedByEvict, nil
	}
	return admitted, nil
}

// leave uncounts a connection.
func (q *quotas) leave(l *Listener, host string) {
	q.mu.Lock()
	q.mu.total--
	q.mu.perListener[l]--
	if q.mu.perIP[host]--; q.mu.perIP[host] == 0 {
		delete(q.mu.perIP, host)
	}
	freed := q.mu.freed
	q.mu.freed = make(chan struct{})
	q.mu.Unlock()
	close(freed)
}

// await admits a connection, waiting for room if need be. It reports false when ctx ends or the address has too many.
func (q *quotas) await(ctx context.Context, l *Listener, host string, protected bool, lim func() *Limits) (admission, bool) {
	for {
		a, wait := q.admit(l, host, protected, lim())
		switch a {
		case refused:
			return a, false
		case admitted, admittedByEvict:
			return a, true
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return a, false
		}
	}
}
