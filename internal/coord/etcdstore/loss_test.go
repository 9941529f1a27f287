package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"klamm/internal/coord"
)

// writer sets a node's data to 0, 1, 2 ... by compare and set, as the controller writes: what has an unknown outcome is
// read again. It notes the longest time without a success.
type writer struct {
	store   *Store
	done    atomic.Int64
	longest atomic.Int64
}

func (w *writer) run(ctx context.Context, t *testing.T) {
	last := time.Now()
	for version := int32(0); ctx.Err() == nil; {
		_, err := w.store.Multi(ctx, coord.Set("/n", fmt.Append(nil, version+1), version))
		switch {
		case err == nil:
			version++
		case errors.Is(err, coord.ErrUnknownOutcome), errors.Is(err, coord.ErrUnavailable):
			node, err := w.store.Get(ctx, "/n")
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, coord.ErrUnavailable) {
					t.Errorf("read: %v", err)
				}
				continue
			}
			if node.Stat.Version != version && node.Stat.Version != version+1 {
				t.Errorf("version %d after writing at %d: another one wrote", node.Stat.Version, version)
			}
			version = node.Stat.Version
		case ctx.Err() == nil:
			t.Errorf("write at version %d: %v", version, err)
			return
		}
		if err == nil {
			w.longest.Store(max(w.longest.Load(), int64(time.Since(last))))
			last = time.Now()
			w.done.Add(1)
		}
	}
}

// await waits until n more writes were done.
func (w *writer) await(t *testing.T, n int64) {
	t.Helper()
	until := w.done.Load() + n
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for w.done.Load() < until {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d writes done, waited for %d", w.done.Load(), until)
		}
	}
}

func TestWritesGoOnAfterTheLeaderIsLost(t *testing.T) {
	for name, lose := range map[string]func(*Engine){
		"by a clean stop": func(e *Engine) { _ = e.Close() },
		"by a crash":      crash,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, 3)
			g.start(0, 1, 2)
			leader := g.leader()
			survivor := g.members[(leader+1)%3]
			remote := g.dial()
			if _, err := remote.store.Multi(t.Context(), coord.Create("/n", nil)); err != nil {
				t.Fatal(err)
			}
			w := &writer{store: survivor.store}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); w.run(ctx, t) }()
			w.await(t, 50)
			lost := g.members[leader]
			g.members[leader] = nil
			lose(lost)
			w.await(t, 50)
			t.Logf("longest time without a write: %v", time.Duration(w.longest.Load()))
			// A client outside finds another member, too.
			if _, err := remote.store.Get(t.Context(), "/n"); err != nil {
				t.Error(err)
			}
			cancel()
			<-ended
		})
	}
}

// crash ends a member without a word to the others, as far as that is possible within a process.
func crash(e *Engine) {
	e.group.door.listener.Close()
	e.group.door.listener.closeAll()
	e.server.HardStop()
	_ = e.Close()
}

func TestAMemberThatWasAwayCatchesUp(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	g.stop(1)
	s := g.members[0].store
	if _, err := s.Multi(t.Context(), coord.Create("/a", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	g.start(1)
	if n, err := g.members[1].store.Get(t.Context(), "/a"); err != nil || string(n.Data) != "x" {
		t.Errorf("%q, %v", n.Data, err)
	}
}

func TestAWatchOutsideSurvivesTheLossOfItsMember(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	remote := g.dial()
	w := remote.store.NewWatcher()
	defer w.Close()
	w.Add("/", coord.WatchChildren)
	for i := range 3 {
		s := g.members[(i+1)%3].store
		path := fmt.Sprintf("/c%d", i)
		g.stop(i)
		if err := retry(t.Context(), func() error { _, err := s.Multi(t.Context(), coord.Create(path, nil)); return err }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		for {
			if _, err := w.Next(ctx); err != nil {
				t.Fatalf("after the loss of member %d: %v", i+1, err)
			}
			if names, err := remote.store.Children(ctx, "/"); err == nil && len(names) > i {
				break
			}
		}
		cancel()
		g.start(i)
	}
}

// retry repeats what may be done twice.
func retry(ctx context.Context, do func() error) error {
	for {
		err := do()
		if ctx.Err() != nil || !errors.Is(err, coord.ErrUnknownOutcome) && !errors.Is(err, coord.ErrUnavailable) {
			if errors.Is(err, coord.ErrNodeExists) {
				return nil
			}
			return err
		}
	}
}

func TestOtherBrokersSessionsOutliveARestart(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	other, err := g.members[1].store.OpenSession(t.Context(), 6*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	own, err := g.members[0].store.OpenSession(t.Context(), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s := g.members[1].store
	if _, err := s.Multi(t.Context(), coord.CreateEphemeral("/other", nil, other), coord.CreateEphemeral("/own", nil, own)); err != nil {
		t.Fatal(err)
	}
	g.stop(0)
	g.start(0)
	if _, err := s.Get(t.Context(), "/own"); err != nil {
		t.Errorf("before its owner ended it: %v", err)
	}
	if err := g.members[0].store.EndSession(t.Context(), own.ID(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "/own"); !errors.Is(err, coord.ErrNoNode) {
		t.Errorf("the node of the former process: %v", err)
	}
	if _, err := s.Get(t.Context(), "/other"); err != nil || isDone(other) {
		t.Errorf("the node of another broker: %v, done %v", err, isDone(other))
	}
	if err := g.members[0].store.EndSession(t.Context(), own.ID(), nil); err != nil {
		t.Errorf("ended again: %v", err)
	}
}

func TestAWaitForTheMajorityNamesWhoIsMissing(t *testing.T) {
	g := newGroup(t, 3)
	log := &lines{found: make(chan string, 1), want: "waiting for a majority"}
	g.log = log.logger()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := StartMember(ctx, g.config(0)); failed <- err }()
	line := <-log.found
	for _, p := range g.peers[1:] {
		if !strings.Contains(line, p.String()) || !strings.Contains(line, "connection refused") {
			t.Errorf("%q does not name %s with the reason", line, p)
		}
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	g.start(2, 1) // the majority needs no first one
}
