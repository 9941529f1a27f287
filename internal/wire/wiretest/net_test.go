package wiretest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// connect returns both ends of a connection.
func connect(t *testing.T, n *Net) (client, server net.Conn) {
	t.Helper()
	l, err := n.Listen("10.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = n.DialFrom(t.Context(), "192.0.2.1", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestBytesArriveInOrderAndThenTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connect(t, NewNet())
		sent := bytes.Repeat([]byte("0123456789"), 100_000) // more than is buffered
		go func() {
			_, _ = client.Write(sent)
			_ = client.Close()
		}()
		got, err := io.ReadAll(server)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if _, err := server.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing to a closed end: %v", err)
		}
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading a closed end: %v", err)
		}
	})
}

func TestDeadlinesAreMovedAndPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := connect(t, NewNet())
		begin := time.Now()
		_ = client.SetReadDeadline(begin.Add(time.Hour))
		go func() {
			time.Sleep(time.Second)
			_ = client.SetReadDeadline(begin.Add(2 * time.Second))
		}()
		_, err := client.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(begin) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		_ = client.SetDeadline(time.Now().Add(time.Second))
		n, err := client.Write(make([]byte, 1<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 {
			t.Errorf("wrote %d bytes, %v", n, err)
		}
		_ = server.Close()
	})
}

func TestAddressesAreRealEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNet()
		client, server := connect(t, n)
		host, _, err := net.SplitHostPort(server.RemoteAddr().String())
		if err != nil || host != "192.0.2.1" || client.RemoteAddr() != server.LocalAddr() {
			t.Errorf("addresses are %v and %v", server.RemoteAddr(), client.RemoteAddr())
		}
		l, _ := n.Listen("a:1")
		if _, err := n.Listen("a:1"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("listening twice: %v", err)
		}
		_ = l.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting after close: %v", err)
		}
		if _, err := n.Dial(context.Background(), "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialing nobody: %v", err)
		}
	})
}
