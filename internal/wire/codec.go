package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrMalformed is wrapped by every decoding error.
var ErrMalformed = errors.New("malformed message")

// AppendRequestBody appends req in its version, without a header. Tagged fields its version does not know are
// reset to their defaults in req.
func AppendRequestBody(dst []byte, req kmsg.Request) []byte {
	fitRequest(req)
	start := len(dst)
	dst = req.AppendTo(dst)
	if isStopReplicaV4(req) {
		swapStopReplicaV4(dst[start:], false)
	}
	return dst
}

// AppendResponseBody appends resp in its version, without a header. Tagged fields its version does not know are
// reset to their defaults in resp.
func AppendResponseBody(dst []byte, resp kmsg.Response) []byte {
	fitResponse(resp)
	return resp.AppendTo(dst)
}

// DecodeRequestBody decodes a body in the version set in req. Byte slices of req alias body, strings do not. What
// it allocates is bounded by the bytes that are there, whatever lengths they claim.
func DecodeRequestBody(req kmsg.Request, body []byte) error {
	var err error
	switch {
	case req.Key() == keyProduce:
		err = decodeProduce(req.(*kmsg.ProduceRequest), body)
	case isStopReplicaV4(req):
		if len(body) < stopReplicaV4Prefix {
			err = errShort
			break
		}
		// The body may be shared: a copy of the head is swapped, not the body itself.
		fixed := append([]byte(nil), body...)
		swapStopReplicaV4(fixed, true)
		err = req.ReadFrom(fixed)
	default:
		err = req.ReadFrom(body)
	}
	if err != nil {
		return fmt.Errorf("%w: %s v%d request: %w", ErrMalformed, APIName(req.Key()), req.GetVersion(), err)
	}
	return nil
}

// DecodeResponseBody decodes a body in the version set in resp. Byte slices of resp alias body, strings do not.
func DecodeResponseBody(resp kmsg.Response, body []byte) error {
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %s v%d response: %w", ErrMalformed, APIName(resp.Key()), resp.GetVersion(), err)
	}
	return nil
}

// AppendRequest appends a whole request frame: length, header, body. A nil clientID is sent as null.
func AppendRequest(dst []byte, req kmsg.Request, correlationID int32, clientID *string) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if !bareHeader(req.Key(), req.GetVersion()) {
		// Kafka: the client id is never compact, so that any broker can read the header (RequestHeader.json).
		dst = appendString(dst, clientID, false)
		if req.IsFlexible() {
			dst = append(dst, 0)
		}
	}
	dst = AppendRequestBody(dst, req)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// AppendResponse appends a whole response frame: length, header, body.
func AppendResponse(dst []byte, resp kmsg.Response, correlationID int32) []byte {
	start := len(dst)
	dst = appendResponseHeader(dst, correlationID, flexibleResponseHeader(resp))
	dst = AppendResponseBody(dst, resp)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// appendResponseHeader appends room for the length and the header.
func appendResponseHeader(dst []byte, correlationID int32, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// flexibleResponseHeader reports whether resp has response header v1. ApiVersions never has, so that a client can
// read the answer before it knows the broker (KIP-511).
func flexibleResponseHeader(resp interface {
	Key() int16
	IsFlexible() bool
}) bool {
	return resp.IsFlexible() && resp.Key() != keyAPIVersions
}

// bareHeader reports the requests with header v0, which has no client id: ControlledShutdown v0 alone.
func bareHeader(key, version int16) bool { return key == keyControlledShutdown && version == 0 }

// header is a request header without its tags, which carry nothing klamm knows.
type header struct {
	key, version  int16
	correlationID int32
	clientID      string // "" when null
}

const headerFixedBytes = 8

var errShort = errors.New("not enough bytes")

// parseHeaderStart reads what every header version starts with.
func parseHeaderStart(frame []byte) (header, error) {
	if len(frame) < headerFixedBytes {
		return header{}, fmt.Errorf("%w: header: %w", ErrMalformed, errShort)
	}
	return header{
		key:           int16(binary.BigEndian.Uint16(frame)),
		version:       int16(binary.BigEndian.Uint16(frame[2:])),
		correlationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}, nil
}

// parseHeaderRest reads client id and tags as the header version of h's API demands and returns the body.
func parseHeaderRest(h *header, frame []byte, flexible bool) ([]byte, error) {
	r := reader{b: frame[headerFixedBytes:]}
	if !bareHeader(h.key, h.version) {
		h.clientID = string(r.nullableBytes16())
		if flexible {
			r.skipTags()
		}
	}
	if r.bad {
		return nil, fmt.Errorf("%w: header: %w", ErrMalformed, errShort)
	}
	return r.b, nil
}

// kmsg writes StopReplica v4 with the controller epoch before the IsKRaftController flag; Kafka has them the
// other way round (StopReplicaRequest.json). The prefix is ControllerID (4), then the five bytes to turn.
const stopReplicaV4Prefix = 9

func isStopReplicaV4(req kmsg.Request) bool {
	return req.Key() == keyStopReplica && req.GetVersion() == 4
}

// swapStopReplicaV4 turns the five bytes in place, from Kafka's order to kmsg's or back.
func swapStopReplicaV4(body []byte, toKmsg bool) {
	p := body[4:stopReplicaV4Prefix]
	if toKmsg { // flag, epoch -> epoch, flag
		flag := p[0]
		copy(p, p[1:])
		p[4] = flag
		return
	}
	flag := p[4]
	copy(p[1:], p[:4])
	p[0] = flag
}

// appendString appends a nullable string, compact or not.
func appendString(dst []byte, s *string, compact bool) []byte {
	switch {
	case s == nil && compact:
		return append(dst, 0)
	case s == nil:
		return append(dst, 0xff, 0xff)
	case compact:
		dst = binary.AppendUvarint(dst, uint64(len(*s))+1)
	default:
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(*s)))
	}
	return append(dst, *s...)
}
