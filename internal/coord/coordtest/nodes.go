package coordtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"klamm/internal/coord"
)

var nodeTests = map[string]func(*testing.T, *fixture){
	"data versions count sets from 0":                     dataVersionsCountSets,
	"a recreated node has a new czxid and version 0":      recreatedNodes,
	"change ids grow with every write":                    changeIDsGrow,
	"refused writes say why and change nothing":           refusedWrites,
	"children are direct, sorted names":                   childrenAreDirect,
	"data of any bytes comes back":                        anyBytes,
	"many reads keep their order":                         manyReads,
	"a sequential node's name is unique and grows":        sequentials,
	"sequential nodes of concurrent clients do not clash": concurrentSequentials,
	"many siblings":                   manySiblings,
	"a cancelled context ends a call": cancelledContext,
	"a closed store refuses":          closedStore,
}

func dataVersionsCountSets(t *testing.T, f *fixture) {
	created := f.multi(coord.Create("/a", []byte("0")))[0].Stat
	if created.Version != 0 || created.Czxid == 0 || created.Czxid != created.Mzxid || created.EphemeralOwner != 0 {
		t.Errorf("created with %+v", created)
	}
	for v := int32(0); v < 3; v++ {
		set := f.multi(coord.Set("/a", []byte{byte('1' + v)}, v))[0].Stat
		got := f.get("/a").Stat
		if set.Version != v+1 || set.Czxid != created.Czxid || set.Mzxid != got.Mzxid || got.Version != v+1 || got.Czxid != created.Czxid {
			t.Errorf("set at %d answered %+v, then read %+v", v, set, got)
		}
	}
	if v := f.multi(coord.Set("/a", nil, coord.AnyVersion))[0].Stat.Version; v != 4 {
		t.Errorf("set at any version gave version %d, want 4", v)
	}
	f.wantData("/a", "")
}

func recreatedNodes(t *testing.T, f *fixture) {
	f.create("/a")
	f.multi(coord.Set("/a", []byte("x"), 0))
	first := f.get("/a").Stat
	f.multi(coord.Delete("/a", 1))
	f.wantAbsent("/a")
	f.create("/a")
	if second := f.get("/a").Stat; second.Version != 0 || second.Czxid <= first.Mzxid {
		t.Errorf("first %+v, after recreation %+v", first, second)
	}
}

func changeIDsGrow(t *testing.T, f *fixture) {
	var last int64
	for i := range 5 {
		path := fmt.Sprintf("/n%d", i)
		for _, op := range []coord.Op{coord.Create(path, nil), coord.Set(path, []byte("x"), 0)} {
			stat := f.multi(op)[0].Stat
			if stat.Mzxid <= last {
				t.Errorf("%s %s has mzxid %d after %d", op.Kind, path, stat.Mzxid, last)
			}
			last = stat.Mzxid
		}
	}
}

func refusedWrites(t *testing.T, f *fixture) {
	f.create("/a", "/a/b")
	cases := []struct {
		op   coord.Op
		want error
	}{
		{coord.Create("/x/y", nil), coord.ErrNoNode},
		{coord.Create("/a", nil), coord.ErrNodeExists},
		{coord.Set("/x", nil, coord.AnyVersion), coord.ErrNoNode},
		{coord.Set("/x", nil, 0), coord.ErrNoNode},
		{coord.Set("/a", nil, 1), coord.ErrBadVersion},
		{coord.Delete("/x", coord.AnyVersion), coord.ErrNoNode},
		{coord.Delete("/a/b", 3), coord.ErrBadVersion},
		{coord.Delete("/a", coord.AnyVersion), coord.ErrNotEmpty},
		{coord.Check("/x", 0), coord.ErrNoNode},
		{coord.Check("/a", 2), coord.ErrBadVersion},
		{coord.CreateSequential("/x/y", nil), coord.ErrNoNode},
		{coord.Create("a", nil), coord.ErrInvalidPath},
		{coord.Create("/a/", nil), coord.ErrInvalidPath},
		{coord.Create("/a//b", nil), coord.ErrInvalidPath},
		{coord.Delete("/", coord.AnyVersion), coord.ErrInvalidPath},
	}
	for _, c := range cases {
		f.multiFails(0, c.want, c.op)
		if c.op.Kind != coord.OpCheck {
			f.wantErrors(f.batch(nil, c.op), c.want)
		}
	}
	f.wantData("/a", "/a")
	f.wantData("/a/b", "/a/b")
	if v := f.get("/a").Stat.Version; v != 0 {
		t.Errorf("refused writes left version %d", v)
	}
}

