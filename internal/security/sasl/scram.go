package sasl

import (
	"fmt"
	"time"

	"klamm/internal/security/scram"
	"klamm/internal/wire"
)

// scramExchange is SCRAM, with a user's password or with a delegation token's secret.
type scramExchange struct {
	m      *scram.Mechanism
	server *scram.Server
	token  Token // when the client authenticates with one
}

func newScramExchange(m *scram.Mechanism, o *Options, pepper []byte) *scramExchange {
	e := &scramExchange{m: m}
	e.server = m.NewServer(func(user string, token bool) (scram.Credential, bool) {
		if !token {
			return o.Users(m, user)
		}
		if o.Tokens == nil {
			return scram.Credential{}, false
		}
		t, ok := o.Tokens(m, user)
		e.token = t
		return t.Credential, ok
	}, pepper)
	return e
}

// Step implements wire.Exchange.
func (e *scramExchange) Step(token []byte) ([]byte, *wire.Identity, error) {
	answer, done, err := e.server.Step(token)
	user, byToken := e.server.User()
	switch {
	case err != nil:
		return nil, nil, &Refusal{"Authentication failed during authentication due to invalid credentials with SASL mechanism " + e.m.Name,
			fmt.Errorf("user %q: %w", user, err)}
	case !done:
		return answer, nil, nil
	case byToken:
		if !e.token.Expires.After(time.Now()) {
			return nil, nil, &Refusal{"Authentication failed: the delegation token is expired", fmt.Errorf("token %q", user)}
		}
		return answer, &wire.Identity{Principal: e.token.Owner, Token: true, Expires: e.token.Expires}, nil
	}
	return answer, &wire.Identity{Principal: userPrincipal(user)}, nil
}
