package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"klamm/internal/node"
)

// A command that runs beside a cluster is of no use once a broker has failed: it is stopped, and the failure is told.
func TestTheCommandOfADevClusterEndsWithTheCluster(t *testing.T) {
	failure := errors.New("a broker failed")
	dir := t.TempDir()
	begun := filepath.Join(dir, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parseDev([]string{"--dir", dir, "--web", "", "--", "sh", "-c", `echo begun > "$0"; exec sleep 1000`, begun})
	if err != nil {
		t.Fatal(err)
	}
	run := func(_ context.Context, o node.DevOptions) error {
		o.Ready(node.DevCluster{Bootstrap: []string{"127.0.0.1:9092"}})
		_, err := os.ReadFile(begun) // waits for the command
		return errors.Join(failure, err)
	}
	ended := make(chan error, 1)
	go func() {
		var out bytes.Buffer
		_, err := runDev(o, run, &out, &out)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, failure) {
			t.Errorf("ended with %v, want %v", err, failure)
		}
	case <-time.After(10 * time.Second):
		t.Error("the command still runs ten seconds after the cluster has failed")
	}
}
