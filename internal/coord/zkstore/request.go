package zkstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"klamm/internal/coord"
)

// weightUnit is how many bytes of a request take one place of the window.
const weightUnit = 16 << 10

// request is one frame on its way. Until it is sent it belongs to the link's queue, then to its flight.
type request struct {
	frame []byte
	// session is that which owns the ephemeral nodes of the request, so that it never runs under another; nil for none.
	session *zkSession
	// write marks a request that must not be sent twice: when its answer is lost, its outcome is unknown.
	write bool
	// internal requests take no place of the window, and are not sent again on the next connection.
	internal bool
	// last is the request that ends the session: nothing follows it on the connection.
	last bool
	// finish gets the answer, or why there is none. It is called once, without a lock, and must not block.
	finish func(reply)

	since  time.Time // when its caller began to wait
	sent   time.Time
	xid    int32
	weight int64 // of the window
}

// reply is the answer to a request, or the error that took its place.
type reply struct {
	code int32
	zxid int64
	body decoder
	err  error // of the link
}

// failure is why a request has no answer that can be decoded.
func (r *reply) failure() error {
	if r.err != nil {
		return r.err
	}
	return codeError(r.code)
}

// call is a set of requests that one caller waits for.
type call struct {
	stop context.CancelFunc // ends the caller's submitting
	done chan struct{}      // closed when open is 0
	mu   struct {
		sync.Mutex
		open      int // requests that are not finished, and one for the caller while it submits
		err       error
		abandoned bool // the caller has gone: nothing may touch its results
	}
}

// expect counts one more request and gives its finish. decode runs under the call's lock, on the link's goroutine; its
// error ends the call.
func (c *call) expect(decode func(*reply) error) func(reply) {
	c.mu.Lock()
	c.mu.open++
	c.mu.Unlock()
	return func(r reply) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.mu.abandoned {
			c.failLocked(decode(&r))
		}
		c.leaveLocked()
	}
}

func (c *call) failLocked(err error) {
	if err != nil && c.mu.err == nil {
		c.mu.err = err
		c.stop()
	}
}

func (c *call) leaveLocked() {
	if c.mu.open--; c.mu.open == 0 {
		close(c.done)
	}
}

// wait is called once everything is submitted. When ctx ends first, lost is what that means for requests under way.
func (c *call) wait(ctx context.Context, submitErr, lost error) error {
	c.mu.Lock()
	c.failLocked(submitErr)
	c.leaveLocked()
	c.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.open > 0 && c.mu.err == nil {
		c.mu.err = fmt.Errorf("%w: %w", lost, ctx.Err())
	}
	c.mu.abandoned = true
	return c.mu.err
}

// run submits n requests in order and waits for all of them. build makes the i-th; nil skips it. It stops submitting at
// the first failure.
func (l *link) run(ctx context.Context, n int, build func(c *call, i int) *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.ctx.Err() != nil {
		return coord.ErrClosed
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(l.ctx, stop)()
	c := &call{stop: stop, done: make(chan struct{})}
	c.mu.open = 1
	since, lost := time.Now(), coord.ErrUnavailable
	var err error
	for i := 0; i < n && err == nil && waiting.Err() == nil; i++ {
		r := build(c, i)
		if r == nil {
			continue
		}
		r.since = since
		if r.write {
			lost = coord.ErrUnknownOutcome
		}
		err = l.submit(waiting, r)
	}
	if err == nil && l.ctx.Err() != nil {
		err = coord.ErrClosed
	}
	return c.wait(ctx, err, lost)
}

// submit waits for a place in the window and queues the request.
func (l *link) submit(ctx context.Context, r *request) error {
	if n := len(r.frame) - 4; n > l.o.RequestBytesMax {
		r.finish(reply{err: &tooLargeError{n, l.o.RequestBytesMax}})
		return nil
	}
	weight := min(1+int64(len(r.frame)/weightUnit), int64(l.o.MaxInFlight))
	if err := l.window.Acquire(ctx, weight); err != nil {
		// Something ended the wait: the caller's context, the link, or an earlier failure of the call, which stays its error.
		err = fmt.Errorf("%w: %w", coord.ErrUnavailable, err)
		if l.ctx.Err() != nil {
			err = coord.ErrClosed
		}
		r.finish(reply{err: err})
		return err
	}
	r.weight = weight
	l.enqueue(r)
	return nil
}

// tooLargeError reports a request that the server would cut the connection for.
type tooLargeError struct{ bytes, max int }

// Error names both sizes.
func (e *tooLargeError) Error() string {
	return fmt.Sprintf("a request of %d bytes is above ZooKeeper's limit of %d (jute.maxbuffer)", e.bytes, e.max)
}

// replyTooLargeError reports an answer that is not taken into memory, such as a list of too many nodes.
type replyTooLargeError struct{ bytes, max int }

// Error names both sizes.
func (e *replyTooLargeError) Error() string {
	return fmt.Sprintf("ZooKeeper's answer has %d bytes, more than the limit of %d", e.bytes, e.max)
}
