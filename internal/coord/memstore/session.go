package memstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"klamm/internal/coord"
)

// session is a coord.Session. It ends by Close, by Engine.ExpireSession, or by its timer, which runs while the
// client is disconnected or closed.
type session struct {
	client *Client
	id     int64 // set under Engine.mu when the session is added
	ttl    time.Duration
	done   chan struct{}

	mu struct {
		sync.Mutex
		timer *time.Timer
	}
}

// ID implements coord.Session.
func (s *session) ID() int64 { return s.id }

// Done implements coord.Session.
func (s *session) Done() <-chan struct{} { return s.done }

// Close implements coord.Session. It needs no connection: a test's clean stop always works.
func (s *session) Close(context.Context) error {
	s.stopTimer()
	s.client.engine.endSession(s)
	return nil
}

func (s *session) startTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.timer == nil {
		s.mu.timer = time.AfterFunc(s.ttl, func() { s.client.engine.endSession(s) })
	}
}

func (s *session) stopTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.timer != nil {
		s.mu.timer.Stop()
		s.mu.timer = nil
	}
}

func (e *Engine) addSession(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.nextSession++
	s.id = e.mu.nextSession
	e.mu.sessions[s.id] = s
}

// endSession removes the session with its ephemeral nodes; false when it had ended before.
func (e *Engine) endSession(s *session) bool {
	e.mu.Lock()
	if e.mu.sessions[s.id] == nil {
		e.mu.Unlock()
		return false
	}
	delete(e.mu.sessions, s.id)
	t := e.beginLocked()
	var owned []string
	for path, n := range e.mu.nodes {
		if n.stat.EphemeralOwner == s.id {
			owned = append(owned, path)
		}
	}
	slices.Sort(owned)
	for _, path := range owned {
		t.deleteTreeLocked(path)
	}
	notify := t.commitLocked()
	e.mu.Unlock()

	// Done first: the owner must stop before others can see its nodes go.
	close(s.done)
	s.client.mu.Lock()
	delete(s.client.mu.sessions, s)
	s.client.mu.Unlock()
	notify()
	return true
}

var _ coord.Session = (*session)(nil)
