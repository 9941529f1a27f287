package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// DialFunc opens a connection to host:port.
type DialFunc func(ctx context.Context, addr string) (net.Conn, error)

// DialTCP is the DialFunc of the real network.
func DialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// ClientConfig configures connections to other brokers.
type ClientConfig struct {
	Dial             DialFunc  // nil for DialTCP
	ClientID         string    // sent with every request
	ResponseMaxBytes int       // longer answers break the connection; 0 for 1 GiB
	Software         [2]string // name and version that NegotiateVersions tells; zero for "klamm", "unknown"
	// Login, if set, authenticates a new connection by the round trips it makes, and again before the lifetime is over
	// that it returns; 0 for no end.
	Login func(roundTrip func(kmsg.Request) (kmsg.Response, error)) (lifetime time.Duration, err error)
}

// ClientConn is a connection to a broker. All methods are safe for concurrent use; requests are pipelined in the
// order they were made. It does not reconnect: after any error it is dead, its owner closes it and dials again
// (Kafka: ControllerChannelManager and the replica fetchers do so too, with a pause).
type ClientConn struct {
	cfg     ClientConfig
	nc      net.Conn
	addr    string
	writing chan struct{} // holds a token while someone writes; pipelined order is the order of tokens
	renew   time.Time     // when to log in again; zero for never; whoever holds the token may read and write it

	mu struct {
		sync.Mutex
		nextID  int32
		pending []*call // sent and not answered, in order
		err     error   // set once, when done is closed
	}
	done   chan struct{} // closed when the connection is dead
	ended  chan struct{} // closed when the reader goroutine has ended
	closed sync.Once
}

// call is a request whose answer is awaited.
type call struct {
	id    int32
	reply chan *buffer // capacity 1; the frame without its length
}

// Dial connects. There is no ApiVersions exchange: versions are the caller's to choose. The ClientConn has one
// reader goroutine; Close ends it and waits for it.
func Dial(ctx context.Context, addr string, cfg ClientConfig) (*ClientConn, error) {
	if cfg.Dial == nil {
		cfg.Dial = DialTCP
	}
	if cfg.ResponseMaxBytes <= 0 {
		cfg.ResponseMaxBytes = 1 << 30
	}
	if cfg.Software == ([2]string{}) {
		cfg.Software = [2]string{"klamm", unknownSoftware}
	}
	nc, err := cfg.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c := &ClientConn{cfg: cfg, nc: nc, addr: addr, writing: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.read()
	}()
	if cfg.Login != nil {
		if err := c.login(ctx); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("log in to %s: %w", addr, err)
		}
	}
	return c, nil
}

// login authenticates. Nobody else may write meanwhile: the caller has the connection, or its token, to itself.
func (c *ClientConn) login(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.fail(ctx.Err()) })
	defer stop()
	began := time.Now()
	lifetime, err := c.cfg.Login(func(req kmsg.Request) (kmsg.Response, error) {
		cl, err := c.write(ctx, req)
		if err != nil {
			return nil, err
		}
		frame, err := c.await(cl)
		if err != nil {
			return nil, err
		}
		resp := req.ResponseKind()
		return resp, c.decode(resp, frame)
	})
	if err != nil {
		c.fail(err)
		return err
	}
	c.renew = time.Time{}
	if lifetime > 0 {
		// Kafka's clients choose a time between 85 and 95 % of it.
		c.renew = began.Add(lifetime * 85 / 100)
	}
	return nil
}

// Close closes the connection and waits for its goroutine. Requests in flight end with an error.
func (c *ClientConn) Close() error {
	c.fail(net.ErrClosed)
	<-c.ended
	return nil
}

// Done is closed when the connection is dead.
func (c *ClientConn) Done() <-chan struct{} { return c.done }

