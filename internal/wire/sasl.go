package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// Identity is who a client has shown to be.
type Identity struct {
	Principal string    // "Type:name"
	Token     bool      // shown by a delegation token (KIP-48)
	Expires   time.Time // when what it was shown by ends; zero for never
}

// SASL is how the clients of a listener authenticate. It is shared and not changed.
type SASL struct {
	Mechanisms []string
	// Begin starts an exchange of one of the Mechanisms.
	Begin func(mechanism string) Exchange
	// ReauthMax is how long a client of a mechanism may go on without authenticating again (KIP-368); 0 for no limit.
	ReauthMax func(mechanism string) time.Duration
	// FailureDelay is waited before a refusal is told and the connection closed, so that guessing is slow.
	FailureDelay time.Duration
}

// Exchange is the server's side of one authentication, used by the connection's reader alone.
type Exchange interface {
	// Step takes the client's token and gives the server's, with who the client is once that is shown. The text of an
	// error is sent to the client.
	Step(token []byte) (answer []byte, who *Identity, err error)
}

const (
	keySASLHandshake    = 17
	keySASLAuthenticate = 36

	// reauthPause is the shortest time between two authentications of a connection, as Kafka has it.
	reauthPause = time.Second
)

// saslState is where a connection stands. It is the reader's.
type saslState struct {
	mechanism  string
	previous   string   // the mechanism of the first authentication
	exchange   Exchange // nil: none was begun, or it is over
	raw        bool     // tokens come without header, after a handshake of version 0
	sessionEnd time.Time
	beganAgain time.Time
}

// authenticated reports whether the client may send requests: at once where there is no SASL.
func (c *Conn) authenticated() bool { return c.listener.SASL == nil || c.identity.Load() != nil }

// gate refuses what must not come at this point of a connection's life: anything but the authentication itself before it
// is done, and once its time is over.
func (c *Conn) gate(h *header) *violation {
	if c.listener.SASL == nil || h.key == keySASLHandshake || h.key == keySASLAuthenticate {
		return nil
	}
	s := &c.in.sasl
	switch {
	case !c.authenticated():
		if h.key != keyAPIVersions || s.exchange != nil {
			return &violation{reason: "request before authentication", key: h.key, version: h.version}
		}
	case s.exchange != nil:
		return &violation{reason: "request while authenticating again", key: h.key, version: h.version}
	case !s.sessionEnd.IsZero() && time.Now().After(s.sessionEnd):
		return &violation{reason: "session is over: the client did not authenticate again", key: h.key, version: h.version}
	}
	return nil
}

// answerHandshake takes the choice of a mechanism (Kafka: SaslServerAuthenticator.handleHandshakeRequest).
func (c *Conn) answerHandshake(r *Request, req *kmsg.SASLHandshakeRequest) error {
	resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
	sasl, s := c.listener.SASL, &c.in.sasl
	again := sasl != nil && c.authenticated()
	switch {
	case sasl == nil, again && (s.exchange != nil || r.Received.Sub(s.beganAgain) < reauthPause):
		resp.ErrorCode = int16(cluster.IllegalSASLState)
		r.Respond(resp, 0)
		return nil
	case s.exchange != nil, again && req.Version == 0:
		r.Respond(nil, 0)
		return c.saslViolation(r, "handshake out of turn", nil)
	}
	resp.SupportedMechanisms = sasl.Mechanisms
	if !slices.Contains(sasl.Mechanisms, req.Mechanism) {
		resp.ErrorCode = int16(cluster.UnsupportedSASLMechanism)
		return c.refuse(r, resp, fmt.Errorf("mechanism %q is not offered", clip(req.Mechanism)))
	}
	if again {
		s.beganAgain = r.Received
	}
	s.mechanism, s.exchange, s.raw = req.Mechanism, sasl.Begin(req.Mechanism), req.Version == 0
	r.Respond(resp, 0)
	return nil
}

