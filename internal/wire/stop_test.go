package wire

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/wire/wiretest"
)

func TestAStoppingServerFinishesAnswersInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waiting []*Request
		h := start(t, func(_ context.Context, r *Request) { waiting = append(waiting, r) })
		p, silent := h.dial(), h.dial()
		p.send(metadataFrame(1), metadataFrame(2))
		synctest.Wait()
		h.stop()
		silent.expectClosed()
		synctest.Wait()
		p.send(metadataFrame(3))
		synctest.Wait()
		if len(waiting) != 2 {
			t.Errorf("a stopping server read a request")
		}
		if _, err := h.net.Dial(t.Context(), testAddr); err == nil {
			t.Error("a stopping server took a connection")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		waiting[1].Respond(waiting[1].Msg.ResponseKind(), 0)
		waiting[0].Respond(waiting[0].Msg.ResponseKind(), 0)
		p.correlations(2)
		p.expectClosed()
		h.end()
	})
}

func TestAStoppingServerDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parked *Request
		h := start(t, func(_ context.Context, r *Request) { parked = r },
			func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.DrainTimeout = 2 * time.Second })
		p := h.dial()
		p.send(metadataFrame(1))
		synctest.Wait()
		begin := time.Now()
		h.end()
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("the server stopped after %v, want 2s", d)
		}
		p.expectClosed()
		parked.Respond(parked.Msg.ResponseKind(), 0)
	})
}

func TestAStoppingServerLeavesBackpressureAndThrottleAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parked []*Request
		h := start(t, func(_ context.Context, r *Request) {
			if r.CorrelationID == 1 {
				r.Respond(r.Msg.ResponseKind(), time.Hour)
				return
			}
			parked = append(parked, r)
		}, func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.InFlightRequests = 1 })
		throttled, full := h.dial(), h.dial()
		throttled.send(metadataFrame(1), metadataFrame(2))
		full.send(metadataFrame(3), metadataFrame(4))
		synctest.Wait()
		begin := time.Now()
		h.stop()
		synctest.Wait()
		parked[0].Respond(parked[0].Msg.ResponseKind(), 0)
		h.end()
		if d := time.Since(begin); d != 0 {
			t.Errorf("the server took %v to stop", d)
		}
	})
}

func TestAListenerClosedByOthersStopsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		synctest.Wait()
		_ = h.srv.listeners[0].Net.Close()
		if err := <-h.result; err == nil {
			t.Error("the server ended without an error")
		}
	})
}
