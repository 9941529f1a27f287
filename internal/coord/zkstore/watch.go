package zkstore

import (
	"slices"
	"sync"

	"klamm/internal/coord"
)

// watches arms the watches of all watchers at the server: persistent ones (addWatch) where it knows them, 3.6 and later,
// else one-shot ones that are armed again before the event that used them up is passed on.
//
// Arming is pipelined and not waited for. A change between Add and the arming is found by what the server says of the
// node right after it: a change id above the newest one known at Add fires the watch. Whoever reads after Add, or after
// an event, reads behind the arming, since requests of a connection keep their order.
//
// The server forgets watches with the connection: on the next one all are armed again, and all fire.
type watches struct {
	store *Store
	mu    struct {
		sync.Mutex
		counts  map[coord.WatchEvent]int // watchers per path and kind
		oneShot bool                     // the server does not know addWatch
	}
}

func (w *watches) init(s *Store) {
	w.store = s
	w.mu.counts = map[coord.WatchEvent]int{}
	s.main.onConnect = w.connected
	s.main.onEvent = w.fired
}

// watcher is a coord.Watcher: a set whose watches are armed at the server.
type watcher struct {
	*coord.WatchSet
	store *Store
	mu    struct {
		sync.Mutex
		held   map[coord.WatchEvent]bool
		closed bool
	}
}

// NewWatcher implements coord.Store.
func (s *Store) NewWatcher() coord.Watcher {
	w := &watcher{store: s, WatchSet: coord.NewWatchSet(func(*coord.WatchSet) {})}
	w.mu.held = map[coord.WatchEvent]bool{}
	s.mu.Lock()
	closed := s.mu.closed
	if !closed {
		s.mu.watchers = append(s.mu.watchers, w)
	}
	s.mu.Unlock()
	if closed {
		w.Close()
	}
	return w
}

// Add implements coord.Watcher.
func (w *watcher) Add(path string, kind coord.WatchKind) {
	at := coord.WatchEvent{Path: path, Kind: kind}
	w.mu.Lock()
	fresh := !w.mu.held[at] && !w.mu.closed
	if fresh {
		w.mu.held[at] = true
	}
	w.mu.Unlock()
	w.WatchSet.Add(path, kind)
	if fresh {
		w.store.watches.add(at)
	}
}

// Remove implements coord.Watcher.
func (w *watcher) Remove(path string, kind coord.WatchKind) {
	at := coord.WatchEvent{Path: path, Kind: kind}
	w.mu.Lock()
	held := w.mu.held[at]
	delete(w.mu.held, at)
	w.mu.Unlock()
	w.WatchSet.Remove(path, kind)
	if held {
		w.store.watches.remove(at)
	}
}

// Close implements coord.Watcher.
func (w *watcher) Close() {
	w.mu.Lock()
	w.mu.closed = true
	held := w.mu.held
	w.mu.held = map[coord.WatchEvent]bool{}
	w.mu.Unlock()
	for at := range held {
		w.store.watches.remove(at)
	}
	w.WatchSet.Close()
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.watchers = slices.DeleteFunc(s.mu.watchers, func(o *watcher) bool { return o == w })
}

func (s *Store) openWatchers() []*watcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.watchers)
}

func (w *watches) fire(at coord.WatchEvent) {
	for _, o := range w.store.openWatchers() {
		o.Fire(at)
	}
}

// add arms a watch. It is armed anew also where another watcher has it: this one counts on what happens from now on.
func (w *watches) add(at coord.WatchEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.counts[at]++
	w.enqueue(w.arm(at, w.mu.oneShot, true))
}

// enqueue is called under the lock, so that arming and disarming of a path keep their order.
func (w *watches) enqueue(rs []*request) {
	for _, r := range rs {
		w.store.main.enqueue(r)
	}
}

// remove disarms a watch that nobody holds any more. One-shot watches stay until they fire, unheard.
func (w *watches) remove(at coord.WatchEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.counts[at]--; w.mu.counts[at] > 0 {
		return
	}
	delete(w.mu.counts, at)
	otherKind := coord.WatchEvent{Path: at.Path, Kind: coord.WatchNode + coord.WatchChildren - at.Kind}
	if !w.mu.oneShot && w.mu.counts[otherKind] == 0 { // the server keeps one watch of a path for both kinds
		w.enqueue([]*request{{frame: removeWatchesFrame(w.store.full(at.Path)), internal: true}})
	}
}

