package driver

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// resendPause is the wait before a request is sent again after any failure of the link (Kafka: RequestSendThread.backoff).
const resendPause = 100 * time.Millisecond

// Conn is a connection to a broker's inter-broker listener; *wire.ClientConn is the real one. Request is called by one
// goroutine at a time. After an error the connection is not used again.
type Conn interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	// Done is closed when the connection is broken.
	Done() <-chan struct{}
	Close() error
}

// queued is a request with the moment it entered the queue.
type queued struct {
	outgoing
	since time.Time
}

// sender delivers the controller's requests to one broker: strictly in order, one connection, one request in flight,
// the same request again until it is answered or the sender is stopped (Kafka: RequestSendThread). A request may so
// arrive more than once; receivers are idempotent.
//
// Owned by the driver: created and stopped on the owner goroutine, run under the driver's wait group.
type sender struct {
	broker  cluster.Broker
	dial    func(ctx context.Context, addr string) (Conn, error)
	builder requestBuilder
	log     *slog.Logger
	// deliver puts an answer's event into the event queue, waiting for room; false when ctx ended.
	deliver func(ctx context.Context, ev controller.Event) bool

	socketTimeout  time.Duration // for a connect
	requestTimeout time.Duration // for an answer
	queueMax       int
	entriesMax     int

	cancel  context.CancelFunc
	stopped chan struct{}   // closed when run has returned
	after   <-chan struct{} // the broker's former sender has ended; nil without one

	wake chan struct{} // capacity 1
	mu   struct {
		sync.Mutex
		queue    []queued
		entries  int   // partitions named by the requests in queue
		pushed   int64 // requests that were queued so far
		answered int64 // of them, those that the broker has answered
		marks    []mark
		over     bool // run is at its end: nothing more is answered
	}
	waits     timings // time in queue
	resends   atomic.Int64
	connected atomic.Bool
}

// mark waits for the answers to the first upTo requests.
type mark struct {
	upTo int64
	done func()
}

// afterAnswers calls done, maybe before it returns, once everything that was pushed so far is answered, or the sender ends.
func (s *sender) afterAnswers(done func()) {
	s.mu.Lock()
	waits := !s.mu.over && s.mu.answered < s.mu.pushed
	if waits {
		s.mu.marks = append(s.mu.marks, mark{s.mu.pushed, done})
	}
	s.mu.Unlock()
	if !waits {
		done()
	}
}

// noteAnswer counts one more answer and tells those who waited for it.
func (s *sender) noteAnswer() {
	s.mu.Lock()
	s.mu.answered++
	n := 0
	for n < len(s.mu.marks) && s.mu.marks[n].upTo <= s.mu.answered {
		n++
	}
	reached := s.mu.marks[:n]
	s.mu.marks = s.mu.marks[n:]
	s.mu.Unlock()
	for _, m := range reached {
		m.done()
	}
}

// endMarks tells all that wait for answers that none will come.
func (s *sender) endMarks() {
	s.mu.Lock()
	left := s.mu.marks
	s.mu.marks, s.mu.over = nil, true
	s.mu.Unlock()
	for _, m := range left {
		m.done()
	}
}

// push appends a request. It reports false, and leaves the queue as it is, when the request does not fit.
func (s *sender) push(r outgoing) bool {
	s.mu.Lock()
	n := r.entries()
	// An empty queue takes any request: the bound must not make a large cluster impossible.
	fits := len(s.mu.queue) == 0 || len(s.mu.queue) < s.queueMax && s.mu.entries+n <= s.entriesMax
	if fits {
		s.mu.queue = append(s.mu.queue, queued{r, time.Now()})
		s.mu.entries += n
		s.mu.pushed++
	}
	s.mu.Unlock()
	if fits {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return fits
}

func (s *sender) pop() (queued, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.queue) == 0 {
		return queued{}, false
	}
	q := s.mu.queue[0]
	s.mu.queue[0] = queued{}
	s.mu.queue = s.mu.queue[1:]
	s.mu.entries -= q.entries()
	return q, true
}

func (s *sender) queueSize() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.queue)
}

// run delivers until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer close(s.stopped)
	defer s.endMarks()
	if s.after != nil {
		// The former sender's last request must not arrive after a request of this one.
		<-s.after
	}
	link := &link{sender: s}
	defer link.close()
	for {
		q, ok := s.pop()
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		s.waits.observe(time.Since(q.since))
		resp, ok := link.send(ctx, q.build(s.builder), q.name())
		if !ok {
			return
		}
		s.noteAnswer()
		if ev := q.reply(resp); ev != nil && !s.deliver(ctx, ev) {
			return
		}
	}
}

// link is the sender's connection with what it has to say about it. Owned by the sender's goroutine.
type link struct {
	*sender
	conn   Conn
	broken bool // a failure was logged and no request has been answered since
}

// send sends the request until it is answered; false when ctx ended first.
func (l *link) send(ctx context.Context, req kmsg.Request, name string) (kmsg.Response, bool) {
	for {
		resp, err := l.try(ctx, req)
		if err == nil {
			if l.broken {
				l.broken = false
				l.log.Info("broker answers again", "broker", l.broker.ID)
			}
			return resp, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		l.resends.Add(1)
		if !l.broken {
			// Once per outage, not once per attempt.
			l.broken = true
			l.log.Warn("request to broker failed, sending it again until answered", "broker", l.broker.ID, "api", name, "err", err)
		}
		l.close()
		pause := time.NewTimer(resendPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, false
		}
	}
}

func (l *link) try(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.requestTimeout)
	defer cancel()
	return l.conn.Request(ctx, req)
}

func (l *link) connect(ctx context.Context) error {
	if l.conn != nil {
		select {
		case <-l.conn.Done(): // closed by the broker for its idleness: nothing that calls for a pause or a warning
			l.close()
		default:
			return nil
		}
	}
	e, ok := l.broker.Endpoint(l.builder.listener)
	if !ok {
		return fmt.Errorf("broker %d has no endpoint on listener %s", l.broker.ID, l.builder.listener)
	}
	addr := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
	ctx, cancel := context.WithTimeout(ctx, l.socketTimeout)
	defer cancel()
	conn, err := l.dial(ctx, addr)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", addr, err)
	}
	l.conn = conn
	l.connected.Store(true)
	if !l.broken {
		l.log.Info("controller connected to broker", "broker", l.broker.ID, "remote", addr)
	}
	return nil
}

func (l *link) close() {
	if l.conn != nil {
		_ = l.conn.Close() // it is given up either way
		l.conn = nil
		l.connected.Store(false)
	}
}
