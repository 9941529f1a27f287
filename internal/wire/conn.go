package wire

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// AnonymousPrincipal is who a client is before, or without, authentication.
const AnonymousPrincipal = "User:ANONYMOUS"

const unknownSoftware = "unknown"

// Conn is one client's connection. Its exported methods are safe from any goroutine.
//
// Invariants of the queue: it holds the requests that were read and whose answers have not left, in the order they
// were read; only the reader appends, only the writer takes, and only from the front and only what is ready.
type Conn struct {
	id       uint64
	srv      *Server
	listener *Listener
	nc       net.Conn
	host     string

	ctx    context.Context // ends when the connection is gone; handed to the Handler
	cancel context.CancelFunc

	software   atomic.Pointer[[2]string]
	identity   atomic.Pointer[Identity] // nil until the client is authenticated
	lastActive atomic.Int64             // unix nanoseconds of the last byte read or written
	muteUntil  atomic.Int64             // unix nanoseconds

	mu struct {
		sync.Mutex
		queue   []*Request
		bytes   int // cost of the requests in queue that are not answered
		waiting int // how many they are
		sealed  bool
		closed  bool
	}
	wake chan struct{} // to the writer: the front became ready, or the queue was sealed
	room chan struct{} // to the reader: the queue became shorter

	in  connReader // reader goroutine only
	out connWriter // writer goroutine only
}

func newConn(ctx context.Context, id uint64, srv *Server, l *Listener, nc net.Conn, host string) *Conn {
	c := &Conn{id: id, srv: srv, listener: l, nc: nc, host: host, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.in = connReader{c: c, trusted: trustedStart}
	c.in.buf = bufio.NewReader(&c.in)
	c.out = connWriter{c: c}
	// Records should be in the client's hands while they are still in the processor's cache: in the megabytes that the system
	// lets a socket queue they are not. The receive buffer is the system's to tune unless someone asks for a size: a fixed one
	// costs the broker more reads, and a client at a distance its window.
	inner := nc
	if t, ok := nc.(*tls.Conn); ok {
		inner = t.NetConn()
		c.out.sealed = bufio.NewWriterSize(nc, tlsRecordBytes)
	}
	if socket, ok := inner.(*net.TCPConn); ok && srv.limits.Load().SendBufferBytes > 0 {
		_ = socket.SetWriteBuffer(srv.limits.Load().SendBufferBytes) // it works without, too
	}
	if socket, ok := inner.(*net.TCPConn); ok && srv.limits.Load().ReceiveBufferBytes > 0 {
		_ = socket.SetReadBuffer(srv.limits.Load().ReceiveBufferBytes) // likewise
	}
	if socket, ok := nc.(syscall.Conn); ok {
		c.out.socket, _ = socket.SyscallConn() // without it records are copied
	}
	c.touch(time.Now())
	return c
}

// ID numbers the connections of a server.
func (c *Conn) ID() uint64 { return c.id }

// Listener is the name of the listener the connection arrived on.
func (c *Conn) Listener() string { return c.listener.Name }

// InterBroker reports whether that listener is marked InterBroker.
func (c *Conn) InterBroker() bool { return c.listener.InterBroker }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// RemoteHost is the client's address without its port.
func (c *Conn) RemoteHost() string { return c.host }

// LocalAddr is the address the client connected to.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// ClientSoftware is what the client said it is in ApiVersions v3+ (KIP-511), else "unknown".
func (c *Conn) ClientSoftware() (name, version string) {
	if s := c.software.Load(); s != nil {
		return s[0], s[1]
	}
	return unknownSoftware, unknownSoftware
}

// Principal is who the client is: AnonymousPrincipal before, or without, authentication.
func (c *Conn) Principal() string {
	if who := c.identity.Load(); who != nil {
		return who.Principal
	}
	return AnonymousPrincipal
}

// ByToken reports whether the client is authenticated by a delegation token.
func (c *Conn) ByToken() bool {
	who := c.identity.Load()
	return who != nil && who.Token
}

// SecurityProtocol is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
func (c *Conn) SecurityProtocol() string {
	name := "PLAINTEXT"
	if _, ok := c.nc.(*tls.Conn); ok {
		name = "SSL"
	}
	if c.listener.SASL != nil {
		name = "SASL_" + name
	}
	return name
}

// Done is closed when the connection is gone.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// serve runs the connection until it is closed and both its goroutines have ended. It is the reader goroutine.
func (c *Conn) serve() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	c.read()
	// Reading is over. Answers that are still due may leave, for as long as a stopping server would wait.
	c.seal()
	patience := time.NewTimer(c.srv.limits.Load().DrainTimeout)
	defer patience.Stop()
	select {
	case <-written:
	case <-patience.C:
		c.close()
		<-written
	}
}

