package sasl

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"unicode/utf8"

	"klamm/internal/wire"
)

// plainExchange is PLAIN (RFC 4616): authorization id, name and password in one token, parted by zero bytes.
type plainExchange struct{ passwords map[string]string }

var errPlain = errors.New("unknown user or wrong password")

// Step implements wire.Exchange.
func (e *plainExchange) Step(token []byte) ([]byte, *wire.Identity, error) {
	parts := bytes.Split(token, []byte{0})
	if len(parts) != 3 || len(parts[1]) == 0 || len(parts[2]) == 0 || !utf8.Valid(token) {
		return nil, nil, &Refusal{"Authentication failed: malformed PLAIN token", errors.New("want authorization id, name and password")}
	}
	authzid, name, password := string(parts[0]), string(parts[1]), parts[2]
	want, known := e.passwords[name]
	// Hashes have one length, so the comparison tells nothing of the password's; it is made for unknown users, too.
	wanted, got := sha256.Sum256([]byte(want)), sha256.Sum256(password)
	fits := subtle.ConstantTimeCompare(wanted[:], got[:]) == 1
	if !known || !fits {
		return nil, nil, &Refusal{"Authentication failed: Invalid username or password", fmt.Errorf("user %q: %w", name, errPlain)}
	}
	if authzid != "" && authzid != name { // CVE-2017-12610
		return nil, nil, &Refusal{"Authentication failed: Client requested an authorization id that is different from username",
			fmt.Errorf("user %q asked to be %q", name, authzid)}
	}
	return nil, &wire.Identity{Principal: userPrincipal(name)}, nil
}

// plainToken is the client's one token.
func plainToken(user, password string) []byte { return []byte("\x00" + user + "\x00" + password) }
