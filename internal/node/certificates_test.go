package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KIP-226: the key of a listener is set anew, through a broker and stored encoded; what cannot be read is refused.
func TestTheCertificatesOfAListenerAreChangedWhileTheBrokerRuns(t *testing.T) {
	before, oldClient := certificate(t)
	after, newClient := certificate(t)
	dir := t.TempDir()
	properties := configure(t, dir, with(before, map[string]string{
		"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "security.inter.broker.protocol": "PLAINTEXT", "password.encoder.secret": "s",
	}))
	r := start(t, properties)
	addrs := strings.Fields(r.listeners)
	seed := kgo.SeedBrokers(strings.TrimPrefix(addrs[1], "SSL://"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.client(t, seed, kgo.DialTLSConfig(oldClient)).Ping(ctx); err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(r.client(t, kgo.SeedBrokers(strings.TrimPrefix(addrs[0], "PLAINTEXT://"))))
	set := func(keys ...string) error {
		var changes []kadm.AlterConfig
		for _, k := range keys {
			v := after[k]
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: "listener.name.ssl." + k, Value: &v})
		}
		res, err := admin.AlterBrokerConfigs(ctx, changes, 1)
		if err != nil {
			t.Fatal(err)
		}
		return res[0].Err
	}
	if err := set("ssl.keystore.key"); err == nil {
		t.Error("a key was taken that is not the certificate's")
	}
	if err := set("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"); err != nil {
		t.Fatal(err)
	}
	for { // brokers follow a change shortly after its answer
		err := r.client(t, seed, kgo.DialTLSConfig(newClient), kgo.RequestRetries(0)).Ping(ctx)
		if err == nil {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("with the new certificate: %v", err)
		}
	}
	if err := r.client(t, seed, kgo.DialTLSConfig(oldClient), kgo.RequestRetries(0)).Ping(ctx); err == nil {
		t.Error("the old certificate is still shown")
	}
	described, err := admin.DescribeBrokerConfigs(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range described[0].Configs {
		if strings.HasSuffix(c.Key, "ssl.keystore.key") && c.Value != nil {
			t.Errorf("%s is shown: %s", c.Key, *c.Value)
		}
	}
}
