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
	seconds := int64((ttl + time.Second - 1) / time.Second)
	var granted time.Time
	var lease *clientv3.LeaseGrantResponse
	// A lease that was granted unheard expires unused, so asking again does no harm.
	err := s.again(ctx, s.firstSessionTry(), func(try context.Context) (err error) {
		granted = time.Now()
		if lease, err = s.backend.Grant(try, seconds); err != nil {
			return fmt.Errorf("open session: %w: %w", coord.ErrUnavailable, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if lease.TTL > seconds {
		s.options.log.Warn("etcd grants longer sessions only: a dead broker is noticed later", "asked", time.Duration(seconds)*time.Second,
			"granted", time.Duration(lease.TTL)*time.Second)
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

// sessionTry is how long the first try to open or end a session may take, which may be made twice: a member that was frozen loses what it sends
// first, since its peers have given up their streams meanwhile, and a broker that waits for the answer has no session.
const sessionTry = 500 * time.Millisecond

func (s *Store) firstSessionTry() time.Duration {
	if s.options.retryFor == 0 {
		return s.options.tryTimeout // there is no second one
	}
	return min(sessionTry, s.options.tryTimeout)
}

// ID implements coord.Session.
func (s *session) ID() int64 { return int64(s.id) }

// Done implements coord.Session.
func (s *session) Done() <-chan struct{} { return s.done }

// Close implements coord.Session.
func (s *session) Close(ctx context.Context) error {
	s.end()
	s.quit()
	if err := s.store.EndSession(ctx, s.ID(), nil); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// EndSession implements coord.SessionEnder. Leases need no key.
func (s *Store) EndSession(ctx context.Context, id int64, _ []byte) error {
	return s.again(ctx, s.firstSessionTry(), func(try context.Context) error {
		_, err := s.backend.Revoke(try, clientv3.LeaseID(id))
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		if err = writeError(err); errors.Is(err, coord.ErrUnknownOutcome) && s.options.retryFor > 0 {
			return fmt.Errorf("%w: %w", coord.ErrUnavailable, err) // ending it twice is as good as once
		}
		return err
	})
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
		fence := lastContact.Add(s.ttl - s.ttl/20)
		atFence := time.NewTimer(time.Until(fence))
		select {
		case <-ctx.Done():
			atFence.Stop()
			return
		case <-atFence.C:
		case <-heartbeat.C:
			atFence.Stop()
		}
		// In a process that stood still both may be due, and then the session has ended.
		sent := time.Now()
		left := fence.Sub(sent)
		if left <= 0 {
			s.store.options.log.Warn("session ended: the coordination store did not answer in time", "session", s.ID())
			return
		}
		try, cancel := context.WithTimeout(ctx, min(interval, left))
		answer, err := s.store.backend.KeepAliveOnce(try, s.id)
		cancel()
		switch {
		case err == nil && answer.TTL > 0:
			if silent := time.Since(lastContact); silent > s.ttl/2 {
				s.store.options.log.Warn("session renewed late: this process or the coordination store stood still", "session", s.ID(), "duration", silent)
			}
			lastContact = sent
		case err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.store.options.log.Warn("session expired", "session", s.ID())
			return
		}
	}
}
