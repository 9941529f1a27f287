// Package zkstore is the coordination engine on Apache ZooKeeper, 3.5 to 3.9, with a client of its own.
//
// Nodes, versions, ephemerals, sequences and transactions are ZooKeeper's; this package brings the connection. All
// requests of a Store go over one connection, in order and pipelined: thousands may be under way, in a window. A guarded
// operation is a transaction of its own, multi[check guard, op], as Kafka writes. Reads are preceded by a sync, so that
// they see what any client was acknowledged before, also on a server that lags behind its leader.
//
// The first session that is opened with the store's own timeout is that of the connection: what ends one ends the other,
// as with Kafka's brokers. Further sessions have a connection of their own.
//
// When a connection breaks, reads are sent again on the next one; a write whose answer was lost ends in
// coord.ErrUnknownOutcome, and what was not sent waits, up to Options.ConnectionTimeout. See link.
//
// Locks: Store.mu, then watches.mu, then link.mu; none is held while waiting. call.mu is a leaf.
package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"klamm/internal/coord"
)

// Store implements coord.Store. All ephemeral operations of one Multi must name one session.
type Store struct {
	o      Options
	chroot string // "" for none
	hosts  []string
	main   *link

	watches watches

	mu struct {
		sync.Mutex
		closed   bool
		claimed  *session // of the main link; nil when it can be had
		extra    map[*session]struct{}
		watchers []*watcher
	}
}

var _ coord.Store = (*Store)(nil)

// Open connects. Its error names what was tried and why that failed.
func Open(ctx context.Context, o Options) (*Store, error) {
	hosts, chroot, err := ParseConnect(o.Connect)
	if err != nil {
		return nil, fmt.Errorf("zookeeper.connect: %w", err)
	}
	o = o.withDefaults()
	s := &Store{o: o, chroot: chroot, hosts: hosts, main: newLink(ctx, o, hosts, true)}
	s.mu.extra = map[*session]struct{}{}
	s.watches.init(s)
	s.main.start()
	if err := s.begin(ctx); err != nil {
		s.main.close()
		return nil, err
	}
	return s, nil
}

// begin waits for the connection, makes the chroot and learns the server's newest change.
func (s *Store) begin(ctx context.Context) error {
	if _, err := s.main.awaitUp(ctx, s.o.ConnectionTimeout); err != nil {
		return err
	}
	if err := s.probe(ctx); err != nil {
		return fmt.Errorf("greet zookeeper: %w", err)
	}
	if err := s.createChroot(ctx); err != nil {
		return fmt.Errorf("chroot %s: %w", s.chroot, err)
	}
	return nil
}

// probe finds out whether the server knows persistent watches, by one that is taken back, and its newest change.
func (s *Store) probe(ctx context.Context) error {
	path := s.full("/")
	return s.main.run(ctx, 3, func(c *call, i int) *request {
		switch i {
		case 0:
			return &request{frame: addWatchFrame(path), finish: c.expect(func(r *reply) error {
				s.watches.noteSupport(*r)
				return r.err
			})}
		case 1:
			return &request{frame: removeWatchesFrame(path), finish: c.expect(func(r *reply) error { return r.err })}
		}
		return s.syncRequest(c)
	})
}

