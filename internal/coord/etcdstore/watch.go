package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"klamm/internal/coord"
)

// change is a write of one node.
type change struct {
	path       string
	membership bool // the node was created or deleted
}

// feed delivers every change of the tree in order.
type feed interface {
	// next blocks until there are changes. errGap means that some were missed and the feed is over.
	next(ctx context.Context) ([]change, error)
	close()
}

// errGap reports that changes were compacted away before the feed came to them, or that its link broke.
var errGap = errors.New("changes were missed")

// resubscribePause is waited between attempts to watch again.
const resubscribePause = 100 * time.Millisecond

// deliver hands changes to the watchers until the store is closed. After a gap it watches anew from now on and
// fires all watches: events are hints, whoever gets one reads the node.
func (s *Store) deliver(f feed) {
	defer func() { f.close() }()
	for {
		changes, err := f.next(s.ctx)
		if s.ctx.Err() != nil {
			return
		}
		if err == nil {
			for _, w := range s.openWatchers() {
				for _, c := range changes {
					w.Changed(c.path, c.membership)
				}
			}
			continue
		}
		s.options.log.Warn("watch of the coordination store broke, watching again", "err", err)
		f.close()
		if f = s.resubscribe(); f == nil {
			f = closedFeed{}
			return
		}
		for _, w := range s.openWatchers() {
			w.Resync()
		}
	}
}

// resubscribe tries until it has a feed; nil when the store was closed meanwhile.
func (s *Store) resubscribe() feed {
	for {
		f, err := s.backend.subscribe(s.ctx)
		if err == nil {
			return f
		}
		select {
		case <-time.After(resubscribePause):
		case <-s.ctx.Done():
			return nil
		}
	}
}

func (s *Store) openWatchers() []*coord.WatchSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.watchers)
}

// NewWatcher implements coord.Store.
func (s *Store) NewWatcher() coord.Watcher {
	w := coord.NewWatchSet(func(w *coord.WatchSet) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.watchers = slices.DeleteFunc(s.mu.watchers, func(o *coord.WatchSet) bool { return o == w })
	})
	s.mu.Lock()
	closed := s.mu.closed
	if !closed {
		s.mu.watchers = append(s.mu.watchers, w)
	}
	s.mu.Unlock()
	if closed {
		w.Close()
	}
	return w
}

type closedFeed struct{}

func (closedFeed) next(context.Context) ([]change, error) { return nil, errGap }
func (closedFeed) close()                                 {}

// memberFeed is the watch stream of the member in this process. Unlike clientv3's watcher it has no goroutines and
// no global state, and runs inside a synctest bubble.
type memberFeed struct{ stream mvcc.WatchStream }

func subscribeMember(ctx context.Context, kv mvcc.WatchableKV) (feed, error) {
	stream := kv.NewWatchStream()
	if _, err := stream.Watch(ctx, clientv3.AutoWatchID, []byte(nodesBegin), []byte(nodesEnd), 0); err != nil {
		stream.Close()
		return nil, err
	}
	return memberFeed{stream}, nil
}

func (f memberFeed) next(ctx context.Context) ([]change, error) {
	select {
	case resp, ok := <-f.stream.Chan():
		if !ok {
			return nil, errGap
		}
		if resp.CompactRevision != 0 {
			return nil, fmt.Errorf("%w: compacted at revision %d", errGap, resp.CompactRevision)
		}
		changes := make([]change, len(resp.Events))
		for i, e := range resp.Events {
			changes[i] = changeOf(e)
		}
		return changes, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f memberFeed) close() { f.stream.Close() }

func changeOf(e *mvccpb.Event) change {
	return change{pathOfKey(e.Kv.Key), e.Type == mvccpb.Event_DELETE || e.Kv.Version == 1}
}
