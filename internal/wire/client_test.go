package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/wire/wiretest"
)

func (h *harness) client() *ClientConn {
	h.t.Helper()
	c, err := Dial(h.t.Context(), testAddr, ClientConfig{Dial: h.net.Dial, ClientID: "1001"})
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func betweenBrokers(cfg *ServerConfig, _ *wiretest.Net) { cfg.Listeners[0].InterBroker = true }

func TestTheControllersRequestsArriveAtTheVersionChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*Request
		h := start(t, func(_ context.Context, r *Request) {
			got = append(got, r)
			respondEmpty(r)
		}, betweenBrokers)
		c := h.client()
		isr, umr, sr := kmsg.NewPtrLeaderAndISRRequest(), kmsg.NewPtrUpdateMetadataRequest(), kmsg.NewPtrStopReplicaRequest()
		isr.Version, umr.Version, sr.Version = 7, 8, 4
		isr.ControllerEpoch, umr.ControllerEpoch, sr.ControllerEpoch = 5, 5, 5
		old := kmsg.NewPtrControlledShutdownRequest()
		old.Version = 0
		for _, req := range []kmsg.Request{isr, umr, sr, old} {
			resp, err := c.Request(t.Context(), req)
			if err != nil || resp.Key() != req.Key() || resp.GetVersion() != req.GetVersion() {
				t.Fatalf("%T is answered %v, %v", req, resp, err)
			}
		}
		if len(got) != 4 || got[0].Key != 4 || got[0].Version != 7 || got[0].ClientID != "1001" {
			t.Errorf("arrived: %d requests, the first %+v", len(got), got[0])
		}
		if sr := got[2].Msg.(*kmsg.StopReplicaRequest); sr.ControllerEpoch != 5 {
			t.Errorf("StopReplica v4 arrived with controller epoch %d", sr.ControllerEpoch)
		}
		_ = c.Close()
		h.end()
	})
}

func TestRequestsArePipelinedAndAnswersFindTheirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting []*Request
		h := start(t, func(_ context.Context, r *Request) { waiting = append(waiting, r) })
		c := h.client()
		var callers sync.WaitGroup
		for i := range int32(10) {
			callers.Go(func() {
				req := kmsg.NewPtrMetadataRequest()
				req.Version = 4
				req.Topics = make([]kmsg.MetadataRequestTopic, i)
				for j := range req.Topics {
					req.Topics[j].Topic = kmsg.StringPtr("t")
				}
				resp, err := c.Request(t.Context(), req)
				if err != nil || resp.(*kmsg.MetadataResponse).ControllerID != i {
					t.Errorf("request %d got %+v, %v", i, resp, err)
				}
			})
		}
		synctest.Wait()
		if len(waiting) != 10 {
			t.Fatalf("%d requests arrived before the first answer", len(waiting))
		}
		for _, r := range waiting {
			resp := kmsg.NewPtrMetadataResponse()
			resp.ControllerID = int32(len(r.Msg.(*kmsg.MetadataRequest).Topics))
			r.Respond(resp, 0)
		}
		callers.Wait()
		_ = c.Close()
		h.end()
	})
}

func TestARequestThatTimesOutKillsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(context.Context, *Request) {})
		c := h.client()
		other := make(chan error, 1)
		go func() {
			_, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest())
			other <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := c.Request(ctx, kmsg.NewPtrMetadataRequest())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if err := <-other; err == nil {
			t.Error("a request on a dead connection was answered")
		}
		<-c.Done()
		if _, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("later requests end with %v, want the first reason", err)
		}
		_ = c.Close()
		h.end()
	})
}

func TestARequestToAPeerThatTakesNothingTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := wiretest.NewNet()
		l, _ := n.Listen(testAddr)
		c, err := Dial(t.Context(), testAddr, ClientConfig{Dial: n.Dial})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SASLAuthBytes = make([]byte, 1<<20)
		if _, err := c.Request(ctx, req); err == nil {
			t.Error("no error")
		}
		_ = c.Close()
		_ = l.Close()
	})
}

func TestCloseEndsRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(context.Context, *Request) {})
		c := h.client()
		ended := make(chan error, 1)
		go func() {
			_, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest())
			ended <- err
		}()
		synctest.Wait()
		_ = c.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("error is %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("a second close: %v", err)
		}
		h.end()
	})
}

func TestAPeerThatHangsUpEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) { r.Close("test", nil) })
		c := h.client()
		if _, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest()); !errors.Is(err, io.EOF) {
			t.Errorf("error is %v", err)
		}
		_ = c.Close()
		h.end()
	})
}

