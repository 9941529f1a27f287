package wire

import (
	"context"
	"net"
	"sync"
	"time"
)

// ConnectLimit bounds how long connections to brokers may take to be made. A broker that comes back on another machine, or in another
// container, has another address; its name may lead to the old one for a moment, where nobody refuses a connection or takes it. The
// next attempt looks the name up again. (Kafka: ClusterConnectionStates.connectionSetupTimeoutMs, which grows by failures of every kind.)
// Safe for concurrent use.
type ConnectLimit struct {
	first, max time.Duration

	mu struct {
		sync.Mutex
		grown map[string]time.Duration // by address, where attempts took too long and none has succeeded since
	}
}

// NewConnectLimit makes one of first for an attempt, and for those at the same address after one that took too long twice as much, up to max.
func NewConnectLimit(first, max time.Duration) *ConnectLimit {
	l := &ConnectLimit{first: first, max: max}
	l.mu.grown = map[string]time.Duration{}
	return l
}

// Bound gives dial within the limit.
func (l *ConnectLimit) Bound(dial DialFunc) DialFunc {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		limit := l.of(addr)
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		nc, err := dial(limited, addr)
		tooLong := err != nil && limited.Err() != nil && ctx.Err() == nil
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case err == nil:
			delete(l.mu.grown, addr)
		case tooLong: // of several at a time only the first makes it grow
			l.mu.grown[addr] = max(l.mu.grown[addr], min(2*limit, l.max))
		}
		return nc, err
	}
}

func (l *ConnectLimit) of(addr string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.first, l.mu.grown[addr])
}
