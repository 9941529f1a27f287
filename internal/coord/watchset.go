package coord

import (
	"context"
	"sync"
)

// WatchSet is the Watcher that engines hand out: they tell it what changed, it keeps and coalesces what is watched.
// Safe for concurrent use; its lock is a leaf.
type WatchSet struct {
	onClose func(*WatchSet)
	wake    chan struct{} // holds a token while events may be pending
	closed  chan struct{}

	mu struct {
		sync.Mutex
		watched map[WatchEvent]bool // value: pending
		pending []WatchEvent
		closed  bool
	}
}

// NewWatchSet starts an empty set; onClose lets the engine forget it.
func NewWatchSet(onClose func(*WatchSet)) *WatchSet {
	w := &WatchSet{onClose: onClose, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	w.mu.watched = map[WatchEvent]bool{}
	return w
}

// Add implements Watcher.
func (w *WatchSet) Add(path string, kind WatchKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := WatchEvent{path, kind}
	if _, ok := w.mu.watched[e]; !ok {
		w.mu.watched[e] = false
	}
}

// Remove implements Watcher. A pending event of the watch is dropped.
func (w *WatchSet) Remove(path string, kind WatchKind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := WatchEvent{path, kind}
	if w.mu.watched[e] {
		kept := w.mu.pending[:0]
		for _, p := range w.mu.pending {
			if p != e {
				kept = append(kept, p)
			}
		}
		w.mu.pending = kept
	}
	delete(w.mu.watched, e)
}

// Changed tells the set that a node was written; membership means that it was created or deleted.
func (w *WatchSet) Changed(path string, membership bool) {
	w.mu.Lock()
	fired := w.fireLocked(WatchEvent{path, WatchNode})
	if membership {
		fired = w.fireLocked(WatchEvent{ParentPath(path), WatchChildren}) || fired
	}
	w.mu.Unlock()
	w.signal(fired)
}

// Fire tells the set that one watch fired, for engines that tell their own kinds apart.
func (w *WatchSet) Fire(e WatchEvent) {
	w.mu.Lock()
	fired := w.fireLocked(e)
	w.mu.Unlock()
	w.signal(fired)
}

// Resync fires all watches: changes may have been missed.
func (w *WatchSet) Resync() {
	w.mu.Lock()
	fired := false
	for e := range w.mu.watched {
		fired = w.fireLocked(e) || fired
	}
	w.mu.Unlock()
	w.signal(fired)
}

func (w *WatchSet) fireLocked(e WatchEvent) bool {
	pending, watched := w.mu.watched[e]
	if !watched || pending {
		return false
	}
	w.mu.watched[e] = true
	w.mu.pending = append(w.mu.pending, e)
	return true
}

func (w *WatchSet) signal(fired bool) {
	if !fired {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default: // a token is there already
	}
}

// Next implements Watcher.
func (w *WatchSet) Next(ctx context.Context) ([]WatchEvent, error) {
	for {
		w.mu.Lock()
		events, closed := w.mu.pending, w.mu.closed
		w.mu.pending = nil
		for _, e := range events {
			w.mu.watched[e] = false
		}
		w.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case len(events) > 0:
			return events, nil
		}
		select {
		case <-w.wake:
		case <-w.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close implements Watcher.
func (w *WatchSet) Close() {
	w.mu.Lock()
	was := w.mu.closed
	w.mu.closed = true
	w.mu.Unlock()
	if was {
		return
	}
	close(w.closed)
	w.onClose(w)
}
