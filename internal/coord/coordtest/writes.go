package coordtest

import (
	"errors"
	"fmt"
	"testing"

	"klamm/internal/coord"
)

var multiTests = map[string]func(*testing.T, *fixture){
	"all operations apply or none":                   multiIsAtomic,
	"operations see those before them":               multiSeesItself,
	"a path may be written several times":            multiRepeats,
	"a deleted path cannot be created again":         multiRecreates,
	"a parent goes with the last of its children":    multiDeletesFamily,
	"checks guard without writing":                   multiChecks,
	"nothing to do is fine":                          multiEmpty,
	"several paths of one transaction share a czxid": multiSharesChangeID,
}

var batchTests = map[string]func(*testing.T, *fixture){
	"operations succeed and fail alone":                    batchIsIndependent,
	"later operations see earlier ones":                    batchKeepsOrder,
	"a lost guard stops everything":                        batchFenced,
	"thousands of operations come back in order":           batchLarge,
	"a tree goes with all below it and nothing beside it":  deleteTree,
	"a lost guard protects a tree":                         deleteTreeFenced,
	"a deep topic of many partitions is deleted at once":   deleteTopicTree,
	"the first failing operation of a transaction is told": firstFailure,
}

func multiIsAtomic(t *testing.T, f *fixture) {
	f.create("/a", "/b")
	f.multiFails(1, coord.ErrBadVersion, coord.Set("/a", []byte("new"), 0), coord.Set("/b", nil, 7), coord.Create("/c", nil))
	f.multiFails(2, coord.ErrNodeExists, coord.Create("/c", nil), coord.Delete("/b", 0), coord.Create("/a", nil))
	f.wantData("/a", "/a")
	f.wantData("/b", "/b")
	f.wantAbsent("/c")
	f.multi(coord.Set("/a", []byte("new"), 0), coord.Delete("/b", 0), coord.Create("/c", []byte("c")))
	f.wantData("/a", "new")
	f.wantAbsent("/b")
	f.wantData("/c", "c")
}

func multiSeesItself(t *testing.T, f *fixture) {
	f.multi(coord.Create("/a", nil), coord.Create("/a/b", nil), coord.Create("/a/b/c", []byte("deep")))
	f.wantData("/a/b/c", "deep")
	f.multiFails(1, coord.ErrNotEmpty, coord.Create("/a/d", nil), coord.Delete("/a", 0))
	f.multiFails(2, coord.ErrNoNode, coord.Delete("/a/b/c", 0), coord.Delete("/a/b", 0), coord.Create("/a/b/x", nil))
	f.wantData("/a/b/c", "deep")
}

func multiRepeats(t *testing.T, f *fixture) {
	r := f.multi(coord.Create("/a", []byte("1")), coord.Set("/a", []byte("2"), 0), coord.Check("/a", 1))
	n := f.get("/a")
	if string(n.Data) != "2" || n.Stat.Czxid != r[1].Stat.Czxid || n.Stat.Version != r[1].Stat.Version || n.Stat.Version > 1 {
		t.Errorf("create and set left %q %+v, answered %+v", n.Data, n.Stat, r[1].Stat)
	}
	v := n.Stat.Version
	f.multiFails(1, coord.ErrBadVersion, coord.Set("/a", []byte("3"), v), coord.Set("/a", []byte("4"), v))
	f.wantData("/a", "2")
	f.multi(coord.Set("/a", []byte("3"), v), coord.Set("/a", []byte("4"), v+1), coord.Set("/a", []byte("5"), coord.AnyVersion))
	f.wantData("/a", "5")
	f.multi(coord.Set("/a", []byte("6"), coord.AnyVersion), coord.Delete("/a", coord.AnyVersion))
	f.wantAbsent("/a")
	f.multi(coord.Create("/a", nil), coord.Delete("/a", 0))
	f.wantAbsent("/a")
	f.multiFails(1, coord.ErrNodeExists, coord.Create("/a", nil), coord.Create("/a", nil))
	f.multiFails(1, coord.ErrBadVersion, coord.Create("/a", nil), coord.Delete("/a", 4))
	f.wantAbsent("/a")
}

func multiRecreates(t *testing.T, f *fixture) {
	f.create("/a")
	f.multiFails(1, coord.ErrRecreated, coord.Delete("/a", 0), coord.Create("/a", nil))
	f.wantData("/a", "/a")
}

func multiDeletesFamily(t *testing.T, f *fixture) {
	f.create("/p", "/p/a", "/p/c", "/p/e")
	family := []coord.Op{coord.Delete("/p/c", 0), coord.Delete("/p/a", 0), coord.Delete("/p/e", 0), coord.Delete("/p", 0)}
	f.create("/p/d")
	f.multiFails(3, coord.ErrNotEmpty, family...)
	f.wantChildren("/p", "a", "c", "d", "e")
	f.multi(coord.Delete("/p/d", 0))
	f.multi(family...)
	f.wantAbsent("/p", "/p/a", "/p/c", "/p/e")
}