func TestDialingWhereNobodyListensFails(t *testing.T) {
	_, err := Dial(t.Context(), testAddr, ClientConfig{Dial: wiretest.NewNet().Dial})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error is %v", err)
	}
}

func TestProduceWithoutAcksReturnsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) {
			if r.Key == keyProduce {
				r.Respond(nil, 0)
				return
			}
			respondEmpty(r)
		})
		c := h.client()
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks = 9, 0
		if resp, err := c.Request(t.Context(), req); resp != nil || err != nil {
			t.Errorf("got %v, %v", resp, err)
		}
		if _, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest()); err != nil {
			t.Error(err)
		}
		_ = c.Close()
		h.end()
	})
}

func TestFetchRepliesHoldTheirRecordsUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := bytes.Repeat([]byte("records "), 20_000)
		h := start(t, func(_ context.Context, r *Request) { r.Respond(answerWith(&trackedSource{data: records}), 0) })
		c := h.client()
		for version := int16(0); version <= fetchMaxVersion; version++ {
			req := kmsg.NewPtrFetchRequest()
			req.Version = version
			reply, err := c.Fetch(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if got := reply.Topics[0].Partitions[0].RecordBatches; !bytes.Equal(got, records) {
				t.Errorf("v%d: %d bytes of records", version, len(got))
			}
			reply.Release()
		}
		_ = c.Close()
		h.end()
	})
}

// scripted answers each frame that arrives with what it returns.
func scripted(t *testing.T, answer func(frame []byte) []byte) (*ClientConn, func()) {
	n := wiretest.NewNet()
	l, _ := n.Listen(testAddr)
	var server sync.WaitGroup
	server.Go(func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		var length [4]byte
		for {
			if _, err := io.ReadFull(nc, length[:]); err != nil {
				return
			}
			frame := make([]byte, binary.BigEndian.Uint32(length[:]))
			if _, err := io.ReadFull(nc, frame); err != nil {
				return
			}
			if _, err := nc.Write(answer(frame)); err != nil {
				return
			}
		}
	})
	c, err := Dial(t.Context(), testAddr, ClientConfig{Dial: n.Dial, ResponseMaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		_ = c.Close()
		_ = l.Close()
		server.Wait()
	}
}

func TestGarbageFromAPeerIsAnError(t *testing.T) {
	for name, answer := range map[string][]byte{
		"an answer nobody asked for": withLength(0, 0, 0, 99, 0, 0),
		"an answer without an id":    withLength(0, 0),
		"an answer too long":         {0x7f, 0, 0, 0},
		"a negative length":          {0xff, 0, 0, 0},
		"a body cut short":           withLength(0, 0, 0, 0, 1, 2),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, end := scripted(t, func([]byte) []byte { return answer })
				if _, err := c.Request(t.Context(), kmsg.NewPtrMetadataRequest()); !errors.Is(err, ErrMalformed) {
					t.Errorf("error is %v", err)
				}
				<-c.Done()
				end()
			})
		})
	}
}

func TestVersionsAreNegotiated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, func(cfg *ServerConfig, _ *wiretest.Net) { smallTable(cfg) })
		c := h.client()
		versions, err := c.NegotiateVersions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := versions.Pick(3, 13); v != 12 || !ok {
			t.Errorf("picked %d, %v", v, ok)
		}
		if v, ok := versions.Pick(0, 13); v != 9 || !ok {
			t.Errorf("picked %d, %v", v, ok)
		}
		if _, ok := versions.Pick(0, 2); ok {
			t.Error("picked a version below what is served")
		}
		if _, ok := versions.Pick(4, 7); ok {
			t.Error("picked a key that is not served")
		}
		_ = c.Close()
		h.end()
	})
}

func TestNegotiationFallsBackToWhatAPeerKnows(t *testing.T) {
	for name, tells := range map[string]int16{"a peer that tells its range": 2, "a peer from before KIP-511": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []int16
				c, end := scripted(t, func(frame []byte) []byte {
					version := int16(binary.BigEndian.Uint16(frame[2:]))
					asked = append(asked, version)
					resp := kmsg.NewPtrApiVersionsResponse()
					if version > max(tells, 0) {
						resp.ErrorCode = int16(cluster.UnsupportedVersion)
						if tells >= 0 {
							resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: tells}}
						}
					} else {
						resp.Version = version
						resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 3, MaxVersion: 8}}
					}
					return AppendResponse(nil, resp, int32(binary.BigEndian.Uint32(frame[4:])))
				})
				versions, err := c.NegotiateVersions(t.Context())
				if err != nil || versions[3].Max != 8 || len(asked) != 2 || asked[1] != max(tells, 0) {
					t.Errorf("versions %v after asking in %v, %v", versions, asked, err)
				}
				end()
			})
		})
	}
}
