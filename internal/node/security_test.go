package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// certificate is a self-signed certificate for loopback, which both sides use and trust.
func certificate(t *testing.T) (keys map[string]string, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "alice"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	pair, err := tls.X509KeyPair(chain, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(chain)
	return map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.key": string(keyPEM), "ssl.keystore.certificate.chain": string(chain),
			"ssl.truststore.type": "PEM", "ssl.truststore.certificates": string(chain)},
		&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

// with joins settings.
func with(maps ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range maps {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

const (
	plainUsers = `org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b" user_broker="b" user_alice="secret";`
	scramLogin = `org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="b";`
)

func writeAndRead(t *testing.T, cl *kgo.Client, topic string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return err
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
		return err
	}
	cl.AddConsumeTopics(topic)
	fetches := cl.PollFetches(ctx)
	if fetches.NumRecords() != 1 {
		t.Errorf("%d records read", fetches.NumRecords())
	}
	return fetches.Err()
}

// The one listener of such a broker serves clients, the controller and, in a larger cluster, other brokers.
func TestABrokerServesEachSecurityProtocol(t *testing.T) {
	keys, clientTLS := certificate(t)
	for _, c := range []struct {
		protocol, mechanism string
		set                 map[string]string
		tls                 *tls.Config
		login               sasl.Mechanism
		wrong               sasl.Mechanism
	}{
		{"SSL", "", with(keys, map[string]string{"ssl.client.auth": "required"}), clientTLS, nil, nil},
		{"SASL_PLAINTEXT", "PLAIN", map[string]string{"listener.name.sasl_plaintext.plain.sasl.jaas.config": plainUsers}, nil,
			plain.Auth{User: "alice", Pass: "secret"}.AsMechanism(), plain.Auth{User: "alice", Pass: "x"}.AsMechanism()},
		{"SASL_SSL", "SCRAM-SHA-512", with(keys, map[string]string{"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scramLogin}), clientTLS,
			scram.Auth{User: "broker", Pass: "b"}.AsSha512Mechanism(), scram.Auth{User: "nobody", Pass: "b"}.AsSha512Mechanism()},
	} {
		t.Run(c.protocol, func(t *testing.T) {
			t.Parallel()
			set := with(map[string]string{"listeners": c.protocol + "://127.0.0.1:0", "security.inter.broker.protocol": c.protocol}, c.set)
			if c.mechanism != "" {
				set["sasl.enabled.mechanisms"], set["sasl.mechanism.inter.broker.protocol"] = c.mechanism, c.mechanism
			}
			r := start(t, configure(t, t.TempDir(), set))
			connect := func(login sasl.Mechanism) *kgo.Client {
				opts := []kgo.Opt{kgo.RequestRetries(0)}
				if c.tls != nil {
					opts = append(opts, kgo.DialTLSConfig(c.tls))
				}
				if login != nil {
					opts = append(opts, kgo.SASL(login))
				}
				return r.client(t, opts...)
			}
			if err := writeAndRead(t, connect(c.login), "t"); err != nil {
				t.Error(err)
			}
			if c.wrong == nil {
				return
			}
			if err := connect(c.wrong).Ping(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
				t.Errorf("wrong password: %v", err)
			}
		})
	}
}

// One broker with three listeners: users come and go, rules say what they may do.
func TestUsersAndRulesDecideWhatClientsMayDo(t *testing.T) {
	keys, clientTLS := certificate(t)
	r := start(t, configure(t, t.TempDir(), with(keys, map[string]string{
		"listeners":                      "SASL_SSL://127.0.0.1:0,BROKERS://127.0.0.1:0,TLS://127.0.0.1:0",
		"listener.security.protocol.map": "SASL_SSL:SASL_SSL,BROKERS:SASL_PLAINTEXT,TLS:SSL", "inter.broker.listener.name": "BROKERS",
		"listener.name.brokers.sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
		"listener.name.brokers.plain.sasl.jaas.config": plainUsers, "sasl.enabled.mechanisms": "SCRAM-SHA-256",
		"listener.name.tls.ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/U",
		"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:broker;User:ALICE",
	})))
	ctx := t.Context()
	addrs := strings.Fields(r.listeners)
	admin := r.client(t, kgo.SeedBrokers(strings.TrimPrefix(addrs[2], "TLS://")), kgo.DialTLSConfig(clientTLS))
	adm := kadm.NewClient(admin)
	upsert := kadm.UpsertSCRAM{User: "bob", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "pass"}
	if res, err := adm.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{upsert}); err != nil || res.Error() != nil {
		t.Fatal(err, res.Error())
	}
	if err := writeAndRead(t, r.client(t, kgo.SeedBrokers(strings.TrimPrefix(addrs[2], "TLS://")), kgo.DialTLSConfig(clientTLS)), "t"); err != nil {
		t.Fatal(err)
	}
	bob := func() *kgo.Client {
		return r.client(t, kgo.DialTLSConfig(clientTLS), kgo.SASL(scram.Auth{User: "bob", Pass: "pass"}.AsSha256Mechanism()), kgo.RequestRetries(2))
	}
	cl := bob()
	produce := func() error { return cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr() }
	if err := produce(); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without a rule: %v", err)
	}
	rule := kadm.NewACLs().Topics("t").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite).Allow("User:bob").AllowHosts("*")
	if res, err := adm.CreateACLs(ctx, rule); err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	if err := produce(); err != nil {
		t.Errorf("with a rule: %v", err)
	}
	if res, err := adm.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: "bob", Mechanism: kadm.ScramSha256}}, nil); err != nil || res.Error() != nil {
		t.Fatal(err, res.Error())
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := bob().Ping(ctx)
		if errors.Is(err, kerr.SaslAuthenticationFailed) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a deleted user still logs in: %v", err)
		}
	}
}

