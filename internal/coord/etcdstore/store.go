// Package etcdstore is the coordination engine on etcd: a member inside this process (Embedded), or any etcd that
// the same Store talks to through the small interface backend.
//
// How a tree lies in etcd's flat key space is in keys.go. A data version is etcd's key version less one, the creation
// id is the create revision, an ephemeral node hangs on a lease, a session is a lease with its heartbeat.
// Conditions of writes are compares of one etcd transaction, so every write is one entry of the raft log; its else
// branch reads what is needed to tell why a condition failed.
//
// Locks: Store.mu is a leaf.
package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"klamm/internal/coord"
)

// backend is what a Store needs of etcd. A clientv3 client gives do and leases; the feed of changes is the member's
// own watch stream when it lives in this process.
type backend interface {
	Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error)
	Grant(ctx context.Context, ttlSeconds int64) (*clientv3.LeaseGrantResponse, error)
	KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error)
	Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error)
	// subscribe starts a feed of all changes made after it returned.
	subscribe(ctx context.Context) (feed, error)
}

// options tune a Store for its backend.
type options struct {
	// tryTimeout bounds every request. A write that has not been answered by then has an unknown outcome: etcd
	// swallows a proposal that was in flight to a leader that stepped down.
	tryTimeout time.Duration
	// retryFor is how long reads, and writes that were refused, are tried again: as long as members elect a leader they
	// refuse everything. 0 tries once.
	retryFor time.Duration
	opsMax   int // operations in a transaction; 0 for chunkOpsMax
	readsMax int // paths in a read transaction; 0 for readsMax
	log      *slog.Logger
}

func (o options) withDefaults() options {
	if o.opsMax == 0 {
		o.opsMax = chunkOpsMax
	}
	if o.readsMax == 0 {
		o.readsMax = readsMax
	}
	return o
}

// treeTries is how many tries' time the deletion of a tree gets: it may have tens of thousands of nodes.
const treeTries = 5

// retryPause is waited between tries.
const retryPause = 20 * time.Millisecond

// Sizes of requests. etcd is fastest between 128 and 1,024 operations a transaction.
const (
	chunkOpsMax   = 512
	chunkBytesMax = 1 << 20
	readsMax      = 1000 // paths per read transaction
	inFlightMax   = 4    // chunks of one call that are not answered yet
)

// Store implements coord.Store.
type Store struct {
	backend backend
	options options
	ctx     context.Context // ends with Close; the life of feed and heartbeats
	stop    context.CancelFunc
	running sync.WaitGroup // the feed's and the sessions' goroutines

	mu struct {
		sync.Mutex
		closed   bool
		watchers []*coord.WatchSet
	}
}

var _ coord.Store = (*Store)(nil)

// newStore connects to a backend. The feed of changes runs from here on.
func newStore(ctx context.Context, b backend, o options) (*Store, error) {
	s := &Store{backend: b, options: o.withDefaults()}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	first, err := b.subscribe(ctx)
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("watch etcd: %w", err)
	}
	s.running.Go(func() { s.deliver(first) })
	return s, nil
}

// Close implements coord.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.mu.closed = true
	watchers := slices.Clone(s.mu.watchers)
	s.mu.Unlock()
	s.stop()
	for _, w := range watchers {
		w.Close()
	}
	s.running.Wait()
	return nil
}

// read runs an operation that changes nothing. Reads are linearizable, also those of the member in this process: etcd
// tells watchers of a change an instant before its own state shows it, so that a serializable read that follows an
// event could miss the very change that fired.
func (s *Store) read(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	var resp clientv3.OpResponse
	err := s.again(ctx, s.options.tryTimeout, func(try context.Context) error {
		var err error
		resp, err = s.backend.Do(try, op)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", coord.ErrUnavailable, err)
	})
	return resp, err
}

// write runs a transaction.
func (s *Store) write(ctx context.Context, op clientv3.Op) (*clientv3.TxnResponse, error) {
	return s.writeWithin(ctx, s.options.tryTimeout, op)
}

