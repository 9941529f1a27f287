package admin

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"klamm/internal/config"
	"klamm/internal/security/certs"
)

const dialTimeout = 10 * time.Second

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// ClientOptions are the options of a client that a file of Kafka's client properties asks for (security.protocol, ssl.*, sasl.*, client.id); none
// for the path "".
func ClientOptions(path string) ([]kgo.Opt, error) {
	props, err := readProperties(path)
	if err != nil {
		return nil, err
	}
	opts, dial, err := connection(props, func(string, error) {})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if id := props["client.id"]; id != "" {
		opts = append(opts, kgo.ClientID(id))
	}
	return append(opts, kgo.Dialer(dial)), nil
}

func readProperties(path string) (map[string]string, error) {
	if path == "" {
		return map[string]string{}, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	props, err := config.ParseProperties(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return props, nil
}

// connection makes the login and the dialer that the properties ask for. unreachable is called once, when the first attempt to connect fails.
func connection(props map[string]string, unreachable func(addr string, err error)) ([]kgo.Opt, dialFunc, error) {
	c, err := config.ParseClient(props)
	if err != nil {
		return nil, nil, err
	}
	dial := (&net.Dialer{Timeout: dialTimeout}).DialContext
	if c.TLS != nil {
		t, err := certs.Client(c.TLS)
		if err != nil {
			return nil, nil, err
		}
		dial = dialTLS(dial, t)
	}
	return login(c), telling(dial, unreachable), nil
}

func login(c config.Client) []kgo.Opt {
	user, password := c.Login.Username, c.Login.Password
	switch c.Mechanism {
	case "PLAIN":
		return []kgo.Opt{kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())}
	case "SCRAM-SHA-256":
		return []kgo.Opt{kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism())}
	case "SCRAM-SHA-512":
		return []kgo.Opt{kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism())}
	}
	return nil
}

// dialTLS connects and checks that the broker is the one that the address names.
func dialTLS(dial dialFunc, c *tls.Config) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		own := c.Clone()
		own.ServerName = host
		conn := tls.Client(raw, own)
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the handshake's error says more
			return nil, fmt.Errorf("TLS with %s: %w", addr, err)
		}
		return conn, nil
	}
}

// telling tells of the first failure.
func telling(dial dialFunc, unreachable func(string, error)) dialFunc {
	var once sync.Once
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil && ctx.Err() == nil {
			once.Do(func() { unreachable(addr, err) })
		}
		return conn, err
	}
}
