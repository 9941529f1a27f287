package config

import (
	"regexp"
	"strings"
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
	TLS               ZooKeeperTLS
}

// ZooKeeperTLS names the PEM files of zookeeper.ssl.*.
type ZooKeeperTLS struct {
	Enable     bool   // zookeeper.ssl.client.enable
	KeyStore   string // zookeeper.ssl.keystore.location; "" to show no certificate
	TrustStore string // zookeeper.ssl.truststore.location; "" for the system's authorities
	AnyName    bool   // zookeeper.ssl.endpoint.identification.algorithm is empty: the server's name is not checked
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
	z.TLS.Enable = r.bool("zookeeper.ssl.client.enable")
	z.TLS.KeyStore = r.string("zookeeper.ssl.keystore.location")
	z.TLS.TrustStore = r.string("zookeeper.ssl.truststore.location")
	z.TLS.AnyName = r.string("zookeeper.ssl.endpoint.identification.algorithm") == ""
	for _, key := range []string{"zookeeper.ssl.keystore.type", "zookeeper.ssl.truststore.type", "zookeeper.clientCnxnSocket", "zookeeper.metadata.migration.enable"} {
		r.used[key] = true // judged by checkZooKeeper, or a matter of Java's client only
	}
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
	if tls {
		c.checkStore("zookeeper.ssl.keystore")
		c.checkStore("zookeeper.ssl.truststore")
	}
}

// checkStore wants a PEM file.
func (c *checker) checkStore(prefix string) {
	file, kind := c.text(prefix+".location"), strings.ToUpper(c.text(prefix+".type"))
	if file == "" {
		return
	}
	if kind == "" && strings.HasSuffix(strings.ToLower(file), ".pem") {
		kind = "PEM"
	}
	if kind != "PEM" {
		c.fault(prefix+".location", "must be a PEM file: set %s.type=PEM, or convert it (keytool -importkeystore -deststoretype PKCS12, then openssl pkcs12 -nodes)", prefix)
	}
	if _, set := c.values[prefix+".password"]; set {
		c.fault(prefix+".password", "encrypted PEM files are not supported: leave it out and protect the file")
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
