package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestZooKeepersKeysAreRead(t *testing.T) {
	b, warnings, err := Load(write(t, `broker.id=3
zookeeper.connect=a:2181,b:2182/kafka/one
zookeeper.session.timeout.ms=9000
zookeeper.set.acl=true
zookeeper.sasl.jaas.config=org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="ge\\"heim";
zookeeper.ssl.client.enable=true
zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
zookeeper.ssl.keystore.location=/k.jks
zookeeper.ssl.keystore.password=one
zookeeper.ssl.keystore.type=JKS
zookeeper.ssl.truststore.location=/t.p12
zookeeper.ssl.truststore.password=two
zookeeper.ssl.enabled.protocols=TLSv1.3
zookeeper.ssl.cipher.suites=TLS_AES_128_GCM_SHA256
zookeeper.ssl.endpoint.identification.algorithm=
`), nil, nil)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	want := ZooKeeper{
		Connect: "a:2181,b:2182/kafka/one", SessionTimeout: 9 * time.Second, ConnectionTimeout: 9 * time.Second,
		MaxInFlight: 1024, SetACL: true, User: "kafka", Password: `ge"heim`,
		TLS: &TLS{
			KeyStore: Store{"JKS", "/k.jks", "one"}, KeyPassword: "one", TrustStore: Store{"", "/t.p12", "two"},
			Protocols: []string{"TLSv1.3"}, CipherSuites: []string{"TLS_AES_128_GCM_SHA256"},
		},
	}
	if d := cmp.Diff(want, b.ZooKeeper); d != "" {
		t.Error(d)
	}
	if b.CoordinationSession() != 9*time.Second || Default().CoordinationSession() != 6*time.Second {
		t.Error("the session is not that of the configured engine")
	}
}

func TestZooKeeperIsReachedInTheClearUnlessTLSIsEnabled(t *testing.T) {
	for text, want := range map[string]*TLS{
		"zookeeper.ssl.truststore.location=/t.jks": nil,
		"zookeeper.ssl.client.enable=true":         {Protocols: []string{"TLSv1.2", "TLSv1.3"}, VerifyHost: true},
	} {
		b, _, err := Load(write(t, "zookeeper.connect=zk:2181\n"+text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, b.ZooKeeper.TLS); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}
