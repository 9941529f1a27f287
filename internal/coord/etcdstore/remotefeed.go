package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A member that is frozen keeps its connections. So the feed asks a sign of life every progressEvery and goes to
// another member after progressTimeout without one.
const (
	progressEvery   = time.Second
	progressTimeout = 3 * time.Second
)

// remoteFeed is a watch stream of its own to one member, and to another one when that fails, from the revision that it
// had come to. clientv3's watcher asks for no signs of life and resumes in a way that cannot be bounded in time.
//
// The stream asks for no fragments of large answers: etcd cuts them in time that grows with the square of the events, which
// is minutes for the deletion of a large tree, while its whole watch machinery stands still.
type remoteFeed struct {
	remote   remote
	stream   pb.Watch_WatchClient
	life     context.Context    // of the stream
	end      context.CancelFunc // of life
	revision int64              // all changes up to it were delivered
	heard    atomic.Int64
}

func (r remote) subscribe(ctx context.Context) (feed, error) {
	f := &remoteFeed{remote: r}
	ctx, cancel := context.WithTimeout(ctx, remoteTryTimeout)
	defer cancel()
	for {
		err := f.open(ctx)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, errStrange) || pause(ctx, resubscribePause) != nil {
			return nil, err
		}
	}
}

// errStrange reports that a member does not know the login yet: the one that was asked to log in is another one, and this one is behind.
var errStrange = errors.New("etcd does not know the login")

// watchRefused is why a member refused a watch.
func watchRefused(reason string) error {
	for _, passing := range []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision} {
		if strings.Contains(reason, passing.Error()) {
			return fmt.Errorf("%w: %s", errStrange, reason)
		}
	}
	return fmt.Errorf("etcd refused the watch: %s", reason)
}

// open starts a stream after the revision that the feed has come to, from now on if there is none yet.
func (f *remoteFeed) open(ctx context.Context) error {
	f.life, f.end = context.WithCancel(clientv3.WithRequireLeader(context.WithoutCancel(ctx)))
	late := time.AfterFunc(remoteDialTimeout, f.end)
	defer late.Stop()
	defer context.AfterFunc(ctx, f.end)()
	err := f.create()
	if err != nil {
		f.end()
		return clientv3.ContextError(ctx, err)
	}
	return nil
}

func (f *remoteFeed) create() (err error) {
	if f.stream, err = pb.NewWatchClient(f.remote.ActiveConnection()).Watch(f.life); err != nil {
		return err
	}
	create := &pb.WatchCreateRequest{Key: []byte(nodesBegin), RangeEnd: []byte(nodesEnd)}
	if f.revision > 0 {
		create.StartRevision = f.revision + 1
	}
	err = f.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	if err != nil {
		return err
	}
	resp, err := f.stream.Recv()
	switch {
	case err != nil:
		return err
	case resp.CompactRevision != 0:
		return errGap
	case !resp.Created || resp.Canceled:
		return watchRefused(resp.CancelReason)
	case f.revision == 0:
		f.revision = resp.Header.Revision
	}
	f.heard.Store(time.Now().UnixNano())
	go f.watchLife(f.life, f.end, f.stream)
	return nil
}

// watchLife ends the stream when its member has been silent for too long; it ends with the stream.
func (f *remoteFeed) watchLife(life context.Context, end context.CancelFunc, stream pb.Watch_WatchClient) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	ask := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	for {
		select {
		case <-life.Done():
			return
		case <-tick.C:
		}
		if time.Since(time.Unix(0, f.heard.Load())) > progressTimeout || stream.Send(ask) != nil {
			end()
			return
		}
	}
}

func (f *remoteFeed) next(ctx context.Context) ([]change, error) {
	defer context.AfterFunc(ctx, func() { f.end() })()
	for {
		resp, err := f.stream.Recv()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && resp.CompactRevision != 0:
			return nil, fmt.Errorf("%w: compacted at revision %d", errGap, resp.CompactRevision)
		case err != nil || resp.Canceled:
			if err := f.reopen(ctx); err != nil {
				return nil, err
			}
			continue
		}
		f.heard.Store(time.Now().UnixNano())
		if len(resp.Events) == 0 {
			continue // a sign of life
		}
		changes := make([]change, len(resp.Events))
		for i, e := range resp.Events {
			changes[i] = changeOf(e)
			f.revision = max(f.revision, e.Kv.ModRevision)
		}
		return changes, nil
	}
}

// reopen tries until there is a stream again.
func (f *remoteFeed) reopen(ctx context.Context) error {
	f.end()
	for {
		err := f.open(ctx)
		if err == nil || errors.Is(err, errGap) {
			return err
		}
		if err := pause(ctx, resubscribePause); err != nil {
			return err
		}
	}
}

func (f *remoteFeed) close() { f.end() }
