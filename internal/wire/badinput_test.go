package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

// withLength puts a length before a frame.
func withLength(frame ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

func TestGarbageClosesTheConnectionWithOneLine(t *testing.T) {
	random := make([]byte, 4096)
	for i, rng := 0, rand.New(rand.NewPCG(3, 4)); i < len(random); i++ {
		random[i] = byte(rng.Uint32()) | 1
	}
	header := func(key, version int16) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(b, 0, 0, 0, 1, 0xff, 0xff, 0)
	}
	for name, c := range map[string]struct {
		send []byte
		want string
	}{
		"random bytes":                {random, "illegal frame length"},
		"HTTP":                        {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "looks like HTTP"},
		"TLS":                         {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1}, "looks like TLS"},
		"a negative length":           {[]byte{0xff, 0xff, 0xff, 0xff}, "illegal frame length"},
		"an empty frame":              {[]byte{0, 0, 0, 0}, "illegal frame length"},
		"half a header":               {withLength(0, 3, 0, 12), "illegal frame length"},
		"a frame beyond the limit":    {[]byte{0x06, 0x40, 0, 1}, "illegal frame length"},
		"an unknown key":              {withLength(header(999, 0)...), "api is not served here"},
		"a negative key":              {withLength(header(-1, 0)...), "api is not served here"},
		"a key between brokers":       {withLength(header(4, 7)...), "api is not served here"},
		"a version too high":          {withLength(header(3, 99)...), "version is not served"},
		"a version too low":           {withLength(header(8, 0)...), "version is not served"},
		"a negative version":          {withLength(header(3, -1)...), "version is not served"},
		"a client id beyond the end":  {withLength(0, 3, 0, 12, 0, 0, 0, 1, 0x7f, 0xff, 0), "malformed request"},
		"a body that ends early":      {withLength(append(header(3, 12), 5)...), "malformed request"},
		"a lying array":               {withLength(append(header(3, 9), 0xff, 0xff, 0xff, 0xff, 0x0f)...), "malformed request"},
		"produce with a lying length": {withLength(append(header(0, 9), 0, 0, 1, 0, 0, 0, 1, 2, 2, 'a', 2, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 7)...), "malformed request"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := start(t, answerNow)
				bystander, p := h.dial(), h.dial()
				p.send(c.send)
				p.expectClosed()
				bystander.send(metadataFrame(1))
				bystander.correlations(1)
				lines := h.log.lines()
				if len(lines) != 1 || !strings.Contains(lines[0], c.want) || !strings.Contains(lines[0], "level=WARN") {
					t.Errorf("log is %q, want one line with %q", lines, c.want)
				}
				if n := h.srv.stats.ProtocolErrors.Load(); n != 1 {
					t.Errorf("%d protocol errors counted", n)
				}
				h.end()
			})
		})
	}
}

func TestAnswersBeforeGarbageStillLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first *Request
		h := start(t, func(_ context.Context, r *Request) { first = r })
		p := h.dial()
		p.send(metadataFrame(1), []byte{0xff, 0xff, 0xff, 0xff})
		synctest.Wait()
		first.Respond(first.Msg.ResponseKind(), 0)
		p.correlations(1)
		p.expectClosed()
		h.end()
	})
}

func TestGarbageInALoopDoesNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		shoot := func(from string) {
			p := h.dialFrom(from, testAddr)
			p.send([]byte{0xff, 0xff, 0xff, 0xff})
			p.expectClosed()
		}
		for range 50 {
			shoot("192.0.2.1")
		}
		shoot("192.0.2.2")
		if lines := h.log.lines(); len(lines) != 2 {
			t.Fatalf("%d lines for two addresses", len(lines))
		}
		time.Sleep(logInterval)
		shoot("192.0.2.1")
		if lines := h.log.lines(); len(lines) != 3 || !strings.Contains(lines[2], "suppressed=49") {
			t.Errorf("log is %q", lines)
		}
		h.end()
	})
}

func TestOneFaultOfAnAddressDoesNotHideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		shoot := func(frame []byte) {
			p := h.dial()
			p.send(frame)
			p.expectClosed()
		}
		for range 3 {
			shoot([]byte{0xff, 0xff, 0xff, 0xff})
			shoot(withLength(0x03, 0xe7, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0)) // API 999
		}
		if lines := h.log.lines(); len(lines) != 2 || !strings.Contains(lines[0], "illegal frame length") || !strings.Contains(lines[1], "api is not served here") {
			t.Errorf("log is %q, want a line for each of the two faults", lines)
		}
		h.end()
	})
}

func TestHalfFramesAreHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		frame := metadataFrame(5)
		for cut := range frame {
			p := h.dial()
			p.send(frame[:cut])
			synctest.Wait()
			_ = p.nc.Close()
		}
		p := h.dial()
		for _, b := range frame {
			p.send([]byte{b})
			synctest.Wait()
		}
		if got := p.correlations(1); got[0] != 5 {
			t.Errorf("answer to %d", got[0])
		}
		if lines := h.log.lines(); len(lines) != 0 {
			t.Errorf("clients that hang up leave log lines: %q", lines)
		}
		h.end()
	})
}

func TestALyingFrameLengthTakesNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var peers []*peer
		for range 100 {
			p := h.dial()
			p.send(append(binary.BigEndian.AppendUint32(nil, 100<<20), make([]byte, 1000)...))
			peers = append(peers, p)
		}
		synctest.Wait()
		runtime.ReadMemStats(&after)
		if per := (after.TotalAlloc - before.TotalAlloc) / 100; per > 2*trustedStart {
			t.Errorf("a claim of 100 MiB with 1000 bytes behind it took %d bytes", per)
		}
		for _, p := range peers {
			_ = p.nc.Close()
		}
		h.end()
	})
}

func TestMemoryOfAFrameGrowsWithItsBytes(t *testing.T) {
	const size = 64 << 20
	sent := 0
	r := readerFunc(func(p []byte) (int, error) {
		if len(p) > max(2*sent, trustedStart) {
			t.Fatalf("%d bytes were made room for when %d had arrived", len(p), sent)
		}
		sent += len(p)
		return len(p), nil
	})
	buf, err := readFrame(r, size, trustedStart)
	if err != nil || len(buf.b) != size {
		t.Fatalf("frame of %d bytes, %v", len(buf.b), err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// decodeCost returns the memory that decoding takes.
func decodeCost(key, version int16, body []byte) uint64 {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_ = DecodeRequestBody(req, body)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Decoded structures are larger than their bytes, by a factor that is each message's own; no length may raise it.
func TestDecodingTakesMemoryInProportionToWhatArrived(t *testing.T) {
	const size = 16 << 10
	rng := rand.New(rand.NewPCG(5, 6))
	worst, worstName := uint64(0), ""
	try := func(key, version int16, prefix []byte, fill byte) {
		body := append(prefix, bytes.Repeat([]byte{fill}, size)...)
		if cost := decodeCost(key, version, body) / uint64(len(body)); cost > worst {
			worst, worstName = cost, kmsg.NameForKey(key)
		}
	}
	wiretest.EveryVersion(func(key, version int16) {
		valid := AppendRequestBody(nil, wiretest.RandomRequest(rng, key, version))
		for range 4 {
			prefix := valid[:rng.IntN(len(valid)+1)]
			// The dearest claim is the largest that passes for the smallest elements.
			claim := (size - 64) / uint32(1+rng.IntN(8))
			if rng.IntN(8) == 0 {
				claim = 0x7fffffff
			}
			fill := byte(rng.IntN(2))
			try(key, version, slices.Clone(prefix), byte(rng.IntN(256)))
			try(key, version, binary.BigEndian.AppendUint32(slices.Clone(prefix), claim), fill)
			try(key, version, binary.AppendUvarint(slices.Clone(prefix), uint64(claim)+1), fill)
		}
	})
	t.Logf("the most is %d times the bytes, by %s", worst, worstName)
	if worst > 150 { // some 90, more under the race detector
		t.Errorf("decoding %s takes %d times the bytes that arrived", worstName, worst)
	}
}

func TestStructureOfClientRequestsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := map[int16]int{}
		h := start(t, func(_ context.Context, r *Request) {
			sizes[r.Key] = r.Size
			respondEmpty(r)
		}, func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Listeners[0].InterBroker = true })
		big := structureBytesMax + 1000
		records := h.dial()
		records.send(produceFrame(1, 1, make([]byte, big)))
		records.correlations(1)
		metadata := kmsg.NewPtrMetadataRequest()
		metadata.Version = 1
		topics := make([]kmsg.MetadataRequestTopic, big/1000)
		for i := range topics {
			topics[i].Topic = kmsg.StringPtr(strings.Repeat("x", 1000))
		}
		metadata.Topics = topics
		structure := h.dial()
		structure.send(AppendRequest(nil, metadata, 2, nil))
		structure.expectClosed()
		brokers := h.dial()
		isr := kmsg.NewPtrLeaderAndISRRequest()
		isr.Version = 0
		isr.LiveLeaders = make([]kmsg.LeaderAndISRRequestLiveLeader, big/10)
		brokers.send(AppendRequest(nil, isr, 3, nil))
		brokers.correlations(1)
		if len(sizes) != 2 || sizes[keyProduce] < big || sizes[4] < big {
			t.Errorf("handled were %v", sizes)
		}
		h.end()
	})
}

func TestFramesBeforeAuthenticationAreSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) { respondEmpty(r) },
			func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Listeners[0].SASL = testSASL() })
		stranger, friend := h.dial(), h.dial()
		big := produceFrame(1, 1, make([]byte, 70<<10))
		stranger.send(big[:100])
		stranger.expectClosed()
		friend.send(handshakeFrame(1, "PLAIN"), authenticateFrame(2, "alice"))
		friend.correlations(2)
		friend.send(big)
		friend.correlations(1)
		h.end()
	})
}
