package zkstore

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"klamm/internal/coord"
)

// link keeps one ZooKeeper session at a time alive over changing connections, and carries requests over it in order.
//
// A lost connection is made again, on another server if need be. Reads that were under way are sent again, writes that
// were under way have an unknown outcome, what was not sent waits. A session that expired is never replaced in silence:
// its owner's Done is closed, and requests that create its ephemeral nodes are refused, before the next one begins.
//
// Goroutines: run (connects, then writes), and per connection a reader and a watchdog; per session a fence.
// Locks: mu is a leaf. Callbacks (finish, onEvent, onConnect) are called without it.
type link struct {
	o     Options
	hosts []string
	// onConnect is called on each new connection before anything is sent, and gives the requests that go first.
	onConnect func() []*request
	onEvent   func(event)

	ctx     context.Context // the life of the link
	stop    context.CancelFunc
	running sync.WaitGroup
	window  *semaphore.Weighted
	wake    chan struct{} // holds a token while there may be something to send

	mu struct {
		sync.Mutex
		// renew starts a new session after one has ended; without it the link ends with its session.
		renew     bool
		session   *zkSession    // nil while there is none
		up        chan struct{} // closed while connected; replaced when the connection is lost
		connected bool
		lastErr   error      // of the last attempt to connect; errAuth ends Open
		conn      *conn      // nil while not connected
		queue     []*request // not sent
		flight    []*request // sent and not answered, in order
		zxid      int64      // newest that the server has shown
		xid       int32      // of the last request
		ending    bool       // the request that ends the session was sent
	}
}

// zkSession is a session as the server knows it.
type zkSession struct {
	id       int64
	password []byte
	timeout  time.Duration // negotiated
	done     chan struct{} // closed when it is over, by the local clock at the latest

	// Guarded by link.mu.
	lastContact time.Time // when the newest request that was answered had been sent
	over        bool
}

// conn is one connection. The session that it was made for stays the same.
type conn struct {
	net.Conn
	session *zkSession
	in      *bufio.Reader

	// Guarded by link.mu.
	lastHeard time.Time
	pingSent  time.Time // zero when no ping is under way
	pingDue   bool
}

func newLink(ctx context.Context, o Options, hosts []string, renew bool) *link {
	l := &link{o: o, hosts: slices.Clone(hosts), wake: make(chan struct{}, 1), window: semaphore.NewWeighted(int64(o.MaxInFlight))}
	rand.Shuffle(len(l.hosts), func(i, j int) { l.hosts[i], l.hosts[j] = l.hosts[j], l.hosts[i] })
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.onConnect, l.onEvent = func() []*request { return nil }, func(event) {}
	l.mu.up, l.mu.renew = make(chan struct{}), renew
	return l
}

func (l *link) start() { l.running.Go(l.runLoop) }

// close ends the link without ending its session. What waits is refused.
func (l *link) close() {
	l.stop()
	l.running.Wait()
}

// awaitUp waits for a connection and gives its session.
func (l *link) awaitUp(ctx context.Context, within time.Duration) (*zkSession, error) {
	limit := time.NewTimer(within)
	defer limit.Stop()
	for {
		l.mu.Lock()
		up, session, err := l.mu.up, l.mu.session, l.mu.lastErr
		usable := l.mu.connected && !session.over
		l.mu.Unlock()
		if usable {
			return session, nil
		}
		if errors.Is(err, errAuth) {
			return nil, err
		}
		select {
		case <-up:
		case <-limit.C:
			l.mu.Lock()
			err = l.mu.lastErr
			l.mu.Unlock()
			return nil, fmt.Errorf("%w: no connection to %v within %v: %w", coord.ErrUnavailable, l.hosts, within, cmp.Or(err, errors.New("no answer")))
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.ctx.Done():
			return nil, coord.ErrClosed
		}
	}
}

