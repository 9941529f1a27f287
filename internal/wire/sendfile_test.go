//go:build linux

package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// segmentSource is a stretch of a real file that tells how it was read.
type segmentSource struct {
	*trackedSource
	f        *os.File
	position int64
	none     bool // pretend that there is no file
}

func (s segmentSource) File() (syscall.Conn, int64, bool) { return s.f, s.position, !s.none }

func segmentFile(tb testing.TB, size int) (*os.File, []byte) {
	tb.Helper()
	data := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	path := filepath.Join(tb.TempDir(), "segment")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f, data
}

// fetchOnce asks once on a connection of its own and returns the answer's frame, or what came before the connection closed.
func fetchOnce(t *testing.T, addr string) ([]byte, error) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := nc.Write(fetchFrameOf(7)); err != nil {
		t.Fatal(err)
	}
	var length [4]byte
	if _, err := io.ReadFull(nc, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	n, err := io.ReadFull(nc, frame)
	return frame[:n], err
}

func fetchTable() *APITable {
	table := NewAPITable()
	table.Serve(keyFetch, 4, 12, AllListeners)
	return table
}

func TestLongRecordsOfFilesArriveAsTheyAre(t *testing.T) {
	const whole = 12 << 20
	f, data := segmentFile(t, whole)
	// Short ones between long ones, one too large for the socket's buffers, and one whose file is not to be had.
	stretches := [][2]int{{100, 10}, {5, 3 << 20}, {77, 4096}, {0, sendFileBytes}, {1, sendFileBytes - 1}, {300, 11 << 20}, {9, 1 << 20}, {3, 1}}
	var sources []segmentSource
	resp := &FetchResponse{Topics: []FetchTopic{{Topic: "t"}}}
	for i, s := range stretches {
		src := segmentSource{&trackedSource{data: data[s[0] : s[0]+s[1]]}, f, int64(s[0]), i == 6}
		sources = append(sources, src)
		p := NewFetchPartition(int32(i))
		p.Records = src
		resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, p)
	}
	addr, _ := serveTCP(t, fetchTable(), func(_ context.Context, r *Request) { r.Respond(resp, 0) })
	frame, err := fetchOnce(t, addr)
	if err != nil {
		t.Fatal(err)
	}
	var got kmsg.FetchResponse
	got.Version = 12
	if err := got.ReadFrom(frame[5:]); err != nil {
		t.Fatal(err)
	}
	for i, s := range stretches {
		if !bytes.Equal(got.Topics[0].Partitions[i].RecordBatches, data[s[0]:s[0]+s[1]]) {
			t.Errorf("records %d, %d bytes from %d, arrived changed", i, s[1], s[0])
		}
		copied := s[1] < sendFileBytes || sources[i].none
		if (sources[i].reads.Load() == 1) != copied {
			t.Errorf("records %d, %d bytes: read %d times", i, s[1], sources[i].reads.Load())
		}
	}
	var tracked []*trackedSource
	for _, s := range sources {
		tracked = append(tracked, s.trackedSource)
	}
	checkReleased(t, tracked)
}

func TestAFileThatEndsEarlyClosesTheConnection(t *testing.T) {
	f, data := segmentFile(t, 1<<20)
	for name, position := range map[string]int64{"in the records": 1 << 19, "before the records": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			src := segmentSource{&trackedSource{data: data, short: 1}, f, position, false}
			behind := &trackedSource{data: make([]byte, 10)}
			p, q := NewFetchPartition(0), NewFetchPartition(1)
			p.Records, q.Records = src, behind
			resp := &FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p, q}}}}
			addr, log := serveTCP(t, fetchTable(), func(_ context.Context, r *Request) { r.Respond(resp, 0) })
			if frame, err := fetchOnce(t, addr); err == nil {
				t.Fatalf("got an answer of %d bytes", len(frame))
			}
			if lines := log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "records could not be read") {
				t.Errorf("log is %q", lines)
			}
			checkReleased(t, []*trackedSource{src.trackedSource, behind})
		})
	}
}

func BenchmarkFetchByTheKernel(b *testing.B) {
	const size = 1 << 20
	f, data := segmentFile(b, size)
	nc := benchServer(b, func(_ context.Context, r *Request) {
		p := NewFetchPartition(0)
		p.Records = segmentSource{&trackedSource{data: data}, f, 0, false}
		r.Respond(&FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p}}}}, 0)
	})
	ask(b, nc, fetchFrameOf(1), size)
}

func TestTheSendBufferIsTheConfiguredOne(t *testing.T) {
	sizes := make(chan int, 1)
	addr, _ := serveTCP(t, fetchTable(), func(_ context.Context, r *Request) {
		if err := r.Conn.out.socket.Control(func(fd uintptr) {
			size, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
			if err != nil {
				t.Error(err)
			}
			sizes <- size
		}); err != nil {
			t.Error(err)
		}
		r.Respond(answerWith(), 0)
	})
	if _, err := fetchOnce(t, addr); err != nil {
		t.Fatal(err)
	}
	if size := <-sizes; size != 2*(100<<10) { // the kernel doubles it for its own needs
		t.Fatalf("send buffer is %d", size)
	}
}
