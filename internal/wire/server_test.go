package wire

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire/wiretest"
)

func TestAnswersLeaveInRequestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting []*Request
		h := start(t, func(_ context.Context, r *Request) { waiting = append(waiting, r) })
		p := h.dial()
		for id := range int32(5) {
			p.send(metadataFrame(id))
		}
		synctest.Wait()
		for _, r := range slices.Backward(waiting[1:]) {
			r.Respond(r.Msg.ResponseKind(), 0)
		}
		if !p.silent() {
			t.Fatal("an answer left before the first request was answered")
		}
		waiting[0].Respond(waiting[0].Msg.ResponseKind(), 0)
		if got, want := p.correlations(5), []int32{0, 1, 2, 3, 4}; !slices.Equal(got, want) {
			t.Errorf("answers came as %v, want %v", got, want)
		}
		h.end()
	})
}

func TestAProduceWithoutAcksHasNoAnswerAndHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) {
			if p, ok := r.Msg.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
				r.Respond(nil, 0)
				return
			}
			respondEmpty(r)
		})
		p := h.dial()
		p.send(metadataFrame(1), produceFrame(2, 0, []byte("x")), metadataFrame(3))
		if got := p.correlations(2); !slices.Equal(got, []int32{1, 3}) {
			t.Errorf("answers came for %v", got)
		}
		h.end()
	})
}

func TestReadingStopsWhenTooManyRequestsAreUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting []*Request
		h := start(t, func(_ context.Context, r *Request) { waiting = append(waiting, r) },
			func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.InFlightRequests = 4 })
		p := h.dial()
		for id := range int32(10) {
			p.send(metadataFrame(id))
		}
		synctest.Wait()
		if len(waiting) != 4 {
			t.Fatalf("%d requests were read, want 4", len(waiting))
		}
		if n := h.srv.stats.InFlight.Load(); n != 4 {
			t.Errorf("%d requests are counted in flight, want 4", n)
		}
		waiting[1].Respond(waiting[1].Msg.ResponseKind(), 0)
		synctest.Wait()
		if len(waiting) != 4 {
			t.Fatal("an answer that cannot leave made room")
		}
		waiting[0].Respond(waiting[0].Msg.ResponseKind(), 0)
		synctest.Wait()
		if len(waiting) != 6 {
			t.Fatalf("two answers left and %d requests were read, want 6", len(waiting))
		}
		for i := 2; i < len(waiting); i++ {
			waiting[i].Respond(waiting[i].Msg.ResponseKind(), 0)
			synctest.Wait()
		}
		p.correlations(10)
		h.end()
	})
}

func TestReadingStopsWhenUnansweredFramesAreTooBig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting []*Request
		h := start(t, func(_ context.Context, r *Request) { waiting = append(waiting, r) },
			func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.InFlightBytes = 1000 })
		p := h.dial()
		for id := range int32(4) {
			p.send(produceFrame(id, 1, make([]byte, 600)))
		}
		synctest.Wait()
		if len(waiting) != 2 {
			t.Fatalf("%d requests were read, want 2", len(waiting))
		}
		for i := 0; i < len(waiting); i++ {
			waiting[i].Respond(waiting[i].Msg.ResponseKind(), 0)
			synctest.Wait()
		}
		p.correlations(4)
		h.end()
	})
}

func TestAnswersThatAClientDoesNotTakeStopReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		h := start(t, func(_ context.Context, r *Request) {
			handled++
			resp := kmsg.NewPtrMetadataResponse()
			resp.Brokers = make([]kmsg.MetadataResponseBroker, 2000) // some 20 kB
			r.Respond(resp, 0)
		}, func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.InFlightRequests = 3 })
		p := h.dial()
		for id := range int32(100) {
			p.send(metadataFrame(id))
		}
		synctest.Wait()
		if handled > 12 {
			t.Errorf("%d answers were made for a client that takes none", handled)
		}
		p.correlations(100)
		h.end()
	})
}

