package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"

	"klamm/internal/config"
)

// authority is a CA of the test.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	return &authority{t, key, cert}
}

func (a *authority) issue(subject pkix.Name, hosts ...string) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	return key, cert
}

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func pkcs8Of(key *ecdsa.PrivateKey) []byte {
	der, _ := x509.MarshalPKCS8PrivateKey(key)
	return der
}

func (a *authority) write(name string, data []byte) string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func basic() *config.TLS {
	return &config.TLS{Protocols: []string{"TLSv1.2", "TLSv1.3"}, ClientAuth: "required", VerifyHost: true}
}

// stores gives the same key and authority in every form that brokers of Kafka have.
func (a *authority) stores(key *ecdsa.PrivateKey, cert *x509.Certificate) map[string]*config.TLS {
	const password = "changeit"
	chain, ca := pemOf("CERTIFICATE", cert.Raw), pemOf("CERTIFICATE", a.cert.Raw)
	forms := map[string]*config.TLS{}

	inline := basic()
	inline.Key, inline.Certificates, inline.Trusted = pemOf("PRIVATE KEY", pkcs8Of(key)), chain, ca
	forms["PEM in the keys"] = inline

	encrypted, err := pkcs8.ConvertPrivateKeyToPKCS8(key, []byte(password))
	if err != nil {
		a.t.Fatal(err)
	}
	file := basic()
	file.KeyPassword = password
	file.KeyStore.Location = a.write("key.pem", []byte(pemOf("ENCRYPTED PRIVATE KEY", encrypted)+chain))
	file.TrustStore.Location = a.write("ca.pem", []byte(ca))
	forms["PEM files, key encrypted"] = file

	p12 := basic()
	keys, err1 := pkcs12.Modern.Encode(key, cert, []*x509.Certificate{a.cert}, password)
	trust, err2 := pkcs12.Modern.EncodeTrustStore([]*x509.Certificate{a.cert}, password)
	if err1 != nil || err2 != nil {
		a.t.Fatal(err1, err2)
	}
	// keytool writes PKCS12 into what is configured as JKS.
	p12.KeyStore = config.Store{Type: "JKS", Location: a.write("key.jks", keys), Password: password}
	p12.TrustStore = config.Store{Type: "JKS", Location: a.write("trust.jks", trust), Password: password}
	forms["PKCS12"] = p12

	jks := basic()
	keyStore, trustStore := keystore.New(), keystore.New()
	errKey := keyStore.SetPrivateKeyEntry("broker", keystore.PrivateKeyEntry{CreationTime: time.Now(), PrivateKey: pkcs8Of(key),
		CertificateChain: []keystore.Certificate{{Type: "X509", Content: cert.Raw}}}, []byte(password))
	errTrust := trustStore.SetTrustedCertificateEntry("ca", keystore.TrustedCertificateEntry{CreationTime: time.Now(),
		Certificate: keystore.Certificate{Type: "X509", Content: a.cert.Raw}})
	var k, tr bytes.Buffer
	if errKey != nil || errTrust != nil || keyStore.Store(&k, []byte(password)) != nil || trustStore.Store(&tr, []byte(password)) != nil {
		a.t.Fatal(errKey, errTrust)
	}
	jks.KeyStore = config.Store{Type: "JKS", Location: a.write("key.jks", k.Bytes()), Password: password}
	jks.TrustStore = config.Store{Type: "JKS", Location: a.write("trust.jks", tr.Bytes()), Password: password}
	forms["JKS"] = jks
	return forms
}

// shake makes a connection between two sources and gives what the server saw, and both errors.
func shake(t *testing.T, server, client *Source, host string) (tls.ConnectionState, error, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	type outcome struct {
		state tls.ConnectionState
		err   error
	}
	served := make(chan outcome, 1)
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			served <- outcome{err: err}
			return
		}
		s := tls.Server(nc, server.Server())
		err = s.Handshake()
		served <- outcome{s.ConnectionState(), err}
		_ = s.Close()
	}()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(nc, client.Client(host))
	errClient := c.Handshake()
	if errClient != nil {
		_ = nc.Close()
	}
	o := <-served
	_ = c.Close()
	return o.state, o.err, errClient
}

