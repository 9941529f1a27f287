package wire

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

// FuzzDecodeRequest feeds any bytes to the decoder of any key and version: they decode or are malformed, and what
// decodes can be encoded.
func FuzzDecodeRequest(f *testing.F) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, key := range []int16{keyProduce, keyFetch, 3, 4, keyStopReplica, 6, keyControlledShutdown, 11, keyAPIVersions, 19, 32} {
		version := rng.Int32N(int32(kmsg.RequestForKey(key).MaxVersion()) + 1)
		f.Add(key, int16(version), AppendRequestBody(nil, wiretest.RandomRequest(rng, key, int16(version))))
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		req := kmsg.RequestForKey(key)
		if req == nil || version < 0 || version > req.MaxVersion() {
			return
		}
		req.SetVersion(version)
		before := bytes.Clone(body)
		err := DecodeRequestBody(req, body)
		if !bytes.Equal(before, body) {
			t.Fatal("decoding changed the bytes")
		}
		if err == nil {
			AppendRequestBody(nil, req)
		}
	})
}

// FuzzConnection feeds any bytes to a server: it answers or closes, and ends when told.
func FuzzConnection(f *testing.F) {
	f.Add(metadataFrame(1))
	f.Add(append(produceFrame(1, 1, []byte("records")), fetchFrameOf(2)...))
	f.Add(apiVersionsFrame(3, "a", "1"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{0, 0, 0, 8, 0, 18, 0, 99, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, sent []byte) {
		synctest.Test(t, func(t *testing.T) {
			network := wiretest.NewNet()
			l, _ := network.Listen(testAddr)
			srv, err := NewServer(ServerConfig{
				Listeners: []Listener{{Name: "PLAINTEXT", Net: l, InterBroker: true}},
				API:       testTable(),
				Handler:   HandlerFunc(answerNow),
				Log:       slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- srv.Run(ctx) }()
			nc, err := network.Dial(t.Context(), testAddr)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, nc) }()
			_, _ = nc.Write(sent)
			synctest.Wait()
			_ = nc.Close()
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if n := srv.stats.HandlerPanics.Load(); n != 0 {
				t.Fatalf("%d panics", n)
			}
		})
	})
}
