//go:build interop

package interop

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// keytoolBroker is a broker with a listener where everybody is a super user and one with TLS and SCRAM, whose key is in a
// JKS file of keytool's. It gives the address of the latter and the file with its certificate.
func keytoolBroker(t *testing.T) (k kafkaTools, secured, ca string) {
	t.Helper()
	dir := t.TempDir()
	store, ca := filepath.Join(dir, "key.jks"), filepath.Join(dir, "ca.pem")
	command(t, "keytool", "-genkeypair", "-alias", "broker", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=broker", "-ext", "SAN=IP:127.0.0.1",
		"-validity", "10", "-storetype", "JKS", "-keystore", store, "-storepass", "changeit", "-keypass", "keypass").ok(t)
	pem := command(t, "keytool", "-exportcert", "-rfc", "-alias", "broker", "-keystore", store, "-storepass", "changeit").ok(t)
	if err := os.WriteFile(ca, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, "listeners=PLAINTEXT://127.0.0.1:0,SECURED://127.0.0.1:0", "inter.broker.listener.name=PLAINTEXT",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL", "sasl.enabled.mechanisms=SCRAM-SHA-512",
		"listener.name.secured.ssl.keystore.location="+store, "listener.name.secured.ssl.keystore.password=changeit",
		"listener.name.secured.ssl.key.password=keypass", "delegation.token.secret.key=shared",
		"authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:ANONYMOUS",
		"offsets.topic.replication.factor=1", "offsets.topic.num.partitions=3", "group.initial.rebalance.delay.ms=0")
	b.stdout.mu.Lock()
	defer b.stdout.mu.Unlock()
	m := securedLine.FindStringSubmatch(strings.Join(b.stdout.all, "\n"))
	if m == nil {
		t.Fatalf("the banner has no secured listener: %q", b.stdout.all)
	}
	return kafkaTools{t, env(t, "KAFKA_JARS_3_9_1"), b, false}, m[1], ca
}

// Kafka's own tools of 3.9.1 make users, rules and tokens; Java, librdkafka and franz-go write and read over SASL_SSL as the
// user whom they allow.
func TestClientsOverSASLSSLMayDoWhatKafkasToolsSay(t *testing.T) {
	k, secured, ca := keytoolBroker(t)
	plain := []string{"--bootstrap-server", k.b.addr}
	config := filepath.Join(k.b.dir, "client.properties")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`security.protocol=SASL_SSL
ssl.truststore.type=PEM
ssl.truststore.location=%s
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="secret";
`, ca)), 0o600); err != nil {
		t.Fatal(err)
	}
	k.topics("--create", "--topic", "t").ok(t)

	k.configs("--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config", "SCRAM-SHA-512=[iterations=5000,password=secret]").ok(t)
	if got := k.configs("--describe", "--entity-type", "users").ok(t); !strings.Contains(got, "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=5000") {
		t.Errorf("described users are %q", got)
	}
	acls := func(args ...string) string {
		t.Helper()
		return k.run("", "kafka.admin.AclCommand", append(plain, args...)...).ok(t)
	}
	rules := []string{"--allow-principal", "User:alice", "--producer", "--consumer", "--topic", "t", "--group", "g", "--resource-pattern-type", "prefixed"}
	got := acls(append([]string{"--add"}, rules...)...)
	for _, want := range []string{"Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=PREFIXED)`",
		"(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)", "resourceType=GROUP, name=g, patternType=PREFIXED"} {
		if !strings.Contains(got, want) {
			t.Errorf("added rules lack %q:\n%s", want, got)
		}
	}

	k.run("from Java\n", "kafka.tools.ConsoleProducer", "--bootstrap-server", secured, "--topic", "t", "--producer.config", config).ok(t)
	read := k.run("", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", secured, "--topic", "t", "--group", "g-java",
		"--from-beginning", "--max-messages", "1", "--timeout-ms", "20000", "--consumer.config", config).ok(t)
	if read != "from Java\n" {
		t.Errorf("Java reads %q", read)
	}
	command(t, env(t, "INTEROP_PYTHON"), "testdata/secured.py", secured, ca, "alice", "secret", "t", "g-librdkafka").ok(t)
	if err := readAs(t, secured, ca, scram.Auth{User: "alice", Pass: "secret"}); err != nil {
		t.Errorf("franz-go: %v", err)
	}
	if err := readAs(t, secured, ca, scram.Auth{User: "alice", Pass: "wrong"}); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a wrong password: %v", err)
	}

	if got := k.b.klamm("topics", "--bootstrap-server", secured, "--command-config", config, "--list").ok(t); got != "t\n" {
		t.Errorf("klamm topics lists %q", got)
	}
	token := k.tokens(secured, config)
	if err := readAs(t, secured, ca, token); err != nil {
		t.Errorf("by a token: %v", err)
	}

	acls(append([]string{"--remove", "--force"}, rules...)...)
	if got := acls("--list"); strings.TrimSpace(got) != "" {
		t.Errorf("left are the rules %q", got)
	}
	if err := readAs(t, secured, ca, scram.Auth{User: "alice", Pass: "secret"}); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without rules: %v", err)
	}
}

// tokens makes a token with Kafka's tool and gives what it logs in by.
func (k kafkaTools) tokens(secured, config string) scram.Auth {
	k.t.Helper()
	out := k.run("", "org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server", secured, "--command-config", config,
		"--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob").ok(k.t)
	m := regexp.MustCompile(`(?m)^(\S{22})\s+(\S{80,})\s+User:alice\s+User:alice\s+\[?User:bob`).FindStringSubmatch(out)
	if m == nil {
		k.t.Fatalf("the tool tells no token:\n%s", out)
	}
	if _, err := base64.StdEncoding.DecodeString(m[2]); err != nil {
		k.t.Errorf("secret %q: %v", m[2], err)
	}
	return scram.Auth{User: m[1], Pass: m[2], IsToken: true}
}
