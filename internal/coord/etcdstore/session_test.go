package etcdstore

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

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

// renewals notes when the last renewal was sent that was answered. From the moment that lost is set on none is.
type renewals struct {
	backend
	lost atomic.Bool
	sent time.Time
}

func (r *renewals) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	sent := time.Now()
	if r.lost.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	answer, err := r.backend.KeepAliveOnce(ctx, id)
	if err == nil {
		r.sent = sent
	}
	return answer, err
}

// Whenever contact is lost, the session has ended a twentieth of the ttl before the engine may end it; a renewal that is under way
// then does not keep it up.
func TestASessionEndsOnTimeWheneverContactIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &faultyBackend{}
		s, _ := newFaulty(t, b, time.Second)
		r := &renewals{backend: b.backend}
		s.backend = r
		for phase := time.Duration(0); phase < bubbleTTL/5; phase += bubbleTTL / 50 {
			r.lost.Store(false)
			sess, err := s.OpenSession(t.Context(), bubbleTTL)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(bubbleTTL + phase)
			r.lost.Store(true)
			<-sess.Done()
			if got, want := time.Since(r.sent), bubbleTTL-bubbleTTL/20; got != want {
				t.Errorf("contact lost %v after a renewal was due: the session ended %v after the last contact, want %v", phase, got, want)
			}
		}
	})
}

// A process that stood still for longer than its session finds it ended, although the engine would still renew it.
func TestASessionThatStoodStillForTooLongHasEnded(t *testing.T) {
	for range 10 { // more than one thing is due when it goes on
		synctest.Test(t, func(t *testing.T) {
			b := &faultyBackend{}
			s, _ := newFaulty(t, b, time.Second)
			r := &stalling{backend: b.backend, stall: make(chan time.Duration, 1)}
			s.backend = r
			sess, err := s.OpenSession(t.Context(), bubbleTTL)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(bubbleTTL)
			r.stall <- bubbleTTL - bubbleTTL/20 + time.Millisecond
			<-sess.Done()
			if r.after != 0 {
				t.Errorf("%d renewals were sent after the session's end", r.after)
			}
		})
	}
}

// stalling stands still in one renewal, which fails, as a process does that gets no processor.
type stalling struct {
	backend
	stall chan time.Duration
	stood bool
	after int // renewals that came afterwards
}

func (r *stalling) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	if r.stood {
		r.after++
	}
	select {
	case d := <-r.stall:
		<-time.After(d)
		r.stood = true
		return nil, context.DeadlineExceeded
	default:
		return r.backend.KeepAliveOnce(ctx, id)
	}
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

func TestAShortLossOfContactDoesNoHarmAndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &faultyBackend{}
		s, e := newFaulty(t, b, time.Second)
		told := &lines{want: "session renewed late", found: make(chan string, 10)}
		s.options.log = told.logger()
		sess := openEphemeral(t, s, "/e")
		for n := range 5 {
			<-time.After(bubbleTTL)
			if len(told.found) != n {
				t.Errorf("after %d losses of contact %d are told", n, len(told.found))
			}
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

// losing is a member that loses the first requests of each kind, and notes how long they would have waited.
type losing struct {
	backend
	lose          int
	grants, ended []time.Duration
}

func (l *losing) lost(ctx context.Context, tries *[]time.Duration) bool {
	deadline, _ := ctx.Deadline()
	*tries = append(*tries, time.Until(deadline).Round(sessionTry/2))
	return len(*tries) <= l.lose
}

func (l *losing) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if l.lost(ctx, &l.grants) {
		return nil, context.DeadlineExceeded
	}
	return l.backend.Grant(ctx, ttl)
}

func (l *losing) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if l.lost(ctx, &l.ended) {
		return nil, context.DeadlineExceeded
	}
	return l.backend.Revoke(ctx, id)
}

func TestARequestForASessionThatIsLostIsMadeAgainSoon(t *testing.T) {
	e := startEmbedded(t, t.TempDir())
	for _, tc := range []struct {
		name     string
		retryFor time.Duration
		want     []time.Duration
		err      error
	}{
		{name: "a member of a cluster", retryFor: time.Minute, want: []time.Duration{sessionTry, 2 * sessionTry, 4 * sessionTry, 5 * sessionTry}},
		{name: "a lone member", want: []time.Duration{5 * sessionTry}, err: coord.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &losing{backend: member{e.client, e.server}, lose: 3}
			s, err := newStore(t.Context(), b, options{tryTimeout: 5 * sessionTry, retryFor: tc.retryFor, log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			session, err := s.OpenSession(t.Context(), 10*time.Second)
			if !errors.Is(err, tc.err) || !slices.Equal(b.grants, tc.want) {
				t.Errorf("opened after tries of %v: %v", b.grants, err)
			}
			if err == nil {
				if err := session.Close(t.Context()); err != nil || !slices.Equal(b.ended, tc.want) {
					t.Errorf("ended after tries of %v: %v", b.ended, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
