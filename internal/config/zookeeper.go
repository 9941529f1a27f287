package config

import (
	"regexp"
	"time"
)

// ZooKeeper says where ZooKeeper is and how a broker is known there. Connect is "" when the state is in etcd.
type ZooKeeper struct {
	Connect           string        // zookeeper.connect
	SessionTimeout    time.Duration // zookeeper.session.timeout.ms
	ConnectionTimeout time.Duration // zookeeper.connection.timeout.ms
	MaxInFlight       int           // zookeeper.max.in.flight.requests
	SetACL            bool          // zookeeper.set.acl
	User              string        // of zookeeper.sasl.jaas.config; "" for no login
	Password          string
	TLS               *TLS // zookeeper.ssl.*; nil unless zookeeper.ssl.client.enable
}

// CoordinationSession is how long the cluster waits for a silent broker: the session in the engine that is configured.
func (b *Broker) CoordinationSession() time.Duration {
	if b.ZooKeeper.Connect != "" {
		return b.ZooKeeper.SessionTimeout
	}
	return b.BrokerSessionTimeout
}

func (b *Broker) fillZooKeeper(r keyReader) {
	z := &b.ZooKeeper
	z.Connect = r.string("zookeeper.connect")
	z.SessionTimeout = r.ms("zookeeper.session.timeout.ms")
	if z.ConnectionTimeout = r.ms("zookeeper.connection.timeout.ms"); z.ConnectionTimeout == 0 {
		z.ConnectionTimeout = z.SessionTimeout
	}
	z.MaxInFlight = r.int("zookeeper.max.in.flight.requests")
	z.SetACL = r.bool("zookeeper.set.acl")
	z.User, z.Password, _ = parseDigestLogin(r.string("zookeeper.sasl.jaas.config"))
	if tls := zooKeeperTLS(r); r.bool("zookeeper.ssl.client.enable") {
		z.TLS = tls
	}
	for _, key := range []string{"zookeeper.clientCnxnSocket", "zookeeper.metadata.migration.enable"} {
		r.used[key] = true // a matter of Java's client only, or judged by the checker
	}
}

// zooKeeperTLS reads zookeeper.ssl.*. There is no key for the private key's own password: ZooKeeper's client takes the store's.
func zooKeeperTLS(r keyReader) *TLS {
	store := func(prefix string) Store {
		return Store{r.string(prefix + ".type"), r.string(prefix + ".location"), r.string(prefix + ".password")}
	}
	t := &TLS{
		KeyStore: store("zookeeper.ssl.keystore"), TrustStore: store("zookeeper.ssl.truststore"),
		Protocols: r.list("zookeeper.ssl.enabled.protocols"), CipherSuites: r.list("zookeeper.ssl.cipher.suites"),
		VerifyHost: r.string("zookeeper.ssl.endpoint.identification.algorithm") != "",
	}
	t.KeyPassword = t.KeyStore.Password
	if len(t.Protocols) == 0 {
		t.Protocols = []string{"TLSv1.2", "TLSv1.3"}
	}
	return t
}

// checkZooKeeper judges the keys of ZooKeeper. Without zookeeper.connect none of them matters.
func (c *checker) checkZooKeeper() {
	if c.text("zookeeper.connect") == "" {
		return
	}
	for _, key := range []string{"etcd.cluster", "etcd.endpoints"} {
		if list, _ := c.values[key].([]string); len(list) > 0 {
			c.fault(key, "the state of the cluster is in one place: set this key or zookeeper.connect, not both")
		}
	}
	for _, key := range []string{"zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms"} {
		if v, set := c.values[key]; set && v.(int64) < 1 {
			c.fault(key, "must be 1 or more")
		}
	}
	login := c.text("zookeeper.sasl.jaas.config")
	if _, _, ok := parseDigestLogin(login); login != "" && !ok {
		c.fault("zookeeper.sasl.jaas.config", `must be org.apache.zookeeper.server.auth.DigestLoginModule required username="name" password="secret"; no other login is supported`)
	}
	tls := c.values["zookeeper.ssl.client.enable"] == true
	keyStore := c.text("zookeeper.ssl.keystore.location")
	if c.values["zookeeper.set.acl"] == true && login == "" && (!tls || keyStore == "") {
		c.fault("zookeeper.set.acl", "needs a login that the nodes can belong to: set zookeeper.sasl.jaas.config, or zookeeper.ssl.client.enable=true with zookeeper.ssl.keystore.location")
	}
}

var (
	digestLogin = regexp.MustCompile(`^\s*org\.apache\.zookeeper\.server\.auth\.DigestLoginModule\s+(?:required|requisite|sufficient|optional)((?:\s+[A-Za-z]+\s*=\s*"(?:[^"\\]|\\.)*")*)\s*;\s*$`)
	jaasOption  = regexp.MustCompile(`([A-Za-z]+)\s*=\s*"((?:[^"\\]|\\.)*)"`)
	jaasEscape  = regexp.MustCompile(`\\(.)`)
)

// parseDigestLogin reads the one login module that ZooKeeper's DIGEST-MD5 has.
func parseDigestLogin(text string) (user, password string, ok bool) {
	m := digestLogin.FindStringSubmatch(text)
	if m == nil {
		return "", "", false
	}
	for _, o := range jaasOption.FindAllStringSubmatch(m[1], -1) {
		value := jaasEscape.ReplaceAllString(o[2], "$1")
		switch o[1] {
		case "username":
			user = value
		case "password":
			password = value
		}
	}
	return user, password, user != "" && password != ""
}
