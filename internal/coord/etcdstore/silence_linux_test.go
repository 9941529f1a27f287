package etcdstore

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout reads TCP_USER_TIMEOUT of a TCP connection.
func userTimeout(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ms int
	if controlErr := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return time.Duration(ms) * time.Millisecond
}

// Streams between members are written by the side that accepted them, and that is where a link that was cut is noticed.
func TestMembersGiveUpConnectionsOnWhichNothingIsAcknowledged(t *testing.T) {
	for _, secure := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		open := &openConns{Listener: l}
		if secure {
			open.Listener = tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12})
		}
		dialled, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := open.Accept()
		if err != nil {
			t.Fatal(err)
		}
		under := accepted.(*openConn).Conn
		if secure {
			under = under.(*tls.Conn).NetConn()
		}
		if got := userTimeout(t, under); got != peerSilence {
			t.Errorf("TLS %v: given up after %v, want %v", secure, got, peerSilence)
		}
		for _, c := range []interface{ Close() error }{dialled, under, open} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
