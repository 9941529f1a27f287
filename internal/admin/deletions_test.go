package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const waitingDeletion = `{"topic":"orders","topicId":"AAAAAAAAAAAAAAAAAAAAAQ","phase":"blocked","queuedAt":"2026-01-01T00:00:00Z","attempts":2,
"reasons":[{"waitsFor":"broker is offline","broker":3,"liftedBy":"start of the broker","detail":"topic.deletion.offline.replicas=wait"}],
"replicas":[{"partition":0,"broker":1,"state":"ReplicaDeletionSuccessful","since":"2026-01-01T00:00:01Z"},
{"partition":0,"broker":3,"state":"OfflineReplica","since":"2026-01-01T00:00:02Z","attempts":2,"lastError":"KAFKA_STORAGE_ERROR","waitsFor":{"waitsFor":"broker is offline","broker":3,"liftedBy":"start of the broker"}}]}`

// fakeWeb is a broker's web address; ends tells that the deletion has ended.
func fakeWeb(t *testing.T, ends *atomic.Bool) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/deletions", func(w http.ResponseWriter, _ *http.Request) {
		if ends.Load() {
			fmt.Fprint(w, "[]")
			return
		}
		fmt.Fprintf(w, "[%s]", waitingDeletion)
	})
	mux.HandleFunc("GET /api/v1/leftovers", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"broker":2,"topic":"old","topicId":"AAAAAAAAAAAAAAAAAAAAAg","partitions":[0,1],"since":"2026-01-01T00:00:00Z"},{"broker":3,"topic":"older","topicId":"AAAAAAAAAAAAAAAAAAAAAw","partitions":[4],"since":"2026-01-01T00:00:00Z"}]`)
	})
	mux.HandleFunc("GET /api/v1/topics/{topic}/deletion", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("topic") == "orders" {
			fmt.Fprint(w, waitingDeletion)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error":"topic %s is not being deleted"}`, r.PathValue("topic"))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func runDeletion(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	code = DeletionMain(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// R01: who waits for whom, for how long and why, without looking into the store.
func TestDeletionsAreListedWithWhatTheyWaitFor(t *testing.T) {
	web := fakeWeb(t, &atomic.Bool{})
	code, out, errs := runDeletion("list", "--web", web)
	for _, want := range []string{"orders", "blocked", "1 of 2", "broker 3: broker is offline (topic.deletion.offline.replicas=wait)", "Broker 2 has 2 replicas of old (", "Broker 3 has 1 replica of older ("} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if code != 0 || errs != "" {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

func TestWhyNamesEveryReplica(t *testing.T) {
	web := fakeWeb(t, &atomic.Bool{})
	code, out, _ := runDeletion("--web", web, "why", "orders")
	for _, want := range []string{"Lifted by: start of the broker", "OfflineReplica", "KAFKA_STORAGE_ERROR", "ReplicaDeletionSuccessful"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is missing in\n%s", code, want, out)
		}
	}
	if code, _, errs := runDeletion("why", "other", "--web", web); code != 1 || !strings.Contains(errs, "not being deleted") {
		t.Errorf("of a topic that lives: exit code %d, %s", code, errs)
	}
}

func TestWatchOutlivesBrokersThatDoNotAnswer(t *testing.T) {
	ends := &atomic.Bool{}
	web := fakeWeb(t, ends)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &seen{lines: make(chan string, 100)}
	tool := &deletionTool{web: "http://127.0.0.1:1", interval: time.Millisecond, stdout: out, now: time.Now}
	done := make(chan error, 1)
	go func() { done <- tool.watch(ctx) }()
	if line := <-out.lines; !strings.Contains(line, "No answer") {
		t.Errorf("first: %s", line)
	}
	cancel()
	<-done
	ctx, cancel = context.WithCancel(t.Context())
	tool.web = web
	go func() { done <- tool.watch(ctx) }()
	line := <-out.lines
	for _, want := range []string{"orders", "OfflineReplica", "KAFKA_STORAGE_ERROR", "0 of 1", "broker is offline"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is missing in: %s", want, line)
		}
	}
	ends.Store(true)
	if line := <-out.lines; !strings.Contains(line, "No topic is being deleted") {
		t.Errorf("last: %s", line)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type seen struct{ lines chan string }

func (s *seen) Write(p []byte) (int, error) {
	s.lines <- string(p)
	return len(p), nil
}

func TestDeletionToolTellsHowItIsUsed(t *testing.T) {
	for _, args := range [][]string{{}, {"why"}, {"list", "x"}, {"--nonsense"}, {"watch", "--interval", "0s"}} {
		if code, _, errs := runDeletion(args...); code != 2 || !strings.Contains(errs, "Usage:") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	if code, out, _ := runDeletion("--help"); code != 0 || !strings.Contains(out, "Usage:") {
		t.Errorf("help: exit code %d, %s", code, out)
	}
}
