package wire

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Handler gets the requests of a connection in order, on the connection's reader goroutine. It must not wait for
// acks, data or stores there: it returns, and the request is answered later from any goroutine. ctx ends when the
// connection is gone. A panic closes the connection and nothing else.
//
// ApiVersions requests and those of SASL are answered by the server and never get here, nor does a request the API table excludes.
type Handler interface {
	Handle(ctx context.Context, r *Request)
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, r *Request)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Request) { f(ctx, r) }

// Response is what Respond takes: any kmsg.Response, or a *FetchResponse.
type Response interface {
	Key() int16
	SetVersion(int16)
	IsFlexible() bool
}

// Request is a decoded request that waits for its answer.
type Request struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string // empty when the client sent null
	Conn          *Conn
	// Msg has its version set. Its strings are copies. The Records of a Produce request alias a pooled frame and
	// are valid until Respond or Close; the byte slices of all other requests may be kept. UnknownTags must not be read.
	Msg      kmsg.Request
	Received time.Time // when the frame had arrived
	Size     int       // bytes of the frame without its length
	// Exempt requests are not charged for the time they take. Handlers set it before they answer, for followers' fetches
	// and what has no answer; requests between brokers are exempt in any case.
	Exempt bool

	busy     busyTime
	cost     int     // what it counts against Limits.InFlightBytes
	frame    *buffer // nil once released, or when the message does not need it
	answered atomic.Bool
	answer   answer // owned by the one who answers, then guarded by Conn.mu, then owned by the writer
	ready    bool   // guarded by Conn.mu: answer is set
}

// answer is what the writer sends for a request; at most one of its forms is set, none for "no answer".
type answer struct {
	encoded    *buffer
	fetch      *fetchFrame
	unprepared *FetchResponse // the writer makes it fetch
	closing    bool           // close the connection here

	correlationID int32 // of unprepared
}

// prepare encodes a fetch answer that has to be prepared first.
func (a *answer) prepare() {
	resp := a.unprepared
	resp.Prepare(resp)
	a.fetch = resp.mustEncode(a.correlationID)
	a.unprepared = nil
}

func (a *answer) release() {
	if a.encoded != nil {
		a.encoded.release()
	}
	if a.fetch != nil {
		a.fetch.release()
	}
	if a.unprepared != nil {
		a.unprepared.Release()
	}
	*a = answer{}
}

// Respond answers the request, exactly once, from any goroutine. It never waits for the network. A nil resp
// sends nothing (acks=0) and still lets the answers behind it go.
//
// The version of resp is set from the request, and tagged fields unknown to it are reset. A kmsg.Response is
// encoded before Respond returns and must not be in use elsewhere meanwhile; the sources of a *FetchResponse belong to
// the connection from then on, also when it is gone.
//
// A throttle above zero is put into the answer where it has such a field; the answer leaves at once and nothing
// more is taken from the connection for that long (KIP-219).
func (r *Request) Respond(resp Response, throttle time.Duration) {
	if !r.claim() {
		if f, ok := resp.(*FetchResponse); ok {
			f.Release()
		}
		return
	}
	if throttle = max(throttle, r.ChargeTime()); throttle > 0 {
		r.Conn.mute(throttle)
	}
	r.finish(r.encode(resp, throttle))
}

// Close answers by closing the connection, after the answers to earlier requests have left. The reason, a constant, is logged
// with the cause; the latter may be nil.
// It takes the place of Respond: for violations of the protocol, and for acks=0 where Kafka closes to report an error.
func (r *Request) Close(reason string, cause error) {
	if !r.claim() {
		return
	}
	if r.Conn.ctx.Err() == nil { // else the client has gone before, and nobody is to blame
		r.Conn.srv.stats.keys[r.Key].Failed.Add(1)
		r.Conn.logClose(reason, cause, r.Key, r.Version, r.ClientID)
	}
	r.finish(answer{closing: true})
}

