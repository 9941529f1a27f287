package api

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"klamm/internal/cluster"
)

// A client that asks for a topic which cannot be created asks several times a second: one line a minute says who and why.
func TestARefusedAutoCreationIsLoggedOncePerTopicAndMinute(t *testing.T) {
	inBubble(t, map[string]string{"default.replication.factor": "5", "offsets.topic.replication.factor": "4"}, func(b *testBroker) {
		var out bytes.Buffer
		b.h.autoTopics.log = slog.New(slog.NewTextHandler(&out, nil))
		ask := func(topic string, times int) string {
			out.Reset()
			for range times {
				b.do(9, metadataRequest(true, topic))
			}
			return out.String()
		}
		first := ask("t", 30)
		for _, want := range []string{"topic=t", "client=tester", "remote=127.0.0.1", cluster.InvalidReplicationFactor.String()} {
			if !strings.Contains(first, want) || strings.Count(first, "\n") != 1 {
				t.Errorf("want one line with %q, got:\n%s", want, first)
			}
		}
		if other := ask("u", 2); strings.Count(other, "topic=u") != 1 {
			t.Errorf("another topic:\n%s", other)
		}
		<-time.After(refusalInterval)
		if later := ask("t", 2); strings.Count(later, "\n") != 1 || !strings.Contains(later, "refused_before=29") {
			t.Errorf("a minute later:\n%s", later)
		}
		// The offsets topic is no client's wish: the line names the key, its value and how many brokers there are.
		own := ask(cluster.GroupOffsetsTopic, 3)
		for _, want := range []string{"level=WARN", "key=offsets.topic.replication.factor", "value=4", "live_brokers=3", "start more brokers"} {
			if !strings.Contains(own, want) || strings.Count(own, "\n") != 1 {
				t.Errorf("want one line with %q, got:\n%s", want, own)
			}
		}
	})
}
