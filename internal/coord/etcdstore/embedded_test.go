package etcdstore

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"klamm/internal/coord"
	"klamm/internal/coord/coordtest"
)

func startEmbedded(t *testing.T, dir string) *Engine {
	t.Helper()
	e, err := Embedded(context.Background(), EmbeddedConfig{Dir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
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

func TestStartsFast(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		begin := time.Now()
		e := startEmbedded(t, dir)
		t.Logf("ready after %v", time.Since(begin))
		begin = time.Now()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("closed after %v", time.Since(begin))
	}
}
