package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Listener is one address the server takes connections on.
type Listener struct {
	Name string       // Kafka's listener name, e.g. "PLAINTEXT" or "INTERNAL"
	Net  net.Listener // closed by the server; connections may be *tls.Conn
	// InterBroker marks listeners on which brokers and controllers reach this broker: APIs of scope
	// InterBrokerOnly are served there. A broker with one listener marks that one.
	InterBroker bool
	// SASL, if set, is what clients must authenticate by before anything else; until then frames are at most 64 KiB.
	SASL *SASL
	// TLSPrincipal, if set, names the client of a TLS connection that has no SASL; "" leaves it anonymous.
	TLSPrincipal func(tls.ConnectionState) (string, error)
}

// ServerConfig is what a Server is built of.
type ServerConfig struct {
	Listeners []Listener
	API       *APITable
	Handler   Handler
	Limits    Limits
	Features  func() Features // for ApiVersions v3+; nil for none
	Log       *slog.Logger
	Stats     *Stats        // nil for one of the server's own
	Quota     *RequestQuota // nil for none
	// HoldConnection, if set, is asked about each new connection: above zero it is one too many of its address, and is
	// held for that long and closed.
	HoldConnection func(host string) time.Duration
	// PaceConnection, if set, is asked before a connection is taken: above zero the listener waits that long and asks again.
	// protected is said of a listener that brokers use and clients do not.
	PaceConnection func(listener string, protected bool) time.Duration
}

func (c *ServerConfig) validate() error {
	var errs []error
	if len(c.Listeners) == 0 {
		errs = append(errs, errors.New("no listeners"))
	}
	names := map[string]bool{}
	for _, l := range c.Listeners {
		if l.Name == "" || l.Net == nil {
			errs = append(errs, fmt.Errorf("listener %q needs a name and a net.Listener", l.Name))
		}
		if names[l.Name] {
			errs = append(errs, fmt.Errorf("two listeners are named %q", l.Name))
		}
		names[l.Name] = true
	}
	if c.API == nil {
		errs = append(errs, errors.New("no api table"))
	}
	if c.Handler == nil {
		errs = append(errs, errors.New("no handler"))
	}
	if c.Log == nil {
		errs = append(errs, errors.New("no log"))
	}
	return errors.Join(errs...)
}

// Server serves the Kafka protocol on its listeners.
type Server struct {
	cfg       ServerConfig
	listeners []*Listener
	log       *slog.Logger
	stats     *Stats
	limits    atomic.Pointer[Limits]
	quotas    *quotas
	logs      *logLimiter
	draining  chan struct{} // closed when the server stops reading
	nextID    atomic.Uint64
	held      atomic.Int64 // connections in holdAndClose

	conns sync.WaitGroup
	mu    struct {
		sync.Mutex
		conns map[*Conn]struct{}
	}
}

// NewServer builds a server; all faults of cfg are reported at once.
func NewServer(cfg ServerConfig) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("wire server: %w", err)
	}
	s := &Server{cfg: cfg, log: cfg.Log, stats: cfg.Stats, quotas: newQuotas(), logs: newLogLimiter(), draining: make(chan struct{})}
	if s.stats == nil {
		s.stats = &Stats{}
	}
	for i := range cfg.Listeners {
		l := cfg.Listeners[i]
		s.listeners = append(s.listeners, &l)
	}
	s.mu.conns = map[*Conn]struct{}{}
	s.SetLimits(cfg.Limits)
	return s, nil
}

// SetLimits changes the limits at run time. Connections that are open keep going even if there are too many.
func (s *Server) SetLimits(l Limits) { s.limits.Store(l.withDefaults()) }

// Stats returns the server's counters.
func (s *Server) Stats() *Stats { return s.stats }

// Run serves until ctx ends; then it takes no more connections, reads no more requests, lets the answers in flight
// leave for at most Limits.DrainTimeout, closes every connection and returns nil once all goroutines have ended.
// It returns an error, and stops likewise, when a listener is closed by someone else. It is called once.
func (s *Server) Run(ctx context.Context) error {
	s.cfg.API.sealed.Store(true)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Answers in flight outlive ctx, so the connections' contexts must too.
	connCtx := context.WithoutCancel(ctx)
	var acceptors sync.WaitGroup
	for _, l := range s.listeners {
		acceptors.Go(func() {
			if err := s.accept(ctx, connCtx, l); err != nil {
				stop(err)
			}
		})
	}
	<-ctx.Done()
	for _, l := range s.listeners {
		_ = l.Net.Close()
	}
	acceptors.Wait()
	s.stopConnections()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// stopConnections drains and closes all connections and waits for their goroutines.
func (s *Server) stopConnections() {
	close(s.draining)
	for _, c := range s.snapshot() {
		c.drain()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.conns.Wait()
	}()
	patience := time.NewTimer(s.limits.Load().DrainTimeout)
	defer patience.Stop()
	select {
	case <-done:
		return
	case <-patience.C:
	}
	for _, c := range s.snapshot() {
		c.close()
	}
	<-done
}

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

func (s *Server) snapshot() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		out = append(out, c)
	}
	return out
}