// KIP-48: a token logs its owner in, is not made by one who is not known well enough, and ends when it is expired.
func TestTokensLogTheirOwnerIn(t *testing.T) {
	r := start(t, configure(t, t.TempDir(), map[string]string{
		"listeners":                      "SASL_PLAINTEXT://127.0.0.1:0,OPEN://127.0.0.1:0",
		"listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,OPEN:PLAINTEXT", "inter.broker.listener.name": "OPEN",
		"sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN", "listener.name.sasl_plaintext.plain.sasl.jaas.config": plainUsers,
		"delegation.token.secret.key": "shared", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
		"super.users": "User:ANONYMOUS;User:alice",
	}))
	ctx := t.Context()
	create := func(cl *kgo.Client) *kmsg.CreateDelegationTokenResponse {
		req := kmsg.NewPtrCreateDelegationTokenRequest()
		req.MaxLifetimeMillis = -1
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	open := r.client(t, kgo.SeedBrokers(strings.TrimPrefix(strings.Fields(r.listeners)[1], "OPEN://")))
	if got := create(open); got.ErrorCode != kerr.DelegationTokenRequestNotAllowed.Code {
		t.Errorf("over PLAINTEXT: %d", got.ErrorCode)
	}
	alice := r.client(t, kgo.SASL(plain.Auth{User: "alice", Pass: "secret"}.AsMechanism()))
	made := create(alice)
	if made.ErrorCode != 0 || made.PrincipalName != "alice" {
		t.Fatalf("answer is %+v", made)
	}
	byToken := func() *kgo.Client {
		auth := scram.Auth{User: made.TokenID, Pass: base64.StdEncoding.EncodeToString(made.HMAC), IsToken: true}
		return r.client(t, kgo.SASL(auth.AsSha256Mechanism()))
	}
	cl := byToken()
	if err := writeAndRead(t, cl, "t"); err != nil {
		t.Errorf("the owner's permissions do not hold: %v", err)
	}
	if got := create(cl); got.ErrorCode != kerr.DelegationTokenRequestNotAllowed.Code {
		t.Errorf("a token makes a token: %d", got.ErrorCode)
	}
	expire := kmsg.NewPtrExpireDelegationTokenRequest()
	expire.HMAC, expire.ExpiryPeriodMillis = made.HMAC, -1
	if resp, err := expire.RequestWith(ctx, alice); err != nil || resp.ErrorCode != 0 {
		t.Fatalf("expire: %+v, %v", resp, err)
	}
	if err := byToken().Ping(ctx); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a removed token logs in: %v", err)
	}
}

// Brokers that know each other by SCRAM over TLS, before the cluster has any user, elect, replicate and acknowledge under an
// authorizer that lets nobody but them act for the cluster.
func TestBrokersReplicateOverSASLSSL(t *testing.T) {
	keys, clientTLS := certificate(t)
	c, stop := runDevClusterWith(t, t.TempDir(), 3, with(keys, map[string]string{
		// The one listener of a dev cluster has this name, whatever its protocol.
		"listener.security.protocol.map": "PLAINTEXT:SASL_SSL", "sasl.enabled.mechanisms": "SCRAM-SHA-256",
		"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256", "listener.name.plaintext.scram-sha-256.sasl.jaas.config": scramLogin,
		"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:broker", "connections.max.reauth.ms": "1000",
	}))
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap...), kgo.DialTLSConfig(clientTLS), kgo.SASL(scram.Auth{User: "broker", Pass: "b"}.AsSha256Mechanism()),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordRetries(20))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, 6, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("3")}, "t"); err != nil {
		t.Fatal(err)
	}
	// Longer than a session: brokers authenticate again while they replicate.
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	topics, err := adm.ListTopics(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range topics["t"].Partitions {
		if len(p.ISR) != 3 {
			t.Errorf("partition %d has only %v in sync", p.Partition, p.ISR)
		}
	}
}
