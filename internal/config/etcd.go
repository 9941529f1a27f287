package config

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"klamm/internal/cluster"
)

// Etcd says which etcd a broker keeps the cluster's state in: its own alone (no Cluster and no Endpoints), one whose members run in
// the processes of some brokers (Cluster), or one run by others (Endpoints).
type Etcd struct {
	Cluster   []EtcdMember // etcd.cluster
	Listen    string       // etcd.listen; "" for the own address in Cluster
	Endpoints []string     // etcd.endpoints, as URLs
	CAFile    string       // etcd.tls.ca
	CertFile  string       // etcd.tls.cert
	KeyFile   string       // etcd.tls.key
	User      string       // etcd.user
	Password  string       // etcd.password
}

// EtcdMember is a broker that runs a member of the etcd cluster. Other members and clients reach it at one address.
type EtcdMember struct {
	ID   cluster.BrokerID
	Addr string // host:port
}

// String gives the form that etcd.cluster has.
func (m EtcdMember) String() string { return fmt.Sprintf("%d@%s", m.ID, m.Addr) }

// Member returns the entry of a broker in Cluster.
func (e Etcd) Member(id cluster.BrokerID) (EtcdMember, bool) {
	for _, m := range e.Cluster {
		if m.ID == id {
			return m, true
		}
	}
	return EtcdMember{}, false
}

// ParseEtcdMember reads id@host:port.
func ParseEtcdMember(text string) (EtcdMember, error) {
	id, addr, ok := strings.Cut(text, "@")
	n, err := strconv.ParseInt(id, 10, 32)
	if !ok || err != nil || n < 0 {
		return EtcdMember{}, fmt.Errorf("%q is not of the form brokerid@host:port", text)
	}
	if err := checkAddress(addr, 1); err != nil {
		return EtcdMember{}, fmt.Errorf("%q: %w", text, err)
	}
	return EtcdMember{cluster.BrokerID(n), addr}, nil
}

// checkAddress wants host:port with a host and a port of at least the given number.
func checkAddress(addr string, portMin uint64) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" && portMin > 0 {
		return fmt.Errorf("%q is not host:port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < portMin {
		return fmt.Errorf("%q has no port from %d to 65535", addr, portMin)
	}
	return nil
}

// ParseEtcdEndpoint reads host:port, http://host:port or https://host:port, and gives a URL. Without a scheme it is
// https if tls is set.
func ParseEtcdEndpoint(text string, tls bool) (string, error) {
	scheme, addr, ok := strings.Cut(text, "://")
	if !ok {
		scheme, addr = "http", text
		if tls {
			scheme = "https"
		}
	}
	if scheme != "http" && scheme != "https" {
		return "", fmt.Errorf("%q must begin with http:// or https://, or have neither", text)
	}
	if err := checkAddress(strings.TrimSuffix(addr, "/"), 1); err != nil {
		return "", err
	}
	u := url.URL{Scheme: scheme, Host: strings.TrimSuffix(addr, "/")}
	return u.String(), nil
}

func (b *Broker) fillEtcd(r keyReader) {
	e := &b.Etcd // cluster and endpoints are checkEtcd's
	for _, key := range []string{"etcd.cluster", "etcd.endpoints"} {
		r.used[key] = true
	}
	e.Listen = r.string("etcd.listen")
	e.CAFile, e.CertFile, e.KeyFile = r.string("etcd.tls.ca"), r.string("etcd.tls.cert"), r.string("etcd.tls.key")
	e.User, e.Password = r.string("etcd.user"), r.string("etcd.password")
}

// checkEtcd parses and judges the keys of etcd, and the session that brokers have there.
func (c *checker) checkEtcd(b *Broker) {
	c.parseEtcdCluster(b)
	ca, cert, key := c.text("etcd.tls.ca"), c.text("etcd.tls.cert"), c.text("etcd.tls.key")
	endpoints, _ := c.values["etcd.endpoints"].([]string)
	for _, text := range endpoints {
		e, err := ParseEtcdEndpoint(text, ca != "")
		if err != nil {
			c.fault("etcd.endpoints", "%s", err)
			continue
		}
		b.Etcd.Endpoints = append(b.Etcd.Endpoints, e)
	}
	members := len(b.Etcd.Cluster) > 0
	if members && len(endpoints) > 0 {
		c.fault("etcd.endpoints", "names an etcd run by others, and etcd.cluster one run by the brokers: only one of them can be set")
	}
	if listen := c.text("etcd.listen"); listen != "" {
		if err := checkAddress(listen, 0); err != nil {
			c.fault("etcd.listen", "%s", err)
		} else if !members {
			c.fault("etcd.listen", "has a meaning with etcd.cluster only")
		}
	}
	switch {
	case (cert == "") != (key == ""):
		c.fault("etcd.tls.cert", "etcd.tls.cert and etcd.tls.key belong together")
	case members && (ca == "") != (cert == ""):
		c.fault("etcd.tls.ca", "members of etcd.cluster prove to each other who they are: set all of etcd.tls.ca, etcd.tls.cert and etcd.tls.key, or none")
	}
	user, password := c.text("etcd.user"), c.text("etcd.password")
	if (user != "" || password != "") && len(endpoints) == 0 {
		c.fault("etcd.user", "users are for etcd.endpoints only; members of etcd.cluster know their clients by etcd.tls.*")
	} else if (user == "") != (password == "") {
		c.fault("etcd.user", "etcd.user and etcd.password belong together")
	}
	// etcd grants no session below one and a half times its election timeout, and counts whole seconds.
	if n := c.num("broker.session.timeout.ms"); !c.bad["broker.session.timeout.ms"] && n < 1000 {
		c.fault("broker.session.timeout.ms", "must be 1000 or more: etcd grants no shorter sessions, since one must outlast an election there")
	}
}

func (c *checker) parseEtcdCluster(b *Broker) {
	list, _ := c.values["etcd.cluster"].([]string)
	ids, addrs := map[cluster.BrokerID]bool{}, map[string]bool{}
	for _, text := range list {
		m, err := ParseEtcdMember(text)
		switch {
		case err != nil:
			c.fault("etcd.cluster", "%s", err)
		case ids[m.ID]:
			c.fault("etcd.cluster", "broker %d is named twice", m.ID)
		case addrs[m.Addr]:
			c.fault("etcd.cluster", "address %s is named twice", m.Addr)
		default:
			b.Etcd.Cluster = append(b.Etcd.Cluster, m)
		}
		ids[m.ID], addrs[m.Addr] = true, true
	}
}
