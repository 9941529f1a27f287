package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"klamm/internal/coord"
)

// Call is what a fault hook sees before the engine does.
type Call struct {
	Method string       // "Get", "GetMany", "Children", "Multi", "Batch", "DeleteTree" or "OpenSession"
	Paths  []string     // of reads and DeleteTree
	Ops    []coord.Op   // of Multi and Batch
	Guard  *coord.Guard // of Batch and DeleteTree
}

// Fault is what a hook does to a call. The zero value lets it pass.
type Fault struct {
	// Wait holds the call back until the channel is closed or the call's context ends.
	Wait <-chan struct{}
	// Err is returned instead of applying the call.
	Err error
	// LoseAnswer applies the call and answers coord.ErrUnknownOutcome.
	LoseAnswer bool
}

// Client is one connection to an Engine.
type Client struct {
	engine *Engine

	mu struct {
		sync.Mutex
		hook         func(Call) Fault
		denied       []string
		disconnected bool
		closed       bool
		sessions     map[*session]struct{}
		watchers     []*coord.WatchSet
	}
}

var _ coord.Store = (*Client)(nil)

// SetHook installs a function that is asked before every call; nil removes it. It runs on the caller's goroutine.
func (c *Client) SetHook(hook func(Call) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.hook = hook
}

// Deny takes the right to read nodes away, as ZooKeeper's ACLs do, in place of those that were denied before.
func (c *Client) Deny(paths ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.denied = paths
}

// read gives a node unless it is denied to this client.
func (c *Client) read(path string) coord.ReadResult {
	c.mu.Lock()
	denied := slices.Contains(c.mu.denied, path)
	c.mu.Unlock()
	if denied {
		return coord.ReadResult{Node: coord.Node{Path: path}, Err: fmt.Errorf("%w: not authorized for this node", coord.ErrNoPermission)}
	}
	return c.engine.read(path)
}

// Disconnect makes all calls fail with coord.ErrUnavailable. Sessions end when their ttl has passed without Reconnect.
func (c *Client) Disconnect() {
	c.mu.Lock()
	c.mu.disconnected = true
	sessions := c.sessionsLocked()
	c.mu.Unlock()
	for _, s := range sessions {
		s.startTimer()
	}
}

// Reconnect undoes Disconnect; all watches fire.
func (c *Client) Reconnect() {
	c.mu.Lock()
	c.mu.disconnected = false
	sessions := c.sessionsLocked()
	watchers := slices.Clone(c.mu.watchers)
	c.mu.Unlock()
	for _, s := range sessions {
		s.stopTimer()
	}
	for _, w := range watchers {
		w.Resync()
	}
}

func (c *Client) sessionsLocked() []*session {
	var out []*session
	for s := range c.mu.sessions {
		out = append(out, s)
	}
	return out
}

