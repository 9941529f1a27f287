package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

const testAddr = "10.0.0.1:9092"

// harness is a server in a synctest bubble.
type harness struct {
	t      *testing.T
	net    *wiretest.Net
	srv    *Server
	log    *logBuffer
	stop   context.CancelFunc
	result chan error
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.b.String(), func(r rune) bool { return r == '\n' })
}

const keyOffsetCommit = 8

// testTable serves every key kmsg knows in every version, but OffsetCommit from 1 on as brokers do; those between brokers
// on inter-broker listeners only.
func testTable() *APITable {
	t := NewAPITable()
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil || key == keyAPIVersions || key == keySASLHandshake || key == keySASLAuthenticate {
			continue
		}
		scope, lo := AllListeners, int16(0)
		if key >= 4 && key <= 7 {
			scope = InterBrokerOnly
		}
		if key == keyOffsetCommit {
			lo = 1
		}
		t.Serve(key, lo, req.MaxVersion(), scope)
	}
	return t
}

// start serves on testAddr; change may alter the configuration first. Everything has ended when the test ends.
func start(t *testing.T, handler HandlerFunc, change ...func(*ServerConfig, *wiretest.Net)) *harness {
	t.Helper()
	h := &harness{t: t, net: wiretest.NewNet(), log: &logBuffer{}, result: make(chan error, 1)}
	l, err := h.net.Listen(testAddr)
	if err != nil {
		t.Fatal(err)
	}
	cfg := ServerConfig{
		Listeners: []Listener{{Name: "PLAINTEXT", Net: l}},
		API:       testTable(),
		Handler:   handler,
		Log:       slog.New(slog.NewTextHandler(h.log, nil)),
	}
	for _, f := range change {
		f(&cfg, h.net)
	}
	h.srv, err = NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(t.Context())
	go func() { h.result <- h.srv.Run(ctx) }()
	return h
}

// end stops the server and checks that all is over.
func (h *harness) end() {
	h.t.Helper()
	h.stop()
	if err := <-h.result; err != nil {
		h.t.Errorf("server ended with %v", err)
	}
	if n := h.srv.stats.ConnectionsOpen.Load(); n != 0 {
		h.t.Errorf("%d connections are left", n)
	}
}

// peer is a raw client.
type peer struct {
	t  *testing.T
	nc net.Conn
}

func (h *harness) dial() *peer { return h.dialFrom("127.0.0.1", testAddr) }

func (h *harness) dialFrom(from, addr string) *peer {
	h.t.Helper()
	nc, err := h.net.DialFrom(h.t.Context(), from, addr)
	if err != nil {
		h.t.Fatal(err)
	}
	return &peer{h.t, nc}
}

func (p *peer) send(frames ...[]byte) {
	p.t.Helper()
	for _, f := range frames {
		if _, err := p.nc.Write(f); err != nil {
			p.t.Fatalf("write: %v", err)
		}
	}
}

// receive returns the next frame without its length, or nil when the connection was closed.
func (p *peer) receive() []byte {
	p.t.Helper()
	var length [4]byte
	if _, err := io.ReadFull(p.nc, length[:]); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		p.t.Fatalf("read: %v", err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(p.nc, frame); err != nil {
		p.t.Fatalf("read: %v", err)
	}
	return frame
}

// correlations returns the correlation ids of the next n answers.
func (p *peer) correlations(n int) []int32 {
	p.t.Helper()
	var out []int32
	for range n {
		out = append(out, int32(binary.BigEndian.Uint32(p.receive())))
	}
	return out
}

func (p *peer) expectClosed() {
	p.t.Helper()
	if f := p.receive(); f != nil {
		p.t.Fatalf("got an answer of %d bytes where the connection should close", len(f))
	}
}

// silent reports whether nothing has come once everything has settled.
func (p *peer) silent() bool {
	synctest.Wait()
	_ = p.nc.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer func() { _ = p.nc.SetReadDeadline(time.Time{}) }()
	_, err := p.nc.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

var testClientID = "test"

func metadataFrame(correlationID int32) []byte {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	return AppendRequest(nil, req, correlationID, &testClientID)
}

func produceFrame(correlationID int32, acks int16, records []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, acks
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "orders"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = records
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	return AppendRequest(nil, req, correlationID, &testClientID)
}

// respondEmpty answers with an empty response of the request's kind.
func respondEmpty(r *Request) { r.Respond(r.Msg.ResponseKind(), 0) }

// answerNow answers every request so.
func answerNow(_ context.Context, r *Request) { respondEmpty(r) }