func childrenAreDirect(t *testing.T, f *fixture) {
	f.create("/p", "/p/b", "/p/a", "/p/a/deep", "/p/c", "/pp", "/p-q", "/p-q/x")
	f.wantChildren("/p", "a", "b", "c")
	f.wantChildren("/p/a", "deep")
	f.wantChildren("/p/b")
	f.wantChildren("/", "p", "p-q", "pp")
	if _, err := f.s.Children(f.ctx, "/absent"); !errors.Is(err, coord.ErrNoNode) {
		t.Errorf("children of an absent node: %v", err)
	}
	if _, err := f.s.Get(f.ctx, "/"); err != nil {
		t.Errorf("get of the root: %v", err)
	}
}

func anyBytes(t *testing.T, f *fixture) {
	for i, data := range [][]byte{nil, {}, {0}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1}, {0xff, 0}, bytes.Repeat([]byte{7}, 900_000)} {
		path := fmt.Sprintf("/n%d", i)
		f.multi(coord.Create(path, data))
		if got := f.get(path).Data; !bytes.Equal(got, data) {
			t.Errorf("created with %d bytes, read %d", len(data), len(got))
		}
		f.multi(coord.Set(path, append([]byte{0}, data...), 0))
		if got := f.get(path).Data; !bytes.Equal(got, append([]byte{0}, data...)) {
			t.Errorf("set to %d bytes, read %d", len(data)+1, len(got))
		}
	}
}

func manyReads(t *testing.T, f *fixture) {
	const n = 2500
	f.create("/p")
	var ops []coord.Op
	var paths []string
	for i := range n {
		path := fmt.Sprintf("/p/%d", i)
		paths = append(paths, path, path+"-absent")
		ops = append(ops, coord.Create(path, []byte(path)))
	}
	f.batch(nil, ops...)
	reads, err := f.s.GetMany(f.ctx, paths)
	if err != nil || len(reads) != 2*n {
		t.Fatalf("%d reads, %v", len(reads), err)
	}
	for i := 0; i < len(paths); i += 2 {
		if r := reads[i]; r.Err != nil || r.Node.Path != paths[i] || string(r.Node.Data) != paths[i] || r.Node.Stat.Czxid == 0 {
			t.Fatalf("read %s as %+v", paths[i], r)
		}
		if r := reads[i+1]; !errors.Is(r.Err, coord.ErrNoNode) || r.Node.Path != paths[i+1] {
			t.Fatalf("read of an absent node gave %+v", r)
		}
	}
	if none, err := f.s.GetMany(f.ctx, nil); err != nil || len(none) != 0 {
		t.Errorf("no reads gave %v, %v", none, err)
	}
}

