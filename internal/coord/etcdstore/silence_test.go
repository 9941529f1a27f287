package etcdstore

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"klamm/internal/coord"
)

// dumbListener is a listener whose connections can fall silent: what is sent on them gets lost, and nothing comes, while both sides take them
// for open. Later ones are not concerned.
type dumbListener struct {
	net.Listener
	mu   sync.Mutex
	open []*dumbConn
}

type dumbConn struct {
	net.Conn
	silent chan struct{}
	over   sync.Once
	closed chan struct{}
}

func (l *dumbListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &dumbConn{Conn: c, silent: make(chan struct{}), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, m)
	return m, nil
}

// silence is for the connections that are open now.
func (l *dumbListener) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		close(c.silent)
	}
	l.open = nil
}

func (c *dumbConn) Write(b []byte) (int, error) {
	select {
	case <-c.silent:
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

func (c *dumbConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.silent:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *dumbConn) Close() error {
	c.over.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func TestMembersDialStreamsAnewThatFellSilent(t *testing.T) {
	g := newGroup(t, 3)
	var listeners [3]*dumbListener
	for i := range listeners {
		listeners[i] = &dumbListener{Listener: bind(t, g.peers[i].Addr)}
	}
	g.listen = func(i int) net.Listener { return listeners[i] }
	g.start(0, 1, 2)
	s := g.members[0].store
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := coord.EnsurePath(ctx, s, "/before", nil); err != nil {
		t.Fatal(err)
	}
	for _, l := range listeners {
		l.silence()
	}
	if err := retry(ctx, func() error { return coord.EnsurePath(ctx, s, "/after", nil) }); err != nil {
		t.Errorf("no write succeeds after all streams have fallen silent: %v", err)
	}
}