func multiChecks(t *testing.T, f *fixture) {
	f.create("/g", "/a")
	f.multi(coord.Check("/g", 0), coord.Set("/a", []byte("1"), 0))
	f.multi(coord.Check("/g", coord.AnyVersion), coord.Check("/", coord.AnyVersion))
	f.multiFails(0, coord.ErrBadVersion, coord.Check("/g", 1), coord.Set("/a", []byte("2"), 1))
	f.multiFails(1, coord.ErrNoNode, coord.Set("/a", []byte("2"), 1), coord.Check("/h", coord.AnyVersion))
	f.wantData("/a", "1")
	if v := f.get("/g").Stat.Version; v != 0 {
		t.Errorf("checks moved the version to %d", v)
	}
}

func multiEmpty(t *testing.T, f *fixture) {
	if r, err := f.s.Multi(f.ctx); err != nil || len(r) != 0 {
		t.Errorf("empty multi: %v, %v", r, err)
	}
	if r, err := f.s.Batch(f.ctx, nil, nil); err != nil || len(r) != 0 {
		t.Errorf("empty batch: %v, %v", r, err)
	}
}

func multiSharesChangeID(t *testing.T, f *fixture) {
	r := f.multi(coord.Create("/a", nil), coord.Create("/b", nil))
	if r[0].Stat.Czxid != r[1].Stat.Czxid {
		t.Errorf("czxids are %d and %d", r[0].Stat.Czxid, r[1].Stat.Czxid)
	}
}

func firstFailure(t *testing.T, f *fixture) {
	f.create("/a")
	f.multiFails(0, coord.ErrNoNode, coord.Set("/x", nil, 0), coord.Create("/a", nil), coord.Set("/a", nil, 9))
	f.multiFails(1, coord.ErrNodeExists, coord.Check("/a", 0), coord.Create("/a", nil), coord.Set("/x", nil, 0))
}

func batchIsIndependent(t *testing.T, f *fixture) {
	f.create("/a", "/b", "/p", "/p/c")
	results := f.batch(nil,
		coord.Set("/a", []byte("1"), 0),
		coord.Set("/b", []byte("1"), 5),
		coord.Set("/x", []byte("1"), 0),
		coord.Create("/b", nil),
		coord.Create("/c", []byte("c")),
		coord.Create("/x/y", nil),
		coord.Delete("/p", 0),
		coord.Delete("/p/c", 0),
		coord.Delete("/y", coord.AnyVersion),
	)
	f.wantErrors(results, nil, coord.ErrBadVersion, coord.ErrNoNode, coord.ErrNodeExists, nil, coord.ErrNoNode, coord.ErrNotEmpty, nil, coord.ErrNoNode)
	if got := f.get("/a").Stat; results[0].Stat.Version != 1 || results[0].Stat.Mzxid != got.Mzxid || results[0].Stat.Czxid != got.Czxid {
		t.Errorf("set answered %+v, read %+v", results[0].Stat, got)
	}
	if got := f.get("/c").Stat; results[4].Stat.Czxid != got.Czxid || results[4].Stat.Version != 0 {
		t.Errorf("create answered %+v, read %+v", results[4].Stat, got)
	}
	f.wantData("/b", "/b")
	f.wantAbsent("/p/c")
	if r, err := f.s.Batch(f.ctx, nil, []coord.Op{coord.Check("/a", 0)}); err == nil && r[0].Err == nil {
		t.Error("a check in a batch was accepted")
	}
}

func batchKeepsOrder(t *testing.T, f *fixture) {
	results := f.batch(nil,
		coord.Create("/a", nil),
		coord.Create("/a/b", nil),
		coord.Create("/a/b/c", []byte("0")),
		coord.Set("/a/b/c", []byte("1"), 0),
		coord.Set("/a/b/c", []byte("2"), 0),
		coord.Delete("/a/b", 0),
		coord.Delete("/a/b/c", 1),
		coord.Delete("/a/b", 0),
		coord.Create("/a/b", []byte("again")),
	)
	f.wantErrors(results, nil, nil, nil, nil, coord.ErrBadVersion, coord.ErrNotEmpty, nil, nil, nil)
	f.wantData("/a/b", "again")
	if czxid := f.get("/a/b").Stat.Czxid; czxid <= results[1].Stat.Czxid {
		t.Errorf("recreated with czxid %d, created with %d", czxid, results[1].Stat.Czxid)
	}
}

