package driver

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"klamm/internal/cluster"
)

// logLines collects structured records.
type logLines struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) records(t *testing.T) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range bytes.Lines(l.b.Bytes()) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func TestTransitionsAreDebugRecordsAndNoLinePerPartitionIsInfo(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		lines := &logLines{}
		b := c.addBroker(1, brokerOptions{})
		b.log = slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
		b.stateChange = b.log
		b.run()
		defer b.stop()
		synctest.Wait()
		many := make([][]cluster.BrokerID, 50)
		for i := range many {
			many[i] = on1
		}
		c.createTopic("t", many...)
		synctest.Wait()
		c.deleteTopic("t")
		synctest.Wait()
		b.expectGone("t")
		transitions, above := 0, 0
		var online map[string]any
		for _, r := range lines.records(t) {
			switch {
			case r["msg"] == "state change" && r["level"] == "DEBUG":
				transitions++
				if r["to"] == "OnlinePartition" && r["partition"] == 7.0 {
					online = r
				}
			case r["level"] != "DEBUG":
				above++
			}
		}
		if transitions < 50*8 {
			t.Errorf("%d transitions", transitions)
		}
		if above > 15 {
			t.Errorf("%d lines at info or above for 50 partitions", above)
		}
		if online["topic"] != "t" || online["from"] != "NewPartition" || online["leader"] != 1.0 || online["leader_epoch"] != 0.0 ||
			online["controller_epoch"] != 1.0 || online["partition_epoch"] != 0.0 {
			t.Errorf("record %v", online)
		}
	})
}
