//go:build interop

package zookeeper

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"klamm/internal/coord"
)

// TestBrokersOfEitherKindReachEachOtherOverTLSAndSASL has brokers of Kafka 3.9.1 and of klamm lead, follow and control each other over
// a listener where both sides show certificates, and over one where brokers log in with SCRAM. Those only may act as brokers who are
// known by that.
func TestBrokersOfEitherKindReachEachOtherOverTLSAndSASL(t *testing.T) {
	for _, between := range []struct {
		protocol string
		secure   func(*cluster) (principal, properties string)
	}{{"SSL", overTLS}, {"SASL_PLAINTEXT", overSCRAM}} {
		t.Run(between.protocol, func(t *testing.T) {
			c := newClusterOf(t, setup{lag: 3 * time.Second, offsetsReplicas: 2, brokers: []kind{kafka, klamm}})
			principal, properties := between.secure(c)
			c.refuseStrangers()
			for _, b := range c.brokers {
				b.addProperties(fmt.Sprintf(`listeners=PLAINTEXT://%s,%s://%s
security.inter.broker.protocol=%s
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:%s
%s
`, b.addr, between.protocol, freeAddr(t), between.protocol, principal, properties))
			}
			c.liveTogether(true)
		})
	}
}

// refuseStrangers lets those whom nobody knows do everything to the cluster but what brokers do.
func (c *cluster) refuseStrangers() {
	c.Helper()
	node := coord.ACLResourcePath("literal", "Cluster", "kafka-cluster")
	if err := coord.EnsurePath(c.Context(), c.store, node, []byte(`{"version":1,"acls":[`+
		`{"principal":"User:ANONYMOUS","permissionType":"Deny","operation":"ClusterAction","host":"*"},`+
		`{"principal":"User:ANONYMOUS","permissionType":"Allow","operation":"All","host":"*"}]}`)); err != nil {
		c.Fatal(err)
	}
}

// overTLS makes a key in a JKS file and a PKCS12 file that trusts it.
func overTLS(c *cluster) (principal, properties string) {
	c.Helper()
	keys, trusted, pem := filepath.Join(c.dir, "keys.jks"), filepath.Join(c.dir, "trusted.p12"), filepath.Join(c.dir, "broker.pem")
	c.makeKey(keys, "storesecret", "keysecret", "broker")
	c.keytool("-exportcert", "-rfc", "-alias", "broker", "-keystore", keys, "-storepass", "storesecret", "-file", pem)
	c.keytool("-importcert", "-noprompt", "-alias", "broker", "-file", pem, "-storetype", "PKCS12", "-keystore", trusted, "-storepass", "trustsecret")
	return "CN=broker", fmt.Sprintf(`ssl.keystore.location=%s
ssl.keystore.password=storesecret
ssl.key.password=keysecret
ssl.truststore.location=%s
ssl.truststore.password=trustsecret
ssl.client.auth=required`, keys, trusted)
}

// overSCRAM has Kafka's tool make the brokers' user in ZooKeeper before there is any broker, as Kafka needs it.
func overSCRAM(c *cluster) (principal, properties string) {
	c.Helper()
	c.toolbox().do("kafka-configs --zookeeper " + c.zk + " --alter --entity-type users --entity-name broker --add-config SCRAM-SHA-512=[iterations=4096,password=b]")
	return "broker", `sasl.enabled.mechanisms=SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="b";`
}

// makeKey makes a JKS file with a key and its own certificate for a server on loopback.
func (c *cluster) makeKey(file, storePassword, keyPassword, name string) {
	c.Helper()
	c.keytool("-genkeypair", "-alias", name, "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN="+name, "-ext", "SAN=IP:127.0.0.1", "-validity", "10",
		"-storetype", "JKS", "-keystore", file, "-storepass", storePassword, "-keypass", keyPassword)
}

func (c *cluster) keytool(args ...string) {
	c.Helper()
	if out, err := exec.Command("keytool", args...).CombinedOutput(); err != nil {
		c.Fatalf("keytool %v: %v\n%s", args, err, out)
	}
}
