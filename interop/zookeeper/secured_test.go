//go:build interop

package zookeeper

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"klamm/internal/coord"
)

// secured is a way to log in at ZooKeeper, for both kinds of broker by the same server.properties.
type secured struct {
	name string
	// setup gives what the servers need. The stores and files of both ways are in dir.
	setup func(t *testing.T, dir string) setup
	// jvm are the options by which Java's clients log in.
	jvm func(dir string) []string
}

var securedWays = []secured{
	{"by DIGEST-MD5", func(_ *testing.T, dir string) setup {
		login := []string{"-Djava.security.auth.login.config=" + filepath.Join(dir, "jaas.conf")}
		return setup{
			zooKeeperConfig: "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n", zooKeeperJVM: login, kafkaJVM: login,
			properties: `zookeeper.sasl.jaas.config=org.apache.zookeeper.server.auth.DigestLoginModule required username="broker" password="geheim";`,
		}
	}, func(dir string) []string {
		return []string{"-Djava.security.auth.login.config=" + filepath.Join(dir, "jaas.conf")}
	}},
	{"by a certificate", func(t *testing.T, dir string) setup {
		secure := freeAddr(t)
		_, port, _ := net.SplitHostPort(secure)
		return setup{
			connect: secure,
			zooKeeperConfig: fmt.Sprintf("secureClientPort=%s\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"+
				"authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\nssl.keyStore.location=%[2]s/server.p12\nssl.keyStore.password=geheim\n"+
				"ssl.trustStore.location=%[2]s/trust.jks\nssl.trustStore.password=geheim\n", port, dir),
			properties: fmt.Sprintf(`zookeeper.ssl.client.enable=true
zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
zookeeper.ssl.keystore.location=%[1]s/broker.p12
zookeeper.ssl.keystore.password=geheim
zookeeper.ssl.truststore.location=%[1]s/trust.jks
zookeeper.ssl.truststore.password=geheim
zookeeper.ssl.truststore.type=JKS
`, dir),
		}
	}, func(dir string) []string {
		return []string{"-Dzookeeper.client.secure=true", "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
			"-Dzookeeper.ssl.keyStore.location=" + dir + "/broker.p12", "-Dzookeeper.ssl.keyStore.password=geheim",
			"-Dzookeeper.ssl.trustStore.location=" + dir + "/trust.jks", "-Dzookeeper.ssl.trustStore.password=geheim"}
	}},
}

// TestNodesBelongToWhoMadeThemAsKafkas runs a broker of each kind with zookeeper.set.acl on a ZooKeeper where both log in by the same
// server.properties: their nodes have the same ACLs, and each goes on with what the other has made.
func TestNodesBelongToWhoMadeThemAsKafkas(t *testing.T) {
	for _, way := range securedWays {
		t.Run(way.name, func(t *testing.T) {
			dir := t.TempDir()
			makeLogins(t, dir)
			clusters := map[kind]*cluster{}
			for _, k := range []kind{kafka, klamm} {
				s := way.setup(t, dir)
				s.brokers = []kind{k}
				s.properties += "\nzookeeper.set.acl=true\nauthorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS\ndelegation.token.secret.key=shared\n"
				c := newClusterOf(t, s)
				c.start(0)
				c.fillSecured()
				clusters[k] = c
			}
			of := map[kind][]string{}
			for k, c := range clusters {
				of[k] = c.acls(way.jvm(dir))
			}
			if d := cmp.Diff(of[kafka], of[klamm]); d != "" || len(of[kafka]) < 40 {
				t.Errorf("%d nodes of Kafka - and klamm +\n%s", len(of[kafka]), d)
			}
			for k, other := range map[kind]kind{kafka: klamm, klamm: kafka} {
				c := clusters[k]
				c.swap(0, other)
				c.createTopic("second", 1, map[string]*string{"retention.ms": kadm.StringPtr("1")})
				c.awaitISR("second")
				c.deleteTopic("first")
				c.awaitGone("first")
				c.setUser("bob")
				c.step("%s goes on with what %s has made", other, k)
			}
		})
	}
}

// makeLogins writes a JAAS file for ZooKeeper and its clients, and stores in the formats of Java for both.
func makeLogins(t *testing.T, dir string) {
	t.Helper()
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	const module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
	run("sh", "-c", `cat >jaas.conf <<'END'
Server { `+module+` user_broker="geheim"; };
Client { `+module+` username="broker" password="geheim"; };
END`)
	run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test ca")
	run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", "-keystore", "trust.jks", "-storetype", "JKS", "-storepass", "geheim")
	for _, who := range []string{"server", "broker"} {
		run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", who+".key", "-out", who+".csr", "-subj", "/CN="+who)
		run("sh", "-c", "echo subjectAltName=IP:127.0.0.1,DNS:localhost >san.ext")
		run("openssl", "x509", "-req", "-in", who+".csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-out", who+".pem", "-extfile", "san.ext")
		run("openssl", "pkcs12", "-export", "-in", who+".pem", "-inkey", who+".key", "-out", who+".p12", "-passout", "pass:geheim")
	}
}

// fillSecured makes nodes of every kind that brokers make.
func (c *cluster) fillSecured() {
	c.Helper()
	c.createTopic("first", 2, map[string]*string{"retention.ms": kadm.StringPtr("1000")})
	c.awaitISR("first")
	c.setUser("alice")
	rules := kadm.NewACLs().Topics("first").Operations(kadm.OpRead).Allow("User:alice").AllowHosts()
	for _, pattern := range []kadm.ACLPattern{kadm.ACLPatternLiteral, kadm.ACLPatternPrefixed} {
		if r, err := c.admin.CreateACLs(c.Context(), rules.ResourcePatternType(pattern)); err != nil || r[0].Err != nil {
			c.Fatal(err, r)
		}
	}
	set := []kadm.AlterConfig{{Name: "log.cleaner.threads", Value: kadm.StringPtr("1")}}
	if r, err := c.admin.AlterBrokerConfigs(c.Context(), set); err != nil || r[0].Err != nil {
		c.Fatal(err, r)
	}
	c.eventually(20*time.Second, "the last node is there", func() (bool, string) {
		_, err := c.store.Get(c.Context(), coord.FeaturePath)
		return err == nil, fmt.Sprint(err)
	})
}

func (c *cluster) setUser(name string) {
	c.Helper()
	c.eventually(30*time.Second, "user "+name+" is made", func() (bool, string) {
		r, err := c.admin.AlterUserSCRAMs(c.Context(), nil, []kadm.UpsertSCRAM{{User: name, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "x"}})
		return err == nil && r.Error() == nil, fmt.Sprint(err, r.Error())
	})
}

// acls lists all nodes with their ACLs, without klamm's own root.
func (c *cluster) acls(jvm []string) []string {
	c.Helper()
	args := append(slices.Clone(jvm), "-Dlog4j.configuration=file:"+filepath.Join(c.dir, "log4j.properties"), filepath.Join("testdata", "Acls.java"), c.connect)
	out, err := exec.CommandContext(c.Context(), "java", java(c.T, kafka, args...)...).Output()
	if err != nil {
		c.Fatalf("list ACLs: %v\n%s", err, out)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "/") && !strings.HasPrefix(line, coord.KlammPath) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	slices.Sort(list)
	return list
}
