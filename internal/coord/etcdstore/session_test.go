package etcdstore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/coord"
)

// The real member runs in synctest bubbles: it has no sockets. Minutes of its time cost milliseconds.

const bubbleTTL = 5 * time.Second

func (e *Engine) exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := e.Store().Get(t.Context(), path)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		t.Fatal(err)
	}
	return err == nil
}

func openEphemeral(t *testing.T, s coord.Store, path string) coord.Session {
	t.Helper()
	sess, err := s.OpenSession(t.Context(), bubbleTTL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Multi(t.Context(), coord.CreateEphemeral(path, nil, sess)); err != nil {
		t.Fatal(err)
	}
	return sess
}

func isDone(s coord.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

func TestAHeartbeatKeepsASessionForMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := newFaulty(t, &faultyBackend{}, time.Second)
		sess := openEphemeral(t, s, "/e")
		<-time.After(2 * time.Minute)
		if isDone(sess) || !e.exists(t, "/e") {
			t.Error("the session ended")
		}
		if err := sess.Close(t.Context()); err != nil || e.exists(t, "/e") {
			t.Errorf("after close the node exists: %v, %v", e.exists(t, "/e"), err)
		}
	})
}

func TestASessionWithoutContactFencesItselfBeforeItsNodesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &faultyBackend{}
		s, e := newFaulty(t, b, time.Second)
		sess := openEphemeral(t, s, "/e")
		<-time.After(time.Minute)
		w := e.Store().NewWatcher()
		defer w.Close()
		w.Add("/e", coord.WatchNode)
		b.swallow.Store(true)
		lost := time.Now()
		<-sess.Done()
		if passed := time.Since(lost); passed > bubbleTTL || passed < bubbleTTL/2 {
			t.Errorf("done after %v", passed)
		}
		if !e.exists(t, "/e") {
			t.Error("the node went before its owner knew")
		}
		if _, err := w.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if passed := time.Since(lost); passed > bubbleTTL+time.Second || e.exists(t, "/e") {
			t.Errorf("after %v the node exists: %v", passed, e.exists(t, "/e"))
		}
	})
}

func TestSessionsOfAClosedStoreEndByTheirTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startEmbedded(t, t.TempDir())
		s, err := e.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sess := openEphemeral(t, s, "/e")
		w := e.Store().NewWatcher()
		w.Add("/e", coord.WatchNode)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if !isDone(sess) || !e.exists(t, "/e") {
			t.Errorf("done %v, node exists %v", isDone(sess), e.exists(t, "/e"))
		}
		begin := time.Now()
		for e.exists(t, "/e") {
			if _, err := w.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if passed := time.Since(begin); passed < bubbleTTL/2 || passed > bubbleTTL+time.Second {
			t.Errorf("the node went after %v", passed)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAShortLossOfContactDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &faultyBackend{}
		s, e := newFaulty(t, b, time.Second)
		sess := openEphemeral(t, s, "/e")
		for range 5 {
			b.swallow.Store(true)
			<-time.After(bubbleTTL / 2)
			b.swallow.Store(false)
			<-time.After(bubbleTTL / 2)
		}
		if isDone(sess) || !e.exists(t, "/e") {
			t.Error("the session ended")
		}
	})
}
