package config

import (
	"testing"
	"time"
)

func TestZooKeepersKeysAreRead(t *testing.T) {
	b, warnings, err := Load(write(t, `broker.id=3
zookeeper.connect=a:2181,b:2182/kafka/one
zookeeper.session.timeout.ms=9000
zookeeper.set.acl=true
zookeeper.sasl.jaas.config=org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="ge\\"heim";
zookeeper.ssl.client.enable=true
zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
zookeeper.ssl.truststore.location=/ca.pem
zookeeper.ssl.endpoint.identification.algorithm=
`), nil, nil)
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	want := ZooKeeper{
		Connect: "a:2181,b:2182/kafka/one", SessionTimeout: 9 * time.Second, ConnectionTimeout: 9 * time.Second,
		MaxInFlight: 1024, SetACL: true, User: "kafka", Password: `ge"heim`,
		TLS: ZooKeeperTLS{Enable: true, TrustStore: "/ca.pem", AnyName: true},
	}
	if b.ZooKeeper != want {
		t.Errorf("got  %+v\nwant %+v", b.ZooKeeper, want)
	}
	if b.CoordinationSession() != 9*time.Second || Default().CoordinationSession() != 6*time.Second {
		t.Error("the session is not that of the configured engine")
	}
}
