package etcdstore

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/coord"
	"klamm/internal/coord/coordtest"
)

func startEmbedded(t *testing.T, dir string) *Engine {
	t.Helper()
	e, err := Embedded(context.Background(), EmbeddedConfig{Dir: dir, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// connect opens a client that the test closes before the engine.
func (e *Engine) connect(t *testing.T) *Store {
	t.Helper()
	s, err := e.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	coordtest.Run(t, func(t *testing.T) coordtest.Engine {
		e := startEmbedded(t, t.TempDir())
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return coordtest.Engine{
			Connect: func() coord.Store { return e.connect(t) },
			Expire: func(s coord.Session) {
				if _, err := e.client.Revoke(context.Background(), s.(*session).id); err != nil {
					t.Errorf("revoke: %v", err)
				}
			},
		}
	})
}

func embeddedError(dir string) error {
	e, err := Embedded(context.Background(), EmbeddedConfig{Dir: dir, Log: quiet()})
	if err == nil {
		err = e.Close()
	}
	return err
}

func wantRefusal(t *testing.T, dir string, words ...string) {
	t.Helper()
	err := embeddedError(dir)
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not name %q", err, word)
		}
	}
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	e := startEmbedded(t, dir)
	wantRefusal(t, dir, dir, "in use by another process")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := embeddedError(dir); err != nil {
		t.Errorf("after the first one closed: %v", err)
	}
}

func TestAForeignDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, dir, dir, "precious", "not klamm's")
	file := filepath.Join(dir, "precious")
	wantRefusal(t, file, file)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, markerName), []byte("layout 99"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, other, other, "not of this version")
}

func TestCorruptDataIsRefused(t *testing.T) {
	damage := map[string]func(t *testing.T, dir string){
		"a log of noise": func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, "member", "wal", "*.wal"), bytes.Repeat([]byte{0xa5}, 4096))
		},
		"a database of noise": func(t *testing.T, dir string) {
			overwrite(t, filepath.Join(dir, "member", "snap", "db"), bytes.Repeat([]byte{0xa5}, 32768))
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			// etcd leaves files open when it gives up, so that t.TempDir's own cleanup may fail.
			dir, err := os.MkdirTemp("", "klamm-corrupt")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			e := startEmbedded(t, dir)
			if _, err := e.Store().Multi(t.Context(), coord.Create("/a", nil)); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			do(t, dir)
			wantRefusal(t, dir, dir, "corrupt")
		})
	}
}

// overwrite replaces the beginning of the files that match.
func overwrite(t *testing.T, pattern string, with []byte) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s, %v", pattern, err)
	}
	for _, name := range files {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(with, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARestartKeepsNodesAndEndsSessions(t *testing.T) {
	dir := t.TempDir()
	e := startEmbedded(t, dir)
	s := e.Store()
	sess, err := s.OpenSession(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Multi(t.Context(), coord.Create("/a", []byte("1")), coord.CreateEphemeral("/e", nil, sess))
	if err == nil {
		_, err = s.Multi(t.Context(), coord.Set("/a", []byte("2"), 0), coord.CreateSequential("/s", nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Get(t.Context(), "/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = startEmbedded(t, dir)
	after, err := e.Store().Get(t.Context(), "/a")
	if diff := cmp.Diff(before, after); diff != "" || err != nil {
		t.Errorf("the node changed: %s, %v", diff, err)
	}
	if e.exists(t, "/e") {
		t.Error("the ephemeral node of the former process is still there")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnEngineThatWasClosedIsStopped(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	select {
	case <-e.Stopped():
		t.Error("stopped while it runs")
	default:
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	<-e.Stopped()
	if _, err := e.Store().Get(t.Context(), "/"); !errors.Is(err, coord.ErrClosed) {
		t.Errorf("a read got %v", err)
	}
}

// start to ready is most of a broker's start: dependencies.md measured 0.07 s.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		if err := embeddedError(dir); err != nil {
			b.Fatal(err)
		}
	}
}
