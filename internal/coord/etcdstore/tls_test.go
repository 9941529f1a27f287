package etcdstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"klamm/internal/coord"
)

// authority issues certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key, a.cert = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

func (a *authority) issue(name string, template, parent *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", keyDER)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(a.dir, name), text, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// files gives a certificate that is good for server and client.
func (a *authority) files(name string) TLS {
	a.t.Helper()
	a.issue(name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert)
	return TLS{CA: filepath.Join(a.dir, "ca.pem"), Cert: filepath.Join(a.dir, name+".pem"), Key: filepath.Join(a.dir, name+".key")}
}

func TestMembersAndClientsKnowEachOtherByTheirCertificates(t *testing.T) {
	g := newGroup(t, 3)
	ours := newAuthority(t)
	g.tls = ours.files("member")
	g.start(0, 1, 2)
	remote := g.dial()
	if _, err := remote.store.Multi(t.Context(), coord.Create("/a", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.members[2].store.Get(t.Context(), "/a"); err != nil {
		t.Error(err)
	}
	lost := g.leader()
	g.stop(lost)
	if err := retry(t.Context(), func() error { _, err := remote.store.Multi(t.Context(), coord.Create("/b", nil)); return err }); err != nil {
		t.Errorf("after the leader stopped: %v", err)
	}
	members, err := g.membership().List(t.Context())
	if err != nil || len(members) != 3 || members[(lost+1)%3].Err != nil {
		t.Errorf("members %+v, %v", members, err)
	}
	for name, tls := range map[string]TLS{
		"without a certificate":         {CA: g.tls.CA},
		"with a strangers' certificate": {CA: g.tls.CA, Cert: newAuthority(t).files("stranger").Cert, Key: ""},
	} {
		if tls.Cert != "" {
			tls.Key = strings.TrimSuffix(tls.Cert, ".pem") + ".key"
		}
		c := g.clientConfig()
		c.TLS = tls
		client, err := newClient(t.Context(), c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := &Membership{client, tls}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if _, err := m.List(ctx); err == nil {
			t.Errorf("a client %s was served", name)
		}
		cancel()
		_ = m.Close()
	}
}

func TestDialSaysWhyEtcdDoesNotAnswer(t *testing.T) {
	g := newGroup(t, 1)
	g.tls = newAuthority(t).files("member")
	g.start(0)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + silent.Addr().String()
	_ = silent.Close()
	served := g.clientConfig()
	strangers := newAuthority(t).files("stranger")
	for name, c := range map[string]struct {
		endpoint string
		tls      TLS
		want     string
	}{
		"nobody listens":                    {nobody, TLS{}, nobody + ": connection refused"},
		"it wants a certificate":            {served.Endpoints[0], TLS{CA: g.tls.CA}, ": remote error: tls: certificate required"},
		"its certificate is of strangers":   {served.Endpoints[0], strangers, "certificate signed by unknown authority"},
		"it wants TLS":                      {strings.Replace(served.Endpoints[0], "https:", "http:", 1), TLS{}, " takes connections and does not answer: "},
		"TLS of what the system trusts":     {served.Endpoints[0], TLS{}, "certificate signed by unknown authority"},
		"it wants TLS, and there is a user": {strings.Replace(served.Endpoints[0], "https:", "http:", 1), TLS{}, " takes connections and does not answer: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := ClientConfig{Endpoints: []string{c.endpoint}, TLS: c.tls, Log: served.Log}
			if strings.Contains(name, "user") {
				config.User, config.Password = "someone", "secret"
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("no answer in time"))
			defer cancel()
			_, err := Dial(ctx, config)
			if err == nil || !strings.Contains(err.Error(), "etcd at "+c.endpoint+": no answer in time: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Dial says %v", err)
			}
		})
	}
}

func TestTLSFilesThatCannotBeReadAreNamed(t *testing.T) {
	g := newGroup(t, 1)
	g.tls = TLS{CA: "/none/ca", Cert: "/none/cert", Key: "/none/key"}
	g.wantStartError(0, nil, "etcd.tls", "/none/")
}

// An etcd that others run is reached over TLS, with and without a certificate of the client's own, as that etcd wants it.
func TestAnExternalEtcdIsReachedOverTLS(t *testing.T) {
	theirs := newAuthority(t)
	server, client := theirs.files("etcd"), theirs.files("klamm")
	strangers := newAuthority(t).files("stranger")
	for _, tc := range []struct {
		name   string
		demand bool // the clients' certificates
		tls    TLS
		served bool
	}{
		{"its certificate is enough", false, TLS{CA: server.CA}, true},
		{"the client's is demanded", true, client, true},
		{"the client's is demanded and missing", true, TLS{CA: server.CA}, false},
		{"the client's is a stranger's", true, TLS{CA: server.CA, Cert: strangers.Cert, Key: strangers.Key}, false},
		{"etcd's is a stranger's", false, TLS{CA: strangers.CA}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			info := server.info()
			if info.ClientCertAuth = tc.demand; !tc.demand {
				info.TrustedCAFile = ""
			}
			endpoint := startForeignEtcd(t, info)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if !tc.served {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			d, err := Dial(ctx, ClientConfig{Endpoints: []string{endpoint}, TLS: tc.tls, Log: quiet()})
			if !tc.served {
				if err == nil {
					_ = d.Close()
					t.Error("the client was served")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			if _, err := d.Store().Multi(ctx, coord.Create("/a", []byte("x"))); err != nil {
				t.Fatal(err)
			}
			if got, err := d.Store().Get(ctx, "/a"); err != nil || string(got.Data) != "x" {
				t.Errorf("%q, %v", got.Data, err)
			}
		})
	}
}
