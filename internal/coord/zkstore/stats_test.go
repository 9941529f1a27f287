package zkstore

import (
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/coord"
)

func TestConnectionsAndSessionsAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fakeServer) {
		answers := 0
		stats := &Stats{Latency: func(d time.Duration) {
			if d < 0 {
				t.Errorf("an answer after %v", d)
			}
			answers++
		}}
		s := f.open(t, Options{Stats: stats})
		if _, err := s.Multi(t.Context(), coord.Create("/a", nil)); err != nil {
			t.Fatal(err)
		}
		session, err := s.OpenSession(t.Context(), 9*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if answers == 0 || stats.Connects.Load() != 1 || stats.Disconnects.Load() != 0 || stats.Expires.Load() != 0 {
			t.Errorf("%d answers, %d connects, %d disconnects, %d expired", answers, stats.Connects.Load(), stats.Disconnects.Load(), stats.Expires.Load())
		}
		f.set(func() { f.down = true })
		f.cut()
		<-session.Done()
		f.set(func() { f.down = false })
		if _, err := s.Get(t.Context(), "/a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if stats.Connects.Load() != 2 || stats.Disconnects.Load() != 1 || stats.Expires.Load() != 1 {
			t.Errorf("after an outage: %d connects, %d disconnects, %d expired", stats.Connects.Load(), stats.Disconnects.Load(), stats.Expires.Load())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if stats.Disconnects.Load() != 1 || stats.AuthFailures.Load() != 0 || stats.Logins.Load() != 0 {
			t.Errorf("after the end: %d disconnects", stats.Disconnects.Load())
		}
	})
}