// accept takes connections of one listener until ctx ends.
func (s *Server) accept(ctx, connCtx context.Context, l *Listener) error {
	const backoffMax = time.Second
	backoff := time.Duration(0)
	for {
		nc, err := l.Net.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on listener %s: %w", l.Name, err)
		case err != nil:
			// Out of file descriptors, most likely: it passes when others close.
			if backoff == 0 {
				s.log.Error("cannot accept connections", "listener", l.Name, "err", err)
			}
			backoff = min(max(2*backoff, 5*time.Millisecond), backoffMax)
			timer := time.NewTimer(backoff)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
			continue
		}
		backoff = 0
		s.admit(ctx, connCtx, l, nc)
	}
}

// admit serves a new connection if the limits allow. Kafka: beyond max.connections acceptance waits, except on the
// inter-broker listener, for which the longest idle connection of another listener is closed.
func (s *Server) admit(ctx, connCtx context.Context, l *Listener, nc net.Conn) {
	if !s.pace(ctx, l) {
		_ = nc.Close()
		return
	}
	host := remoteHost(nc)
	if s.cfg.HoldConnection != nil {
		if hold := s.cfg.HoldConnection(host); hold > 0 {
			s.holdAndClose(nc, hold)
			return
		}
	}
	verdict, ok := s.quotas.await(ctx, l, host, s.protected(l), s.limits.Load)
	if !ok {
		_ = nc.Close()
		if verdict == refused {
			s.stats.ConnectionsRefused.Add(1)
			const reason = "too many connections from this address"
			if suppressed, ok := s.logs.allow(logSubject{host, l.Name, reason}, time.Now()); ok {
				s.log.Warn("connection refused", "reason", reason, "remote", nc.RemoteAddr().String(),
					"listener", l.Name, "suppressed", suppressed)
			}
		}
		return
	}
	if verdict == admittedByEvict {
		s.evict()
	}
	c := newConn(connCtx, s.nextID.Add(1), s, l, nc, host)
	s.mu.Lock()
	s.mu.conns[c] = struct{}{}
	s.mu.Unlock()
	s.stats.ConnectionsAccepted.Add(1)
	s.stats.ConnectionsOpen.Add(1)
	s.conns.Go(func() {
		c.serve()
		s.mu.Lock()
		delete(s.mu.conns, c)
		s.mu.Unlock()
		s.stats.ConnectionsOpen.Add(-1)
		s.quotas.leave(l, host)
	})
}

// pace waits until another connection may be taken; false when ctx ends before.
func (s *Server) pace(ctx context.Context, l *Listener) bool {
	for s.cfg.PaceConnection != nil {
		wait := s.cfg.PaceConnection(l.Name, s.protected(l))
		if wait <= 0 {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
	return true
}

// heldMax bounds the connections that are held before they are closed; those beyond are closed at once.
const heldMax = 1024

// holdAndClose closes a connection, later: a client that is refused at once comes back at once (Kafka: throttledSockets).
func (s *Server) holdAndClose(nc net.Conn, hold time.Duration) {
	s.stats.ConnectionsThrottled.Add(1)
	if s.held.Add(1) > heldMax {
		s.held.Add(-1)
		_ = nc.Close()
		return
	}
	s.conns.Go(func() {
		timer := time.NewTimer(hold)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.draining:
		}
		_ = nc.Close()
		s.held.Add(-1)
	})
}

// protected reports whether brokers reach this one by the listener and clients do not.
func (s *Server) protected(l *Listener) bool {
	if !l.InterBroker {
		return false
	}
	for _, other := range s.listeners {
		if !other.InterBroker {
			return true
		}
	}
	return false
}

// evict closes the client connection that has been silent the longest.
func (s *Server) evict() {
	var oldest *Conn
	for _, c := range s.snapshot() {
		if !s.protected(c.listener) && c.ctx.Err() == nil && (oldest == nil || c.lastActive.Load() < oldest.lastActive.Load()) {
			oldest = c
		}
	}
	if oldest != nil {
		s.stats.ConnectionsEvicted.Add(1)
		oldest.close()
	}
}

// remoteHost is the address of the other side without the port.
func remoteHost(nc net.Conn) string {
	addr := nc.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}
