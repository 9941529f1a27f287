//go:build interop

package zookeeper

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"klamm/internal/coord"
)

// listenerKeys are two keys, "first" and "second", of the same subject, as Kafka demands, for a listener with TLS that each broker has,
// and that starts with the first.
type listenerKeys struct {
	c     *cluster
	addrs []string          // of the listener, by broker
	names map[string]string // by certificate
}

func (k *listenerKeys) file(name string) string { return filepath.Join(k.c.dir, name+".jks") }

// listenersWithKeys gives brokers that have not started yet the listener.
func (c *cluster) listenersWithKeys() *listenerKeys {
	c.Helper()
	k := &listenerKeys{c: c, names: map[string]string{}}
	for _, name := range []string{"first", "second"} {
		c.makeKey(k.file(name), name+"Store", name+"Key", "broker")
		certificate := k.file(name) + ".cer"
		c.keytool("-exportcert", "-alias", "broker", "-keystore", k.file(name), "-storepass", name+"Store", "-file", certificate)
		der, err := os.ReadFile(certificate)
		if err != nil {
			c.Fatal(err)
		}
		k.names[string(der)] = name
	}
	for _, b := range c.brokers {
		addr := freeAddr(c.T)
		k.addrs = append(k.addrs, addr)
		b.addProperties(fmt.Sprintf(`listeners=PLAINTEXT://%s,CLIENTS://%s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:SSL
inter.broker.listener.name=PLAINTEXT
password.encoder.secret=encoder
%s
`, b.addr, addr, strings.Join(k.settings("first"), "\n")))
	}
	return k
}

func (k *listenerKeys) settings(name string) []string {
	const prefix = "listener.name.clients.ssl."
	return []string{prefix + "keystore.location=" + k.file(name), prefix + "keystore.password=" + name + "Store", prefix + "key.password=" + name + "Key"}
}

// change is what tells kafka-configs to give a broker another key.
func (k *listenerKeys) change(id int32, name string) string {
	return fmt.Sprintf(" --alter --entity-type brokers --entity-name %d --add-config %s", id, strings.Join(k.settings(name), ","))
}

// shows waits until a broker shows the certificate of a key.
func (k *listenerKeys) shows(id int32, name string) {
	k.c.Helper()
	k.c.eventually(20*time.Second, fmt.Sprintf("broker %d (%s) shows its %s certificate", id, k.c.brokers[id].kind, name), func() (bool, string) {
		conn, err := tls.Dial("tcp", k.addrs[id], &tls.Config{InsecureSkipVerify: true}) // it is only looked at
		if err != nil {
			return false, err.Error()
		}
		defer conn.Close()
		shown := k.names[string(conn.ConnectionState().PeerCertificates[0].Raw)]
		return shown == name, shown
	})
}

// areEncoded looks at what is stored for a broker: the passwords are in Kafka's encoding.
func (k *listenerKeys) areEncoded(id int32) {
	k.c.Helper()
	raw := k.c.get(coord.ConfigEntityPath(coord.BrokerConfigs, fmt.Sprint(id)))
	if n := strings.Count(raw, "cipherAlgorithm:AES/CBC/PKCS5Padding"); n != 2 || strings.Contains(raw, "secondStore") || strings.Contains(raw, "secondKey") {
		k.c.Errorf("stored by %s: %s", k.c.brokers[id].kind, raw)
	}
}