// createChroot makes the nodes down to the root of the tree.
func (s *Store) createChroot(ctx context.Context) error {
	if s.chroot == "" {
		return nil
	}
	outside := &Store{o: s.o, main: s.main}
	var missing []string
	for p := s.chroot; p != "/"; p = coord.ParentPath(p) {
		_, err := outside.Get(ctx, p)
		if err == nil {
			break
		}
		if !errors.Is(err, coord.ErrNoNode) {
			return err
		}
		if s.o.ExpectChroot {
			return fmt.Errorf("%w (%s): the chroot of a cluster exists, is it the right one?", err, p)
		}
		missing = append(missing, p)
	}
	for _, p := range slices.Backward(missing) {
		_, err := outside.Multi(ctx, coord.Create(p, nil))
		for errors.Is(err, coord.ErrUnknownOutcome) { // once more: it may exist by now
			_, err = outside.Multi(ctx, coord.Create(p, nil))
		}
		if err != nil && !errors.Is(err, coord.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// Close implements coord.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.mu.closed
	s.mu.closed = true
	watchers := slices.Clone(s.mu.watchers)
	unclaimed := s.mu.claimed == nil
	var links []*link
	for e := range s.mu.extra {
		links = append(links, e.link)
	}
	s.mu.Unlock()
	if was {
		return nil
	}
	for _, w := range watchers {
		w.Close()
	}
	if unclaimed {
		s.leave()
	}
	for _, l := range append(links, s.main) {
		l.close()
	}
	return nil
}

// leaveTimeout bounds the farewell to the server, which would otherwise keep an unused session until it expires.
const leaveTimeout = time.Second

func (s *Store) leave() {
	s.main.mu.Lock()
	s.main.mu.renew = false
	z, up := s.main.mu.session, s.main.mu.connected
	s.main.mu.Unlock()
	if !up {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = s.main.endRemotely(ctx, z) // it expires otherwise
}

// full gives a path's place in the server's tree.
func (s *Store) full(path string) string {
	switch {
	case s.chroot == "":
		return path
	case path == "/":
		return s.chroot
	}
	return s.chroot + path
}

// local undoes full.
func (s *Store) local(path string) string {
	if path = path[min(len(s.chroot), len(path)):]; path == "" {
		return "/"
	}
	return path
}

// syncRequest makes the server catch up with its leader before the reads that follow.
func (s *Store) syncRequest(c *call) *request {
	return &request{frame: syncFrame(s.full("/")), finish: c.expect(func(r *reply) error { return r.err })}
}

// read runs requests that change nothing, behind a sync.
func (s *Store) read(ctx context.Context, n int, build func(c *call, i int) *request) error {
	if n == 0 {
		return ctx.Err()
	}
	return s.main.run(ctx, n+1, func(c *call, i int) *request {
		if i == 0 {
			return s.syncRequest(c)
		}
		return build(c, i-1)
	})
}

// Get implements coord.Store.
func (s *Store) Get(ctx context.Context, path string) (coord.Node, error) {
	reads, err := s.GetMany(ctx, []string{path})
	if err != nil {
		return coord.Node{}, err
	}
	return reads[0].Node, reads[0].Err
}

// GetMany implements coord.Store.
func (s *Store) GetMany(ctx context.Context, paths []string) ([]coord.ReadResult, error) {
	out := make([]coord.ReadResult, len(paths))
	err := s.read(ctx, len(paths), func(c *call, i int) *request {
		out[i].Node.Path = paths[i]
		if !coord.ValidPath(paths[i]) {
			out[i].Err = coord.ErrInvalidPath
			return nil
		}
		return &request{frame: pathFrame(opGetData, s.full(paths[i]), false), finish: c.expect(func(r *reply) error {
			return decodeRead(r, &out[i])
		})}
	})
	switch {
	case err == nil:
		return out, nil
	case len(paths) == 1:
		return nil, fmt.Errorf("read %s: %w", paths[0], err)
	}
	return nil, fmt.Errorf("read %d nodes: %w", len(paths), err)
}

func decodeRead(r *reply, out *coord.ReadResult) error {
	if r.err != nil {
		return r.err
	}
	if out.Err = codeError(r.code); out.Err != nil {
		return nil
	}
	// The buffer is the node's own: a frame holds one answer.
	out.Node.Data = r.body.buffer()
	out.Node.Stat, _ = r.body.stat()
	return r.body.err
}

// Children implements coord.Store.
func (s *Store) Children(ctx context.Context, path string) ([]string, error) {
	if !coord.ValidPath(path) {
		return nil, coord.ErrInvalidPath
	}
	lists, err := s.childrenMany(ctx, []string{path})
	switch {
	case err != nil:
		return nil, fmt.Errorf("list children of %s: %w", path, err)
	case lists[0].err != nil:
		return nil, lists[0].err
	}
	return lists[0].names, nil
}

type childList struct {
	names []string // sorted
	err   error
}

func (s *Store) childrenMany(ctx context.Context, paths []string) ([]childList, error) {
	out := make([]childList, len(paths))
	err := s.read(ctx, len(paths), func(c *call, i int) *request {
		return &request{frame: pathFrame(opGetChildren2, s.full(paths[i]), false), finish: c.expect(func(r *reply) error {
			if r.err != nil {
				return r.err
			}
			if out[i].err = codeError(r.code); out[i].err == nil {
				out[i].names = r.body.strings()
			}
			return r.body.err
		})}
	})
	for i := range out {
		slices.Sort(out[i].names)
	}
	return out, err
}