func open(t *testing.T, cfg *config.TLS) *Source {
	t.Helper()
	s, err := Open("L", cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStoresOfEveryFormServeBothSides(t *testing.T) {
	ca := newAuthority(t)
	key, cert := ca.issue(pkix.Name{CommonName: "broker", Organization: []string{"Acme, Inc"}}, "b0")
	mapper, err := ParseMapper("DEFAULT")
	if err != nil {
		t.Fatal(err)
	}
	for form, cfg := range ca.stores(key, cert) {
		s := open(t, cfg)
		state, errServer, errClient := shake(t, s, s, "b0")
		if errServer != nil || errClient != nil {
			t.Errorf("%s: server %v, client %v", form, errServer, errClient)
			continue
		}
		if name, err := mapper.Principal(state); name != `User:CN=broker,O=Acme\, Inc` || err != nil {
			t.Errorf("%s: the client is %q, %v", form, name, err)
		}
	}
}

func TestTheServersNameIsVerifiedUnlessThatIsOff(t *testing.T) {
	ca := newAuthority(t)
	key, cert := ca.issue(pkix.Name{CommonName: "broker"}, "b0")
	cfg := ca.stores(key, cert)["PEM in the keys"]
	s := open(t, cfg)
	if _, _, err := shake(t, s, s, "elsewhere"); err == nil {
		t.Error("a certificate for another host passes")
	}
	cfg.VerifyHost = false
	s = open(t, cfg)
	if _, _, err := shake(t, s, s, "elsewhere"); err != nil {
		t.Errorf("refused though names are not verified: %v", err)
	}
	other := newAuthority(t)
	otherKey, otherCert := other.issue(pkix.Name{CommonName: "broker"}, "elsewhere")
	foreign := other.stores(otherKey, otherCert)["PEM in the keys"]
	if _, _, err := shake(t, open(t, foreign), s, "elsewhere"); err == nil {
		t.Error("a certificate of another authority passes because names are not verified")
	}
}

func TestAClientWithoutACertificateIsRefusedWhereOneIsRequired(t *testing.T) {
	ca := newAuthority(t)
	key, cert := ca.issue(pkix.Name{CommonName: "broker"}, "b0")
	for auth, refused := range map[string]bool{"required": true, "requested": false, "none": false} {
		cfg := ca.stores(key, cert)["PEM in the keys"]
		cfg.ClientAuth = auth
		server := open(t, cfg)
		naked := open(t, cfg)
		naked.current.Load().client.Certificates = nil
		if _, err, _ := shake(t, server, naked, "b0"); (err != nil) != refused {
			t.Errorf("ssl.client.auth=%s: %v", auth, err)
		}
	}
}

func TestARenewedCertificateIsReadFromItsFile(t *testing.T) {
	ca := newAuthority(t)
	key, cert := ca.issue(pkix.Name{CommonName: "old"}, "b0")
	cfg := ca.stores(key, cert)["PEM files, key encrypted"]
	s := open(t, cfg)
	newKey, newCert := ca.issue(pkix.Name{CommonName: "new"}, "b0")
	renewed := ca.stores(newKey, newCert)["PEM files, key encrypted"]
	data, _ := os.ReadFile(renewed.KeyStore.Location)
	replace := func(data []byte, age time.Duration) {
		if err := os.WriteFile(cfg.KeyStore.Location, data, 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(cfg.KeyStore.Location, at, at); err != nil {
			t.Fatal(err)
		}
		s.mu.looked = time.Time{}
	}
	subject := func() string {
		state, errServer, errClient := shake(t, s, s, "b0")
		if errServer != nil || errClient != nil {
			t.Fatal(errServer, errClient)
		}
		return state.PeerCertificates[0].Subject.CommonName
	}
	if got := subject(); got != "old" {
		t.Fatalf("certificate of %q", got)
	}
	replace(data, time.Minute)
	if got := subject(); got != "new" {
		t.Errorf("certificate of %q after the renewal", got)
	}
	replace([]byte("broken"), time.Hour)
	if got := subject(); got != "new" {
		t.Errorf("certificate of %q after the file was broken", got)
	}
}

func TestStoresThatCannotBeUsedAreNamed(t *testing.T) {
	ca := newAuthority(t)
	key, cert := ca.issue(pkix.Name{CommonName: "broker"}, "b0")
	otherKey, _ := ca.issue(pkix.Name{CommonName: "other"}, "b0")
	for fact, c := range map[string]struct {
		form   string
		change func(*config.TLS)
		want   string
	}{
		"a file that is not there":   {"JKS", func(c *config.TLS) { c.KeyStore.Location = "/absent" }, "ssl.keystore.location"},
		"a wrong password":           {"JKS", func(c *config.TLS) { c.KeyStore.Password = "x" }, "ssl.keystore.location"},
		"a wrong password of PKCS12": {"PKCS12", func(c *config.TLS) { c.TrustStore.Password = "x" }, "ssl.truststore.location"},
		"an encrypted key without":   {"PEM files, key encrypted", func(c *config.TLS) { c.KeyPassword = "" }, "ssl.key.password"},
		"someone else's key":         {"PEM in the keys", func(c *config.TLS) { c.Key = pemOf("PRIVATE KEY", pkcs8Of(otherKey)) }, "does not match"},
		"no certificate to trust":    {"PEM in the keys", func(c *config.TLS) { c.Trusted = "x" }, "ssl.truststore.certificates"},
		"an old protocol":            {"PEM in the keys", func(c *config.TLS) { c.Protocols = []string{"TLSv1.1"} }, "TLSv1.1 is not supported"},
		"a cipher nobody knows":      {"PEM in the keys", func(c *config.TLS) { c.CipherSuites = []string{"X"} }, "ssl.cipher.suites"},
	} {
		cfg := ca.stores(key, cert)[c.form]
		c.change(cfg)
		if _, err := Open("L", cfg, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v lacks %q", fact, err, c.want)
		}
	}
}

// The rules of KIP-371 with the examples of Kafka's documentation.
func TestMappingRules(t *testing.T) {
	m, err := ParseMapper(`RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U ,DEFAULT`)
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]string{
		"CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown": "serviceuser",
		"CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown":          "adminuser@admin",
		"OU=x,CN=abc": "ABC",
		"OU=x":        "OU=x",
	} {
		if got, err := m.Name(subject); got != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", subject, got, err, want)
		}
	}
	only, err := ParseMapper(`RULE:^a\/b$/c/`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := only.Name("a/b"); got != "c" || err != nil {
		t.Errorf("an escaped slash: %q, %v", got, err)
	}
	if _, err := only.Name("CN=x"); err == nil {
		t.Error("a subject that no rule fits has a name")
	}
	for _, bad := range []string{"RULE:a", "RULE:a/b", "X", "RULE:(/b/", "DEFAULT DEFAULT"} {
		if _, err := ParseMapper(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
}

func TestSubjectsAreSpelledAsJavaDoes(t *testing.T) {
	ca := newAuthority(t)
	_, cert := ca.issue(pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 6}, Value: "DE"},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: `A, "B"`},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 5}, Value: "7"}, // a serial number, which RFC 2253 has no keyword for
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "#x "},
	}})
	got, err := Subject(cert)
	if want := `CN=\#x\ ,2.5.4.5=#130137,O=A\, \"B\",C=DE`; got != want || err != nil {
		t.Errorf("subject is %s, %v; want %s", got, err, want)
	}
}
