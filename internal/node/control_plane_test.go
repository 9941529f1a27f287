package node

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"
)

// The controller's requests go to the listener of control.plane.listener.name, and to no other.
func TestTheControllersRequestsUseTheControlPlaneListener(t *testing.T) {
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	data, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	// What is advertised is this test, for both.
	cfg := configure(t, t.TempDir(), map[string]string{
		"listeners":                      "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
		"advertised.listeners":           "PLAINTEXT://" + data.Addr().String() + ",CONTROLLER://" + control.Addr().String(),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"control.plane.listener.name":    "CONTROLLER", "inter.broker.listener.name": "PLAINTEXT",
	})
	log := &syncBuffer{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: cfg, Log: slog.New(slog.NewTextHandler(log, nil)), Banner: io.Discard, Version: "test"})
	}()
	defer func() {
		cancel()
		<-ended
	}()
	if err := control.(*net.TCPListener).SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	conn, err := control.Accept()
	if err != nil {
		t.Fatalf("nobody connects to the control plane listener: %v\n%s", err, log)
	}
	defer conn.Close()
	var head [6]byte // length and key of the first request
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		t.Fatal(err)
	}
	const updateMetadata, apiVersions = 6, 18
	if key := binary.BigEndian.Uint16(head[4:]); key != updateMetadata && key != apiVersions {
		t.Errorf("the first request has key %d", key)
	}
	if err := data.(*net.TCPListener).SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if c, err := data.Accept(); err == nil {
		var first [6]byte
		_, _ = io.ReadFull(c, first[:])
		t.Errorf("somebody connects to the listener of clients with a request of key %d", binary.BigEndian.Uint16(first[4:]))
	}
}