// enqueue appends a request that has just been read.
func (c *Conn) enqueue(r *Request) {
	c.srv.stats.InFlight.Add(1)
	c.mu.Lock()
	c.mu.queue = append(c.mu.queue, r)
	c.mu.bytes += r.cost
	c.mu.waiting++
	c.mu.Unlock()
}

// answered takes the answer to a request. When the connection is gone the answer is dropped.
func (c *Conn) answered(r *Request, a answer) {
	c.srv.stats.InFlight.Add(-1)
	c.mu.Lock()
	c.mu.bytes -= r.cost
	c.mu.waiting--
	closed := c.mu.closed
	front := false
	if !closed {
		r.answer, r.ready = a, true
		front = c.mu.queue[0] == r
	}
	c.mu.Unlock()
	if closed {
		a.release()
		return
	}
	if front {
		signal(c.wake)
	}
	signal(c.room)
}

// takeReady moves the answered requests at the front of the queue to batch. more is false when nothing will follow.
func (c *Conn) takeReady(batch []*Request) (taken []*Request, more bool) {
	c.mu.Lock()
	n := 0
	for n < len(c.mu.queue) && c.mu.queue[n].ready {
		n++
	}
	batch = append(batch, c.mu.queue[:n]...)
	left := copy(c.mu.queue, c.mu.queue[n:])
	clear(c.mu.queue[left:])
	c.mu.queue = c.mu.queue[:left]
	more = !c.mu.closed && !(c.mu.sealed && left == 0)
	c.mu.Unlock()
	if n > 0 {
		signal(c.room)
	}
	return batch, more
}

// hasRoom reports whether another request may be read.
func (c *Conn) hasRoom(lim *Limits) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.queue) < lim.InFlightRequests && (c.mu.bytes < lim.InFlightBytes || c.mu.waiting == 0)
}

// idle reports whether no request waits for an answer.
func (c *Conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.waiting == 0
}

// seal tells the writer that no request will follow: it ends once the queue is empty.
func (c *Conn) seal() {
	c.mu.Lock()
	c.mu.sealed = true
	c.mu.Unlock()
	signal(c.wake)
}

// close closes the connection at once and drops the answers that have not left.
func (c *Conn) close() {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return
	}
	c.mu.closed = true
	dropped := c.mu.queue
	c.mu.queue = nil
	c.mu.Unlock()
	c.cancel()
	_ = c.nc.Close() // nothing can be done about a connection that cannot even be closed
	for _, r := range dropped {
		// Those not ready are released by the one who answers them, who will find the connection closed.
		if r.ready {
			r.answer.release()
		}
	}
}

// drain ends reading; what is in flight is still answered. The server has said that it is stopping before.
func (c *Conn) drain() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// mute stops reading for d.
func (c *Conn) mute(d time.Duration) {
	c.srv.stats.ThrottledTimeMs.Add(d.Milliseconds())
	until := time.Now().Add(d).UnixNano()
	for {
		old := c.muteUntil.Load()
		if old >= until || c.muteUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

// touch notes a sign of life.
func (c *Conn) touch(now time.Time) { c.lastActive.Store(now.UnixNano()) }

// logClose writes the one line about a connection that is closed for what it sent.
func (c *Conn) logClose(reason string, err error, key, version int16, clientID string) {
	c.srv.stats.ProtocolErrors.Add(1)
	suppressed, ok := c.srv.logs.allow(logSubject{c.host, c.listener.Name, reason}, time.Now())
	if !ok {
		return
	}
	args := []any{"reason", reason, "remote", c.nc.RemoteAddr().String(), "listener", c.listener.Name}
	if key >= 0 {
		args = append(args, "api", APIName(key), "version", version, "client", clientID)
	}
	if err != nil {
		args = append(args, "err", err)
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	c.srv.log.Warn("connection closed", args...)
}

// logPanic writes the one line about a contained panic.
func (c *Conn) logPanic(p any, r *Request) {
	c.srv.stats.HandlerPanics.Add(1)
	args := []any{"panic", fmt.Sprint(p), "remote", c.nc.RemoteAddr().String(), "listener", c.listener.Name}
	if r != nil {
		args = append(args, "api", APIName(r.Key), "version", r.Version, "client", r.ClientID)
	}
	c.srv.log.Error("connection closed by a panic", append(args, "stack", string(debug.Stack()))...)
}

// signal leaves a token in a channel of capacity one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