// claim makes the caller the one who answers. A second answer is a fault of the program that the client must not
// mistake for another request's: the connection is closed.
func (r *Request) claim() bool {
	if r.answered.CompareAndSwap(false, true) {
		return true
	}
	r.Conn.srv.log.Error("request answered twice", "api", APIName(r.Key), "version", r.Version,
		"correlation", r.CorrelationID, "client", r.ClientID, "stack", string(debug.Stack()))
	r.Conn.close()
	return false
}

// encode makes resp an answer. A response that cannot be encoded closes the connection.
func (r *Request) encode(resp Response, throttle time.Duration) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			r.Conn.logPanic(p, r)
			a.release()
			if f, ok := resp.(*FetchResponse); ok {
				f.Release()
			}
			a = answer{closing: true}
		}
	}()
	if resp == nil || reflect.ValueOf(resp).IsNil() {
		return answer{}
	}
	if resp.Key() != r.Key {
		panic(fmt.Sprintf("wire: answer of %s to %s", APIName(resp.Key()), APIName(r.Key)))
	}
	resp.SetVersion(r.Version)
	if t, ok := resp.(kmsg.SetThrottleResponse); ok && throttle > 0 {
		t.SetThrottle(int32(min(throttle.Milliseconds(), math.MaxInt32)))
	}
	switch resp := resp.(type) {
	case *FetchResponse:
		if resp.Prepare != nil {
			return answer{unprepared: resp, correlationID: r.CorrelationID}
		}
		return answer{fetch: resp.mustEncode(r.CorrelationID)}
	case kmsg.Response:
		return answer{encoded: encodeResponse(resp, r.CorrelationID)}
	default:
		panic(fmt.Sprintf("wire: %T is not a response", resp))
	}
}

// encodeResponse encodes a whole frame into a pooled buffer.
func encodeResponse(resp kmsg.Response, correlationID int32) *buffer {
	buf := getBuffer(512)
	buf.b = AppendResponse(buf.b, resp, correlationID)
	if size := uint64(len(buf.b) - 4); size > math.MaxInt32 {
		panic(fmt.Sprintf("wire: %s answer of %d bytes", APIName(resp.Key()), size))
	}
	return buf
}

// finish gives the frame back and hands the answer to the connection.
func (r *Request) finish(a answer) {
	if r.frame != nil {
		r.frame.release()
		r.frame = nil
	}
	k := &r.Conn.srv.stats.keys[r.Key]
	k.Answers.Add(1)
	k.TimeNanos.Add(int64(time.Since(r.Received)))
	r.Conn.answered(r, a)
}

// newRequest decodes the message of a frame and takes over its buffer. On an error the caller keeps it.
func newRequest(h header, body []byte, msg kmsg.Request, frame *buffer) (*Request, error) {
	if msg.Key() != keyProduce && hasByteFields[msg.Key()] {
		// Coordinators keep member metadata and the like for as long as they please: it gets memory of its own.
		body = append([]byte(nil), body...)
	}
	if err := DecodeRequestBody(msg, body); err != nil {
		return nil, err
	}
	r := &Request{Key: h.key, Version: h.version, CorrelationID: h.correlationID, ClientID: h.clientID, Msg: msg, Size: len(frame.b)}
	if h.key == keyProduce {
		r.frame, r.cost = frame, r.Size
	} else {
		frame.release()
		r.cost = structureCost * r.Size
	}
	return r, nil
}

// hasByteFields tells which requests have byte slices anywhere, which kmsg makes alias what it decodes.
var hasByteFields = func() (has [kmsg.MaxKey + 1]bool) {
	for key := range has {
		if req := kmsg.RequestForKey(int16(key)); req != nil {
			has[key] = holdsBytes(reflect.TypeOf(req).Elem())
		}
	}
	return has
}()

func holdsBytes(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8 || holdsBytes(t.Elem())
	case reflect.Pointer:
		return holdsBytes(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).Type != reflect.TypeFor[kmsg.Tags]() && holdsBytes(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
