package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// trustedStart is how much memory the first frames of a connection get before their bytes have arrived.
	trustedStart = 64 << 10
	// trustedMax bounds what a connection earns by the frames it has delivered.
	trustedMax = 1 << maxClassBits
)

var (
	errIdle     = errors.New("idle for too long")
	errStopping = errors.New("server is stopping")
)

// connReader is the reader goroutine's side of a connection.
type connReader struct {
	c       *Conn
	buf     *bufio.Reader // over the connReader itself
	trusted int           // bytes a frame may take ahead of its arrival
	current *Request      // in the handler, for the report of a panic
	sasl    saslState
}

// read takes frames until the connection ends or must end. Then no more requests will come; what is in flight may
// still be answered, except when the client is gone.
func (c *Conn) read() {
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(p, c.in.current)
			c.close()
		}
	}()
	c.in.arm(time.Now())
	for greeted := false; ; greeted = true {
		var err error
		if !greeted {
			err = c.handshakeTLS()
		}
		var frame *buffer
		if err == nil {
			frame, err = c.in.next()
		}
		switch {
		case err != nil:
		case c.in.sasl.raw:
			err = c.takeRaw(frame)
		default:
			err = c.dispatch(frame)
		}
		var bad *violation
		switch {
		case err == nil:
			continue
		case errors.Is(err, errStopping):
		case errors.As(err, &bad):
			c.logClose(bad.reason, bad.err, bad.key, bad.version, bad.clientID)
		default: // the client is gone, or idle
			c.close()
		}
		return
	}
}

// violation is something a client must not send: the reason goes into the log and the connection is closed.
type violation struct {
	reason       string
	err          error
	key, version int16 // key -1 when unknown
	clientID     string
}

func (v *violation) Error() string { return v.reason }

// next waits until the connection may be read and returns the next frame.
func (in *connReader) next() (*buffer, error) {
	c := in.c
	if c.srv.isDraining() {
		return nil, errStopping
	}
	if err := in.awaitRoom(); err != nil {
		return nil, err
	}
	if err := in.awaitUnmuted(); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(in.buf, length[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(length[:])))
	limit, least := c.srv.limits.Load().RequestMaxBytes, headerFixedBytes
	if !c.authenticated() {
		limit = min(limit, unauthenticatedMaxBytes)
	}
	if in.sasl.raw {
		least = 0
	}
	if n < least || n > limit {
		return nil, &violation{reason: "illegal frame length", err: frameLengthError(length, n, limit), key: -1}
	}
	frame, err := readFrame(in.buf, n, in.trusted)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
	c.srv.stats.BytesIn.Add(int64(n) + 4)
	in.trusted = max(in.trusted, min(n, trustedMax))
	// A throttle may have been decided while this frame was on its way.
	if err := in.awaitUnmuted(); err != nil {
		frame.release()
		return nil, err
	}
	return frame, nil
}

// frameLengthError says what is wrong with a length, and what a client that does not speak Kafka probably speaks.
func frameLengthError(length [4]byte, n, limit int) error {
	switch s := string(length[:]); {
	case s == "GET " || s == "POST" || s == "HEAD" || s == "PUT " || s == "OPTI" || s == "PRI ":
		return errors.New("this looks like HTTP")
	case length[0] == 0x16 && length[1] == 3:
		return errors.New("this looks like TLS on a listener without")
	}
	return fmt.Errorf("length %d is not between %d and %d", n, headerFixedBytes, limit)
}

// awaitRoom waits until few enough requests are unanswered.
func (in *connReader) awaitRoom() error {
	c := in.c
	for !c.hasRoom(c.srv.limits.Load()) {
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return net.ErrClosed
		case <-c.srv.draining:
			return errStopping
		}
	}
	return nil
}

// awaitUnmuted waits until a throttle is over. Only then is there a timer.
func (in *connReader) awaitUnmuted() error {
	c := in.c
	for {
		until := c.muteUntil.Load()
		if until == 0 {
			return nil
		}
		wait := time.Until(time.Unix(0, until))
		if wait <= 0 {
			c.muteUntil.CompareAndSwap(until, 0)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
			return net.ErrClosed
		case <-c.srv.draining:
			timer.Stop()
			return errStopping
		}
	}
}

// Read reads from the network for in.buf. The deadline is not moved with every read: when it passes, it is set
// anew if there was life since.
func (in *connReader) Read(p []byte) (int, error) {
	c := in.c
	for {
		n, err := c.nc.Read(p)
		if n > 0 {
			c.touch(time.Now())
			return n, nil
		}
		var timeout net.Error
		if err == nil || !errors.As(err, &timeout) || !timeout.Timeout() {
			return n, err
		}
		if c.srv.isDraining() {
			return 0, errStopping
		}
		now := time.Now()
		idle := c.srv.limits.Load().ConnectionsMaxIdle
		if idle > 0 && c.idle() && now.Sub(time.Unix(0, c.lastActive.Load())) >= idle {
			c.srv.stats.ConnectionsIdled.Add(1)
			return 0, errIdle
		}
		in.arm(now)
	}
}

