// Package scram is SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) as Kafka speaks it: both sides of the exchange,
// without IO and without channel binding, and the text form in which credentials are kept (Kafka: ScramSaslServer.java,
// ScramFormatter.java, ScramCredentialUtils.java; KIP-84).
//
// Kafka does not prepare names and passwords (SASLprep, which common libraries apply): a non-ASCII password would have
// another key. Comparisons of secrets take the same time whatever differs, and a user that does not exist goes through the
// same steps as one that does (CVE-2021-38153).
package scram

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// Mechanism is a SASL mechanism of this family.
type Mechanism struct {
	Name          string
	Code          int8 // in the protocol's SCRAM credential requests
	MinIterations int
	new           func() hash.Hash
}

// The mechanisms.
var (
	SHA256 = &Mechanism{"SCRAM-SHA-256", 1, 4096, sha256.New}
	SHA512 = &Mechanism{"SCRAM-SHA-512", 2, 4096, sha512.New}
)

// MaxIterations is Kafka's bound on what a credential may ask of a client.
const MaxIterations = 16384

// Mechanisms lists them by code.
func Mechanisms() []*Mechanism { return []*Mechanism{SHA256, SHA512} }

// ByName finds a mechanism.
func ByName(name string) (*Mechanism, bool) {
	for _, m := range Mechanisms() {
		if m.Name == name {
			return m, true
		}
	}
	return nil, false
}

// ByCode finds a mechanism.
func ByCode(code int8) (*Mechanism, bool) {
	for _, m := range Mechanisms() {
		if m.Code == code {
			return m, true
		}
	}
	return nil, false
}

func (m *Mechanism) hash(b []byte) []byte {
	h := m.new()
	h.Write(b)
	return h.Sum(nil)
}

func (m *Mechanism) hmac(key, message []byte) []byte {
	h := hmac.New(m.new, key)
	h.Write(message)
	return h.Sum(nil)
}

// Salted derives the salted password, the one costly step.
func (m *Mechanism) Salted(password string, salt []byte, iterations int) []byte {
	key, err := pbkdf2.Key(m.new, password, salt, iterations, m.new().Size())
	if err != nil {
		panic("scram: " + err.Error()) // only for lengths that no hash has
	}
	return key
}

// Credential is what a server keeps of a user's password.
type Credential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int
}

// FromSalted makes the credential that belongs to a salted password.
func (m *Mechanism) FromSalted(salted, salt []byte, iterations int) Credential {
	return Credential{
		Salt: salt, Iterations: iterations,
		StoredKey: m.hash(m.hmac(salted, []byte("Client Key"))),
		ServerKey: m.hmac(salted, []byte("Server Key")),
	}
}

// NewCredential makes one with a random salt.
func (m *Mechanism) NewCredential(password string, iterations int) Credential {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return m.FromSalted(m.Salted(password, salt, iterations), salt, iterations)
}

// String gives the form that nodes have: salt=...,stored_key=...,server_key=...,iterations=n.
func (c Credential) String() string {
	e := base64.StdEncoding.EncodeToString
	return "salt=" + e(c.Salt) + ",stored_key=" + e(c.StoredKey) + ",server_key=" + e(c.ServerKey) + ",iterations=" + strconv.Itoa(c.Iterations)
}

// ParseCredential reads what String writes.
func (m *Mechanism) ParseCredential(text string) (Credential, error) {
	fields := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		k, v, _ := strings.Cut(part, "=")
		fields[k] = v
	}
	var c Credential
	var errs []error
	decode := func(key string) []byte {
		b, err := base64.StdEncoding.DecodeString(fields[key])
		if err != nil || len(b) == 0 {
			errs = append(errs, fmt.Errorf("no base64 in %s", key))
		}
		return b
	}
	c.Salt, c.StoredKey, c.ServerKey = decode("salt"), decode("stored_key"), decode("server_key")
	var err error
	if c.Iterations, err = strconv.Atoi(fields["iterations"]); err != nil || c.Iterations < m.MinIterations {
		errs = append(errs, fmt.Errorf("iterations must be %d or more", m.MinIterations))
	}
	if size := m.new().Size(); len(errs) == 0 && (len(c.StoredKey) != size || len(c.ServerKey) != size) {
		errs = append(errs, fmt.Errorf("keys must have %d bytes", size))
	}
	if len(errs) > 0 {
		return Credential{}, fmt.Errorf("credential of %s: %w", m.Name, errors.Join(errs...))
	}
	return c, nil
}

// newNonce is printable and has no comma.
func newNonce() string { return rand.Text() }

// saslName escapes a name for a message; plainName is its inverse.
func saslName(name string) string {
	return strings.NewReplacer("=", "=3D", ",", "=2C").Replace(name)
}

func plainName(s string) (string, error) {
	out := strings.ReplaceAll(s, "=2C", ",")
	if strings.Contains(strings.ReplaceAll(out, "=3D", ""), "=") {
		return "", errors.New("name has an = that is not escaped")
	}
	return strings.ReplaceAll(out, "=3D", "="), nil
}

func xor(a, b []byte) []byte {
	out := make([]byte, len(a))
	for i := range a {
		out[i] = a[i] ^ b[i]
	}
	return out
}

// attributes reads "a=1,b=2" into its parts, in order.
func attributes(message string) ([][2]string, error) {
	var out [][2]string
	for part := range strings.SplitSeq(message, ",") {
		k, v, ok := strings.Cut(part, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%q is no attribute", part)
		}
		out = append(out, [2]string{k, v})
	}
	return out, nil
}
