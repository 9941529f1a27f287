package node

import (
	"strings"
	"testing"

	"klamm/internal/config"
)

func TestAStoreOfZooKeepersTLSThatCannotBeUsedIsNamedByItsKey(t *testing.T) {
	for want, tls := range map[string]config.TLS{
		"zookeeper.ssl.truststore.location: open /absent": {TrustStore: config.Store{Location: "/absent"}},
		"zookeeper.ssl.keystore.location: open /absent":   {KeyStore: config.Store{Location: "/absent"}},
		"zookeeper.ssl.cipher.suites: X is not supported": {CipherSuites: []string{"X"}},
	} {
		tls.Protocols = []string{"TLSv1.3"}
		_, err := ExamineZooKeeper(t.Context(), config.ZooKeeper{Connect: "localhost:1", TLS: &tls}, quietLog())
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
