package wire

import (
	"sync/atomic"
	"time"
)

// RequestQuota limits the time that the requests of a client take (request_percentage, KIP-124).
type RequestQuota struct {
	// Active reports whether any client has a limit; without one no time is taken.
	Active func() bool
	// Charge is told how long a request was handled and returns how long its client is to be throttled.
	Charge func(r *Request, busy time.Duration) time.Duration
}

// busyTime is how long a request is handled: from its arrival, or from when a worker takes it, until the handler returns or
// has answered, whatever is first. Waiting for acks or data does not count (Kafka: requestThreadTimeNanos; the time that it
// takes to write the answer, which Kafka adds, is not measured).
type busyTime struct {
	charged  bool
	throttle time.Duration
	queued   bool         // the handler has handed the request to a worker; the reader's
	from     time.Time    // when a worker took it; Received when it is zero
	nanos    atomic.Int64 // 0 while the handler runs
}

// Queued says that the handler hands the request to a worker. It is called by the handler, on the reader's goroutine, before.
func (r *Request) Queued() { r.busy.queued = true }

// Working says that a worker begins with the request only now.
func (r *Request) Working() {
	if r.quotaActive() {
		r.busy.from = time.Now()
	}
}

// Waiting says that the handler has returned: what comes until the answer is waiting.
func (r *Request) Waiting() {
	if r.quotaActive() && !r.answered.Load() {
		r.busy.nanos.CompareAndSwap(0, max(1, int64(r.busySoFar())))
	}
}

// ChargeTime charges the request's time to its client, once, and returns for how long the client is to be throttled. Respond
// does so on its own; a handler whose answer depends on it asks before. Only who answers may call it.
func (r *Request) ChargeTime() time.Duration {
	if r.busy.charged || r.Exempt || !r.quotaActive() {
		return r.busy.throttle
	}
	r.busy.charged = true
	took := time.Duration(r.busy.nanos.Load())
	if took == 0 {
		took = r.busySoFar()
	}
	r.busy.throttle = r.Conn.srv.cfg.Quota.Charge(r, took)
	return r.busy.throttle
}

func (r *Request) busySoFar() time.Duration {
	if r.busy.from.IsZero() {
		return time.Since(r.Received)
	}
	return time.Since(r.busy.from)
}

func (r *Request) quotaActive() bool {
	s := r.Conn.srv
	if r.Key == keySASLHandshake || r.Key == keySASLAuthenticate {
		return false // whose time it is shows afterwards; Kafka does not count it either
	}
	return s.cfg.Quota != nil && s.cfg.Quota.Active() && s.cfg.API.apis[r.Key].Scope != InterBrokerOnly
}