func (s *Store) writeWithin(ctx context.Context, timeout time.Duration, op clientv3.Op) (*clientv3.TxnResponse, error) {
	var resp clientv3.OpResponse
	err := s.again(ctx, timeout, func(try context.Context) error {
		var err error
		if resp, err = s.backend.Do(try, op); err != nil {
			return writeError(err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp.Txn(), nil
}

// again tries until there is another outcome than ErrUnavailable, or the time for it is over. The first try may take the timeout, each
// further one twice as long as the one before, up to tryTimeout.
func (s *Store) again(ctx context.Context, timeout time.Duration, do func(try context.Context) error) error {
	var end time.Time
	for ; ; timeout = max(timeout, min(2*timeout, s.options.tryTimeout)) {
		if err := s.usable(ctx); err != nil {
			return err
		}
		if end.IsZero() && s.options.retryFor > 0 {
			end = time.Now().Add(s.options.retryFor)
		}
		try, cancel := context.WithTimeout(ctx, timeout)
		err := do(try)
		cancel()
		if err == nil || !errors.Is(err, coord.ErrUnavailable) || !time.Now().Before(end) {
			return err
		}
		wait := time.NewTimer(retryPause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		case <-s.ctx.Done():
			wait.Stop()
			return coord.ErrClosed
		}
	}
}

// errNotForLearner is the refusal of a member that does not vote yet.
var errNotForLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// writeError says what an error of etcd means for a write.
func writeError(err error) error {
	refusals := []error{
		rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader, rpctypes.ErrNotLeader, rpctypes.ErrNoSpace, rpctypes.ErrCorrupt,
		rpctypes.ErrNotCapable, rpctypes.ErrUnhealthy, errNotForLearner,
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return coord.ErrSessionExpired
	case errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrDuplicateKey):
		return err
	case slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }):
		return fmt.Errorf("%w: %w", coord.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", coord.ErrUnknownOutcome, err)
}

func (s *Store) usable(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return coord.ErrClosed
	}
	return ctx.Err()
}

// Get implements coord.Store.
func (s *Store) Get(ctx context.Context, path string) (coord.Node, error) {
	if path == "/" {
		return coord.Node{Path: path}, s.usable(ctx)
	}
	resp, err := s.read(ctx, clientv3.OpGet(nodeKey(path)))
	if err != nil {
		return coord.Node{}, fmt.Errorf("read %s: %w", path, err)
	}
	if len(resp.Get().Kvs) == 0 {
		return coord.Node{}, coord.ErrNoNode
	}
	return nodeOf(path, resp.Get().Kvs[0]), nil
}

// GetMany implements coord.Store.
func (s *Store) GetMany(ctx context.Context, paths []string) ([]coord.ReadResult, error) {
	out := make([]coord.ReadResult, len(paths))
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(inFlightMax)
	for begin := 0; begin < len(paths); begin += s.options.readsMax {
		end := min(begin+s.options.readsMax, len(paths))
		calls.Go(func() error { return s.getChunk(ctx, paths[begin:end], out[begin:end]) })
	}
	if err := calls.Wait(); err != nil {
		return nil, fmt.Errorf("read %d nodes: %w", len(paths), err)
	}
	return out, nil
}

func (s *Store) getChunk(ctx context.Context, paths []string, out []coord.ReadResult) error {
	gets := make([]clientv3.Op, len(paths))
	for i, p := range paths {
		gets[i] = clientv3.OpGet(nodeKey(p))
	}
	resp, err := s.read(ctx, clientv3.OpTxn(nil, gets, nil))
	if err != nil {
		return err
	}
	for i, r := range resp.Txn().Responses {
		switch kvs := r.GetResponseRange().Kvs; {
		case len(kvs) > 0:
			out[i].Node = nodeOf(paths[i], kvs[0])
		case paths[i] == "/":
			out[i].Node = coord.Node{Path: "/"}
		default:
			out[i] = coord.ReadResult{Node: coord.Node{Path: paths[i]}, Err: coord.ErrNoNode}
		}
	}
	return nil
}

// Children implements coord.Store.
func (s *Store) Children(ctx context.Context, path string) ([]string, error) {
	r := childRange(path)
	resp, err := s.read(ctx, clientv3.OpTxn(nil, []clientv3.Op{
		clientv3.OpGet(nodeKey(path), clientv3.WithCountOnly()),
		clientv3.OpGet(r.begin, r.option(), clientv3.WithKeysOnly()), // etcd answers in order of the keys
	}, nil))
	if err != nil {
		return nil, fmt.Errorf("list children of %s: %w", path, err)
	}
	node, children := resp.Txn().Responses[0].GetResponseRange(), resp.Txn().Responses[1].GetResponseRange()
	if node.Count == 0 && path != "/" {
		return nil, coord.ErrNoNode
	}
	names := make([]string, len(children.Kvs))
	for i, kv := range children.Kvs {
		names[i] = string(kv.Key[len(r.begin):])
	}
	return names, nil
}

// DeleteTree implements coord.Store: one transaction with one range per depth.
func (s *Store) DeleteTree(ctx context.Context, guard *coord.Guard, path string) error {
	if path == "/" || !coord.ValidPath(path) {
		return coord.ErrInvalidPath
	}
	var deletes []clientv3.Op
	for depth := depthMax; depth > coord.Depth(path); depth-- {
		r := depthRange(path, depth)
		deletes = append(deletes, clientv3.OpDelete(r.begin, r.option()))
	}
	deletes = append(deletes, clientv3.OpDelete(nodeKey(path)))
	resp, err := s.writeWithin(ctx, treeTries*s.options.tryTimeout, clientv3.OpTxn(guardCompares(guard), deletes, nil))
	switch {
	case err != nil:
		return fmt.Errorf("delete tree %s: %w", path, err)
	case !resp.Succeeded:
		return fmt.Errorf("delete tree %s: %w", path, coord.ErrFenced)
	}
	return nil
}

func guardCompares(guard *coord.Guard) []clientv3.Cmp {
	if guard == nil {
		return nil
	}
	return []clientv3.Cmp{compareVersion(guard.Path, guard.Version)}
}

// compareVersion holds if the node exists with the data version.
func compareVersion(path string, version int32) clientv3.Cmp {
	if version == coord.AnyVersion {
		return clientv3.Compare(clientv3.CreateRevision(nodeKey(path)), ">", 0)
	}
	return clientv3.Compare(clientv3.Version(nodeKey(path)), "=", int64(version)+1)
}
