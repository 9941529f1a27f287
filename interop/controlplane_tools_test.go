//go:build interop

package interop

import (
	"strings"
	"testing"
)

// Kafka's features tool reads what is finalized, which is nothing, and is told that klamm has no feature to finalize, as Kafka's brokers with
// ZooKeeper have none.
func TestKafkaFeaturesToolIsAnswered(t *testing.T) {
	eachRelease(t, func(t *testing.T, k kafkaTools) {
		const class = "org.apache.kafka.tools.FeatureCommand"
		out := k.run("", class, "--bootstrap-server", k.b.addr, "describe").ok(t)
		if strings.Contains(out, "FinalizedVersionLevel: 1") {
			t.Errorf("describe:\n%s", out)
		}
		r := k.run("", class, "--bootstrap-server", k.b.addr, "upgrade", "--feature", "no.such.feature=1")
		if said := r.stdout + r.stderr; r.exit == 0 || !strings.Contains(said, "not supported") {
			t.Errorf("upgrade: exit code %d\n%s", r.exit, said)
		}
	})
}