// Err is why the connection is dead, nil while it is not.
func (c *ClientConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// Request sends req in the version set in it and waits for the answer, whose byte slices may be kept. A Produce
// request with acks 0 has none: the response is nil. When ctx ends first the connection is closed, since whoever
// timed out cannot tell what the other side has done and Kafka's senders start over as well.
func (c *ClientConn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	frame, err := c.roundTrip(ctx, req)
	if err != nil || frame == nil {
		return nil, err
	}
	resp := req.ResponseKind()
	// The frame is left to the garbage collector, because the response may alias it.
	if err := c.decode(resp, frame); err != nil {
		return nil, err
	}
	return resp, nil
}

// FetchReply is an answer to Fetch.
type FetchReply struct {
	*kmsg.FetchResponse
	frame *buffer
}

// Release gives back the memory that RecordBatches alias. It is called once, when they are not needed any more.
func (r *FetchReply) Release() {
	r.FetchResponse = nil
	r.frame.release()
}

// Fetch is Request for a Fetch request whose answer's RecordBatches alias pooled memory, until its Release.
func (c *ClientConn) Fetch(ctx context.Context, req *kmsg.FetchRequest) (*FetchReply, error) {
	frame, err := c.roundTrip(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	if err := c.decode(resp, frame); err != nil {
		frame.release()
		return nil, err
	}
	return &FetchReply{FetchResponse: resp, frame: frame}, nil
}

// VersionRange is a range of versions a broker serves.
type VersionRange struct{ Min, Max int16 }

// Versions are the ranges a broker serves, by API key.
type Versions map[int16]VersionRange

// Pick returns the highest version of key that the broker serves and that is at most wantMax.
func (v Versions) Pick(key, wantMax int16) (int16, bool) {
	r, ok := v[key]
	version := min(r.Max, wantMax)
	return version, ok && version >= r.Min
}

// NegotiateVersions asks which versions the broker serves, falling back to the version it can be asked in (KIP-511).
func (c *ClientConn) NegotiateVersions(ctx context.Context) (Versions, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = c.cfg.Software[0], c.cfg.Software[1]
	req.Version = apiVersionsMax
	for {
		resp, err := c.apiVersions(ctx, req)
		if err != nil {
			return nil, err
		}
		versions := Versions{}
		for _, k := range resp.ApiKeys {
			versions[k.ApiKey] = VersionRange{k.MinVersion, k.MaxVersion}
		}
		switch code := cluster.ErrorCode(resp.ErrorCode); {
		case code == cluster.None:
			return versions, nil
		case code == cluster.UnsupportedVersion && req.Version > 0:
			// Brokers before KIP-511 do not tell the range: 0 is what they all serve.
			lower, _ := versions.Pick(keyAPIVersions, req.Version-1)
			req.Version = max(lower, 0)
		default:
			return nil, fmt.Errorf("api versions of %s: %v", c.addr, code)
		}
	}
}

// apiVersions sends one ApiVersions request. An answer with UNSUPPORTED_VERSION is encoded in version 0, whatever
// the request's.
func (c *ClientConn) apiVersions(ctx context.Context, req *kmsg.ApiVersionsRequest) (*kmsg.ApiVersionsResponse, error) {
	frame, err := c.roundTrip(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if b := frame.b[4:]; len(b) >= 2 && cluster.ErrorCode(binary.BigEndian.Uint16(b)) == cluster.UnsupportedVersion {
		resp.Version = 0
	}
	return resp, c.decode(resp, frame)
}

// decode decodes an answer; an answer that cannot be decoded breaks the connection.
func (c *ClientConn) decode(resp kmsg.Response, frame *buffer) error {
	body := frame.b[4:]
	err := error(nil)
	if flexibleResponseHeader(resp) {
		r := reader{b: body}
		r.skipTags()
		body = r.b
		if r.bad {
			err = fmt.Errorf("%w: response header: %w", ErrMalformed, errShort)
		}
	}
	if err == nil {
		err = DecodeResponseBody(resp, body)
	}
	if err != nil {
		c.fail(err)
		return fmt.Errorf("answer of %s: %w", c.addr, err)
	}
	return nil
}

// roundTrip sends req and returns the frame of its answer, nil if it has none.
func (c *ClientConn) roundTrip(ctx context.Context, req kmsg.Request) (*buffer, error) {
	stop := context.AfterFunc(ctx, func() { c.fail(ctx.Err()) })
	defer stop()
	cl, err := c.send(ctx, req)
	if err == nil && cl == nil {
		return nil, nil
	}
	if err == nil {
		var frame *buffer
		if frame, err = c.await(cl); err == nil {
			return frame, nil
		}
	}
	return nil, fmt.Errorf("%s v%d to %s: %w", APIName(req.Key()), req.GetVersion(), c.addr, err)
}

// await waits for the frame of an answer.
func (c *ClientConn) await(cl *call) (*buffer, error) {
	select {
	case frame := <-cl.reply:
		return frame, nil
	case <-c.done:
	}
	select {
	case frame := <-cl.reply: // it arrived just before the connection broke
		return frame, nil
	default:
		return nil, c.Err()
	}
}

// send writes req when it is its turn and registers the call for its answer; nil if it has none.
func (c *ClientConn) send(ctx context.Context, req kmsg.Request) (*call, error) {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-c.done:
		return nil, c.Err()
	}
	if !c.renew.IsZero() && time.Now().After(c.renew) {
		if err := c.login(ctx); err != nil {
			return nil, fmt.Errorf("log in again: %w", err)
		}
	}
	return c.write(ctx, req)
}

// write writes req for whoever holds the token.
func (c *ClientConn) write(ctx context.Context, req kmsg.Request) (*call, error) {
	out := getBuffer(512)
	defer out.release()
	out.b = AppendRequest(out.b, req, 0, &c.cfg.ClientID)
	p, isProduce := req.(*kmsg.ProduceRequest)
	cl, err := c.register(!isProduce || p.Acks != 0)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(out.b[8:], uint32(cl.id))
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.nc.SetWriteDeadline(deadline)
	}
	if _, err := c.nc.Write(out.b); err != nil {
		c.fail(err)
		return nil, c.Err()
	}
	if cl.reply == nil {
		return nil, nil
	}
	return cl, nil
}

// register gives out the next correlation id; an answer is awaited for it if there will be one.
func (c *ClientConn) register(answered bool) (*call, error) {
	cl := &call{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return nil, c.mu.err
	}
	cl.id = c.mu.nextID
	c.mu.nextID = (c.mu.nextID + 1) & 0x7fffffff
	if answered {
		cl.reply = make(chan *buffer, 1)
		c.mu.pending = append(c.mu.pending, cl)
	}
	return cl, nil
}

// take removes the call that the next answer belongs to.
func (c *ClientConn) take(id int32) (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.pending) == 0 || c.mu.pending[0].id != id {
		return nil, fmt.Errorf("%w: answer to correlation id %d, which is not next", ErrMalformed, id)
	}
	cl := c.mu.pending[0]
	c.mu.pending = c.mu.pending[1:]
	return cl, nil
}

// read hands out answers until the connection is dead.
func (c *ClientConn) read() {
	in := bufio.NewReader(c.nc)
	trusted := trustedStart
	for {
		frame, err := c.readAnswer(in, trusted)
		if err != nil {
			c.fail(err)
			return
		}
		trusted = max(trusted, min(len(frame.b), trustedMax))
		cl, err := c.take(int32(binary.BigEndian.Uint32(frame.b)))
		if err != nil {
			frame.release()
			c.fail(err)
			return
		}
		cl.reply <- frame
	}
}

func (c *ClientConn) readAnswer(in *bufio.Reader, trusted int) (*buffer, error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.BigEndian.Uint32(length[:])))
	if n < 4 || n > c.cfg.ResponseMaxBytes {
		return nil, fmt.Errorf("%w: answer of %d bytes", ErrMalformed, n)
	}
	frame, err := readFrame(in, n, trusted)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return frame, err
}

// fail makes the connection dead; the first reason stays.
func (c *ClientConn) fail(err error) {
	c.closed.Do(func() {
		c.mu.Lock()
		c.mu.err = err
		c.mu.Unlock()
		_ = c.nc.Close()
		close(c.done)
	})
}