func sequentials(t *testing.T, f *fixture) {
	f.create("/p", "/q")
	var names []string
	for i := range 12 {
		r := f.multi(coord.CreateSequential("/p/s_", []byte{byte(i)}))[0]
		f.wantData(r.Path, string([]byte{byte(i)}))
		names = append(names, coord.BaseName(r.Path))
		if _, ok := coord.SequenceNumber(names[i]); !ok || len(names[i]) != len("s_")+10 {
			t.Errorf("the name is %q", names[i])
		}
		if age := time.Since(f.get(r.Path).Stat.Ctime); age < 0 || age > patience {
			t.Errorf("the node is %v old", age)
		}
		if i == 5 {
			f.multi(coord.Delete(r.Path, 0)) // numbers are not used again
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != 12 {
		t.Errorf("names are %v", names)
	}
	two := f.multi(coord.CreateSequential("/q/s_", nil), coord.CreateSequential("/q/s_", nil))
	if two[0].Path >= two[1].Path {
		t.Errorf("two of one transaction are %s and %s", two[0].Path, two[1].Path)
	}
	inBatch := f.batch(nil, coord.CreateSequential("/q/s_", nil), coord.CreateSequential("/q/s_", nil))
	if inBatch[0].Err != nil || inBatch[1].Err != nil || inBatch[0].Path >= inBatch[1].Path || inBatch[0].Path <= two[1].Path {
		t.Errorf("two of one batch are %+v", inBatch)
	}
}

func concurrentSequentials(t *testing.T, f *fixture) {
	const clients, each = 4, 25
	f.create("/p")
	var wg sync.WaitGroup
	for range clients {
		s := f.Connect()
		wg.Go(func() {
			for range each {
				if _, err := s.Multi(f.ctx, coord.CreateSequential("/p/s_", nil)); err != nil {
					t.Errorf("create: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if names, err := f.s.Children(f.ctx, "/p"); err != nil || len(names) != clients*each {
		t.Errorf("%d nodes, %v", len(names), err)
	}
}

func manySiblings(t *testing.T, f *fixture) {
	n := f.size(100_000)
	f.create("/p", "/p/00000")
	ops := make([]coord.Op, n)
	for i := range ops {
		ops[i] = coord.Create(fmt.Sprintf("/p/n%06d", i), nil)
	}
	for i, r := range f.batch(nil, ops...) {
		if r.Err != nil {
			t.Fatalf("create %s: %v", ops[i].Path, r.Err)
		}
	}
	f.create("/p/n000007/x", "/p/n000007/y")
	f.wantChildren("/p/n000007", "x", "y")
	f.wantChildren("/p/n000008")
	names, err := f.s.Children(f.ctx, "/p")
	if err != nil || len(names) != n+1 || names[0] != "00000" || names[n] != fmt.Sprintf("n%06d", n-1) || !slices.IsSorted(names) {
		t.Errorf("%d children, %v", len(names), err)
	}
	if err := f.s.DeleteTree(f.ctx, nil, "/p"); err != nil {
		t.Errorf("delete tree: %v", err)
	}
	f.wantChildren("/")
}

func cancelledContext(t *testing.T, f *fixture) {
	f.create("/a")
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	_, getErr := f.s.Get(ctx, "/a")
	_, multiErr := f.s.Multi(ctx, coord.Set("/a", []byte("x"), 0))
	w := f.s.NewWatcher()
	defer w.Close()
	_, nextErr := w.Next(ctx)
	for what, err := range map[string]error{"get": getErr, "multi": multiErr, "next": nextErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.wantData("/a", "/a")
}

func closedStore(t *testing.T, f *fixture) {
	s := f.Connect()
	w := s.NewWatcher()
	w.Add("/a", coord.WatchNode)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, getErr := s.Get(f.ctx, "/")
	_, multiErr := s.Multi(f.ctx, coord.Create("/a", nil))
	_, batchErr := s.Batch(f.ctx, nil, []coord.Op{coord.Create("/a", nil)})
	_, sessErr := s.OpenSession(f.ctx, sessionTTL)
	_, nextErr := w.Next(f.ctx)
	_, lateErr := s.NewWatcher().Next(f.ctx)
	for what, err := range map[string]error{"get": getErr, "multi": multiErr, "batch": batchErr, "session": sessErr, "next": nextErr, "new watcher": lateErr} {
		if !errors.Is(err, coord.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.create("/a") // others are not disturbed
}