// arm sets the read deadline to when the connection will have been idle for too long.
func (in *connReader) arm(now time.Time) {
	c := in.c
	idle := c.srv.limits.Load().ConnectionsMaxIdle
	switch last := time.Unix(0, c.lastActive.Load()); {
	case idle <= 0:
		_ = c.nc.SetReadDeadline(time.Time{})
	case last.Add(idle).After(now):
		_ = c.nc.SetReadDeadline(last.Add(idle))
	default: // a request is in flight: ask again later
		_ = c.nc.SetReadDeadline(now.Add(idle))
	}
	// Draining sets a deadline in the past after it has said so: one of the two must win.
	if c.srv.isDraining() {
		c.drain()
	}
}

// dispatch decodes a frame, which it takes over, and hands the request to whoever answers it.
func (c *Conn) dispatch(frame *buffer) error {
	received := time.Now()
	h, err := parseHeaderStart(frame.b)
	if err != nil {
		frame.release()
		return &violation{reason: "malformed header", err: err, key: -1}
	}
	if v := c.gate(&h); v != nil {
		frame.release()
		return v
	}
	table := c.srv.cfg.API
	lo, hi, ok := table.Range(h.key, c.listener.InterBroker)
	switch {
	case h.key == keyAPIVersions && (h.version < lo || h.version > hi):
		r := &Request{Key: h.key, Version: h.version, CorrelationID: h.correlationID, Conn: c, Received: received, Size: len(frame.b)}
		frame.release()
		c.count(r)
		c.enqueue(r)
		r.answered.Store(true)
		r.finish(answer{encoded: encodeResponse(table.apiVersionsUnsupported(), h.correlationID)})
		return nil
	case !ok:
		frame.release()
		return &violation{reason: "api is not served here", key: h.key, version: h.version}
	case h.version < lo || h.version > hi:
		frame.release()
		c.srv.stats.keys[h.key].Failed.Add(1)
		return &violation{reason: "version is not served", err: fmt.Errorf("served are %d to %d", lo, hi), key: h.key, version: h.version}
	}
	msg := kmsg.RequestForKey(h.key)
	msg.SetVersion(h.version)
	r, err := c.decode(h, msg, frame)
	if err != nil {
		frame.release()
		c.srv.stats.keys[h.key].Failed.Add(1)
		return &violation{reason: "malformed request", err: err, key: h.key, version: h.version, clientID: h.clientID}
	}
	r.Conn, r.Received = c, received
	c.count(r)
	c.enqueue(r)
	switch req := msg.(type) {
	case *kmsg.ApiVersionsRequest:
		c.answerAPIVersions(r, req)
		return nil
	case *kmsg.SASLHandshakeRequest:
		return c.answerHandshake(r, req)
	case *kmsg.SASLAuthenticateRequest:
		return c.answerAuthenticate(r, req)
	}
	c.in.current = r
	c.srv.cfg.Handler.Handle(c.ctx, r)
	if !r.busy.queued {
		r.Waiting()
	}
	c.in.current = nil
	return nil
}

// decode decodes the rest of the header and the message. On an error the frame is still the caller's.
func (c *Conn) decode(h header, msg kmsg.Request, frame *buffer) (*Request, error) {
	body, err := parseHeaderRest(&h, frame.b, msg.IsFlexible())
	if err != nil {
		return nil, err
	}
	betweenBrokers := c.srv.cfg.API.apis[h.key].Scope == InterBrokerOnly
	if h.key != keyProduce && !betweenBrokers && len(body) > structureBytesMax {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrMalformed, len(body), structureBytesMax)
	}
	return newRequest(h, body, msg, frame)
}

// count counts a request that was read.
func (c *Conn) count(r *Request) {
	k := &c.srv.stats.keys[r.Key]
	k.Requests.Add(1)
	k.RequestSize.Add(int64(r.Size))
}

// answerAPIVersions answers ApiVersions of a served version.
func (c *Conn) answerAPIVersions(r *Request, req *kmsg.ApiVersionsRequest) {
	features := Features{FinalizedEpoch: -1}
	if c.srv.cfg.Features != nil && req.Version >= 3 {
		features = c.srv.cfg.Features()
	}
	resp := c.srv.cfg.API.apiVersions(req, c.listener.InterBroker, features)
	if req.Version >= 3 && resp.ErrorCode == 0 {
		c.software.Store(&[2]string{req.ClientSoftwareName, req.ClientSoftwareVersion})
	}
	r.Respond(resp, 0)
}
