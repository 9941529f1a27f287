package node

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

func TestALoneBrokerDoesNotClaimToHaveMovedLeaderships(t *testing.T) {
	r := start(t, configure(t, t.TempDir(), nil))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if log := r.log.String(); strings.Contains(log, "moved") || !strings.Contains(log, "no other broker is there to take leaderships over") {
		t.Errorf("the log says:\n%s", log)
	}
}

// A client that sends requests and reads no answers fills its connection; a stop is not to wait for it.
func TestAStopDoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	r := start(t, configure(t, t.TempDir(), nil))
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	// ApiVersions v0 with correlation id 1 and an empty client id, a thousand times.
	request := []byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0, 0}
	requests := []byte(strings.Repeat(string(request), 1000))
	if n := binary.BigEndian.Uint32(request); int(n) != len(request)-4 {
		t.Fatal("a wrong frame")
	}
	for err == nil {
		if err := c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err = c.Write(requests)
	}
	began := time.Now()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > drainTimeout+time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// slowToLeave is a store whose sessions end no sooner than who ends them stops waiting; then ended is called.
type slowToLeave struct {
	coord.Store
	ended func()
}

func (s slowToLeave) OpenSession(ctx context.Context, ttl time.Duration) (coord.Session, error) {
	session, err := s.Store.OpenSession(ctx, ttl)
	return slowSession{session, s.ended}, err
}

type slowSession struct {
	coord.Session
	ended func()
}

func (s slowSession) Close(ctx context.Context) error {
	<-ctx.Done()
	s.ended()
	return s.Session.Close(context.WithoutCancel(ctx))
}

func TestTheLogsAreClosedWhileTheRegistrationIsTakenBack(t *testing.T) {
	dir := t.TempDir()
	var mark error
	store := slowToLeave{memstore.New().Client(), func() { _, mark = os.Stat(filepath.Join(dir, "data", ".kafka_cleanshutdown")) }}
	r := startOn(t, configure(t, dir, nil), store)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if mark != nil {
		t.Errorf("when the registration went: %v", mark)
	}
	if log := r.log.String(); !strings.Contains(log, "msg=stopped") {
		t.Errorf("the log says:\n%s", log)
	}
}

func TestABrokerWithoutAUsableDirNamesAllOfThem(t *testing.T) {
	dir := t.TempDir()
	cfg := configure(t, dir, map[string]string{"log.dirs": filepath.Join(dir, "a") + "," + filepath.Join(dir, "b")})
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil { // a file where the dir should be
			t.Fatal(err)
		}
	}
	var log syncBuffer
	err := Run(context.Background(), Options{Config: cfg, Log: slog.New(slog.NewTextHandler(&log, nil)), Banner: io.Discard})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "a")) || !strings.Contains(err.Error(), filepath.Join(dir, "b")) {
		t.Errorf("the broker ended with %v", err)
	}
	if strings.Contains(log.String(), "the others go on") {
		t.Errorf("the log says:\n%s", log.String())
	}
}
