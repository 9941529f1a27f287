package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// runDevCluster runs a dev cluster in dir until the returned function stops it.
func runDevCluster(t *testing.T, dir string, brokers int) (DevCluster, func()) {
	t.Helper()
	return runDevClusterWith(t, dir, brokers, nil)
}

func runDevClusterWith(t *testing.T, dir string, brokers int, settings map[string]string) (DevCluster, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, ran := make(chan DevCluster, 1), make(chan error, 1)
	o := DevOptions{
		Brokers: brokers, Dir: dir, Web: "127.0.0.1:0", Version: "test", Log: slog.New(slog.DiscardHandler), Settings: settings,
		Ready: func(c DevCluster) { ready <- c },
	}
	go func() { ran <- RunDev(ctx, o) }()
	select {
	case c := <-ready:
		return c, func() {
			cancel()
			if err := <-ran; err != nil {
				t.Errorf("stop: %v", err)
			}
		}
	case err := <-ran:
		cancel()
		t.Fatalf("the cluster did not start: %v", err)
		panic("not reached")
	}
}

// The first broker's web address shows deletions, whichever broker is the controller.
func TestADevClusterShowsDeletionsWhicheverBrokerControls(t *testing.T) {
	for _, web := range []string{"", "127.0.0.1:0"} {
		configs, err := DevOptions{Brokers: 3, Dir: t.TempDir(), Web: web, Log: quietLog()}.configs()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range configs {
			if c.WebListen != web {
				t.Errorf("--web %q: broker %d serves %q", web, c.ID, c.WebListen)
			}
		}
	}
	c, stop := runDevCluster(t, t.TempDir(), 3)
	defer stop()
	resp, err := http.Get(c.Web + "/api/v1/deletions")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != "[]" {
		t.Errorf("deletions: %v, %s, %s", err, resp.Status, body)
	}
}

func TestADevClusterReplicatesAndKeepsItsDirectory(t *testing.T) {
	dir := t.TempDir()
	c, stop := runDevCluster(t, dir, 3)
	if len(c.Bootstrap) != 3 || c.Web == "" {
		t.Errorf("endpoints %+v", c)
	}
	produce(t, c, 100)
	stop()
	c, stop = runDevCluster(t, dir, 3)
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap...), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for n := 0; n < 100; {
		fs := cl.PollFetches(t.Context())
		if err := fs.Err0(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprint("value ", n); string(r.Value) != want {
				t.Errorf("record %d is %q", n, r.Value)
			}
			n++
		})
	}
}

// produce writes records to a topic that is created by it, with a copy on every broker.
func produce(t *testing.T, c DevCluster, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap...), kgo.AllowAutoTopicCreation(), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range n {
		r := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Append(nil, "value ", i)})
		if err := r.FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADevClusterNamesWhatKeepsItFromStarting(t *testing.T) {
	for name, o := range map[string]DevOptions{
		"no broker":     {},
		"a wrong value": {Brokers: 1, Settings: map[string]string{"num.partitions": "many"}},
	} {
		o.Dir, o.Log = t.TempDir(), slog.New(slog.DiscardHandler)
		if err := RunDev(t.Context(), o); err == nil {
			t.Errorf("%s: started", name)
		}
	}
}
