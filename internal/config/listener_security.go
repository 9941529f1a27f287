package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ListenerSecurity is how the connections of one listener are secured.
type ListenerSecurity struct {
	TLS  *TLS  // nil without
	SASL *SASL // nil without
}

// TLS is the ssl.* keys of a listener.
type TLS struct {
	KeyStore, TrustStore Store
	KeyPassword          string   // ssl.key.password
	Key, Certificates    string   // ssl.keystore.key and ssl.keystore.certificate.chain, in PEM; instead of a key store
	Trusted              string   // ssl.truststore.certificates, in PEM; instead of a trust store
	ClientAuth           string   // ssl.client.auth: required, requested or none
	Protocols            []string // ssl.enabled.protocols
	CipherSuites         []string // ssl.cipher.suites; empty for Go's choice
	VerifyHost           bool     // ssl.endpoint.identification.algorithm is not empty: of servers this broker connects to
	PrincipalRules       string   // ssl.principal.mapping.rules
}

// Store is a file with keys or certificates.
type Store struct {
	Type     string // PEM, JKS or PKCS12, as configured; the content decides
	Location string // "" for none
	Password string
}

// SASL is the sasl.* keys of a listener.
type SASL struct {
	Mechanisms           []string                 // offered, in order
	Logins               map[string]Login         // by mechanism
	ReauthMax            map[string]time.Duration // connections.max.reauth.ms by mechanism; 0 for no limit
	FailureDelay         time.Duration            // connection.failed.authentication.delay.ms
	InterBrokerMechanism string                   // sasl.mechanism.inter.broker.protocol
}

// Login is a JAAS entry: who this broker is to others, and for PLAIN whom it knows.
type Login struct {
	Username, Password string
	Users              map[string]string // passwords by name, of the options user_NAME
}

