package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller"
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
		b.stateChange = newStateChangeLog(b.log)
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

// gate is a handler that writes nothing until it is opened.
type gate struct {
	slog.Handler
	opened chan struct{}
}

// Handle implements slog.Handler.
func (g gate) Handle(ctx context.Context, r slog.Record) error {
	<-g.opened
	return g.Handler.Handle(ctx, r)
}

// A log that takes nothing holds up no decision, and has everything, with its time, once it does.
func TestAStateChangeLogThatStandsStillHoldsNothingUp(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		lines := &logLines{}
		g := gate{slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug}), make(chan struct{})}
		b := c.addBroker(1, brokerOptions{})
		b.stateChange = newStateChangeLog(slog.New(g))
		b.run()
		defer b.stop()
		synctest.Wait()
		began := time.Now()
		c.createTopic("t", on1)
		synctest.Wait()
		c.deleteTopic("t")
		synctest.Wait()
		b.expectGone("t")
		if n := len(lines.records(t)); n != 0 {
			t.Errorf("%d records passed", n)
		}
		<-time.After(time.Minute)
		close(g.opened)
		synctest.Wait()
		var last map[string]any
		for _, r := range lines.records(t) {
			if at, err := time.Parse(time.RFC3339Nano, r["time"].(string)); err != nil || at.Sub(began) > time.Second {
				t.Errorf("time %v of %v (%v)", at, r, err)
			}
			last = r
		}
		if last["topic"] != "t" || last["to"] != "NonExistentReplica" {
			t.Errorf("the last record: %v", last)
		}
	})
}

// What does not fit is counted, what fits is kept in order, and there is room again when that is written.
func TestAStateChangeLogThatIsFullSaysWhatIsMissing(t *testing.T) {
	lines := &logLines{}
	l := newStateChangeLog(slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.max = 3
	changes := func(topics ...string) (out []controller.Transition) {
		for _, topic := range topics {
			out = append(out, controller.Transition{TopicPartition: cluster.TopicPartition{Topic: topic}, Replica: cluster.NoBroker})
		}
		return out
	}
	l.add(1, changes("a", "b"))
	l.add(1, changes("c", "d", "e"))
	l.add(1, changes("f"))
	l.write()
	l.add(1, changes("g"))
	l.write()
	var got []any
	for _, r := range lines.records(t) {
		if got = append(got, r["topic"]); r["topic"] == nil {
			got[len(got)-1] = r["records"]
		}
	}
	if want := []any{"a", "b", "c", 3.0, "g"}; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v", got, want)
	}
}