// answerAuthenticate takes a token in a request of its own (KIP-152).
func (c *Conn) answerAuthenticate(r *Request, req *kmsg.SASLAuthenticateRequest) error {
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	s := &c.in.sasl
	if s.exchange == nil {
		if c.authenticated() {
			message := "SaslAuthenticate request received after successful authentication"
			resp.ErrorCode, resp.ErrorMessage = int16(cluster.IllegalSASLState), &message
			r.Respond(resp, 0)
			return nil
		}
		r.Respond(nil, 0)
		return c.saslViolation(r, "authentication without a handshake", nil)
	}
	answer, lifetime, err := c.step(req.SASLAuthBytes)
	if err != nil {
		message := err.Error()
		resp.ErrorCode, resp.ErrorMessage = int16(cluster.SASLAuthenticationFailed), &message
		return c.refuse(r, resp, err)
	}
	resp.SASLAuthBytes, resp.SessionLifetimeMillis = answer, lifetime.Milliseconds()
	r.Respond(resp, 0)
	return nil
}

// takeRaw takes a frame that is nothing but a token, as clients before KIP-152 send it; the answer is one, too.
func (c *Conn) takeRaw(frame *buffer) error {
	r := &Request{Key: keySASLAuthenticate, Conn: c, Received: time.Now(), Size: len(frame.b)}
	token := append([]byte(nil), frame.b...)
	frame.release()
	c.count(r)
	c.enqueue(r)
	reply, _, err := c.step(token)
	r.answered.Store(true)
	if err != nil {
		c.pause(c.listener.SASL.FailureDelay)
		r.finish(answer{}) // a client that sends raw tokens is told nothing
		return c.saslViolation(r, "authentication failed", err)
	}
	out := getBuffer(4 + len(reply))
	out.b = append(binary.BigEndian.AppendUint32(out.b, uint32(len(reply))), reply...)
	r.finish(answer{encoded: out})
	return nil
}

// step hands a token to the exchange and, when that is done, notes who the client is and for how long.
func (c *Conn) step(token []byte) (answer []byte, lifetime time.Duration, err error) {
	s := &c.in.sasl
	answer, who, err := s.exchange.Step(token)
	if err != nil || who == nil {
		return answer, 0, err
	}
	before := c.identity.Load()
	switch {
	case before == nil:
		s.previous = s.mechanism
	case s.mechanism != s.previous:
		return nil, 0, fmt.Errorf("a connection that began with mechanism %s cannot go on with %s", s.previous, s.mechanism)
	case before.Principal != who.Principal:
		return nil, 0, fmt.Errorf("cannot change principals during re-authentication from %s: %s", before.Principal, who.Principal)
	}
	lifetime = c.listener.SASL.ReauthMax(s.mechanism)
	now := time.Now()
	if !who.Expires.IsZero() {
		if left := max(who.Expires.Sub(now), 0); lifetime == 0 || left < lifetime {
			lifetime = left
		}
	}
	s.sessionEnd = time.Time{}
	if lifetime > 0 || !who.Expires.IsZero() {
		s.sessionEnd = now.Add(lifetime)
	}
	s.exchange, s.raw = nil, false
	c.identity.Store(who)
	c.srv.stats.Authenticated.Add(1)
	return answer, lifetime, nil
}

// refuse answers after the delay and ends the connection.
func (c *Conn) refuse(r *Request, resp kmsg.Response, cause error) error {
	c.pause(c.listener.SASL.FailureDelay)
	r.Respond(resp, 0)
	return c.saslViolation(r, "authentication failed", cause)
}

func (c *Conn) saslViolation(r *Request, reason string, cause error) error {
	c.srv.stats.AuthenticationFailed.Add(1)
	if hidden := errors.Unwrap(cause); hidden != nil {
		cause = hidden // what the client is not told
	}
	return &violation{reason: reason, err: cause, key: r.Key, version: r.Version, clientID: r.ClientID}
}

// pause holds the reader up, as long as the connection lives and the server runs.
func (c *Conn) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.ctx.Done():
	case <-c.srv.draining:
	}
}

// clip shortens what a stranger sent for the log.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}
