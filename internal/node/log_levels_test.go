package node

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/loglevel"
)

// The state-change log is switched on and off while the broker runs, and nothing else with it.
func TestTheStateChangeLogIsSwitchedOnWhileTheBrokerRuns(t *testing.T) {
	out := &syncBuffer{}
	levels := loglevel.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: loglevel.Trace}), slog.LevelWarn)
	r := startWith(t, Options{Config: configure(t, t.TempDir(), nil), LogLevels: levels})
	adm := kadm.NewClient(r.client(t))
	create := func(topic string) {
		t.Helper()
		if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	alter := func(op kmsg.IncrementalAlterConfigOp, level *string) {
		t.Helper()
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "1",
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: loglevel.StateChange, Op: op, Value: level}}}}
		resp, err := req.RequestWith(t.Context(), r.client(t))
		if err != nil || resp.Resources[0].ErrorCode != 0 {
			t.Fatalf("%v, %+v", err, resp)
		}
	}
	debug := "DEBUG"
	create("before")
	alter(kmsg.IncrementalAlterConfigOpSet, &debug)
	create("during")
	alter(kmsg.IncrementalAlterConfigOpDelete, nil)
	create("after")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "level=DEBUG") != strings.Contains(line, `msg="state change" topic=during`) || strings.Contains(line, "level=INFO") {
			t.Errorf("written: %s", line)
		}
	}
	if !strings.Contains(out.String(), "topic=during partition=0 from=NewPartition to=OnlinePartition") {
		t.Errorf("the transitions are not written:\n%s", out)
	}
}
