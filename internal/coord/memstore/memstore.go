// Package memstore is a coordination engine in memory, for tests and simulation: several clients on one tree,
// sessions that expire on demand, and hooks that make calls fail, lose their answers or wait.
//
// It is deterministic: what happens depends only on the order of calls. Time is read for Ctime, and for the ttl of
// sessions whose client is disconnected or closed (real time, or that of a synctest bubble).
//
// Locks: Engine.mu guards the tree, the sessions and the set of watchers. Each client has a lock for its hook, and
// each WatchSet its own; both are leaves.
package memstore

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"time"

	"klamm/internal/coord"
)

// Engine is one tree. Its clients share it as brokers share a ZooKeeper ensemble.
type Engine struct {
	mu struct {
		sync.Mutex
		nodes       map[string]*node
		zxid        int64
		nextSession int64
		sessions    map[int64]*session
		watchers    []*coord.WatchSet
	}
}

type node struct {
	data     []byte
	stat     coord.Stat
	children map[string]struct{}
	counter  int64 // of the next sequential child
}

// New makes an engine with nothing but the root.
func New() *Engine {
	e := &Engine{}
	e.mu.nodes = map[string]*node{"/": {}}
	e.mu.sessions = map[int64]*session{}
	return e
}

// Client opens a connection.
func (e *Engine) Client() *Client {
	c := &Client{engine: e}
	c.mu.sessions = map[*session]struct{}{}
	return c
}

// Dump returns every node, sorted by path, without the root.
func (e *Engine) Dump() []coord.Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []coord.Node
	for path, n := range e.mu.nodes {
		if path != "/" {
			out = append(out, n.export(path))
		}
	}
	slices.SortFunc(out, func(a, b coord.Node) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// ExpireSession ends a session as the passing of its ttl does: its nodes go and Done closes. It reports whether the
// session was open.
func (e *Engine) ExpireSession(id int64) bool {
	e.mu.Lock()
	s := e.mu.sessions[id]
	e.mu.Unlock()
	return s != nil && e.endSession(s)
}

func (n *node) export(path string) coord.Node {
	return coord.Node{Path: path, Data: bytes.Clone(n.data), Stat: n.stat}
}

// change is one write of a transaction, for the watchers.
type change struct {
	path       string
	membership bool
}

// txn applies operations to the tree under Engine.mu and can take them back.
type txn struct {
	e       *Engine
	zxid    int64
	undo    []func()
	changes []change
	deleted map[string]bool // paths that this transaction deleted
}

func (e *Engine) beginLocked() *txn {
	return &txn{e: e, zxid: e.mu.zxid + 1, deleted: map[string]bool{}}
}

// commitLocked makes the changes final and returns whom to tell of them after the lock is released.
func (t *txn) commitLocked() func() {
	if len(t.changes) == 0 {
		return func() {}
	}
	t.e.mu.zxid = t.zxid
	watchers := slices.Clone(t.e.mu.watchers)
	return func() {
		for _, w := range watchers {
			for _, c := range t.changes {
				w.Changed(c.path, c.membership)
			}
		}
	}
}

func (t *txn) rollbackLocked() {
	for _, undo := range slices.Backward(t.undo) {
		undo()
	}
}

func (t *txn) applyLocked(op coord.Op) coord.OpResult {
	r := coord.OpResult{Path: op.Path}
	if op.Path == "/" && op.Kind != coord.OpCheck || !coord.ValidPath(op.Path) {
		r.Err = coord.ErrInvalidPath
		return r
	}
	switch op.Kind {
	case coord.OpCreate:
		r.Path, r.Stat, r.Err = t.createLocked(op)
	case coord.OpSet:
		r.Stat, r.Err = t.setLocked(op)
	case coord.OpDelete:
		r.Err = t.deleteLocked(op)
	case coord.OpCheck:
		_, r.Err = t.findLocked(op)
	}
	return r
}

// findLocked returns the node of a Set, Delete or Check if it has the expected version.
func (t *txn) findLocked(op coord.Op) (*node, error) {
	n := t.e.mu.nodes[op.Path]
	switch {
	case n == nil:
		return nil, coord.ErrNoNode
	case op.Version != coord.AnyVersion && op.Version != n.stat.Version:
		return nil, coord.ErrBadVersion
	}
	return n, nil
}

func (t *txn) createLocked(op coord.Op) (string, coord.Stat, error) {
	var owner int64
	if op.Session != nil {
		owner = op.Session.ID()
		if t.e.mu.sessions[owner] == nil {
			return op.Path, coord.Stat{}, coord.ErrSessionExpired
		}
	}
	parentPath, path := coord.ParentPath(op.Path), op.Path
	parent := t.e.mu.nodes[parentPath]
	if parent == nil {
		return path, coord.Stat{}, coord.ErrNoNode
	}
	if parent.stat.EphemeralOwner != 0 {
		return path, coord.Stat{}, coord.ErrNoEphemeralChildren
	}
	if op.Sequential {
		path = coord.SequentialPath(op.Path, parent.counter)
	}
	if t.deleted[path] {
		return path, coord.Stat{}, coord.ErrRecreated
	}
	if t.e.mu.nodes[path] != nil {
		return path, coord.Stat{}, coord.ErrNodeExists
	}
	n := &node{data: bytes.Clone(op.Data), stat: coord.Stat{Czxid: t.zxid, Mzxid: t.zxid, Ctime: time.Now(), EphemeralOwner: owner}}
	t.linkLocked(parent, path, n)
	if op.Sequential {
		parent.counter++
		t.undo = append(t.undo, func() { parent.counter-- })
	}
	t.undo = append(t.undo, func() { t.e.unlinkLocked(path) })
	t.changes = append(t.changes, change{path, true})
	return path, n.stat, nil
}

func (t *txn) linkLocked(parent *node, path string, n *node) {
	if parent.children == nil {
		parent.children = map[string]struct{}{}
	}
	parent.children[coord.BaseName(path)] = struct{}{}
	t.e.mu.nodes[path] = n
}

func (e *Engine) unlinkLocked(path string) {
	delete(e.mu.nodes[coord.ParentPath(path)].children, coord.BaseName(path))
	delete(e.mu.nodes, path)
}

func (t *txn) setLocked(op coord.Op) (coord.Stat, error) {
	n, err := t.findLocked(op)
	if err != nil {
		return coord.Stat{}, err
	}
	data, stat := n.data, n.stat
	t.undo = append(t.undo, func() { n.data, n.stat = data, stat })
	n.data = bytes.Clone(op.Data)
	n.stat.Mzxid = t.zxid
	n.stat.Version++
	t.changes = append(t.changes, change{op.Path, false})
	return n.stat, nil
}

func (t *txn) deleteLocked(op coord.Op) error {
	n, err := t.findLocked(op)
	if err != nil {
		return err
	}
	if len(n.children) > 0 {
		return coord.ErrNotEmpty
	}
	parent := t.e.mu.nodes[coord.ParentPath(op.Path)]
	t.e.unlinkLocked(op.Path)
	t.undo = append(t.undo, func() { t.linkLocked(parent, op.Path, n) })
	t.deleted[op.Path] = true
	t.changes = append(t.changes, change{op.Path, true})
	return nil
}

// deleteTreeLocked removes a node with all below it, children first.
func (t *txn) deleteTreeLocked(path string) {
	n := t.e.mu.nodes[path]
	if n == nil {
		return
	}
	for _, name := range sortedNames(n) {
		t.deleteTreeLocked(path + "/" + name)
	}
	t.e.unlinkLocked(path)
	t.changes = append(t.changes, change{path, true})
}

func sortedNames(n *node) []string {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
