package wire

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

// trackedSource counts reads and releases.
type trackedSource struct {
	data     []byte
	short    int   // ReadInto returns that many bytes less
	err      error // and this
	reads    atomic.Int32
	releases atomic.Int32
}

func (s *trackedSource) Len() int { return len(s.data) }

func (s *trackedSource) ReadInto(dst []byte) (int, error) {
	s.reads.Add(1)
	if s.releases.Load() > 0 {
		panic("read after release")
	}
	return copy(dst, s.data[:len(s.data)-s.short]), s.err
}

func (s *trackedSource) Release() { s.releases.Add(1) }

func checkReleased(t *testing.T, sources []*trackedSource) {
	t.Helper()
	for i, s := range sources {
		if s.releases.Load() != 1 || s.reads.Load() > 1 {
			t.Errorf("source %d was read %d times and released %d times", i, s.reads.Load(), s.releases.Load())
		}
	}
}

// ours turns kmsg's answer into one whose records come from sources.
func ours(from *kmsg.FetchResponse) (*FetchResponse, []*trackedSource) {
	var sources []*trackedSource
	f := &FetchResponse{ThrottleMillis: from.ThrottleMillis, ErrorCode: from.ErrorCode, SessionID: from.SessionID, Brokers: from.Brokers}
	for _, t := range from.Topics {
		topic := FetchTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			part := FetchPartition{FetchResponseTopicPartition: p}
			if p.RecordBatches != nil {
				src := &trackedSource{data: p.RecordBatches}
				sources = append(sources, src)
				part.Records, part.RecordBatches = src, nil
			}
			topic.Partitions = append(topic.Partitions, part)
		}
		f.Topics = append(f.Topics, topic)
	}
	return f, sources
}

func randomFetchResponse(rng *rand.Rand, version int16, recordsMax int) *kmsg.FetchResponse {
	resp := wiretest.RandomResponse(rng, keyFetch, version).(*kmsg.FetchResponse)
	for t := range resp.Topics {
		for p := range resp.Topics[t].Partitions {
			records := make([]byte, rng.IntN(recordsMax))
			for i := range records {
				records[i] = byte(rng.Uint32())
			}
			resp.Topics[t].Partitions[p].RecordBatches = records
		}
	}
	return resp
}

func TestFetchAnswersAreWhatKmsgEncodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		var next *FetchResponse
		h := start(t, func(_ context.Context, r *Request) { r.Respond(next, 0) })
		p := h.dial()
		for version := int16(0); version <= fetchMaxVersion; version++ {
			for round := range 60 {
				recordsMax := 300
				if round == 0 {
					recordsMax = 2 << 20 // beyond what is written in one go
				}
				theirs := randomFetchResponse(rng, version, recordsMax)
				if round == 1 { // everything null or empty
					theirs = kmsg.NewPtrFetchResponse()
					theirs.Version = version
				}
				var sources []*trackedSource
				next, sources = ours(theirs)
				req := kmsg.NewPtrFetchRequest()
				req.Version = version
				p.send(AppendRequest(nil, req, int32(round), &testClientID))
				got := p.receive()
				if want := AppendResponse(nil, theirs, int32(round))[4:]; !bytes.Equal(got, want) {
					t.Fatalf("version %d round %d: %d bytes differ from kmsg's %d", version, round, len(got), len(want))
				}
				synctest.Wait()
				checkReleased(t, sources)
			}
		}
		h.end()
	})
}

func TestFetchWithoutRecordsSendsEmptyNotNull(t *testing.T) {
	f := &FetchResponse{Version: 12, Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{NewFetchPartition(3)}}}}
	frame, err := f.encode(7)
	if err != nil {
		t.Fatal(err)
	}
	defer frame.release()
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	if err := DecodeResponseBody(resp, frame.head.b[9:]); err != nil {
		t.Fatal(err)
	}
	if p := resp.Topics[0].Partitions[0]; p.RecordBatches == nil || p.PreferredReadReplica != -1 || p.Partition != 3 {
		t.Errorf("partition is %+v", p)
	}
}