// enqueue puts a request behind those that wait.
func (l *link) enqueue(r *request) {
	l.mu.Lock()
	dead := l.ctx.Err() != nil
	if !dead {
		l.mu.queue = append(l.mu.queue, r)
	}
	l.mu.Unlock()
	if dead {
		l.finish(r, reply{err: coord.ErrClosed})
		return
	}
	l.signal()
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// finish answers a request and frees its place in the window.
func (l *link) finish(r *request, p reply) {
	if r.weight > 0 {
		l.window.Release(r.weight)
		r.weight = 0
	}
	if r.finish != nil {
		r.finish(p)
	}
}

func (l *link) finishAll(rs []*request, err error) {
	for _, r := range rs {
		l.finish(r, reply{err: err})
	}
}

// zxid is the newest change id that the server has shown.
func (l *link) zxid() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.zxid
}

// Pauses between rounds over all servers.
const (
	reconnectPause    = 50 * time.Millisecond
	reconnectPauseMax = time.Second
)

func (l *link) runLoop() {
	defer l.shutDown()
	pause := reconnectPause
	for attempt := 0; l.ctx.Err() == nil; attempt++ {
		c, err := l.connect(l.hosts[attempt%len(l.hosts)])
		if err == nil {
			pause = reconnectPause
			err = l.serve(c)
			l.lost(c, err)
			if l.isOver() {
				return
			}
			continue
		}
		if l.isOver() {
			return
		}
		if errors.Is(err, coord.ErrSessionExpired) {
			continue // the server is there: ask for the next session at once
		}
		l.note(err)
		if (attempt+1)%len(l.hosts) != 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
		pause = min(2*pause, reconnectPauseMax)
	}
}

// isOver says whether a link that does not renew has lost its session.
func (l *link) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.mu.renew && l.mu.session != nil && l.mu.session.over
}

// shutDown refuses what still waits.
func (l *link) shutDown() {
	l.stop()
	l.mu.Lock()
	waiting := append(l.mu.flight, l.mu.queue...)
	l.mu.flight, l.mu.queue = nil, nil
	s := l.mu.session
	l.mu.Unlock()
	if s != nil {
		l.endSession(s)
	}
	l.finishAll(waiting, coord.ErrClosed)
}

// note keeps a failure to connect and refuses what has waited too long for a connection.
func (l *link) note(err error) {
	var late []*request
	l.mu.Lock()
	first := l.mu.lastErr == nil
	l.mu.lastErr = err
	l.mu.queue = slices.DeleteFunc(l.mu.queue, func(r *request) bool {
		if !r.since.IsZero() && time.Since(r.since) > l.o.ConnectionTimeout {
			late = append(late, r)
			return true
		}
		return false
	})
	if errors.Is(err, errAuth) {
		l.o.Stats.AuthFailures.Add(1)
		close(l.mu.up) // Open does not wait for what will not get better
		l.mu.up = make(chan struct{})
	}
	l.mu.Unlock()
	if first && l.ctx.Err() == nil {
		l.o.Log.Warn("connect to zookeeper failed, trying on", "err", err) // once per outage
	}
	l.finishAll(late, fmt.Errorf("%w: %w", coord.ErrUnavailable, err))
}

// serve carries requests until the connection breaks.
func (l *link) serve(c *conn) error {
	var wg sync.WaitGroup
	broken := make(chan struct{})
	var once sync.Once
	var cause error
	fail := func(err error) {
		once.Do(func() {
			cause = err
			close(broken)
			_ = c.Close() // ends the reader and a writer that is stuck
		})
	}
	wg.Go(func() { fail(l.read(c)) })
	wg.Go(func() { fail(l.watch(c, broken)) })
	fail(l.write(c, broken))
	wg.Wait()
	return cause
}

