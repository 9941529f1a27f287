package wire

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// serveTCP serves on a real socket until the test ends.
func serveTCP(t *testing.T, table *APITable, handler HandlerFunc, limits ...Limits) (addr string, log *logBuffer) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log = &logBuffer{}
	cfg := ServerConfig{
		Listeners: []Listener{{Name: "PLAINTEXT", Net: l, InterBroker: true}},
		API:       table,
		Handler:   handler,
		Log:       slog.New(slog.NewTextHandler(log, nil)),
	}
	if len(limits) > 0 {
		cfg.Limits = limits[0]
	}
	srv, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("server ended with %v", err)
		}
	})
	return l.Addr().String(), log
}

func TestFranzGoTalksToTheServer(t *testing.T) {
	records := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // 3.2 MB, several writes
	var mu sync.Mutex                                            // guards what follows: the client opens several connections
	var produced []byte
	var software [2]string
	table := NewAPITable()
	table.Serve(keyProduce, 3, 12, AllListeners)
	table.Serve(keyFetch, 4, 12, AllListeners)
	table.Serve(3, 0, 12, AllListeners)
	addr, log := serveTCP(t, table, func(_ context.Context, r *Request) {
		mu.Lock()
		defer mu.Unlock()
		software[0], software[1] = r.Conn.ClientSoftware()
		switch req := r.Msg.(type) {
		case *kmsg.ProduceRequest:
			produced = bytes.Clone(req.Topics[0].Partitions[0].Records)
			respondEmpty(r)
		case *kmsg.FetchRequest:
			go r.Respond(answerWith(&trackedSource{data: records}, &trackedSource{data: []byte("tail")}), 0)
		default:
			respondEmpty(r)
		}
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.SoftwareNameAndVersion("test-client", "1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	seed := cl.SeedBrokers()[0]
	if _, err := seed.Request(t.Context(), kmsg.NewPtrMetadataRequest()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if software != [2]string{"test-client", "1.2.3"} {
		t.Errorf("client software is %q", software)
	}

	mu.Unlock()
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks = 1
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "orders", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
	if _, err := seed.Request(t.Context(), produce); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if !bytes.Equal(produced, records) {
		t.Errorf("%d bytes of records arrived", len(produced))
	}
	mu.Unlock()

	resp, err := seed.Request(t.Context(), kmsg.NewPtrFetchRequest())
	if err != nil {
		t.Fatal(err)
	}
	partitions := resp.(*kmsg.FetchResponse).Topics[0].Partitions
	if !bytes.Equal(partitions[0].RecordBatches, records) || string(partitions[1].RecordBatches) != "tail" {
		t.Errorf("fetched %d and %d bytes", len(partitions[0].RecordBatches), len(partitions[1].RecordBatches))
	}
	if lines := log.lines(); len(lines) != 0 {
		t.Errorf("log is %q", lines)
	}
}

func TestTheClientWorksOverTCP(t *testing.T) {
	addr, log := serveTCP(t, testTable(), answerNow)
	c, err := Dial(t.Context(), addr, ClientConfig{ClientID: "1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.Version = 7
	for range 100 {
		if _, err := c.Request(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	stranger, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := stranger.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := stranger.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if lines := log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "looks like HTTP") {
		t.Errorf("log is %q", lines)
	}
}