func removeWatchesFrame(path string) []byte {
	return appendInt(appendString(newFrame(opRemoveWatches, len(path)+8), path), watchersAny)
}

func addWatchFrame(path string) []byte {
	return appendInt(appendString(newFrame(opAddWatch, len(path)+8), path), watchPersistent)
}

// arm gives the requests that arm a watch. With verify, what changed since now fires it.
func (w *watches) arm(at coord.WatchEvent, oneShot, verify bool) []*request {
	if oneShot {
		return []*request{w.armOnce(at, verify)}
	}
	path, known := w.store.full(at.Path), w.store.main.zxid()
	out := []*request{{frame: addWatchFrame(path), internal: true, finish: w.noteSupport}}
	if verify {
		out = append(out, &request{frame: pathFrame(opExists, path, false), internal: true, finish: func(r reply) {
			stat, pzxid := r.body.stat()
			if r.err == nil && changedSince(&r, at.Kind, stat, pzxid, known) {
				w.fire(at)
			}
		}})
	}
	return out
}

// armOnce gives the read that arms a one-shot watch. The children of an absent node cannot be watched: its creation is
// watched instead, and arms the watch of its children.
func (w *watches) armOnce(at coord.WatchEvent, verify bool) *request {
	path, known := w.store.full(at.Path), w.store.main.zxid()
	op := opExists
	if at.Kind == coord.WatchChildren {
		op = opGetChildren2
	}
	return &request{frame: pathFrame(op, path, true), internal: true, finish: func(r reply) {
		if r.err != nil {
			return // the next connection arms it
		}
		if r.code == codeNoNode && op == opGetChildren2 {
			w.store.main.enqueue(&request{frame: pathFrame(opExists, path, true), internal: true, finish: func(r reply) {
				if r.err == nil && r.code == codeOK { // created meanwhile
					w.store.main.enqueue(w.armOnce(at, true))
				}
			}})
		}
		if op == opGetChildren2 && r.code == codeOK {
			r.body.strings()
		}
		stat, pzxid := r.body.stat()
		if verify && changedSince(&r, at.Kind, stat, pzxid, known) {
			w.fire(at)
		}
	}}
}

// changedSince says whether the answer to a look at a node may show a change after the known one. Of a node that is
// absent nothing tells when it went.
func changedSince(r *reply, kind coord.WatchKind, stat coord.Stat, pzxid, known int64) bool {
	switch {
	case r.code != codeOK:
		return r.zxid > known
	case r.body.err != nil:
		return true
	case kind == coord.WatchChildren:
		return pzxid > known
	}
	return stat.Mzxid > known
}

// noteSupport learns that the server does not know addWatch. Such a server cuts the connection after its answer; on the
// next one everything is armed in the old way.
func (w *watches) noteSupport(r reply) {
	if r.err == nil && r.code == codeUnimplemented {
		w.mu.Lock()
		w.mu.oneShot = true
		w.mu.Unlock()
	}
}

// connected gives the requests that arm everything on a new connection, after which everything fires.
func (w *watches) connected() []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.counts) == 0 {
		return nil
	}
	var out []*request
	for at := range w.mu.counts {
		out = append(out, w.arm(at, w.mu.oneShot, false)...)
	}
	// Behind the arming: who reads after these events misses nothing.
	return append(out, &request{frame: syncFrame("/"), internal: true, finish: func(r reply) {
		if r.err == nil {
			for _, o := range w.store.openWatchers() {
				o.Resync()
			}
		}
	}})
}

// fired passes an event on, after what it used up is armed again.
func (w *watches) fired(e event) {
	path := w.store.local(e.path)
	node, children := coord.WatchEvent{Path: path, Kind: coord.WatchNode}, coord.WatchEvent{Path: path, Kind: coord.WatchChildren}
	w.mu.Lock()
	if w.mu.oneShot {
		if e.kind != eventChildrenChanged && w.mu.counts[node] > 0 {
			w.enqueue(w.arm(node, true, true))
		}
		if e.kind != eventDataChanged && w.mu.counts[children] > 0 {
			w.enqueue(w.arm(children, true, true))
		}
	}
	w.mu.Unlock()
	switch e.kind {
	case eventCreated, eventDeleted, eventDataChanged:
		w.fire(node)
	case eventChildrenChanged:
		w.fire(children)
	}
}
