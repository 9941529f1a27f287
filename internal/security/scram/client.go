package scram

import (
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Client is the client's side of one exchange. It is used by one goroutine.
type Client struct {
	m              *Mechanism
	user, password string
	// Token says, by an extension, that the user is a delegation token's id. It is set before the first Step.
	Token bool

	step      int
	nonce     string
	firstBare string
	signature []byte // that the server must show
}

// NewClient starts an exchange for a user.
func (m *Mechanism) NewClient(user, password string) *Client {
	return &Client{m: m, user: user, password: password, nonce: newNonce()}
}

// Step takes the server's message, nil at first, and gives the next one. done is true when the server, too, has shown that
// it knows the credential; then there is no message.
func (c *Client) Step(message []byte) (answer []byte, done bool, err error) {
	c.step++
	switch c.step {
	case 1:
		c.firstBare = "n=" + saslName(c.user) + ",r=" + c.nonce
		if c.Token {
			c.firstBare += ",tokenauth=true"
		}
		return []byte("n,," + c.firstBare), false, nil
	case 2:
		answer, err = c.final(string(message))
		return answer, false, err
	case 3:
		return nil, true, c.verify(string(message))
	}
	return nil, false, errors.New("the exchange is over")
}

func (c *Client) final(serverFirst string) ([]byte, error) {
	fields, err := attributes(serverFirst)
	if err != nil || len(fields) < 3 || fields[0][0] != "r" || fields[1][0] != "s" || fields[2][0] != "i" {
		return nil, errors.New("malformed answer of the server")
	}
	nonce := fields[0][1]
	if len(nonce) <= len(c.nonce) || !strings.HasPrefix(nonce, c.nonce) {
		return nil, errors.New("the server's nonce does not continue ours")
	}
	salt, err := base64.StdEncoding.DecodeString(fields[1][1])
	iterations, errCount := strconv.Atoi(fields[2][1])
	if err != nil || errCount != nil || iterations < c.m.MinIterations || iterations > 1_000_000 {
		return nil, fmt.Errorf("the server asks for salt %q and %q iterations, at least %d", fields[1][1], fields[2][1], c.m.MinIterations)
	}
	salted := c.m.Salted(c.password, salt, iterations)
	withoutProof := "c=" + base64.StdEncoding.EncodeToString([]byte("n,,")) + ",r=" + nonce
	auth := []byte(c.firstBare + "," + serverFirst + "," + withoutProof)
	clientKey := c.m.hmac(salted, []byte("Client Key"))
	proof := xor(clientKey, c.m.hmac(c.m.hash(clientKey), auth))
	c.signature = c.m.hmac(c.m.hmac(salted, []byte("Server Key")), auth)
	return []byte(withoutProof + ",p=" + base64.StdEncoding.EncodeToString(proof)), nil
}

func (c *Client) verify(message string) error {
	if reason, failed := strings.CutPrefix(message, "e="); failed {
		return fmt.Errorf("the server refuses: %s", reason)
	}
	value, ok := strings.CutPrefix(strings.SplitN(message, ",", 2)[0], "v=")
	got, err := base64.StdEncoding.DecodeString(value)
	if !ok || err != nil || !hmac.Equal(got, c.signature) {
		return errors.New("the server does not know the password: its signature is wrong")
	}
	return nil
}
