//go:build interop

package zookeeper

import (
	"io"
	"net"
	"sync"
)

// link is a broker's way to ZooKeeper, which the test can cut: the process runs on, clients reach it, ZooKeeper does not.
type link struct {
	addr     string
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu struct {
		sync.Mutex
		cut   bool
		conns []net.Conn // of both sides
	}
}

// linkToZooKeeper has the broker, not started yet, go to ZooKeeper by a link.
func (b *broker) linkToZooKeeper() *link {
	b.c.Helper()
	l := &link{addr: freeAddr(b.c.T), to: b.c.zks[0].addr}
	var err error
	if l.listener, err = net.Listen("tcp", l.addr); err != nil {
		b.c.Fatal(err)
	}
	l.running.Go(l.serve)
	b.c.Cleanup(func() {
		_ = l.listener.Close()
		l.cut()
		l.running.Wait()
	})
	b.addProperties("zookeeper.connect=" + l.addr + "\n")
	return l
}

func (l *link) serve() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil || !l.take(near, far) {
			_ = near.Close()
			continue
		}
		for from, to := range map[net.Conn]net.Conn{near: far, far: near} {
			l.running.Go(func() {
				_, _ = io.Copy(to, from) // either side may go at any time
				_ = to.Close()
			})
		}
	}
}

// take keeps the connections unless the link is cut.
func (l *link) take(near, far net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cut {
		_ = far.Close()
		return false
	}
	l.mu.conns = append(l.mu.conns, near, far)
	return true
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = true
	for _, conn := range l.mu.conns {
		_ = conn.Close()
	}
	l.mu.conns = nil
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.cut = false
}