// write sends what is queued, as much as there is at once.
func (l *link) write(c *conn, broken <-chan struct{}) error {
	w := bufio.NewWriterSize(c, 64<<10)
	for {
		ping, batch := l.take(c)
		if ping {
			frame := newFrame(opPing, 0)
			seal(frame, xidPing)
			if _, err := w.Write(frame); err != nil {
				return err
			}
		}
		for _, r := range batch {
			if _, err := w.Write(r.frame); err != nil {
				return err
			}
		}
		if ping || len(batch) > 0 {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-l.wake:
		case <-broken:
			return nil
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
}

// firstXid leaves the numbers below to the login.
const firstXid = 16

// takeMax is how many requests go to the writer at once.
const takeMax = 128

// take moves requests from the queue into the flight.
func (l *link) take(c *conn) (ping bool, batch []*request) {
	var refused []*request
	now := time.Now()
	l.mu.Lock()
	if c.pingDue && !l.mu.ending {
		c.pingDue, c.pingSent, ping = false, now, true
	}
	for len(l.mu.queue) > 0 && len(batch) < takeMax && !l.mu.ending && !c.session.over {
		r := l.mu.queue[0]
		l.mu.queue[0] = nil
		l.mu.queue = l.mu.queue[1:]
		if r.session != nil && r.session != c.session {
			refused = append(refused, r)
			continue
		}
		if l.mu.xid++; l.mu.xid < firstXid {
			l.mu.xid = firstXid
		}
		r.sent, r.xid = now, l.mu.xid
		seal(r.frame, r.xid)
		l.mu.flight = append(l.mu.flight, r)
		batch = append(batch, r)
		l.mu.ending = r.last
	}
	l.mu.Unlock()
	l.finishAll(refused, coord.ErrSessionExpired)
	return ping, batch
}

// read takes answers and events until the connection breaks.
func (l *link) read(c *conn) error {
	for {
		frame, tooLarge, err := readAnswer(c.in, l.o.ReplyBytesMax)
		if err != nil {
			return err
		}
		d := decoder{b: frame}
		xid, zxid, code := d.int(), d.long(), d.int()
		if d.err != nil {
			return d.err
		}
		r, err := l.heard(c, xid, zxid)
		switch {
		case err != nil:
			return err
		case xid == xidEvent:
			e, err := decodeEvent(&d)
			if err != nil {
				return err
			}
			l.onEvent(e)
		case r != nil:
			if l.o.Stats.Latency != nil {
				l.o.Stats.Latency(time.Since(r.sent))
			}
			if tooLarge != nil && r.write {
				tooLarge = fmt.Errorf("%w: %w", coord.ErrUnknownOutcome, tooLarge)
			}
			l.finish(r, reply{code: code, zxid: zxid, body: d, err: tooLarge})
			if r.last {
				l.endSession(c.session)
				return errors.New("session closed")
			}
		}
	}
}

// heard notes a sign of life and finds the request that it answers; nil for pings and events.
func (l *link) heard(c *conn, xid int32, zxid int64) (*request, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.lastHeard = time.Now()
	if zxid > l.mu.zxid {
		l.mu.zxid = zxid
	}
	switch {
	case xid == xidPing:
		if !c.pingSent.IsZero() {
			l.contactLocked(c.session, c.pingSent)
			c.pingSent = time.Time{}
		}
		return nil, nil
	case xid < 0:
		return nil, nil
	case len(l.mu.flight) == 0 || l.mu.flight[0].xid != xid:
		return nil, fmt.Errorf("the server answered request %d out of order", xid)
	}
	r := l.mu.flight[0]
	l.mu.flight[0] = nil
	l.mu.flight = l.mu.flight[1:]
	l.contactLocked(c.session, r.sent)
	return r, nil
}

func (l *link) contactLocked(s *zkSession, sent time.Time) {
	if sent.After(s.lastContact) {
		s.lastContact = sent
	}
}

// watch sends pings and gives up a connection on which nothing was heard for two thirds of the session's timeout, so
// that another server can be tried while the session lives (ZooKeeper: ClientCnxn's readTimeout).
func (l *link) watch(c *conn, broken <-chan struct{}) error {
	tick := time.NewTicker(max(c.session.timeout/6, time.Millisecond))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-broken:
			return nil
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
		l.mu.Lock()
		silent := time.Since(c.lastHeard)
		c.pingDue = c.pingDue || n%2 == 1 && c.pingSent.IsZero()
		due, over := c.pingDue, c.session.over
		l.mu.Unlock()
		if over {
			return coord.ErrSessionExpired
		}
		if silent >= c.session.timeout*2/3 {
			return fmt.Errorf("the server was silent for %v", silent.Round(time.Millisecond))
		}
		if due {
			l.signal()
		}
	}
}

// lost deals with what was under way on a connection that broke.
func (l *link) lost(c *conn, cause error) {
	var unknown, dropped []*request
	l.mu.Lock()
	l.mu.connected, l.mu.conn, l.mu.ending = false, nil, false
	l.mu.up = make(chan struct{})
	var again []*request
	for _, r := range l.mu.flight {
		switch {
		case r.internal:
			dropped = append(dropped, r)
		case r.write:
			unknown = append(unknown, r)
		default:
			again = append(again, r)
		}
	}
	l.mu.flight = nil
	l.mu.queue = append(again, slices.DeleteFunc(l.mu.queue, func(r *request) bool {
		if r.internal {
			dropped = append(dropped, r)
		}
		return r.internal
	})...)
	over := c.session.over
	l.mu.Unlock()
	if l.ctx.Err() == nil {
		l.o.Stats.Disconnects.Add(1)
	}
	if l.ctx.Err() == nil && !over {
		l.o.Log.Warn("connection to zookeeper lost", "remote", c.RemoteAddr().String(), "err", cause)
	}
	l.finishAll(unknown, fmt.Errorf("%w: %w", coord.ErrUnknownOutcome, cause))
	l.finishAll(dropped, fmt.Errorf("%w: %w", coord.ErrUnavailable, cause))
}

// fence ends a session when its time has passed without contact. The server counts from when it got a request, which
// is later than when it was sent; a twentieth of the timeout is left for what a stopped process needs to notice.
func (l *link) fence(s *zkSession) {
	for {
		l.mu.Lock()
		left := time.Until(s.lastContact.Add(s.timeout - s.timeout/20))
		l.mu.Unlock()
		if left <= 0 {
			l.o.Stats.Expires.Add(1)
			l.o.Log.Warn("session ended: zookeeper did not answer in time", "session", fmt.Sprintf("%#x", s.id))
			l.endSession(s)
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-s.done:
			timer.Stop()
			return
		case <-l.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// endSession marks a session as over and refuses what waits to run under it.
func (l *link) endSession(s *zkSession) {
	l.mu.Lock()
	if s.over {
		l.mu.Unlock()
		return
	}
	s.over = true
	close(s.done)
	var refused []*request
	l.mu.queue = slices.DeleteFunc(l.mu.queue, func(r *request) bool {
		if r.session == s {
			refused = append(refused, r)
		}
		return r.session == s
	})
	c := l.mu.conn
	l.mu.Unlock()
	if c != nil && c.session == s {
		_ = c.Close()
	}
	l.finishAll(refused, coord.ErrSessionExpired)
}

// readFrame reads one message.
func readFrame(r io.Reader, bytesMax int) ([]byte, error) {
	n, err := readSize(r)
	if err != nil {
		return nil, err
	}
	if n > bytesMax {
		return nil, &replyTooLargeError{n, bytesMax}
	}
	frame := make([]byte, n)
	_, err = io.ReadFull(r, frame)
	return frame, err
}

// answerHeaderSize is what every answer begins with: xid, zxid, code.
const answerHeaderSize = 16

// readAnswer reads an answer or event. Of one above the limit it keeps the header, which tells whose answer it is, and says so
// by tooLarge: that request alone fails. If the connection did, the request would be sent again on the next one, for ever.
func readAnswer(r *bufio.Reader, bytesMax int) (frame []byte, tooLarge, err error) {
	n, err := readSize(r)
	if err != nil {
		return nil, nil, err
	}
	kept := n
	if n > bytesMax {
		kept, tooLarge = answerHeaderSize, &replyTooLargeError{n, bytesMax}
	}
	frame = make([]byte, kept)
	if _, err = io.ReadFull(r, frame); err == nil {
		_, err = r.Discard(n - kept)
	}
	return frame, tooLarge, err
}

func readSize(r io.Reader) (int, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return 0, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 0 {
		return 0, fmt.Errorf("the server sent a message of %d bytes", n)
	}
	return int(n), nil
}
