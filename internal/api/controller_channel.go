package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
	"klamm/internal/wire"
)

// ControllerChannelOptions is what a ControllerChannel needs; all fields are required.
type ControllerChannelOptions struct {
	Log      *slog.Logger
	Cache    *metadata.Cache
	Listener string // name of the listener on which brokers talk to the controller
	// SocketTimeout bounds a request once a controller is known: controller.socket.timeout.ms.
	SocketTimeout time.Duration
	// Dial connects to host:port: wire.Dial bound to the broker's dialer and client id.
	Dial func(ctx context.Context, addr string) (*wire.ClientConn, error)
}

// ControllerChannel sends requests to the active controller (Kafka: NodeToControllerChannelManager). It looks the
// controller up in the metadata for each request, waits while none is known, and keeps one connection, on which requests
// are pipelined. It reaches a controller in the same process in the same way, over the protocol. A controller that is
// frozen, or behind a cut link, keeps its connections and answers nothing: a request ends when another controller is
// announced, or with the socket timeout. Safe for concurrent use.
type ControllerChannel struct {
	o       ControllerChannelOptions
	dialing chan struct{} // a lock that can be waited for under a context: it is held while dialing

	mu     sync.Mutex
	term   *controllerTerm // of the controller that was asked last; nil before the first
	conn   *wire.ClientConn
	addr   string
	closed bool
}

// controllerTerm is the time in which one address is the controller's.
type controllerTerm struct {
	addr string
	ctx  context.Context // long-lived: it ends when the metadata names another controller
	end  context.CancelFunc
}

// errControllerMoved is why a request ends that waited for a controller which is none any more.
var errControllerMoved = errors.New("another broker is the controller now")

// NewControllerChannel returns a channel without a connection.
func NewControllerChannel(o ControllerChannelOptions) *ControllerChannel {
	return &ControllerChannel{o: o, dialing: make(chan struct{}, 1)}
}

// controllerWaitMax bounds the wait for a controller when the context does not.
const controllerWaitMax = 30 * time.Second

// Request sends the request at the version set in it and waits for the answer. An answer may carry NOT_CONTROLLER: the
// caller tries again after a pause, and the controller is then looked up anew.
func (c *ControllerChannel) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	addr, err := c.controllerAddr(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.SocketTimeout)
	defer cancel()
	ctx, leave := c.termOf(addr).join(ctx)
	defer leave()
	conn, err := c.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	resp, err := conn.Request(ctx, req)
	if err != nil {
		c.drop(conn)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("request to the controller at %s: %w", addr, err)
	}
	return resp, nil
}

// termOf is the term of the controller at the address, begun now unless it lasts already.
func (c *ControllerChannel) termOf(addr string) *controllerTerm {
	c.mu.Lock()
	t := c.term
	isNew := t == nil || t.addr != addr || t.ctx.Err() != nil
	if isNew {
		if t != nil {
			t.end()
		}
		t = &controllerTerm{addr: addr}
		t.ctx, t.end = context.WithCancel(context.Background())
		c.term = t
	}
	c.mu.Unlock()
	if isNew {
		c.o.Cache.Await(nil, time.Now().Add(termMax), func(im *metadata.Image) bool {
			now, known := c.addrIn(im)
			return known && now != addr || t.ctx.Err() != nil
		}, func(bool) { t.end() })
	}
	return t
}

// termMax is when a term is looked at anew at the latest: the requests of that moment are made again.
const termMax = 365 * 24 * time.Hour

// join gives a context that ends with ctx or with the term.
func (t *controllerTerm) join(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(errControllerMoved) })
	return ctx, func() { stop(); cancel(nil) }
}

// Close ends the connection; requests in flight and later ones fail.
func (c *ControllerChannel) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	if c.term != nil {
		c.term.end()
	}
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// controllerAddr waits until the metadata knows a controller that can be reached.
func (c *ControllerChannel) controllerAddr(ctx context.Context) (string, error) {
	if addr, ok := c.addrIn(c.o.Cache.Image()); ok {
		return addr, nil
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(controllerWaitMax)
	}
	found := make(chan bool, 1)
	c.o.Cache.Await(nil, deadline, func(im *metadata.Image) bool {
		_, ok := c.addrIn(im)
		return ok
	}, func(ok bool) { found <- ok })
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("wait for a controller: %w", ctx.Err())
	case <-found:
	}
	addr, ok := c.addrIn(c.o.Cache.Image())
	if !ok {
		return "", fmt.Errorf("no controller is known on listener %s", c.o.Listener)
	}
	return addr, nil
}

func (c *ControllerChannel) addrIn(im *metadata.Image) (string, bool) {
	id := im.Controller()
	if id == cluster.NoBroker {
		return "", false
	}
	e, ok := im.Endpoint(id, c.o.Listener)
	return hostPort(e.Host, e.Port), ok
}

// connect returns the connection to the address, made now unless there is one. A connection to another address goes.
func (c *ControllerChannel) connect(ctx context.Context, addr string) (*wire.ClientConn, error) {
	select {
	case c.dialing <- struct{}{}:
		defer func() { <-c.dialing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to connect to the controller at %s: %w", addr, ctx.Err())
	}
	conn, old := c.current(addr)
	if conn != nil {
		return conn, nil
	}
	if old != nil {
		_ = old.Close() // it goes to a broker that is no longer the controller: nothing is lost with it
	}
	conn, err := c.o.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to the controller at %s: %w", addr, err)
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.conn, c.addr = conn, addr
	}
	c.mu.Unlock()
	if closed {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to the controller at %s: channel closed", addr)
	}
	c.o.Log.Info("connected to controller", "remote", addr)
	return conn, nil
}

// current returns a connection of that address, or takes out one of another.
func (c *ControllerChannel) current(addr string) (conn, old *wire.ClientConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && c.addr == addr {
		select {
		case <-c.conn.Done():
		default:
			return c.conn, nil
		}
	}
	old, c.conn = c.conn, nil
	return nil, old
}

func (c *ControllerChannel) drop(conn *wire.ClientConn) {
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
	}
	c.mu.Unlock()
	_ = conn.Close() // broken already
}

// hostPort is net.JoinHostPort, which this package does without: it may not import net.
func hostPort(host string, port int32) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}
