package etcdstore

import (
	"crypto/tls"
	"fmt"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// TLS names the PEM files with which members and clients of etcd prove who they are. The zero value is no TLS.
type TLS struct {
	CA   string // authorities that the other side's certificate must come from
	Cert string // own certificate, good for server and client
	Key  string
}

func (t TLS) on() bool { return t != TLS{} }

func (t TLS) info() transport.TLSInfo {
	if !t.on() {
		return transport.TLSInfo{}
	}
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: t.Cert != ""}
}

// URL gives the form in which etcd knows the address of a member.
func (t TLS) URL(addr string) string {
	if t.on() {
		return "https://" + addr
	}
	return "http://" + addr
}

// addrOfURL gives host:port of a URL as members have them.
func addrOfURL(url string) string {
	_, addr, found := strings.Cut(url, "://")
	if !found {
		return url
	}
	return strings.TrimSuffix(addr, "/")
}

// server is for a listener whose clients are members and clients of etcd; nil without TLS. It demands their certificates.
func (t TLS) server() (*tls.Config, error) {
	if !t.on() {
		return nil, nil
	}
	c, err := t.info().ServerConfig()
	if err != nil {
		return nil, fmt.Errorf("etcd.tls.ca=%s, etcd.tls.cert=%s, etcd.tls.key=%s: %w", t.CA, t.Cert, t.Key, err)
	}
	c.NextProtos = []string{"h2", "http/1.1"} // clients speak the one, members the other
	return c, nil
}

// client is for connections to members; nil without TLS.
func (t TLS) client() (*tls.Config, error) {
	if !t.on() {
		return nil, nil
	}
	c, err := t.info().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("etcd.tls.ca=%s, etcd.tls.cert=%s, etcd.tls.key=%s: %w", t.CA, t.Cert, t.Key, err)
	}
	return c, nil
}