func batchFenced(t *testing.T, f *fixture) {
	f.create("/g", "/a")
	f.wantErrors(f.batch(&coord.Guard{Path: "/g", Version: 0}, coord.Set("/a", []byte("1"), 0)), nil)
	f.multi(coord.Set("/g", nil, 0))
	for _, guard := range []coord.Guard{{Path: "/g", Version: 0}, {Path: "/g", Version: 2}, {Path: "/h", Version: 0}} {
		_, err := f.s.Batch(f.ctx, &guard, []coord.Op{coord.Set("/a", []byte("2"), 1), coord.Create("/b", nil)})
		if !errors.Is(err, coord.ErrFenced) {
			t.Errorf("guard %+v: %v", guard, err)
		}
	}
	f.wantData("/a", "1")
	f.wantAbsent("/b")
	if _, err := f.s.Batch(f.ctx, &coord.Guard{Path: "/g", Version: 1}, []coord.Op{coord.Create("/b", nil)}); err != nil {
		t.Errorf("the new owner is refused: %v", err)
	}
}

func batchLarge(t *testing.T, f *fixture) {
	const n = 5000
	f.create("/g")
	guard := &coord.Guard{Path: "/g", Version: 0}
	ops := []coord.Op{coord.Create("/p", nil)}
	for i := range n {
		ops = append(ops, coord.Create(fmt.Sprintf("/p/%d", i), nil), coord.Create(fmt.Sprintf("/p/%d/state", i), []byte("0")))
	}
	for i, r := range f.batch(guard, ops...) {
		if r.Err != nil || r.Path != ops[i].Path {
			t.Fatalf("operation %d gave %+v", i, r)
		}
	}
	ops = ops[:0]
	for i := range n {
		ops = append(ops, coord.Set(fmt.Sprintf("/p/%d/state", i), []byte(fmt.Sprint(i)), int32(i%2)))
	}
	for i, r := range f.batch(guard, ops...) {
		if i%2 == 0 && (r.Err != nil || r.Stat.Version != 1) || i%2 == 1 && !errors.Is(r.Err, coord.ErrBadVersion) {
			t.Fatalf("set %d gave %+v", i, r)
		}
	}
	f.wantData("/p/4998/state", "4998")
	f.wantData("/p/4999/state", "0")
}

func deleteTree(t *testing.T, f *fixture) {
	f.create("/t", "/t/a", "/t/a/x", "/t/a/x/y", "/t/ab", "/t/a-b", "/t/a0", "/u")
	if err := f.s.DeleteTree(f.ctx, nil, "/t/a"); err != nil {
		t.Fatal(err)
	}
	f.wantAbsent("/t/a", "/t/a/x", "/t/a/x/y")
	f.wantChildren("/t", "a-b", "a0", "ab")
	if err := f.s.DeleteTree(f.ctx, nil, "/t/a"); err != nil {
		t.Errorf("an absent tree: %v", err)
	}
	if err := f.s.DeleteTree(f.ctx, nil, "/"); !errors.Is(err, coord.ErrInvalidPath) {
		t.Errorf("the root: %v", err)
	}
}

func deleteTreeFenced(t *testing.T, f *fixture) {
	f.create("/g", "/t", "/t/a")
	if err := f.s.DeleteTree(f.ctx, &coord.Guard{Path: "/g", Version: 1}, "/t"); !errors.Is(err, coord.ErrFenced) {
		t.Errorf("got %v", err)
	}
	f.wantData("/t/a", "/t/a")
	if err := f.s.DeleteTree(f.ctx, &coord.Guard{Path: "/g", Version: 0}, "/t"); err != nil {
		t.Error(err)
	}
	f.wantAbsent("/t", "/t/a")
}

func deleteTopicTree(t *testing.T, f *fixture) {
	f.create("/brokers", coord.TopicsPath)
	ops := []coord.Op{coord.Create(coord.TopicPath("t"), nil), coord.Create(coord.PartitionsPath("t"), nil), coord.Create(coord.TopicPath("t2"), nil)}
	for i := range 300 {
		path := fmt.Sprintf("%s/%d", coord.PartitionsPath("t"), i)
		ops = append(ops, coord.Create(path, nil), coord.Create(path+"/state", []byte("{}")))
	}
	f.batch(nil, ops...)
	w := f.Connect().NewWatcher()
	defer w.Close()
	w.Add(coord.TopicsPath, coord.WatchChildren)
	if err := f.s.DeleteTree(f.ctx, nil, coord.TopicPath("t")); err != nil {
		t.Fatal(err)
	}
	f.next(w)
	f.wantChildren(coord.TopicsPath, "t2")
	f.wantAbsent(coord.PartitionsPath("t"), coord.PartitionsPath("t")+"/7/state")
}