func TestAThrottledConnectionIsAnsweredAtOnceAndReadLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handled []time.Time
		h := start(t, func(_ context.Context, r *Request) {
			handled = append(handled, time.Now())
			throttle := time.Duration(0)
			if r.CorrelationID == 1 {
				throttle = 3 * time.Second
			}
			r.Respond(r.Msg.ResponseKind(), throttle)
		})
		p := h.dial()
		begin := time.Now()
		p.send(metadataFrame(1))
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = 12
		if err := DecodeResponseBody(resp, p.receive()[5:]); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) != 0 || resp.ThrottleMillis != 3000 {
			t.Errorf("answer after %v with throttle %d ms", time.Since(begin), resp.ThrottleMillis)
		}
		p.send(metadataFrame(2))
		p.correlations(1)
		if got := handled[1].Sub(begin); got != 3*time.Second {
			t.Errorf("the next request was handled after %v, want 3s", got)
		}
		h.end()
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting *Request
		h := start(t, func(_ context.Context, r *Request) {
			if r.CorrelationID == 9 {
				waiting = r
				return
			}
			respondEmpty(r)
		}, func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.ConnectionsMaxIdle = time.Minute })
		closedAfter := func(p *peer) time.Duration {
			begin := time.Now()
			p.expectClosed()
			return time.Since(begin)
		}
		if d := closedAfter(h.dial()); d != time.Minute {
			t.Errorf("a silent connection was closed after %v", d)
		}
		busy := h.dial()
		for range 5 {
			time.Sleep(50 * time.Second)
			busy.send(metadataFrame(1))
			busy.correlations(1)
		}
		if d := closedAfter(busy); d != time.Minute {
			t.Errorf("a busy connection was closed %v after its last request", d)
		}
		half := h.dial()
		half.send(metadataFrame(1)[:7])
		if d := closedAfter(half); d != time.Minute {
			t.Errorf("a connection with half a frame was closed after %v", d)
		}
		parked := h.dial()
		parked.send(metadataFrame(9))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		waiting.Respond(waiting.Msg.ResponseKind(), 0)
		parked.correlations(1)
		if d := closedAfter(parked); d > 2*time.Minute {
			t.Errorf("a connection that waited for an answer was closed %v after it", d)
		}
		if n := h.srv.stats.ConnectionsIdled.Load(); n != 4 {
			t.Errorf("%d connections are counted as idle, want 4", n)
		}
		if lines := h.log.lines(); len(lines) != 0 {
			t.Errorf("idle connections left log lines: %q", lines)
		}
		h.end()
	})
}

func TestAClientThatTakesNothingIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) {
			resp := kmsg.NewPtrMetadataResponse()
			resp.Brokers = make([]kmsg.MetadataResponseBroker, 20_000)
			r.Respond(resp, 0)
		}, func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.ConnectionsMaxIdle = time.Minute })
		p := h.dial()
		p.send(metadataFrame(1))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if n := h.srv.stats.ConnectionsOpen.Load(); n != 0 {
			t.Error("the connection is still open")
		}
		h.end()
	})
}

func TestAPanicInAHandlerClosesItsConnectionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) {
			if r.CorrelationID == 13 {
				panic("unlucky")
			}
			respondEmpty(r)
		})
		bad, good := h.dial(), h.dial()
		bad.send(metadataFrame(13))
		bad.expectClosed()
		good.send(metadataFrame(1))
		good.correlations(1)
		lines := h.log.lines()
		if len(lines) != 1 || !strings.Contains(lines[0], "unlucky") || !strings.Contains(lines[0], "level=ERROR") {
			t.Errorf("log is %q, want one error line", lines)
		}
		h.end()
	})
}

func TestASecondAnswerClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) {
			respondEmpty(r)
			respondEmpty(r)
		})
		p := h.dial()
		p.send(metadataFrame(1))
		for p.receive() != nil { // the first answer may have left already
		}
		if lines := h.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "request answered twice") {
			t.Errorf("log is %q", lines)
		}
		h.end()
	})
}

func TestAnAnswerOfAnotherKindClosesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) { r.Respond(kmsg.NewPtrProduceResponse(), 0) })
		p := h.dial()
		p.send(metadataFrame(1))
		p.expectClosed()
		if n := h.srv.stats.HandlerPanics.Load(); n != 1 {
			t.Errorf("%d panics counted, want 1", n)
		}
		h.end()
	})
}

func TestCloseLetsEarlierAnswersLeaveFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first *Request
		h := start(t, func(_ context.Context, r *Request) {
			if r.CorrelationID == 1 {
				first = r
				return
			}
			r.Close("acks 0 with an error", nil)
		})
		p := h.dial()
		p.send(metadataFrame(1), metadataFrame(2))
		synctest.Wait()
		first.Respond(first.Msg.ResponseKind(), 0)
		p.correlations(1)
		p.expectClosed()
		if lines := h.log.lines(); len(lines) != 1 || !strings.Contains(lines[0], "acks 0 with an error") {
			t.Errorf("log is %q", lines)
		}
		h.end()
	})
}

func TestAConnectionsContextEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		var parked, closed *Request
		h := start(t, func(c context.Context, r *Request) { ctx, closed, parked = c, parked, r })
		p := h.dial()
		p.send(metadataFrame(1), metadataFrame(2))
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("the context has ended before the connection")
		}
		_ = p.nc.Close()
		<-ctx.Done()
		<-parked.Conn.Done()
		respondEmpty(parked) // goes nowhere and harms nobody
		closed.Close("too late", nil)
		synctest.Wait()
		if n := h.srv.stats.InFlight.Load(); n != 0 {
			t.Errorf("%d requests are in flight", n)
		}
		if lines := h.log.lines(); len(lines) != 0 {
			t.Errorf("a client that hung up leaves log lines: %q", lines)
		}
		h.end()
	})
}
