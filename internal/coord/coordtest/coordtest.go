// Package coordtest is the conformance suite of coord.Store: every engine runs it.
// Each test gets a fresh tree and says in its name what holds.
package coordtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"klamm/internal/coord"
)

// Engine is what an engine under test offers the suite.
type Engine struct {
	// Connect opens one more client on the same tree. The engine's own cleanup closes it.
	Connect func() coord.Store
	// Expire makes the engine drop a session as if its ttl had passed. The session finds out by itself.
	Expire func(coord.Session)
	// Small runs the large tests at a tenth of their size: for engines that repeat every write on several disks of one
	// test machine, or answer over the network.
	Small bool
}

// sessionTTL is short, because engines may find out about an expired session only at its next heartbeat.
const sessionTTL = time.Second

// patience bounds every wait for something that must happen.
const patience = 60 * time.Second

// Run runs the suite, or only the named groups of it ("nodes", "multi", "batch", "watch", "session", "procedures"); open
// starts an engine with an empty tree for one test.
func Run(t *testing.T, open func(t *testing.T) Engine, only ...string) {
	groups := map[string]map[string]func(*testing.T, *fixture){
		"nodes": nodeTests, "multi": multiTests, "batch": batchTests, "watch": watchTests,
		"session": sessionTests, "procedures": procedureTests,
	}
	for group := range groups {
		if len(only) > 0 && !slices.Contains(only, group) {
			delete(groups, group)
		}
	}
	for group, tests := range groups {
		for name, test := range tests {
			t.Run(group+"/"+name, func(t *testing.T) {
				e := open(t)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				test(t, &fixture{T: t, Engine: e, ctx: ctx, s: e.Connect()})
			})
		}
	}
}

// fixture is one test's engine, first client and deadline. Its methods fail the test on unexpected errors.
type fixture struct {
	*testing.T
	Engine
	ctx context.Context
	s   coord.Store
}

// size is the size of a large test for this engine.
func (f *fixture) size(full int) int {
	if f.Small {
		return full / 10
	}
	return full
}

func (f *fixture) create(paths ...string) {
	f.Helper()
	for _, p := range paths {
		f.multi(coord.Create(p, []byte(p)))
	}
}

func (f *fixture) multi(ops ...coord.Op) []coord.OpResult {
	f.Helper()
	results, err := f.s.Multi(f.ctx, ops...)
	if err != nil {
		f.Fatalf("multi %v: %v", describe(ops), err)
	}
	if len(results) != len(ops) {
		f.Fatalf("multi of %d operations gave %d results", len(ops), len(results))
	}
	return results
}

// multiFails runs a Multi whose operation at index must fail with want, and all others with ErrAborted.
func (f *fixture) multiFails(index int, want error, ops ...coord.Op) {
	f.Helper()
	results, err := f.s.Multi(f.ctx, ops...)
	if !errors.Is(err, want) {
		f.Errorf("multi %v: got error %v, want %v", describe(ops), err, want)
		return
	}
	if len(results) != len(ops) {
		f.Errorf("multi of %d operations gave %d results", len(ops), len(results))
		return
	}
	for i, r := range results {
		if i == index && !errors.Is(r.Err, want) {
			f.Errorf("multi %v: operation %d got %v, want %v", describe(ops), i, r.Err, want)
		}
		if i != index && !errors.Is(r.Err, coord.ErrAborted) {
			f.Errorf("multi %v: operation %d got %v, want it aborted", describe(ops), i, r.Err)
		}
	}
}

func (f *fixture) batch(guard *coord.Guard, ops ...coord.Op) []coord.OpResult {
	f.Helper()
	results, err := f.s.Batch(f.ctx, guard, ops)
	if err != nil {
		f.Fatalf("batch: %v", err)
	}
	if len(results) != len(ops) {
		f.Fatalf("batch of %d operations gave %d results", len(ops), len(results))
	}
	return results
}

func (f *fixture) get(path string) coord.Node {
	f.Helper()
	n, err := f.s.Get(f.ctx, path)
	if err != nil {
		f.Fatalf("get %s: %v", path, err)
	}
	return n
}

func (f *fixture) wantData(path, want string) {
	f.Helper()
	if got := string(f.get(path).Data); got != want {
		f.Errorf("%s holds %q, want %q", path, got, want)
	}
}

func (f *fixture) wantAbsent(paths ...string) {
	f.Helper()
	for _, p := range paths {
		if n, err := f.s.Get(f.ctx, p); !errors.Is(err, coord.ErrNoNode) {
			f.Errorf("%s is there (%q, %v), want it absent", p, n.Data, err)
		}
	}
}

func (f *fixture) wantChildren(path string, want ...string) {
	f.Helper()
	got, err := f.s.Children(f.ctx, path)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		f.Errorf("children of %s are %v, %v; want %v", path, got, err, want)
	}
}

func (f *fixture) wantErrors(results []coord.OpResult, want ...error) {
	f.Helper()
	for i, r := range results {
		if !errors.Is(r.Err, want[i]) {
			f.Errorf("operation %d (%s): got %v, want %v", i, r.Path, r.Err, want[i])
		}
	}
}

func (f *fixture) session() coord.Session {
	f.Helper()
	return f.sessionOf(f.s)
}

func (f *fixture) sessionOf(s coord.Store) coord.Session {
	f.Helper()
	sess, err := s.OpenSession(f.ctx, sessionTTL)
	if err != nil {
		f.Fatalf("open session: %v", err)
	}
	return sess
}

// next returns the events of one watched change.
func (f *fixture) next(w coord.Watcher) []coord.WatchEvent {
	f.Helper()
	events, err := w.Next(f.ctx)
	if err != nil {
		f.Fatalf("next watch event: %v", err)
	}
	return events
}

// waitFor waits until the condition holds, looking again whenever the watcher fires.
func (f *fixture) waitFor(w coord.Watcher, what string, holds func() bool) {
	f.Helper()
	for !holds() {
		if _, err := w.Next(f.ctx); err != nil {
			f.Fatalf("%s: %v", what, err)
		}
	}
}

func (f *fixture) waitDone(s coord.Session) {
	f.Helper()
	select {
	case <-s.Done():
	case <-f.ctx.Done():
		f.Fatal("the session is not done")
	}
}

func describe(ops []coord.Op) []string {
	out := make([]string, len(ops))
	for i, op := range ops {
		out[i] = op.Kind.String() + " " + op.Path
	}
	return out
}
