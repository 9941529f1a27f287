package zkstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"klamm/internal/coord"
)

// session is a coord.Session: a ZooKeeper session with the link that keeps it.
type session struct {
	store *Store
	link  *link
	zk    *zkSession
}

var (
	_ coord.KeyedSession = (*session)(nil)
	_ coord.SessionEnder = (*Store)(nil)
)

// OpenSession implements coord.Store. A session with the store's own timeout is that of its connection, when nobody has
// it yet: then reads, writes and ephemeral nodes share one fate.
func (s *Store) OpenSession(ctx context.Context, ttl time.Duration) (coord.Session, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	if ttl == s.o.SessionTimeout {
		sess, err := s.claim(ctx)
		if sess != nil || err != nil {
			return sess, err
		}
	}
	return s.openExtra(ctx, ttl)
}

// claim hands out the session of the store's connection; nil when somebody holds it.
func (s *Store) claim(ctx context.Context) (coord.Session, error) {
	for {
		if s.isClaimed() {
			return nil, nil
		}
		z, err := s.main.awaitUp(ctx, s.o.ConnectionTimeout)
		if err != nil {
			return nil, fmt.Errorf("open session: %w", err)
		}
		if sess := s.claimNow(z); sess != nil {
			return sess, nil
		}
	}
}

func (s *Store) isClaimed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.claimed != nil && !s.mu.claimed.isDone()
}

func (s *Store) claimNow(z *zkSession) coord.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.claimed != nil && !s.mu.claimed.isDone() {
		return nil
	}
	sess := &session{store: s, link: s.main, zk: z}
	if sess.isDone() {
		return nil
	}
	s.mu.claimed = sess
	return sess
}

// openExtra makes a session on a connection of its own.
func (s *Store) openExtra(ctx context.Context, ttl time.Duration) (coord.Session, error) {
	o := s.o
	o.SessionTimeout = ttl
	l := newLink(ctx, o, s.hosts, false)
	l.start()
	z, err := l.awaitUp(ctx, o.ConnectionTimeout)
	if err != nil {
		l.close()
		return nil, fmt.Errorf("open session: %w", err)
	}
	sess := &session{store: s, link: l, zk: z}
	s.mu.Lock()
	closed := s.mu.closed
	if !closed {
		s.mu.extra[sess] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		l.close()
		return nil, coord.ErrClosed
	}
	return sess, nil
}

// ID implements coord.Session.
func (s *session) ID() int64 { return s.zk.id }

// Key implements coord.KeyedSession: with the password that the server gave, any connection can take the session over.
func (s *session) Key() []byte { return s.zk.password }

// Done implements coord.Session.
func (s *session) Done() <-chan struct{} { return s.zk.done }

func (s *session) isDone() bool {
	select {
	case <-s.zk.done:
		return true
	default:
		return false
	}
}

// Close implements coord.Session. The server removes the nodes before it answers. The store's own connection goes on with
// a new session.
func (s *session) Close(ctx context.Context) error {
	var err error
	if !s.isDone() {
		err = s.link.endRemotely(ctx, s.zk)
	}
	if s.link == s.store.main {
		return err
	}
	s.link.close()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	delete(s.store.mu.extra, s)
	return err
}

// endRemotely asks the server to end a session. Whatever comes of it, the session is not used again.
func (l *link) endRemotely(ctx context.Context, z *zkSession) error {
	defer l.endSession(z)
	err := l.run(ctx, 1, func(c *call, _ int) *request {
		return &request{frame: newFrame(opCloseSession, 0), write: true, last: true, session: z,
			finish: c.expect(func(r *reply) error { return r.failure() })}
	})
	if err != nil && !errors.Is(err, coord.ErrSessionExpired) {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// endTries bounds how often the end of a session is asked for when answers are lost.
const endTries = 3

// EndSession implements coord.SessionEnder: a connection takes the session over, as a client does that reconnects, and
// closes it. The server lets go of a session only to who knows its password, and says of any other that it has expired.
func (s *Store) EndSession(ctx context.Context, id int64, key []byte) error {
	if len(key) == 0 {
		return nil // it expires by itself
	}
	var err error
	for range endTries {
		if err = s.takeOverAndEnd(ctx, id, key); !errors.Is(err, coord.ErrUnknownOutcome) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("end session %#x: %w", id, err)
	}
	return nil
}

func (s *Store) takeOverAndEnd(ctx context.Context, id int64, key []byte) error {
	l := newLink(ctx, s.o, s.hosts, false)
	z := &zkSession{id: id, password: key, timeout: s.o.SessionTimeout, done: make(chan struct{})}
	l.mu.session = z
	l.start()
	defer l.close()
	_, err := l.awaitUp(ctx, s.o.ConnectionTimeout)
	select {
	case <-z.done: // gone already
		return nil
	default:
	}
	if err != nil {
		return err
	}
	return l.endRemotely(ctx, z)
}
