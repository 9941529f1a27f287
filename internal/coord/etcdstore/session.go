package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"klamm/internal/coord"
)

// session is a lease that a goroutine of the store keeps alive. It fences itself: Done closes before the engine may
// drop the lease, by the local monotonic clock, even when the engine cannot be reached.
type session struct {
	store *Store
	id    clientv3.LeaseID
	ttl   time.Duration
	done  chan struct{}
	end   func() // closes done, once
	quit  context.CancelFunc
}

var _ coord.Session = (*session)(nil)

// OpenSession implements coord.Store. etcd counts ttl in whole seconds; fractions are rounded up.
func (s *Store) OpenSession(ctx context.Context, ttl time.Duration) (coord.Session, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	seconds := int64((ttl + time.Second - 1) / time.Second)
	granted := time.Now()
	try, cancel := context.WithTimeout(ctx, s.options.tryTimeout)
	defer cancel()
	lease, err := s.backend.Grant(try, seconds)
	if err != nil {
		// A lease that was granted unheard expires unused.
		return nil, fmt.Errorf("open session: %w: %w", coord.ErrUnavailable, err)
	}
	// The engine may grant more than was asked for. The shorter of both is promised to the caller's Done.
	ttl = time.Duration(seconds) * time.Second
	alive, quit := context.WithCancel(s.ctx)
	sess := &session{store: s, id: lease.ID, ttl: ttl, done: make(chan struct{}), quit: quit}
	sess.end = sync.OnceFunc(func() { close(sess.done) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		quit()
		return nil, coord.ErrClosed
	}
	s.running.Go(func() { sess.keepAlive(alive, granted) })
	return sess, nil
}

// ID implements coord.Session.
func (s *session) ID() int64 { return int64(s.id) }

// Done implements coord.Session.
func (s *session) Done() <-chan struct{} { return s.done }

// Close implements coord.Session.
func (s *session) Close(ctx context.Context) error {
	s.end()
	s.quit()
	try, cancel := context.WithTimeout(ctx, s.store.options.tryTimeout)
	defer cancel()
	_, err := s.store.backend.Revoke(try, s.id)
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("close session: %w", writeError(err))
	}
	return nil
}

// keepAlive renews the lease every fifth of its ttl. The last contact is the moment before the request was sent: the
// engine counts from a later one. A session that cannot be renewed ends a twentieth of the ttl early, for what a
// stopped process needs to notice.
func (s *session) keepAlive(ctx context.Context, lastContact time.Time) {
	defer s.end()
	defer s.quit()
	interval := s.ttl / 5
	heartbeat := time.NewTicker(interval)
	defer heartbeat.Stop()
	for {
		deadline := time.Until(lastContact.Add(s.ttl - s.ttl/20))
		fence := time.NewTimer(deadline)
		select {
		case <-ctx.Done():
			fence.Stop()
			return
		case <-fence.C:
			s.store.options.log.Warn("session ended: the coordination store did not answer in time", "session", s.ID())
			return
		case <-heartbeat.C:
			fence.Stop()
		}
		sent := time.Now()
		try, cancel := context.WithTimeout(ctx, min(interval, deadline))
		answer, err := s.store.backend.KeepAliveOnce(try, s.id)
		cancel()
		switch {
		case err == nil && answer.TTL > 0:
			lastContact = sent
		case err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.store.options.log.Warn("session expired", "session", s.ID())
			return
		}
	}
}
