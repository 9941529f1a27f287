package vfs

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// each runs a test on the OS and in memory: they must behave alike.
func each(t *testing.T, run func(t *testing.T, fsys FS)) {
	t.Run("os", func(t *testing.T) {
		o, err := OpenOS(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = o.Close() })
		run(t, o)
	})
	t.Run("mem", func(t *testing.T) { run(t, NewMem()) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fsys FS, name, content string) File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, FilePerm)
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	return f
}

func list(t *testing.T, fsys FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestBothFileSystemsBehaveAlike(t *testing.T) {
	each(t, func(t *testing.T, fsys FS) {
		must(t, fsys.Mkdir("d", DirPerm))
		must(t, fsys.MkdirAll("d/e/f", DirPerm))
		f := create(t, fsys, "d/x", "hello")
		must(t, f.Truncate(3))
		if n, err := f.WriteAt([]byte("!"), 5); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		must(t, f.Sync())
		must(t, f.Close())
		got, err := ReadFile(fsys, "d/x")
		if err != nil || string(got) != "hel\x00\x00!" {
			t.Errorf("content %q, %v", got, err)
		}
		must(t, fsys.Rename("d/x", "d/y"))
		must(t, WriteFileAtomic(fsys, "a", []byte("1")))
		must(t, WriteFileAtomic(fsys, "a", []byte("22")))
		must(t, fsys.SyncDir("d"))
		if d := cmp.Diff([]string{"e", "y"}, list(t, fsys, "d")); d != "" {
			t.Error(d)
		}
		if err := fsys.Remove("d"); err == nil {
			t.Error("a full directory was removed")
		}
		if err := fsys.Mkdir("d", DirPerm); !errors.Is(err, fs.ErrExist) {
			t.Errorf("mkdir over a directory: %v", err)
		}
		if _, err := fsys.OpenFile("nope/x", os.O_RDWR|os.O_CREATE, FilePerm); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open below a missing directory: %v", err)
		}
		must(t, fsys.Rename("d", "d2"))
		must(t, fsys.RemoveAll("d2"))
		must(t, fsys.RemoveAll("d2"))
		if d := cmp.Diff([]string{"a"}, list(t, fsys, ".")); d != "" {
			t.Error(d)
		}
		if u, err := fsys.Usage(); err != nil || u.Total < u.Usable || u.Usable <= 0 {
			t.Errorf("usage %+v, %v", u, err)
		}
	})
}

func TestALockIsExclusiveUntilItIsClosed(t *testing.T) {
	each(t, func(t *testing.T, fsys FS) {
		first, err := fsys.Lock(".lock")
		must(t, err)
		var locked *LockedError
		if _, err := fsys.Lock(".lock"); !errors.As(err, &locked) || locked.Path != fsys.Path()+"/.lock" {
			t.Errorf("second lock: %v", err)
		}
		must(t, first.Close())
		second, err := fsys.Lock(".lock")
		must(t, err)
		must(t, second.Close())
	})
}

func TestAnOpenFileOutlivesItsName(t *testing.T) {
	each(t, func(t *testing.T, fsys FS) {
		f := create(t, fsys, "x", "data")
		must(t, fsys.Remove("x"))
		b := make([]byte, 4)
		if n, err := f.ReadAt(b, 0); n != 4 || err != nil {
			t.Error(n, err)
		}
		must(t, f.Close())
	})
}

func TestNamesDoNotLeaveTheRoot(t *testing.T) {
	o, err := OpenOS(t.TempDir())
	must(t, err)
	if _, err := o.OpenFile("../x", os.O_RDWR|os.O_CREATE, FilePerm); err == nil {
		t.Error("a file outside the root was created")
	}
	must(t, o.Close())
}

func TestAPowerCutKeepsWhatWasSyncedAndNothingTorn(t *testing.T) {
	m := NewMem()
	f := create(t, m, "kept", "synced")
	must(t, f.Sync())
	must(t, m.SyncDir("."))
	_, err := f.WriteAt([]byte("-unsynced"), 6)
	must(t, err)
	create(t, m, "new", "x")
	must(t, m.Rename("new", "newer"))

	seen := map[string]bool{}
	for seed := range uint64(200) {
		c := m.CrashClone(seed)
		b, err := ReadFile(c, "kept")
		must(t, err)
		if len(b) < 6 || string(b[:6]) != "synced" {
			t.Fatalf("seed %d: synced content lost: %q", seed, b)
		}
		_, err = c.Stat("new")
		_, err2 := c.Stat("newer")
		if err == nil && err2 == nil {
			t.Fatalf("seed %d: a rename left both names", seed)
		}
		switch {
		case len(b) == 6:
			seen["lost"] = true
		case len(b) == 15:
			seen["whole"] = true
		default:
			seen["torn"] = true
		}
		if err != nil && err2 != nil {
			seen["name lost"] = true
		}
		again, err := ReadFile(m.CrashClone(seed), "kept")
		if err != nil || string(again) != string(b) {
			t.Fatalf("seed %d is not repeatable", seed)
		}
	}
	if d := cmp.Diff(map[string]bool{"lost": true, "whole": true, "torn": true, "name lost": true}, seen); d != "" {
		t.Errorf("outcomes (-want +got):\n%s", d)
	}
}

func TestAFaultIsReturnedInsteadOfTheOperation(t *testing.T) {
	boom := errors.New("boom")
	var fail OpKind
	armed := false
	m := NewMem()
	f := NewFault(m, func(op Op) error {
		if armed && op.Kind == fail {
			if op.Kind == OpWrite {
				return &PartialWrite{N: 2, Err: boom}
			}
			return boom
		}
		return nil
	})
	x := create(t, f, "x", "ab")
	armed = true
	for kind, run := range map[OpKind]func() error{
		OpSync:   x.Sync,
		OpRename: func() error { return f.Rename("x", "y") },
		OpMkdir:  func() error { return f.Mkdir("d", DirPerm) },
		OpRemove: func() error { return f.Remove("x") },
		OpCreate: func() error { return WriteFile(f, "z", nil) },
		OpWrite:  func() error { _, err := x.WriteAt([]byte("cdef"), 2); return err },
	} {
		fail = kind
		if err := run(); !errors.Is(err, boom) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if b, err := ReadFile(m, "x"); err != nil || string(b) != "abcd" {
		t.Errorf("content after a cut write: %q, %v", b, err)
	}
}
