//go:build interop

package zkstore

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"klamm/internal/coord"
	"klamm/internal/coord/coordtest"
)

// aclOf reads a node's ACL in its encoded form (operation getACL).
func aclOf(t *testing.T, s *Store, path string) (acl []byte, err error) {
	t.Helper()
	err = s.main.run(t.Context(), 1, func(c *call, _ int) *request {
		return &request{frame: appendString(newFrame(6, 64), s.full(path)), finish: c.expect(func(r *reply) error {
			if err := r.failure(); err != nil {
				return err
			}
			acl = bytes.Clone(r.body.b[:len(r.body.b)-statSize])
			return nil
		})}
	})
	return acl, err
}

const statSize = 68

func TestLoginByDigestOwnsItsNodes(t *testing.T) {
	jaas := filepath.Join(t.TempDir(), "jaas.conf")
	text := "Server {\n org.apache.zookeeper.server.auth.DigestLoginModule required user_klamm=\"ge\\\"heimä\";\n};\n"
	if err := os.WriteFile(jaas, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := startServer(t, "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
		"-Djava.security.auth.login.config="+jaas)
	o := Options{Connect: addr + "/secure", SessionTimeout: 4 * time.Second, SetACL: true, Digest: &Credentials{"klamm", `ge"heimä`}}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for path, want := range map[string][]byte{
		"/config":         encodeACL(aclEntry{permAll, "sasl", "klamm"}, aclEntry{permRead, "world", "anyone"}),
		"/config/users":   encodeACL(aclEntry{permAll, "sasl", "klamm"}),
		"/consumers":      openACL,
		"/config/users/u": encodeACL(aclEntry{permAll, "sasl", "klamm"}),
	} {
		if err := coord.EnsurePath(t.Context(), s, path, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if got, err := aclOf(t, s, path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has ACL %q, %v", path, got, err)
		}
	}
	o.Digest, o.SetACL = nil, false
	stranger, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := stranger.Get(t.Context(), "/config"); err != nil {
		t.Errorf("a stranger reads: %v", err)
	}
	var refused serverError
	if _, err := stranger.Multi(t.Context(), coord.Set("/config", nil, coord.AnyVersion)); !errors.As(err, &refused) || refused != serverError(codeNoAuth) {
		t.Errorf("a stranger writes: %v", err)
	}
	if _, err := stranger.Get(t.Context(), "/config/users/u"); !errors.As(err, &refused) {
		t.Errorf("a stranger reads secrets: %v", err)
	}
	o.Digest, o.ConnectionTimeout = &Credentials{"klamm", "wrong"}, 20*time.Second
	began := time.Now()
	if _, err := Open(t.Context(), o); !errors.Is(err, errAuth) || time.Since(began) > 10*time.Second {
		t.Errorf("a wrong password: %v after %v", err, time.Since(began))
	}
}

// makeCertificates makes a CA that signs both sides: PKCS12 stores for the server, PEM files for the client.
func makeCertificates(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test ca")
	for _, who := range []string{"server", "client"} {
		run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", who+".key", "-out", who+".csr", "-subj", "/CN="+who)
		if err := os.WriteFile(filepath.Join(dir, who+".ext"), []byte("subjectAltName=IP:127.0.0.1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		run("openssl", "x509", "-req", "-in", who+".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-out", who+".pem", "-extfile", who+".ext")
	}
	run("openssl", "pkcs12", "-export", "-in", "server.pem", "-inkey", "server.key", "-out", "server.p12", "-passout", "pass:secret")
	run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", "trust.p12", "-storetype", "PKCS12", "-storepass", "secret")
	return dir
}

func TestTLSWithAClientCertificateOwnsItsNodes(t *testing.T) {
	dir := makeCertificates(t)
	secure := freeAddr(t)
	_, port, _ := net.SplitHostPort(secure)
	startServer(t, fmt.Sprintf(`secureClientPort=%s
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider
ssl.keyStore.location=%[2]s/server.p12
ssl.keyStore.password=secret
ssl.trustStore.location=%[2]s/trust.p12
ssl.trustStore.password=secret
`, port, dir))
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil || !pool.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Connect: secure, SessionTimeout: 4 * time.Second, SetACL: true, TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Multi(t.Context(), coord.Create("/a", nil)); err != nil {
		t.Fatal(err)
	}
	want := encodeACL(aclEntry{permAll, "x509", "CN=client"}, aclEntry{permRead, "world", "anyone"})
	if got, err := aclOf(t, s, "/a"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("ACL %q, %v", got, err)
	}
	t.Run("the suite of all engines", func(t *testing.T) {
		var roots atomic.Int64
		coordtest.Run(t, func(t *testing.T) coordtest.Engine {
			own := o
			own.Connect, own.SessionTimeout = fmt.Sprintf("%s/%d", secure, roots.Add(1)), 10*time.Second
			e := engine(t, own, false)
			e.Small = true
			return e
		})
	})
	o.TLS, o.ConnectionTimeout = &tls.Config{Certificates: []tls.Certificate{cert}}, 30*time.Second
	var unknown *tls.CertificateVerificationError
	if _, err := Open(t.Context(), o); !errors.As(err, &unknown) {
		t.Errorf("a server of unknown authority: %v", err)
	}
}
