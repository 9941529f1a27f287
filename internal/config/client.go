package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Client is how a tool connects to brokers, by the keys that Kafka's clients have for it (--command-config of the tools).
type Client struct {
	TLS       *TLS   // nil: connections are not encrypted
	Mechanism string // sasl.mechanism, "" without SASL
	Login     Login
}

// ParseClient reads security.protocol, ssl.* and sasl.* of a client's properties; other keys are left alone. All faults are told at once.
func ParseClient(props map[string]string) (Client, error) {
	var c Client
	protocol := strings.ToUpper(strings.TrimSpace(props["security.protocol"]))
	switch protocol {
	case "", "PLAINTEXT":
	case "SSL", "SASL_PLAINTEXT", "SASL_SSL":
	default:
		return c, fmt.Errorf("security.protocol=%s: want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol)
	}
	var faults []error
	if strings.HasSuffix(protocol, "SSL") {
		tls, err := clientTLS(props)
		c.TLS, faults = tls, append(faults, err)
	}
	if strings.HasPrefix(protocol, "SASL_") {
		faults = append(faults, c.readLogin(props))
	}
	return c, errors.Join(faults...)
}

func clientTLS(props map[string]string) (*TLS, error) {
	text := func(key string) string {
		if v, set := props[key]; set {
			return strings.TrimSpace(v)
		}
		return brokerIndex[key].Default
	}
	list := func(key string) []string {
		return slices.DeleteFunc(strings.Split(strings.ReplaceAll(text(key), " ", ""), ","), func(s string) bool { return s == "" })
	}
	t := &TLS{
		KeyStore:    Store{text("ssl.keystore.type"), text("ssl.keystore.location"), props["ssl.keystore.password"]},
		TrustStore:  Store{text("ssl.truststore.type"), text("ssl.truststore.location"), props["ssl.truststore.password"]},
		KeyPassword: props["ssl.key.password"],
		Key:         text("ssl.keystore.key"), Certificates: text("ssl.keystore.certificate.chain"), Trusted: text("ssl.truststore.certificates"),
		Protocols: list("ssl.enabled.protocols"), CipherSuites: list("ssl.cipher.suites"),
		VerifyHost: text("ssl.endpoint.identification.algorithm") != "",
	}
	var faults []error
	if t.KeyStore.Location != "" && t.Key != "" {
		faults = append(faults, errors.New("only one of ssl.keystore.location and ssl.keystore.key may be set"))
	}
	if t.TrustStore.Location != "" && t.Trusted != "" {
		faults = append(faults, errors.New("only one of ssl.truststore.location and ssl.truststore.certificates may be set"))
	}
	return t, errors.Join(faults...)
}

func (c *Client) readLogin(props map[string]string) error {
	c.Mechanism = strings.TrimSpace(props["sasl.mechanism"])
	module, known := loginModules[c.Mechanism]
	if !known {
		return fmt.Errorf("sasl.mechanism=%s: want %s", c.Mechanism, strings.Join(SASLMechanisms, ", "))
	}
	var err error
	if c.Login, err = parseJAAS(props["sasl.jaas.config"], module); err != nil {
		return fmt.Errorf("sasl.jaas.config %w", err)
	}
	if c.Login.Username == "" {
		return errors.New("sasl.jaas.config has no username")
	}
	return nil
}
