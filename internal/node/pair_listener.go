package node

import (
	"net"
	"sync"
)

// pairListener accepts from two listeners as if they were one: the IPv4 and the IPv6 loopback. Accept is safe for
// concurrent use; Close ends the goroutines that wait in the two listeners.
type pairListener struct {
	first, second net.Listener
	accepted      chan acceptResult
	closed        chan struct{}
	closeOnce     sync.Once
	acceptors     sync.WaitGroup
}

type acceptResult struct {
	conn net.Conn
	err  error
}

func newPairListener(first, second net.Listener) *pairListener {
	p := &pairListener{first: first, second: second, accepted: make(chan acceptResult), closed: make(chan struct{})}
	p.acceptors.Add(2)
	for _, l := range []net.Listener{first, second} {
		go p.acceptFrom(l)
	}
	return p
}

func (p *pairListener) acceptFrom(l net.Listener) {
	defer p.acceptors.Done()
	for {
		conn, err := l.Accept()
		select {
		case p.accepted <- acceptResult{conn, err}:
		case <-p.closed:
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (p *pairListener) Accept() (net.Conn, error) {
	select {
	case r := <-p.accepted:
		return r.conn, r.err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pairListener) Close() error {
	p.closeOnce.Do(func() {
		close(p.closed)
		_ = p.first.Close()
		_ = p.second.Close()
		p.acceptors.Wait()
	})
	return nil
}

// Addr implements net.Listener; it is the IPv4 side's.
func (p *pairListener) Addr() net.Addr { return p.first.Addr() }
