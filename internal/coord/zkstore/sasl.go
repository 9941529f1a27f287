package zkstore

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// digestURI names the service as ZooKeeper's servers and clients do, whatever the host is.
const digestURI = "zookeeper/zk-sasl-md5"

// errAuth reports that one side did not accept who the other says to be: credentials, or the server's certificate. Open does not
// try on after it.
var errAuth = errors.New("authentication with ZooKeeper failed")

// digest is one SASL DIGEST-MD5 exchange (RFC 2831) with quality of protection "auth".
type digest struct {
	user   Credentials
	cnonce string
	realm  string
	nonce  string
}

func newDigest(user Credentials) *digest {
	return &digest{user: user, cnonce: rand.Text()}
}

// respond answers the server's challenge.
func (g *digest) respond(challenge []byte) ([]byte, error) {
	if len(challenge) == 0 {
		return nil, fmt.Errorf("%w: the server offers no SASL", errAuth)
	}
	c, err := parseChallenge(string(challenge))
	if err != nil {
		return nil, err
	}
	g.realm, g.nonce = c["realm"], c["nonce"]
	if g.nonce == "" {
		return nil, fmt.Errorf("%w: the challenge has no nonce", errAuth)
	}
	if algorithm := c["algorithm"]; algorithm != "md5-sess" {
		return nil, fmt.Errorf("%w: the challenge asks for algorithm %q", errAuth, algorithm)
	}
	return fmt.Appendf(nil, `charset=utf-8,username=%s,realm=%s,nonce=%s,nc=00000001,cnonce=%s,digest-uri=%s,maxbuf=65536,response=%s,qop=auth`,
		quote(g.user.Username), quote(g.realm), quote(g.nonce), quote(g.cnonce), quote(digestURI), g.hash("AUTHENTICATE:"+digestURI)), nil
}

// verify checks the server's last word: it must know the password too.
func (g *digest) verify(final []byte) error {
	c, err := parseChallenge(string(final))
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(c["rspauth"]), []byte(g.hash(":"+digestURI))) != 1 {
		return fmt.Errorf("%w: the server does not know the password either", errAuth)
	}
	return nil
}

func (g *digest) hash(a2 string) string {
	secret := md5.Sum(bytes.Join([][]byte{hashed(g.user.Username), hashed(g.realm), hashed(g.user.Password)}, []byte(":")))
	a1 := string(secret[:]) + ":" + g.nonce + ":" + g.cnonce
	return hexMD5(hexMD5(a1) + ":" + g.nonce + ":00000001:" + g.cnonce + ":auth:" + hexMD5(a2))
}

// hashed gives the bytes of a name or password that are hashed: those of ISO 8859-1 where it has all characters, else
// those of UTF-8 (RFC 2831, section 2.1.2.1).
func hashed(s string) []byte {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 0xff {
			return []byte(s)
		}
		out = append(out, byte(r))
	}
	return out
}

func hexMD5(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// parseChallenge reads key=value pairs between commas; values may be quoted.
func parseChallenge(s string) (map[string]string, error) {
	out := map[string]string{}
	for s = strings.TrimLeft(s, ", \t"); s != ""; s = strings.TrimLeft(s, ", \t") {
		key, rest, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("%w: %q in a challenge is no key=value", errAuth, s)
		}
		var value string
		if value, s, ok = challengeValue(strings.TrimLeft(rest, " \t")); !ok {
			return nil, fmt.Errorf("%w: a quotation in a challenge does not end", errAuth)
		}
		if key = strings.ToLower(strings.TrimSpace(key)); out[key] == "" {
			out[key] = value
		}
	}
	return out, nil
}

func challengeValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ",")
		return strings.TrimSpace(value), rest, true
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}
