// Package sasl connects the mechanisms to wire: what a listener's clients authenticate by, and how this broker logs in to
// others (Kafka: SaslServerAuthenticator, SaslClientAuthenticator, PlainSaslServer, ScramSaslServer).
//
// It knows users only through the functions of Options. Nothing a client can measure tells whether a user exists.
package sasl

import (
	"crypto/rand"
	"time"

	"klamm/internal/security/scram"
	"klamm/internal/wire"
)

// Mechanisms that are supported.
const (
	Plain = "PLAIN"
)

// Token is a delegation token as an authentication needs it.
type Token struct {
	Owner      string // principal
	Credential scram.Credential
	Expires    time.Time
}

// Options is what a listener's authentication is built of.
type Options struct {
	Mechanisms []string
	// Passwords are the users of PLAIN, by name.
	Passwords map[string]string
	// Users finds the SCRAM credential of a user.
	Users func(m *scram.Mechanism, user string) (scram.Credential, bool)
	// Tokens finds a delegation token by its id; nil where tokens are off.
	Tokens       func(m *scram.Mechanism, id string) (Token, bool)
	ReauthMax    map[string]time.Duration // by mechanism; 0 for no limit
	FailureDelay time.Duration
}

// NewServer makes the authentication of a listener.
func NewServer(o Options) *wire.SASL {
	pepper := make([]byte, 32)
	_, _ = rand.Read(pepper) // never fails
	return &wire.SASL{
		Mechanisms: o.Mechanisms,
		Begin: func(mechanism string) wire.Exchange {
			if m, ok := scram.ByName(mechanism); ok {
				return newScramExchange(m, &o, pepper)
			}
			return &plainExchange{passwords: o.Passwords}
		},
		ReauthMax:    func(mechanism string) time.Duration { return o.ReauthMax[mechanism] },
		FailureDelay: o.FailureDelay,
	}
}

// Refusal is the end of an authentication: a text for the client, and for the log what was wrong.
type Refusal struct {
	Text  string
	Cause error
}

// Error gives the text for the client.
func (r *Refusal) Error() string { return r.Text }

// Unwrap gives what was wrong.
func (r *Refusal) Unwrap() error { return r.Cause }

// userPrincipal is the principal of a user's name.
func userPrincipal(name string) string { return "User:" + name }
