//go:build interop

package interop

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var securedLine = regexp.MustCompile(`listeners.*SECURED://(\S+)`)

// securedBroker is a broker with a listener where everybody is a super user and one with TLS and SCRAM. It gives the address
// of the latter and the file with its certificate.
func securedBroker(t *testing.T) (b *broker, secured, ca string) {
	t.Helper()
	dir := t.TempDir()
	store, ca := filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err1 := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	pkcs8, err2 := x509.MarshalPKCS8PrivateKey(key)
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), chain...)
	if err := errors.Join(err1, err2, os.WriteFile(store, both, 0o600), os.WriteFile(ca, chain, 0o600)); err != nil {
		t.Fatal(err)
	}
	b = startBroker(t, "listeners=PLAINTEXT://127.0.0.1:0,SECURED://127.0.0.1:0", "inter.broker.listener.name=PLAINTEXT",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL", "sasl.enabled.mechanisms=SCRAM-SHA-512",
		"listener.name.secured.ssl.keystore.type=PEM", "listener.name.secured.ssl.keystore.location="+store,
		"authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=3", "group.initial.rebalance.delay.ms=0")
	b.stdout.mu.Lock()
	defer b.stdout.mu.Unlock()
	m := securedLine.FindStringSubmatch(strings.Join(b.stdout.all, "\n"))
	if m == nil {
		t.Fatalf("the banner has no secured listener: %q", b.stdout.all)
	}
	return b, m[1], ca
}

// librdkafka and franz-go write and read over SASL_SSL as a user whom rules allow that, and not otherwise.
func TestClientsOverSASLSSLMayDoWhatRulesAllow(t *testing.T) {
	b, secured, ca := securedBroker(t)
	super, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close()
	ctx, adm := t.Context(), kadm.NewClient(super)
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	users, err := adm.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: "alice", Mechanism: kadm.ScramSha512, Iterations: 5000, Password: "secret"}})
	if err != nil || users.Error() != nil {
		t.Fatal(err, users.Error())
	}
	alice := scram.Auth{User: "alice", Pass: "secret"}
	eventually(t, 20*time.Second, "alice is known and may do nothing", func() (bool, string) {
		err := readAs(t, secured, ca, alice)
		return errors.Is(err, kerr.TopicAuthorizationFailed), errText(err)
	})
	rules := kadm.NewACLs().Topics("t").Groups("g").ResourcePatternType(kadm.ACLPatternPrefixed).Operations(kadm.OpRead, kadm.OpWrite).Allow("User:alice").AllowHosts("*")
	if made, err := adm.CreateACLs(ctx, rules); err != nil || len(made) == 0 || made[0].Err != nil {
		t.Fatal(err, made)
	}
	command(t, env(t, "INTEROP_PYTHON"), "testdata/secured.py", secured, ca, "alice", "secret", "t", "g-librdkafka").ok(t)
	if err := readAs(t, secured, ca, alice); err != nil {
		t.Errorf("franz-go: %v", err)
	}
	if err := readAs(t, secured, ca, scram.Auth{User: "alice", Pass: "wrong"}); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a wrong password: %v", err)
	}
}

func errText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// readAs reads one record of topic t.
func readAs(t *testing.T, addr, ca string, auth scram.Auth) error {
	t.Helper()
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DialTLSConfig(&tls.Config{RootCAs: roots}), kgo.SASL(auth.AsSha512Mechanism()), kgo.ConsumeTopics("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		return err
	}
	return cl.PollFetches(ctx).Err()
}