// SASLMechanisms are those that are supported.
var SASLMechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// loginModules are the classes that JAAS entries name, by mechanism.
var loginModules = map[string]string{
	"PLAIN":         "org.apache.kafka.common.security.plain.PlainLoginModule",
	"SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
	"SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

// checkListenerSecurity reads the keys of every listener that is not PLAINTEXT and sets them on b.
func (c *checker) checkListenerSecurity(b *Broker) {
	b.Security = map[string]ListenerSecurity{}
	for _, l := range b.Listeners {
		var s ListenerSecurity
		k := listenerKeys{c: c, listener: l.Name}
		if strings.HasSuffix(l.Protocol, "SSL") {
			s.TLS = c.listenerTLS(k)
		}
		if strings.HasPrefix(l.Protocol, "SASL_") {
			s.SASL = c.listenerSASL(k, l.Name == b.InterBrokerListener || l.Name == b.ControlPlaneListener)
		}
		b.Security[l.Name] = s
	}
	if class := c.text("principal.builder.class"); class != "" && class != brokerIndex["principal.builder.class"].Default {
		c.fault("principal.builder.class", "names a Java class that decides who clients are; klamm cannot load it and does not start without it: remove the key")
	}
}

// listenerKeys looks keys up as one listener, and one mechanism of it, has them.
type listenerKeys struct {
	c         *checker
	listener  string
	mechanism string // "" where it does not matter
}

// find gives the key that counts and its text: the mechanism's, the listener's, the general one, its default.
func (k listenerKeys) find(key string) (name, text string) {
	prefix := "listener.name." + strings.ToLower(k.listener) + "."
	names := []string{prefix + key, key}
	if k.mechanism != "" {
		names = append([]string{prefix + strings.ToLower(k.mechanism) + "." + key}, names...)
	}
	for _, n := range names {
		if v, set := k.c.set[n]; set {
			k.c.used[n] = true
			return n, v
		}
	}
	if d := brokerIndex[key]; d != nil {
		return key, d.Default
	}
	return key, ""
}

// value parses a key by its definition; what cannot be parsed is a fault, and zero.
func value[T any](k listenerKeys, key string) T {
	name, text := k.find(key)
	var zero T
	d := brokerIndex[key]
	if text == "" && !d.HasDefault {
		return zero
	}
	v, err := d.parse(text)
	if err != nil {
		k.c.fault(name, "%s", err.Allowed)
		return zero
	}
	return v.(T)
}

func (c *checker) listenerTLS(k listenerKeys) *TLS {
	text := func(key string) string { return strings.TrimSpace(value[string](k, key)) }
	t := &TLS{
		KeyStore:    Store{text("ssl.keystore.type"), text("ssl.keystore.location"), value[string](k, "ssl.keystore.password")},
		TrustStore:  Store{text("ssl.truststore.type"), text("ssl.truststore.location"), value[string](k, "ssl.truststore.password")},
		KeyPassword: value[string](k, "ssl.key.password"),
		Key:         text("ssl.keystore.key"), Certificates: text("ssl.keystore.certificate.chain"), Trusted: text("ssl.truststore.certificates"),
		ClientAuth: text("ssl.client.auth"), Protocols: value[[]string](k, "ssl.enabled.protocols"), CipherSuites: value[[]string](k, "ssl.cipher.suites"),
		VerifyHost: text("ssl.endpoint.identification.algorithm") != "", PrincipalRules: text("ssl.principal.mapping.rules"),
	}
	keyStore, _ := k.find("ssl.keystore.location")
	switch {
	case t.KeyStore.Location == "" && (t.Key == "" || t.Certificates == ""):
		c.fault(keyStore, "listener %s uses TLS and has no key: set ssl.keystore.location, or ssl.keystore.type=PEM with ssl.keystore.key and ssl.keystore.certificate.chain", k.listener)
	case t.KeyStore.Location != "" && t.Key != "":
		c.fault(keyStore, "only one of ssl.keystore.location and ssl.keystore.key may be set")
	}
	if t.TrustStore.Location != "" && t.Trusted != "" {
		name, _ := k.find("ssl.truststore.location")
		c.fault(name, "only one of ssl.truststore.location and ssl.truststore.certificates may be set")
	}
	if name, class := k.find("ssl.engine.factory.class"); class != "" {
		c.fault(name, "names a Java class; klamm loads none: remove the key")
	}
	return t
}

func (c *checker) listenerSASL(k listenerKeys, betweenBrokers bool) *SASL {
	s := &SASL{Mechanisms: value[[]string](k, "sasl.enabled.mechanisms"), Logins: map[string]Login{}, ReauthMax: map[string]time.Duration{}}
	s.FailureDelay = millis(c.num("connection.failed.authentication.delay.ms"))
	c.used["connection.failed.authentication.delay.ms"] = true
	name, _ := k.find("sasl.enabled.mechanisms")
	if len(s.Mechanisms) == 0 {
		c.fault(name, "listener %s needs a mechanism; supported are %s", k.listener, strings.Join(SASLMechanisms, ", "))
	}
	for _, m := range s.Mechanisms {
		if !slices.Contains(SASLMechanisms, m) {
			c.fault(name, "listener %s cannot offer %s: set sasl.enabled.mechanisms to some of %s", k.listener, m, strings.Join(SASLMechanisms, ", "))
			continue
		}
		c.mechanism(s, listenerKeys{c, k.listener, m}, m)
	}
	if betweenBrokers {
		c.brokerLogin(s, k)
	}
	return s
}

// mechanism reads the keys of one mechanism.
func (c *checker) mechanism(s *SASL, k listenerKeys, m string) {
	s.ReauthMax[m] = max(0, millis(value[int64](k, "connections.max.reauth.ms")))
	for _, class := range []string{"sasl.server.callback.handler.class", "sasl.login.class", "sasl.login.callback.handler.class"} {
		if name, text := k.find(class); text != "" {
			c.fault(name, "names a Java class that decides who may log in; klamm loads none: remove the key")
		}
	}
	name, text := k.find("sasl.jaas.config")
	if strings.TrimSpace(text) == "" {
		if m == "PLAIN" {
			c.fault(name, "listener %s offers PLAIN and knows no users: set listener.name.%s.plain.sasl.jaas.config to %s required user_NAME=\"password\";",
				k.listener, strings.ToLower(k.listener), loginModules[m])
		}
		return
	}
	login, err := parseJAAS(text, loginModules[m])
	if err != nil {
		if name == "sasl.jaas.config" && m != "PLAIN" {
			return // one entry for all mechanisms: it is another one's
		}
		c.fault(name, "%s", err)
		return
	}
	s.Logins[m] = login
}

// brokerLogin checks that this broker can log in to others, and to itself, on the listener.
func (c *checker) brokerLogin(s *SASL, k listenerKeys) {
	name, m := k.find("sasl.mechanism.inter.broker.protocol")
	s.InterBrokerMechanism = strings.TrimSpace(m)
	switch login, known := s.Logins[s.InterBrokerMechanism]; {
	case !slices.Contains(s.Mechanisms, s.InterBrokerMechanism):
		c.fault(name, "brokers cannot log in with %s, which listener %s does not offer: set it to one of its sasl.enabled.mechanisms, %s",
			s.InterBrokerMechanism, k.listener, strings.Join(s.Mechanisms, ", "))
	case !known || login.Username == "" || login.Password == "":
		c.fault(fmt.Sprintf("listener.name.%s.%s.sasl.jaas.config", strings.ToLower(k.listener), strings.ToLower(s.InterBrokerMechanism)),
			"brokers log in with %s on listener %s: the entry needs username and password", s.InterBrokerMechanism, k.listener)
	}
}
