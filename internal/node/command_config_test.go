package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"klamm/internal/admin"
	"klamm/internal/doctor"
)

// klamm's own tools reach brokers by the same file of properties as Kafka's.
func TestToolsConnectAsTheirClientPropertiesSay(t *testing.T) {
	keys, _ := certificate(t)
	const plainUser = `org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";`
	for _, c := range []struct {
		protocol, mechanism string
		broker, client      map[string]string
	}{
		{"SSL", "", with(keys, map[string]string{"ssl.client.auth": "required"}), keys},
		{"SASL_PLAINTEXT", "PLAIN", map[string]string{"listener.name.sasl_plaintext.plain.sasl.jaas.config": plainUsers}, map[string]string{"sasl.jaas.config": plainUser}},
		{"SASL_SSL", "SCRAM-SHA-512", with(keys, map[string]string{"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": scramLogin}),
			map[string]string{"sasl.jaas.config": scramLogin, "ssl.truststore.certificates": keys["ssl.truststore.certificates"]}},
	} {
		t.Run(c.protocol, func(t *testing.T) {
			t.Parallel()
			set := with(map[string]string{"listeners": c.protocol + "://127.0.0.1:0", "security.inter.broker.protocol": c.protocol}, c.broker)
			client := with(c.client, map[string]string{"security.protocol": c.protocol})
			if c.mechanism != "" {
				set["sasl.enabled.mechanisms"], set["sasl.mechanism.inter.broker.protocol"] = c.mechanism, c.mechanism
				client["sasl.mechanism"] = c.mechanism
			}
			r := start(t, configure(t, t.TempDir(), set))
			addr := r.addr
			file := writeProperties(t, client)
			var stdout, stderr strings.Builder
			if exit := admin.TopicsMain(t.Context(), []string{"--bootstrap-server", addr, "--command-config", file, "--create", "--topic", "seen"}, &stdout, &stderr); exit != 0 {
				t.Fatalf("exit %d\n%s%s", exit, stdout.String(), stderr.String())
			}
			opts, err := admin.ClientOptions(file)
			if err != nil {
				t.Fatal(err)
			}
			connect := func(addr string) (*kgo.Client, error) {
				return kgo.NewClient(append(slices.Clone(opts), kgo.SeedBrokers(addr))...)
			}
			answers, err := doctor.Ask(t.Context(), connect, []string{addr})
			if err != nil || len(answers.Brokers) != 1 || answers.Brokers[0].Err != "" || len(answers.Brokers[0].Topics) != 1 {
				t.Errorf("the doctor hears %+v, %v", answers, err)
			}
			short := writeProperties(t, with(client, map[string]string{"default.api.timeout.ms": "300", "security.protocol": "PLAINTEXT"}))
			if exit := admin.TopicsMain(context.Background(), []string{"--bootstrap-server", addr, "--command-config", short, "--list"}, &stdout, &stderr); exit == 0 {
				t.Error("a tool gets in without")
			}
		})
	}
}

func writeProperties(t *testing.T, props map[string]string) string {
	t.Helper()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&text, "%s=%s\n", key, strings.ReplaceAll(props[key], "\n", `\n`))
	}
	file := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
