package node

import (
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"klamm/internal/config"
)

// TestBrokersGiveUpConnectionsAsConfigured connects to a port whose queue of connections is full, where nothing is refused or taken.
func TestBrokersGiveUpConnectionsAsConfigured(t *testing.T) {
	cfg, _, err := config.FromProperties(map[string]string{
		"broker.id": "1", "socket.connection.setup.timeout.ms": "50", "socket.connection.setup.timeout.max.ms": "100",
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{cfg: cfg, secured: map[string]*listenerSecurity{"PLAINTEXT": {}}}
	addr := fullPort(t)
	began := time.Now()
	if conn, err := b.dialer("PLAINTEXT")(t.Context(), addr); err == nil {
		_ = conn.Close()
		t.Fatal("the connection was made")
	}
	if took := time.Since(began); took < 50*time.Millisecond || took > 5*time.Second {
		t.Errorf("given up after %v", took)
	}
}

// fullPort listens without ever accepting, and fills the queue.
func fullPort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for {
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}
