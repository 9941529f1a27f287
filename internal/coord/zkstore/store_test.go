package zkstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/coord"
)

// inBubble runs a test with a fake server in fake time.
func inBubble(t *testing.T, test func(t *testing.T, f *fakeServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFakeServer()) })
}

func TestAWriteWhoseAnswerIsLostHasAnUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{})
		defer s.Close()
		f.set(func() { f.loseReply = true })
		_, err := s.Multi(t.Context(), coord.Create("/a", nil))
		if !errors.Is(err, coord.ErrUnknownOutcome) {
			t.Errorf("got %v", err)
		}
		if _, err := s.Get(t.Context(), "/a"); err != nil {
			t.Errorf("the write was applied, and then: %v", err)
		}
	})
}

func TestReadsAndUnsentWritesSurviveALostConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{})
		defer s.Close()
		if _, err := s.Multi(t.Context(), coord.Create("/a", []byte("1"))); err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.mute = true })
		read := make(chan error, 1)
		go func() {
			n, err := s.Get(t.Context(), "/a")
			if err == nil && string(n.Data) != "1" {
				err = fmt.Errorf("read %q", n.Data)
			}
			read <- err
		}()
		synctest.Wait()
		f.set(func() { f.mute, f.down = false, true })
		f.cut()
		written := make(chan error, 1)
		synctest.Wait()
		go func() {
			_, err := s.Multi(t.Context(), coord.Create("/b", nil))
			written <- err
		}()
		time.Sleep(2 * time.Second) // fake time
		f.set(func() { f.down = false })
		if err := <-read; err != nil {
			t.Errorf("read: %v", err)
		}
		if err := <-written; err != nil {
			t.Errorf("write: %v", err)
		}
		if n := len(f.sessions); n != 1 {
			t.Errorf("%d sessions were opened", n)
		}
	})
}

func TestWhatWaitsTooLongForAConnectionWasNotApplied(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{ConnectionTimeout: 5 * time.Second})
		defer s.Close()
		f.set(func() { f.down = true })
		f.cut()
		synctest.Wait()
		began := time.Now()
		_, err := s.Multi(t.Context(), coord.Create("/a", nil))
		if !errors.Is(err, coord.ErrUnavailable) || time.Since(began) > 8*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.Multi(ctx, coord.Create("/a", nil))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an impatient caller: %v", err)
		}
	})
}

func TestASilentServerIsLeftWhileTheSessionLives(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{})
		defer s.Close()
		sess, err := s.OpenSession(t.Context(), 9*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // fake time: pings keep it
		dials := f.dials
		f.set(func() { f.mute = true })
		time.Sleep(6*time.Second + 100*time.Millisecond) // fake time: two thirds of the timeout after the last answer, at most
		f.set(func() { f.mute = false })
		time.Sleep(2 * time.Second) // fake time
		if f.dials == dials {
			t.Error("no other connection was tried")
		}
		select {
		case <-sess.Done():
			t.Error("the session was given up")
		default:
		}
	})
}

func TestASessionIsDoneByTheLocalClock(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{ConnectionTimeout: time.Minute})
		defer s.Close()
		sess, err := s.OpenSession(t.Context(), 9*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.down = true })
		f.cut()
		lost := time.Now()
		<-sess.Done()
		if after := time.Since(lost); after > 9*time.Second {
			t.Errorf("done %v after the last contact", after)
		}
		bound := make(chan error, 1)
		go func() {
			_, err := s.Multi(t.Context(), coord.CreateEphemeral("/e", nil, sess))
			bound <- err
		}()
		if err := <-bound; !errors.Is(err, coord.ErrSessionExpired) {
			t.Errorf("an ephemeral node of a session that is over: %v", err)
		}
		f.set(func() { f.down = false })
		next, err := s.OpenSession(t.Context(), 9*time.Second)
		if err != nil || next.ID() == sess.ID() {
			t.Errorf("the next session: %v", err)
		}
	})
}

func TestASessionThatTheServerEndedIsNotReplacedInSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{})
		defer s.Close()
		sess, err := s.OpenSession(t.Context(), 9*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { clear(f.sessions) })
		f.cut()
		if _, err := s.Get(t.Context(), "/"); err != nil {
			t.Errorf("a read goes on under the next session: %v", err)
		}
		<-sess.Done()
		if _, err := s.Multi(t.Context(), coord.CreateEphemeral("/e", nil, sess)); !errors.Is(err, coord.ErrSessionExpired) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheWindowBoundsWhatIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{MaxInFlight: 16, SessionTimeout: time.Hour})
		defer s.Close()
		hold := make(chan struct{})
		f.set(func() { f.hold = hold })
		ops := make([]coord.Op, 500)
		for i := range ops {
			ops[i] = coord.Create(fmt.Sprintf("/n%d", i), nil)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.Batch(t.Context(), nil, ops)
			done <- err
		}()
		synctest.Wait()
		s.main.mu.Lock()
		waiting := len(s.main.mu.flight) + len(s.main.mu.queue)
		s.main.mu.Unlock()
		if waiting != 16 {
			t.Errorf("%d requests are under way", waiting)
		}
		close(hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(f.nodes) != 501 {
			t.Errorf("%d nodes", len(f.nodes))
		}
	})
}

func TestARequestAboveTheServersLimitIsNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{})
		defer s.Close()
		_, err := s.Multi(t.Context(), coord.Create("/a", make([]byte, 1<<20)))
		if err == nil || errors.Is(err, coord.ErrUnknownOutcome) {
			t.Errorf("got %v", err)
		}
		r, err := s.Batch(t.Context(), nil, []coord.Op{coord.Create("/a", make([]byte, 1<<20)), coord.Create("/b", nil)})
		if err != nil || r[0].Err == nil || r[1].Err != nil {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}

func TestAnAnswerAboveTheLimitFailsItsRequestAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		s := f.open(t, Options{ReplyBytesMax: 1000})
		defer s.Close()
		for i := range 20 {
			if _, err := s.Multi(t.Context(), coord.Create(fmt.Sprintf("/%0100d", i), nil)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Children(t.Context(), "/")
		var large *replyTooLargeError
		if !errors.As(err, &large) || *large != (replyTooLargeError{16 + 4 + 20*104 + 68, 1000}) {
			t.Errorf("got %v", err)
		}
		if _, err := s.Get(t.Context(), fmt.Sprintf("/%0100d", 7)); err != nil {
			t.Errorf("the next request: %v", err)
		}
		var ops []coord.Op
		for i := range 20 {
			ops = append(ops, coord.Create(fmt.Sprintf("/later%d", i), nil))
		}
		if _, err := s.Multi(t.Context(), ops...); !errors.As(err, &large) || !errors.Is(err, coord.ErrUnknownOutcome) {
			t.Errorf("a write: %v", err)
		}
		if f.dials != 1 {
			t.Errorf("%d connections were made", f.dials)
		}
	})
}

func TestWatchesFireAfterAReconnectWithBothKindsOfServer(t *testing.T) {
	for _, old := range []bool{false, true} {
		inBubble(t, func(t *testing.T, f *fakeServer) {
			f.old = old
			s := f.open(t, Options{})
			defer s.Close()
			if s.watches.mu.oneShot != old {
				t.Errorf("old server %t: one-shot watches %t", old, s.watches.mu.oneShot)
			}
			w := s.NewWatcher()
			w.Add("/a", coord.WatchNode)
			w.Add("/b", coord.WatchNode)
			for i := range int32(3) {
				op := coord.Set("/a", nil, i-1)
				if i == 0 {
					op = coord.Create("/a", nil)
				}
				r, err := s.Multi(t.Context(), op)
				if err != nil || r[0].Stat.Czxid == 0 || r[0].Stat.Version != i {
					t.Fatal(r, err)
				}
				events, err := w.Next(t.Context())
				if err != nil || events[0].Path != "/a" {
					t.Errorf("change %d: %v, %v", i, events, err)
				}
			}
			synctest.Wait()
			f.cut()
			fired := map[string]bool{}
			for len(fired) < 2 {
				events, err := w.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range events {
					fired[e.Path] = true
				}
			}
		})
	}
}

func TestOpenSaysWhatItTriedWhenNoServerAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		f.down = true
		began := time.Now()
		_, err := Open(t.Context(), Options{Connect: "zk1:1,zk2:2", ConnectionTimeout: 7 * time.Second, Dial: f.dial})
		if !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, errRefused) || time.Since(began) != 7*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// A broker that was killed left a session that nobody keeps alive; the process after it ends it, but only by its key.
func TestASessionOfADeadProcessIsEndedByItsKey(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		dead, s := f.open(t, Options{}), f.open(t, Options{})
		defer s.Close()
		left, err := dead.OpenSession(t.Context(), dead.o.SessionTimeout)
		if err != nil {
			t.Fatal(err)
		}
		id, key := left.ID(), coord.SessionKey(left)
		_ = dead.Close() // a session that is open stays
		alive := func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			_, ok := f.sessions[id]
			return ok
		}
		for _, wrong := range [][]byte{nil, []byte("0123456789abcdef")} {
			if err := s.EndSession(t.Context(), id, wrong); err != nil || !alive() {
				t.Errorf("key %q: %v, alive %v", wrong, err, alive())
			}
		}
		if err := s.EndSession(t.Context(), id, key); err != nil || alive() {
			t.Errorf("%v, alive %v", err, alive())
		}
		if err := s.EndSession(t.Context(), id, key); err != nil {
			t.Errorf("of a session that is gone: %v", err)
		}
	})
}
