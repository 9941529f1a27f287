package sasl

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/scram"
)

// Versions that every broker from 2.2 on serves; v1 of SaslAuthenticate tells how long the session lasts.
const (
	handshakeVersion    = 1
	authenticateVersion = 1
)

// Login gives wire's client the way to log in to other brokers.
func Login(mechanism, user, password string) func(roundTrip func(kmsg.Request) (kmsg.Response, error)) (time.Duration, error) {
	return func(roundTrip func(kmsg.Request) (kmsg.Response, error)) (time.Duration, error) {
		shake := kmsg.NewPtrSASLHandshakeRequest()
		shake.Version, shake.Mechanism = handshakeVersion, mechanism
		got, err := roundTrip(shake)
		if err != nil {
			return 0, err
		}
		if resp := got.(*kmsg.SASLHandshakeResponse); resp.ErrorCode != 0 {
			return 0, fmt.Errorf("mechanism %s: %v; the other broker offers %v", mechanism, cluster.ErrorCode(resp.ErrorCode), resp.SupportedMechanisms)
		}
		step := func([]byte) ([]byte, bool, error) { return plainToken(user, password), true, nil }
		if m, ok := scram.ByName(mechanism); ok {
			step = m.NewClient(user, password).Step
		}
		return exchange(mechanism, user, step, roundTrip)
	}
}

// exchange sends the client's tokens until it has none. PLAIN is done with its only token, SCRAM when the server has shown
// its signature.
func exchange(mechanism, user string, step func([]byte) ([]byte, bool, error), roundTrip func(kmsg.Request) (kmsg.Response, error)) (time.Duration, error) {
	var challenge []byte
	var lifetime time.Duration
	for {
		token, done, err := step(challenge)
		if err != nil {
			return 0, fmt.Errorf("%s as %s: %w", mechanism, user, err)
		}
		if done && token == nil {
			return lifetime, nil
		}
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = authenticateVersion, token
		got, err := roundTrip(req)
		if err != nil {
			return 0, err
		}
		resp := got.(*kmsg.SASLAuthenticateResponse)
		if resp.ErrorCode != 0 {
			text := ""
			if resp.ErrorMessage != nil {
				text = ": " + *resp.ErrorMessage
			}
			return 0, fmt.Errorf("%s as %s: %v%s", mechanism, user, cluster.ErrorCode(resp.ErrorCode), text)
		}
		challenge, lifetime = resp.SASLAuthBytes, time.Duration(resp.SessionLifetimeMillis)*time.Millisecond
		if done {
			return lifetime, nil
		}
	}
}
