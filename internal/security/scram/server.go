package scram

import (
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrRefused reports that a client does not know the password, or that there is no such user: the two must look alike.
var ErrRefused = errors.New("invalid credentials")

// Lookup finds the credential of a user; token tells that the name is the id of a delegation token (KIP-48). Where there is
// none it gives false, and the exchange goes on with a stand-in until its last step; that looks like the
// credential given beside false, which should have the salt and iterations of another user, since a client sees them.
type Lookup func(user string, token bool) (Credential, bool)

// Server is the server's side of one exchange. It is used by one goroutine.
type Server struct {
	m      *Mechanism
	lookup Lookup
	pepper []byte // makes stand-ins the same for each try of a name

	step        int
	user        string
	token       bool
	known       bool
	credential  Credential
	nonce       string
	gs2         string
	firstBare   string
	serverFirst string
}

// NewServer starts an exchange. The pepper is a secret of the process: of it the salts are made that unknown users get.
func (m *Mechanism) NewServer(lookup Lookup, pepper []byte) *Server {
	return &Server{m: m, lookup: lookup, pepper: pepper}
}

// User is who the client is, or claims to be until the exchange is done. Token tells that it is a delegation token's id.
func (s *Server) User() (name string, token bool) { return s.user, s.token }

// Step takes the client's next message and gives the answer. done is true when the client has proved to be User. An error
// ends the exchange: ErrRefused, or what is wrong with the message.
func (s *Server) Step(message []byte) (answer []byte, done bool, err error) {
	s.step++
	switch s.step {
	case 1:
		answer, err = s.first(string(message))
		return answer, false, err
	case 2:
		answer, err = s.final(string(message))
		return answer, err == nil, err
	}
	return nil, false, errors.New("the exchange is over")
}

// first takes "n,[a=authzid],n=user,r=nonce[,extensions]".
func (s *Server) first(message string) ([]byte, error) {
	parts := strings.SplitN(message, ",", 3)
	if len(parts) != 3 || parts[0] != "n" {
		return nil, errors.New("malformed first message: channel binding is not supported")
	}
	s.gs2, s.firstBare = parts[0]+","+parts[1]+",", parts[2]
	fields, err := attributes(parts[2])
	if err != nil {
		return nil, fmt.Errorf("malformed first message: %w", err)
	}
	if len(fields) < 2 || fields[0][0] != "n" || fields[1][0] != "r" || fields[1][1] == "" {
		return nil, errors.New("malformed first message: it must begin with name and nonce")
	}
	if s.user, err = plainName(fields[0][1]); err != nil || s.user == "" {
		return nil, errors.New("malformed first message: no user name")
	}
	for _, f := range fields[2:] {
		// Kafka: ScramExtensions; an unknown extension is passed over.
		s.token = s.token || f[0] == "tokenauth" && strings.EqualFold(f[1], "true")
	}
	if authzid, ok := strings.CutPrefix(parts[1], "a="); parts[1] != "" {
		name, err := plainName(authzid)
		// A client may not act for someone else (CVE-2017-12610).
		if !ok || err != nil || name != s.user {
			return nil, errors.New("the authorization id must be the user name")
		}
	}
	if s.credential, s.known = s.lookup(s.user, s.token); !s.known {
		s.credential = s.standIn(s.credential)
	}
	s.nonce = fields[1][1] + newNonce()
	s.serverFirst = "r=" + s.nonce + ",s=" + base64.StdEncoding.EncodeToString(s.credential.Salt) + ",i=" + strconv.Itoa(s.credential.Iterations)
	return []byte(s.serverFirst), nil
}

// standIn is the credential of a user that does not exist: no password fits, and what a client sees of it, the salt, always
// the same for the name, and the iterations, looks like that of the sample.
func (s *Server) standIn(sample Credential) Credential {
	salt := s.m.hmac(s.pepper, []byte(s.user))
	if n := len(sample.Salt); n > 0 && n < len(salt) {
		salt = salt[:n]
	}
	if base36(sample.Salt) {
		for i := range salt {
			salt[i] = base36Digits[salt[i]%36]
		}
	}
	size := s.m.new().Size()
	return Credential{Salt: salt, StoredKey: make([]byte, size), ServerKey: make([]byte, size), Iterations: max(sample.Iterations, s.m.MinIterations)}
}

// base36 tells whether a salt is of the kind that Kafka's tools make, a number in text.
func base36(salt []byte) bool {
	for _, b := range salt {
		if strings.IndexByte(base36Digits, b) < 0 {
			return false
		}
	}
	return len(salt) > 0
}

const base36Digits = "0123456789abcdefghijklmnopqrstuvwxyz"

// final takes "c=binding,r=nonce[,extensions],p=proof".
func (s *Server) final(message string) ([]byte, error) {
	cut := strings.LastIndex(message, ",p=")
	if cut < 0 {
		return nil, errors.New("malformed final message: no proof")
	}
	withoutProof := message[:cut]
	proof, err := base64.StdEncoding.DecodeString(message[cut+3:])
	if err != nil || len(proof) != s.m.new().Size() {
		return nil, errors.New("malformed final message: the proof has not the hash's length")
	}
	fields, err := attributes(withoutProof)
	if err != nil {
		return nil, fmt.Errorf("malformed final message: %w", err)
	}
	if len(fields) < 2 || fields[0][0] != "c" || fields[1][0] != "r" {
		return nil, errors.New("malformed final message: it must begin with channel binding and nonce")
	}
	if fields[0][1] != base64.StdEncoding.EncodeToString([]byte(s.gs2)) {
		return nil, errors.New("channel binding differs from the first message's")
	}
	if !hmac.Equal([]byte(fields[1][1]), []byte(s.nonce)) { // CVE-2024-56128
		return nil, errors.New("nonce differs from the one that was given")
	}
	auth := []byte(s.firstBare + "," + s.serverFirst + "," + withoutProof)
	clientKey := xor(proof, s.m.hmac(s.credential.StoredKey, auth))
	fits := hmac.Equal(s.m.hash(clientKey), s.credential.StoredKey)
	signature := s.m.hmac(s.credential.ServerKey, auth)
	if !fits || !s.known {
		return nil, ErrRefused
	}
	return []byte("v=" + base64.StdEncoding.EncodeToString(signature)), nil
}
