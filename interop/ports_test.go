//go:build interop

package interop

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Ports that stay the same over restarts of their process lie below those that the kernel gives away by itself
// (net.ipv4.ip_local_port_range begins at 32768 by default).
const (
	firstReservedPort = 20000
	lastReservedPort  = 32000
)

// reserveAddress gives a loopback address that no other test gets until this one ends, in this process or in another:
// each has a lock file. Nobody listens on it.
func reserveAddress(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(reservePort(t)))
}

func reservePort(t *testing.T) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "klamm-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for port := firstReservedPort; port <= lastReservedPort; port++ {
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), listens(port)); err != nil {
			lock.Close()
			continue
		}
		t.Cleanup(func() { lock.Close() })
		return port
	}
	t.Fatalf("no port between %d and %d is free", firstReservedPort, lastReservedPort)
	return 0
}

// listens tries whether the port can be bound.
func listens(port int) error {
	l, err := net.Listen("tcp", fmt.Sprint(":", port))
	if err != nil {
		return err
	}
	return l.Close()
}
