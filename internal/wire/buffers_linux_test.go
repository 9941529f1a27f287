package wire

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// socketBuffers gives the sizes that the system has for a connection, which are twice what is asked for.
func socketBuffers(t *testing.T, limits Limits) (receive, send int) {
	t.Helper()
	table := NewAPITable()
	table.Serve(3, 0, 12, AllListeners)
	addr, _ := serveTCP(t, table, func(_ context.Context, r *Request) {
		raw, err := r.Conn.nc.(*net.TCPConn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) {
				receive, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
				send, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
			})
		}
		if err != nil {
			t.Error(err)
		}
		respondEmpty(r)
	}, limits)
	c, err := Dial(t.Context(), addr, ClientConfig{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	if _, err := c.Request(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return receive, send
}

func TestTheReceiveBufferIsTheSystemsUnlessASizeIsAskedFor(t *testing.T) {
	const asked = 20_000
	system, _ := socketBuffers(t, Limits{})
	if system == 2*asked {
		t.Fatalf("the system's choice is the size that the test asks for: %d", system)
	}
	if receive, send := socketBuffers(t, Limits{ReceiveBufferBytes: asked, SendBufferBytes: asked}); receive != 2*asked || send != 2*asked {
		t.Errorf("buffers of %d and %d, want twice %d", receive, send, asked)
	}
}
