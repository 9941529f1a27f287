package coordtest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"klamm/internal/coord"
)

var watchTests = map[string]func(*testing.T, *fixture){
	"a node watch fires on creation, data and deletion": watchNode,
	"a child watch fires when the set of names changes": watchChildren,
	"other paths do not fire":                           watchOtherPaths,
	"pending events coalesce":                           watchCoalesces,
	"a removed watch is silent":                         watchRemoved,
	"a closed watcher ends Next":                        watchClosed,
	"no change after Add is missed":                     watchMissesNothing,
	"every client sees the change":                      watchAcrossClients,
	"what fired can be read at once":                    watchThenRead,
}

func (f *fixture) wantEvents(w coord.Watcher, want ...coord.WatchEvent) {
	f.Helper()
	got := map[coord.WatchEvent]bool{}
	for len(got) < len(want) {
		for _, e := range f.next(w) {
			got[e] = true
		}
	}
	for _, e := range want {
		if !got[e] {
			f.Errorf("events %v lack %v", got, e)
		}
	}
}

func watchNode(t *testing.T, f *fixture) {
	w := f.s.NewWatcher()
	defer w.Close()
	w.Add("/a", coord.WatchNode)
	fired := coord.WatchEvent{Path: "/a", Kind: coord.WatchNode}
	for _, op := range []coord.Op{coord.Create("/a", nil), coord.Set("/a", []byte("x"), 0), coord.Delete("/a", 1), coord.Create("/a", nil)} {
		f.multi(op)
		f.wantEvents(w, fired)
	}
}

func watchChildren(t *testing.T, f *fixture) {
	f.create("/p", "/p/a")
	w := f.s.NewWatcher()
	defer w.Close()
	w.Add("/p", coord.WatchChildren)
	fired := coord.WatchEvent{Path: "/p", Kind: coord.WatchChildren}
	f.multi(coord.Create("/p/b", nil))
	f.wantEvents(w, fired)
	f.multi(coord.Delete("/p/b", 0))
	f.wantEvents(w, fired)
	f.batch(nil, coord.Create("/p/c", nil))
	f.wantEvents(w, fired)
	if err := f.s.DeleteTree(f.ctx, nil, "/p/c"); err != nil {
		t.Fatal(err)
	}
	f.wantEvents(w, fired)
}

func watchOtherPaths(t *testing.T, f *fixture) {
	f.create("/p", "/p/a", "/q")
	w := f.s.NewWatcher()
	defer w.Close()
	w.Add("/p", coord.WatchChildren)
	w.Add("/p", coord.WatchNode)
	w.Add("/q", coord.WatchNode)
	f.multi(coord.Set("/p/a", []byte("x"), 0))
	f.create("/p/a/deep", "/q/child", "/pp")
	f.multi(coord.Set("/q", []byte("x"), 0))
	if got := f.next(w); len(got) != 1 || got[0] != (coord.WatchEvent{Path: "/q", Kind: coord.WatchNode}) {
		t.Errorf("events are %v", got)
	}
}

func watchCoalesces(t *testing.T, f *fixture) {
	f.create("/a", "/b", "/end")
	w, last := f.s.NewWatcher(), f.s.NewWatcher()
	defer w.Close()
	defer last.Close()
	w.Add("/a", coord.WatchNode)
	w.Add("/b", coord.WatchNode)
	last.Add("/end", coord.WatchNode)
	for i := range int32(20) {
		f.multi(coord.Set("/b", nil, i))
		f.multi(coord.Set("/a", nil, i))
	}
	f.multi(coord.Set("/end", nil, 0))
	f.next(last) // both watchers hear of changes in one order
	f.multi(coord.Set("/end", nil, 1))
	f.next(last)
	got := f.next(w)
	if len(got) != 2 || got[0].Path != "/b" || got[1].Path != "/a" {
		t.Errorf("events are %v", got)
	}
}

func watchRemoved(t *testing.T, f *fixture) {
	f.create("/a", "/b")
	w := f.s.NewWatcher()
	defer w.Close()
	w.Add("/a", coord.WatchNode)
	w.Add("/b", coord.WatchNode)
	w.Remove("/a", coord.WatchNode)
	f.multi(coord.Set("/a", nil, 0))
	f.multi(coord.Set("/b", nil, 0))
	if got := f.next(w); len(got) != 1 || got[0].Path != "/b" {
		t.Errorf("events are %v", got)
	}
}

func watchClosed(t *testing.T, f *fixture) {
	w := f.s.NewWatcher()
	w.Add("/a", coord.WatchNode)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := w.Next(f.ctx); !errors.Is(err, coord.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
	w.Close()
	wg.Wait()
	w.Close() // twice is fine
}

// watchMissesNothing reads whenever an event comes and must see the last value in the end.
func watchMissesNothing(t *testing.T, f *fixture) {
	const writes = 300
	f.create("/a", "/p")
	other := f.Connect()
	w := f.s.NewWatcher()
	defer w.Close()
	w.Add("/a", coord.WatchNode)
	w.Add("/p", coord.WatchChildren)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range writes {
			_, err := other.Multi(f.ctx, coord.Set("/a", []byte(strconv.Itoa(i)), int32(i)), coord.Create(fmt.Sprintf("/p/%d", i), nil))
			if err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		}
	})
	data, children := "", 0
	for data != strconv.Itoa(writes-1) || children != writes {
		for _, e := range f.next(w) {
			if e.Kind == coord.WatchNode {
				data = string(f.get("/a").Data)
				continue
			}
			names, err := f.s.Children(f.ctx, "/p")
			if err != nil {
				t.Fatal(err)
			}
			children = len(names)
		}
	}
}

func watchAcrossClients(t *testing.T, f *fixture) {
	f.create("/a")
	var watchers []coord.Watcher
	for range 3 {
		w := f.Connect().NewWatcher()
		defer w.Close()
		w.Add("/a", coord.WatchNode)
		watchers = append(watchers, w)
	}
	f.multi(coord.Set("/a", nil, 0))
	for _, w := range watchers {
		f.wantEvents(w, coord.WatchEvent{Path: "/a", Kind: coord.WatchNode})
	}
}

// watchThenRead reads as soon as an event is there, while the writer's answer may still be on its way: an event that
// arrives ahead of its change would be the last one, and the change be missed. An event without a change is allowed.
func watchThenRead(t *testing.T, f *fixture) {
	f.create("/p")
	w := f.s.NewWatcher()
	defer w.Close()
	w.Add("/p", coord.WatchChildren)
	for i := range f.size(2000) {
		written := make(chan error, 1)
		go func() {
			_, err := f.s.Multi(f.ctx, coord.Create("/p/"+strconv.Itoa(i), nil))
			written <- err
		}()
		for shown := -1; shown != i+1; {
			f.next(w)
			names, err := f.s.Children(f.ctx, "/p")
			if err != nil {
				t.Fatal(err)
			}
			shown = len(names)
		}
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
}