func fetchFrameOf(correlationID int32) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	return AppendRequest(nil, req, correlationID, &testClientID)
}

func answerWith(sources ...*trackedSource) *FetchResponse {
	f := &FetchResponse{Topics: []FetchTopic{{Topic: "t"}}}
	for i, s := range sources {
		p := NewFetchPartition(int32(i))
		p.Records = s
		f.Topics[0].Partitions = append(f.Topics[0].Partitions, p)
	}
	return f
}

func TestRecordsThatCannotBeReadCloseTheConnection(t *testing.T) {
	for name, broken := range map[string]*trackedSource{
		"short":             {data: make([]byte, 100), short: 1},
		"an error":          {data: make([]byte, 100), short: 100, err: errors.New("disk is gone")},
		"short, far behind": {data: make([]byte, 3<<20), short: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before, after := &trackedSource{data: make([]byte, 10)}, &trackedSource{data: make([]byte, 10)}
				behind := &trackedSource{data: make([]byte, 10)}
				h := start(t, func(_ context.Context, r *Request) {
					if r.CorrelationID == 1 {
						r.Respond(answerWith(before, broken, after), 0)
						return
					}
					r.Respond(answerWith(behind), 0)
				})
				p := h.dial()
				p.send(fetchFrameOf(1), fetchFrameOf(2))
				p.expectClosed()
				synctest.Wait()
				checkReleased(t, []*trackedSource{before, broken, after, behind})
				if lines := h.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "records could not be read") {
					t.Errorf("log is %q", lines)
				}
				h.end()
			})
		})
	}
}

func TestSourcesAreReleasedWhenTheClientIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parked []*Request
		h := start(t, func(_ context.Context, r *Request) { parked = append(parked, r) })
		p := h.dial()
		p.send(fetchFrameOf(1), fetchFrameOf(2), fetchFrameOf(3), fetchFrameOf(4))
		synctest.Wait()
		var sources []*trackedSource
		for range 4 {
			sources = append(sources, &trackedSource{data: make([]byte, 1<<20)})
		}
		parked[1].Respond(answerWith(sources[1]), 0) // ready, behind one that is not
		_ = p.nc.Close()
		synctest.Wait()
		parked[0].Respond(answerWith(sources[0]), 0)
		parked[2].Respond(answerWith(sources[2]), 0)
		parked[2].Respond(answerWith(sources[3]), 0) // a second answer, at that
		synctest.Wait()
		checkReleased(t, sources)
		h.end()
	})
}

func TestSourcesAreReleasedWhenTheClientTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sources []*trackedSource
		h := start(t, func(_ context.Context, r *Request) {
			s := &trackedSource{data: make([]byte, 300<<10)}
			sources = append(sources, s)
			r.Respond(answerWith(s), 0)
		}, func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.InFlightRequests = 20 })
		p := h.dial()
		for id := range int32(20) {
			p.send(fetchFrameOf(id))
		}
		synctest.Wait()
		_ = p.nc.Close()
		synctest.Wait()
		checkReleased(t, sources)
		h.end()
	})
}

func TestWritingRecordsTakesNoMemoryPerAnswer(t *testing.T) {
	const answers, size = 200, 256 << 10
	data := make([]byte, size)
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) {
			f := &FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{NewFetchPartition(0)}}}}
			f.Topics[0].Partitions[0].Records = BytesSource(data)
			r.Respond(f, 0)
		})
		p := h.dial()
		frame, scratch := fetchFrameOf(1), make([]byte, size+1000)
		ask := func() {
			p.send(frame)
			for got := 0; got < size; {
				n, err := p.nc.Read(scratch)
				if err != nil {
					t.Fatal(err)
				}
				got += n
			}
		}
		ask()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range answers {
			ask()
		}
		runtime.ReadMemStats(&after)
		// The network in memory copies what passes through it once.
		if used := after.TotalAlloc - before.TotalAlloc; used > 3*answers*size {
			t.Errorf("%d answers of %d bytes took %d bytes of memory", answers, size, used)
		}
		h.end()
	})
}