// begin asks the hook and the state of the connection whether a call may reach the engine.
func (c *Client) begin(ctx context.Context, call Call) (Fault, error) {
	c.mu.Lock()
	hook := c.mu.hook
	c.mu.Unlock()
	var f Fault
	if hook != nil {
		f = hook(call)
	}
	if f.Wait != nil {
		select {
		case <-f.Wait:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return f, ctx.Err()
	case c.mu.closed:
		return f, coord.ErrClosed
	case c.mu.disconnected:
		return f, coord.ErrUnavailable
	}
	return f, f.Err
}

func answer(f Fault) error {
	if f.LoseAnswer {
		return coord.ErrUnknownOutcome
	}
	return nil
}

// Get implements coord.Store.
func (c *Client) Get(ctx context.Context, path string) (coord.Node, error) {
	if _, err := c.begin(ctx, Call{Method: "Get", Paths: []string{path}}); err != nil {
		return coord.Node{}, err
	}
	r := c.read(path)
	return r.Node, r.Err
}

// GetMany implements coord.Store.
func (c *Client) GetMany(ctx context.Context, paths []string) ([]coord.ReadResult, error) {
	if _, err := c.begin(ctx, Call{Method: "GetMany", Paths: paths}); err != nil {
		return nil, err
	}
	out := make([]coord.ReadResult, len(paths))
	for i, p := range paths {
		out[i] = c.read(p)
	}
	return out, nil
}

func (e *Engine) read(path string) coord.ReadResult {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.mu.nodes[path]
	if n == nil {
		return coord.ReadResult{Node: coord.Node{Path: path}, Err: coord.ErrNoNode}
	}
	return coord.ReadResult{Node: n.export(path)}
}

// Children implements coord.Store.
func (c *Client) Children(ctx context.Context, path string) ([]string, error) {
	if _, err := c.begin(ctx, Call{Method: "Children", Paths: []string{path}}); err != nil {
		return nil, err
	}
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	n := c.engine.mu.nodes[path]
	if n == nil {
		return nil, coord.ErrNoNode
	}
	return sortedNames(n), nil
}

// Multi implements coord.Store.
func (c *Client) Multi(ctx context.Context, ops ...coord.Op) ([]coord.OpResult, error) {
	f, err := c.begin(ctx, Call{Method: "Multi", Ops: ops})
	if err != nil {
		return nil, err
	}
	results, notify, err := c.engine.multi(ops)
	notify()
	if lost := answer(f); lost != nil {
		return nil, lost
	}
	return results, err
}

func (e *Engine) multi(ops []coord.Op) ([]coord.OpResult, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.beginLocked()
	results := make([]coord.OpResult, len(ops))
	for i, op := range ops {
		if results[i] = t.applyLocked(op); results[i].Err == nil {
			continue
		}
		t.rollbackLocked()
		for j := range results {
			if j != i {
				results[j] = coord.OpResult{Path: ops[j].Path, Err: coord.ErrAborted}
			}
		}
		return results, func() {}, fmt.Errorf("%s %s: %w", op.Kind, op.Path, results[i].Err)
	}
	return results, t.commitLocked(), nil
}

// Batch implements coord.Store. Here the guard is looked at once, for all operations.
func (c *Client) Batch(ctx context.Context, guard *coord.Guard, ops []coord.Op) ([]coord.OpResult, error) {
	f, err := c.begin(ctx, Call{Method: "Batch", Ops: ops, Guard: guard})
	if err != nil {
		return nil, err
	}
	results, notify, err := c.engine.batch(guard, ops)
	notify()
	if lost := answer(f); lost != nil {
		return nil, lost
	}
	return results, err
}

func (e *Engine) batch(guard *coord.Guard, ops []coord.Op) ([]coord.OpResult, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.holdsLocked(guard) {
		return nil, func() {}, coord.ErrFenced
	}
	results := make([]coord.OpResult, len(ops))
	notifies := make([]func(), len(ops))
	for i, op := range ops {
		if op.Kind == coord.OpCheck {
			results[i] = coord.OpResult{Path: op.Path, Err: errors.New("check is not for batches")}
			notifies[i] = func() {}
			continue
		}
		t := e.beginLocked() // a transaction each: one that fails changes nothing
		results[i] = t.applyLocked(op)
		notifies[i] = t.commitLocked()
	}
	return results, func() {
		for _, notify := range notifies {
			notify()
		}
	}, nil
}

func (e *Engine) holdsLocked(guard *coord.Guard) bool {
	if guard == nil {
		return true
	}
	n := e.mu.nodes[guard.Path]
	return n != nil && n.stat.Version == guard.Version
}

// DeleteTree implements coord.Store.
func (c *Client) DeleteTree(ctx context.Context, guard *coord.Guard, path string) error {
	f, err := c.begin(ctx, Call{Method: "DeleteTree", Paths: []string{path}, Guard: guard})
	if err != nil {
		return err
	}
	if path == "/" || !coord.ValidPath(path) {
		return coord.ErrInvalidPath
	}
	notify, err := c.engine.deleteTree(guard, path)
	notify()
	if lost := answer(f); lost != nil {
		return lost
	}
	return err
}

func (e *Engine) deleteTree(guard *coord.Guard, path string) (func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.holdsLocked(guard) {
		return func() {}, coord.ErrFenced
	}
	t := e.beginLocked()
	t.deleteTreeLocked(path)
	return t.commitLocked(), nil
}

// NewWatcher implements coord.Store.
func (c *Client) NewWatcher() coord.Watcher {
	w := coord.NewWatchSet(c.forget)
	c.mu.Lock()
	closed := c.mu.closed
	if !closed {
		c.mu.watchers = append(c.mu.watchers, w)
	}
	c.mu.Unlock()
	if closed {
		w.Close()
		return w
	}
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	c.engine.mu.watchers = append(c.engine.mu.watchers, w)
	return w
}

func (c *Client) forget(w *coord.WatchSet) {
	is := func(o *coord.WatchSet) bool { return o == w }
	c.mu.Lock()
	c.mu.watchers = slices.DeleteFunc(c.mu.watchers, is)
	c.mu.Unlock()
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	c.engine.mu.watchers = slices.DeleteFunc(c.engine.mu.watchers, is)
}

// OpenSession implements coord.Store.
func (c *Client) OpenSession(ctx context.Context, ttl time.Duration) (coord.Session, error) {
	if _, err := c.begin(ctx, Call{Method: "OpenSession"}); err != nil {
		return nil, err
	}
	s := &session{client: c, ttl: ttl, done: make(chan struct{})}
	c.engine.addSession(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.sessions[s] = struct{}{}
	return s, nil
}

// Close implements coord.Store.
func (c *Client) Close() error {
	c.mu.Lock()
	c.mu.closed = true
	sessions := c.sessionsLocked()
	watchers := slices.Clone(c.mu.watchers)
	c.mu.Unlock()
	for _, s := range sessions {
		s.startTimer()
	}
	for _, w := range watchers {
		w.Close()
	}
	return nil
}
