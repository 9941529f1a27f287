package wire

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/wire/wiretest"
)

// withQuota charges requests' time by charge, while active says so.
func withQuota(active *atomic.Bool, charge func(r *Request, busy time.Duration) time.Duration) func(*ServerConfig, *wiretest.Net) {
	return func(cfg *ServerConfig, _ *wiretest.Net) {
		cfg.Quota = &RequestQuota{Active: active.Load, Charge: charge}
	}
}

// R24, KIP-124: what a handler takes is charged once, waiting is not, and the answer goes out at once.
func TestTheTimeOfARequestIsChargedWithoutItsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var charged []time.Duration
		var active atomic.Bool
		active.Store(true)
		var waiting *Request
		h := start(t, func(_ context.Context, r *Request) {
			time.Sleep(20 * time.Millisecond) // fake time: the handler's work
			switch r.CorrelationID {
			case 1:
				respondEmpty(r)
			case 2:
				waiting = r
			case 3:
				r.Queued()
				time.AfterFunc(time.Second, func() {
					r.Working()
					time.Sleep(5 * time.Millisecond)
					respondEmpty(r)
				})
			case 4:
				r.Exempt = true
				respondEmpty(r)
			default:
				respondEmpty(r)
			}
		}, withQuota(&active, func(_ *Request, busy time.Duration) time.Duration {
			charged = append(charged, busy)
			return 0
		}))
		p := h.dial()
		p.send(metadataFrame(1), metadataFrame(2))
		p.correlations(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		respondEmpty(waiting)
		p.correlations(1)
		p.send(metadataFrame(3))
		p.correlations(1)
		p.send(metadataFrame(4))
		p.correlations(1)
		active.Store(false)
		p.send(metadataFrame(5))
		p.correlations(1)
		synctest.Wait()
		const ms = time.Millisecond
		if want := []time.Duration{20 * ms, 20 * ms, 5 * ms}; !slices.Equal(charged, want) {
			t.Errorf("charged %v, want %v", charged, want)
		}
		h.end()
	})
}

// R24.
func TestAClientOverItsRequestQuotaIsAnsweredAtOnceAndMuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var active atomic.Bool
		active.Store(true)
		h := start(t, func(_ context.Context, r *Request) { respondEmpty(r) },
			withQuota(&active, func(r *Request, _ time.Duration) time.Duration { return time.Duration(r.CorrelationID) * time.Second }))
		p := h.dial()
		began := time.Now()
		p.send(metadataFrame(2), metadataFrame(0), metadataFrame(0))
		p.correlations(1)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("answered after %v", waited)
		}
		p.correlations(2)
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("the next requests were answered after %v, want 2s", waited)
		}
		if got := h.srv.Stats().ThrottledTimeMs.Load(); got != 2000 {
			t.Errorf("throttled %d ms in all", got)
		}
		h.end()
	})
}

// R24: what has no answer is throttled, too.
func TestARequestWithoutAnAnswerMutesTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) {
			if r.Key == keyProduce {
				r.Respond(nil, 3*time.Second)
				return
			}
			respondEmpty(r)
		})
		p := h.dial()
		began := time.Now()
		p.send(produceFrame(1, 0, nil), metadataFrame(2))
		if got := p.correlations(1); got[0] != 2 {
			t.Errorf("answer %d", got[0])
		}
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("the next request was answered after %v, want 3s", waited)
		}
		h.end()
	})
}

// KIP-612.
func TestAConnectionTooManyIsHeldAndClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, func(_ context.Context, r *Request) { respondEmpty(r) }, func(cfg *ServerConfig, _ *wiretest.Net) {
			cfg.HoldConnection = func(host string) time.Duration {
				if host == "127.0.0.9" {
					return time.Second
				}
				return 0
			}
		})
		began := time.Now()
		h.dialFrom("127.0.0.9", testAddr).expectClosed()
		if held := time.Since(began); held != time.Second {
			t.Errorf("closed after %v", held)
		}
		p := h.dial()
		p.send(metadataFrame(1))
		p.correlations(1)
		if s := h.srv.Stats(); s.ConnectionsThrottled.Load() != 1 || s.ConnectionsOpen.Load() != 1 {
			t.Errorf("%d throttled, %d open", s.ConnectionsThrottled.Load(), s.ConnectionsOpen.Load())
		}
		h.dialFrom("127.0.0.9", testAddr)
		synctest.Wait()
		h.end() // ends at once, with one held
		if took := time.Since(began); took != time.Second {
			t.Errorf("stopped after %v", took-time.Second)
		}
	})
}
