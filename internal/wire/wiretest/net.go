// Package wiretest is for tests of the wire and of what stands on it: random messages of every key and version, and
// a network in memory whose buffered connections have deadlines and work inside testing/synctest bubbles, where real
// sockets would keep fake time from running.
package wiretest

import (
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	backlog     = 128
	bufferBytes = 64 << 10 // per direction; a writer waits when it is full
)

// Net is a network. Everything is made inside the bubble that uses it. It is safe for concurrent use.
type Net struct {
	mu struct {
		sync.Mutex
		listeners map[string]*listener
		nextPort  int
	}
}

// NewNet returns a network without listeners.
func NewNet() *Net {
	n := &Net{}
	n.mu.listeners = map[string]*listener{}
	n.mu.nextPort = 30000
	return n
}

// addr is a host and port.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// Listen listens on host:port; port 0 takes a free one.
func (n *Net) Listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == "0" {
		n.mu.nextPort++
		address = net.JoinHostPort(host, strconv.Itoa(n.mu.nextPort))
	}
	if n.mu.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr(address), Err: syscall.EADDRINUSE}
	}
	l := &listener{net: n, addr: addr(address), conns: make(chan net.Conn, backlog), closed: make(chan struct{})}
	n.mu.listeners[address] = l
	return l, nil
}

// Dial connects to a listener from 127.0.0.1. Where nobody listens it is refused at once.
func (n *Net) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.DialFrom(ctx, "127.0.0.1", address)
}

// DialFrom is Dial from an address of choice.
func (n *Net) DialFrom(ctx context.Context, fromHost, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.mu.listeners[address]
	n.mu.nextPort++
	from := addr(net.JoinHostPort(fromHost, strconv.Itoa(n.mu.nextPort)))
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: addr(address), Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	client, server := pipe(from, l.addr)
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type listener struct {
	net    *Net
	addr   addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept returns the next connection, or net.ErrClosed.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	case c := <-l.conns:
		return c, nil
	}
}

// Close stops listening and closes connections nobody accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.net.mu.Lock()
		delete(l.net.mu.listeners, string(l.addr))
		l.net.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.conns:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Addr is where it listens.
func (l *listener) Addr() net.Addr { return l.addr }

// pipe returns the two ends of a connection.
func pipe(client, server addr) (net.Conn, net.Conn) {
	up, down := newStream(), newStream()
	return &conn{in: down, out: up, local: client, remote: server}, &conn{in: up, out: down, local: server, remote: client}
}

// conn is one end: it reads one stream and writes the other.
type conn struct {
	in, out       *stream
	local, remote addr
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close ends both directions: the other end reads what was written, then EOF.
func (c *conn) Close() error {
	c.in.change(func(s *stream) { s.readerGone, s.buf = true, nil })
	c.out.change(func(s *stream) { s.writerGone = true })
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func(s *stream) { s.readDeadline = t })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.change(func(s *stream) { s.writeDeadline = t })
	return nil
}

// stream is one direction of a connection.
type stream struct {
	mu            sync.Mutex // guards everything below
	buf           []byte
	writerGone    bool
	readerGone    bool
	readDeadline  time.Time
	writeDeadline time.Time
	changed       chan struct{} // closed and replaced with every change
}

func newStream() *stream { return &stream{changed: make(chan struct{})} }

// change alters the stream and wakes who waits for it.
func (s *stream) change(f func(*stream)) {
	s.mu.Lock()
	f(s)
	changed := s.changed
	s.changed = make(chan struct{})
	s.mu.Unlock()
	close(changed)
}

// await calls try after every change until it reports done, or the deadline that it returns has passed.
func (s *stream) await(try func(*stream) (done bool, deadline time.Time)) error {
	for {
		s.mu.Lock()
		done, deadline := try(s)
		changed := s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		if deadline.IsZero() {
			<-changed
			continue
		}
		wait := time.Until(deadline)
		if wait <= 0 {
			return os.ErrDeadlineExceeded
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && time.Until(deadline) <= 0 }

func (s *stream) read(p []byte) (n int, err error) {
	timeout := s.await(func(s *stream) (bool, time.Time) {
		switch {
		case s.readerGone:
			err = net.ErrClosed
		case expired(s.readDeadline):
			err = os.ErrDeadlineExceeded
		case len(s.buf) > 0:
			n = copy(p, s.buf)
			s.buf = s.buf[n:]
		case s.writerGone:
			err = io.EOF
		default:
			return len(p) == 0, s.readDeadline
		}
		return true, time.Time{}
	})
	if timeout != nil {
		err = timeout
	}
	if n > 0 {
		s.change(func(*stream) {}) // a writer may have waited for room
	}
	return n, s.wrap("read", err)
}

func (s *stream) write(p []byte) (n int, err error) {
	for err == nil && n < len(p) {
		wrote := 0
		timeout := s.await(func(s *stream) (bool, time.Time) {
			switch room := bufferBytes - len(s.buf); {
			case s.writerGone:
				err = net.ErrClosed
			case s.readerGone:
				err = syscall.EPIPE
			case expired(s.writeDeadline):
				err = os.ErrDeadlineExceeded
			case room > 0:
				wrote = min(room, len(p)-n)
				s.buf = append(s.buf, p[n:n+wrote]...)
			default:
				return false, s.writeDeadline
			}
			return true, time.Time{}
		})
		if timeout != nil {
			err = timeout
		}
		if n += wrote; wrote > 0 {
			s.change(func(*stream) {})
		}
	}
	return n, s.wrap("write", err)
}

// wrap makes errors look like those of sockets, timeouts included; EOF stays bare.
func (s *stream) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Err: err}
}
