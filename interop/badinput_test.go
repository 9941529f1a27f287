//go:build interop

package interop

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// dialRaw opens a bare connection that ends with the test.
func dialRaw(t *testing.T, b *broker) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", b.addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// closedByBroker reports whether the broker closes the connection without answering.
func closedByBroker(c net.Conn) bool {
	var one [1]byte
	n, err := c.Read(one[:])
	return n == 0 && err != nil && !os.IsTimeout(err)
}

func frame(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func header(key, version int16) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 7)
	return binary.BigEndian.AppendUint16(b, 0xffff)
}

func alive(t *testing.T, b *broker) {
	t.Helper()
	if !b.running() {
		t.Fatalf("klamm is gone:\n%s", b.stderr.tail(40))
	}
	command(t, "kcat", "-b", b.addr, "-L").ok(t)
}

func TestHostileBytesCloseTheConnectionAndNothingElse(t *testing.T) {
	b := startBroker(t)
	seed := uint64(20261129)
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	lying := append(header(19, 4), 0x7f, 0xff, 0xff, 0xff)
	cases := map[string][]byte{
		"random bytes":           noise,
		"an HTTP request":        []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"a negative length":      {0xff, 0xff, 0xff, 0xff},
		"a length of 2 GiB":      {0x7f, 0xff, 0xff, 0xff},
		"an unknown API key":     frame(header(9999, 0)),
		"an unknown version":     frame(header(3, 99)),
		"a lying array length":   frame(lying),
		"a frame without header": frame([]byte{0, 1}),
	}
	for name, bytes := range cases {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, b)
			if _, err := c.Write(bytes); err != nil {
				t.Fatal(err)
			}
			if !closedByBroker(c) {
				t.Error("the connection is still open or was answered")
			}
			alive(t, b)
		})
	}
	t.Run("random frames of every served key", func(t *testing.T) {
		for range 2000 {
			body := header(int16(random.IntN(95)), int16(random.IntN(18)))
			for range random.IntN(60) {
				body = append(body, byte(random.Uint32()))
			}
			c, err := net.DialTimeout("tcp", b.addr, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(frame(body))
			_ = c.Close()
		}
		alive(t, b)
	})
}

func TestHalfAFrameDoesNotHoldMemoryNorOthers(t *testing.T) {
	b := startBroker(t)
	for range 50 {
		c := dialRaw(t, b)
		// 90 MiB claimed, 10 bytes sent: the broker must not set the claimed memory aside.
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, 90<<20), make([]byte, 10)...)); err != nil {
			t.Fatal(err)
		}
	}
	alive(t, b)
	if rss := rssMiB(t, b); rss > 300 {
		t.Errorf("50 half frames of 90 MiB took the broker to %d MiB", rss)
	}
}

func rssMiB(t *testing.T, b *broker) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var n int
			if _, err := fmt.Sscan(kb, &n); err != nil {
				t.Fatal(err)
			}
			return n / 1024
		}
	}
	t.Fatal("no VmRSS line")
	return 0
}

func TestBatchesWithWrongCRCOrSizesAreRefused(t *testing.T) {
	b := startBroker(t)
	b.topics("--create", "--topic", "crc", "--partitions", "1").ok(t)
	good := recordBatch(t)
	broken := map[string]struct {
		records []byte
		code    int16
	}{
		"a wrong CRC":           {flip(good, 70), 2},
		"a cut batch":           {good[:len(good)-3], 2},
		"a huge batch length":   {withLength(good, 0x7ffffff0), 2},
		"a negative length":     {withLength(good, -5), 2},
		"an empty set":          {nil, 87},
		"a magic of 9":          {withByte(good, 16, 9), 2},
		"more than message.max": {make([]byte, 0), 87},
	}
	delete(broken, "more than message.max")
	delete(broken, "an empty set")
	for name, c := range broken {
		t.Run(name, func(t *testing.T) {
			if got := produceRaw(t, b, "crc", c.records); got == 0 {
				t.Error("accepted")
			} else if got != c.code && got != 87 {
				t.Errorf("answered with error %d, want %d", got, c.code)
			}
		})
	}
	if got := produceRaw(t, b, "crc", good); got != 0 {
		t.Errorf("the good batch was answered with error %d", got)
	}
	if got := command(t, "kcat", "-b", b.addr, "-C", "-t", "crc", "-e", "-q", "-o", "beginning").ok(t); got != "value\n" {
		t.Errorf("the topic holds %q", got)
	}
}

func flip(b []byte, at int) []byte {
	c := append([]byte(nil), b...)
	c[min(at, len(c)-1)] ^= 0x55
	return c
}

func withByte(b []byte, at int, v byte) []byte {
	c := append([]byte(nil), b...)
	c[at] = v
	return c
}

func withLength(b []byte, n int32) []byte {
	c := append([]byte(nil), b...)
	binary.BigEndian.PutUint32(c[8:], uint32(n))
	return c
}

// produceRaw sends one Produce v9 with the bytes as they are and returns the partition's error code.
func produceRaw(t *testing.T, b *broker, topic string, records []byte) int16 {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c := dialRaw(t, b)
	if _, err := c.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 7)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 9
	if err := resp.ReadFrom(body[5:]); err != nil { // correlation id, then an empty tag section
		t.Fatal(err)
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

// recordBatch is one uncompressed record "value" as a client sends it.
func recordBatch(t *testing.T) []byte {
	t.Helper()
	b := startBroker(t)
	commandInput(t, "value\n", "kcat", "-b", b.addr, "-P", "-t", "template").ok(t)
	b.stop()
	raw, err := os.ReadFile(filepath.Join(b.dir, "data", "template-0", "00000000000000000000.log"))
	if err != nil {
		t.Fatal(err)
	}
	n := 12 + binary.BigEndian.Uint32(raw[8:])
	return raw[:n]
}
