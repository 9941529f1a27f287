package wire

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// benchServer serves on a real socket and returns a connection to it.
func benchServer(b *testing.B, handler HandlerFunc) net.Conn {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv, err := NewServer(ServerConfig{Listeners: []Listener{{Name: "PLAINTEXT", Net: l}}, API: testTable(), Handler: handler, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = nc.Close()
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return nc
}

// fileSource reads from a file, as segments do.
type fileSource struct {
	f *os.File
	n int
}

func (s fileSource) Len() int                         { return s.n }
func (s fileSource) ReadInto(dst []byte) (int, error) { return s.f.ReadAt(dst, 0) }
func (s fileSource) Release()                         {}

func BenchmarkFetch(b *testing.B) {
	for name, size := range map[string]int{"4KiB": 4 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			f, err := os.Create(b.TempDir() + "/segment")
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Write(make([]byte, size)); err != nil {
				b.Fatal(err)
			}
			nc := benchServer(b, func(_ context.Context, r *Request) {
				p := NewFetchPartition(0)
				p.Records = fileSource{f, size}
				r.Respond(&FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p}}}}, 0)
			})
			ask(b, nc, fetchFrameOf(1), size)
		})
	}
}

func BenchmarkProduce(b *testing.B) {
	nc := benchServer(b, func(_ context.Context, r *Request) { respondEmpty(r) })
	const size = 64 << 10
	ask(b, nc, produceFrame(1, 1, make([]byte, size)), size)
}

func BenchmarkRoundTrip(b *testing.B) {
	nc := benchServer(b, func(_ context.Context, r *Request) { r.Respond(kmsg.NewPtrMetadataResponse(), 0) })
	ask(b, nc, metadataFrame(1), 0)
}

// ask sends the frame and reads the answer, over and over.
func ask(b *testing.B, nc net.Conn, frame []byte, bytes int) {
	b.SetBytes(int64(bytes))
	b.ReportAllocs()
	answer := make([]byte, 2<<20)
	for b.Loop() {
		if _, err := nc.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, answer[:4]); err != nil {
			b.Fatal(err)
		}
		n := int(answer[0])<<24 | int(answer[1])<<16 | int(answer[2])<<8 | int(answer[3])
		if _, err := io.ReadFull(nc, answer[:n]); err != nil {
			b.Fatal(err)
		}
	}
}
