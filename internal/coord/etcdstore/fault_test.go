package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"klamm/internal/coord"
)

// faultyBackend is a member whose answers and feed a test can take away.
type faultyBackend struct {
	backend
	swallow atomic.Bool  // requests are not run and not answered
	mute    atomic.Bool  // requests are run and not answered
	feeds   chan feed    // subscribe takes from here first
	fails   atomic.Int32 // that many subscriptions are refused
}

func (b *faultyBackend) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if b.swallow.Load() {
		<-ctx.Done()
		return clientv3.OpResponse{}, ctx.Err()
	}
	resp, err := b.backend.Do(ctx, op)
	if b.mute.Load() {
		<-ctx.Done()
		return clientv3.OpResponse{}, ctx.Err()
	}
	return resp, err
}

func (b *faultyBackend) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	if b.swallow.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.backend.KeepAliveOnce(ctx, id)
}

func (b *faultyBackend) subscribe(ctx context.Context) (feed, error) {
	if b.fails.Add(-1) >= 0 {
		return nil, errors.New("refused")
	}
	select {
	case f := <-b.feeds:
		return f, nil
	default:
		return b.backend.subscribe(ctx)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newFaulty opens a store on a faulty backend of its own member.
func newFaulty(t *testing.T, b *faultyBackend, tryTimeout time.Duration) (*Store, *Engine) {
	t.Helper()
	e := startEmbedded(t, t.TempDir())
	b.backend = member{e.client, e.server}
	s, err := newStore(t.Context(), b, options{tryTimeout: tryTimeout, log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, e
}

func TestAWriteWithoutAnswerHasAnUnknownOutcome(t *testing.T) {
	b := &faultyBackend{}
	s, e := newFaulty(t, b, 30*time.Millisecond)
	ctx := t.Context()
	if _, err := s.Batch(ctx, nil, []coord.Op{coord.Create("/a", nil), coord.Create("/t", nil), coord.Create("/t/x", nil)}); err != nil {
		t.Fatal(err)
	}
	writes := map[string]func() error{
		"multi": func() error { _, err := s.Multi(ctx, coord.Set("/a", []byte("1"), 0)); return err },
		"batch": func() error { _, err := s.Batch(ctx, nil, []coord.Op{coord.Create("/b", nil)}); return err },
		"tree":  func() error { return s.DeleteTree(ctx, nil, "/t") },
	}
	run := func() {
		t.Helper()
		for name, write := range writes {
			if err := write(); !errors.Is(err, coord.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := s.Get(ctx, "/a"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("read: %v", err)
		}
	}
	applied := func() string {
		t.Helper()
		reads, err := e.Store().GetMany(ctx, []string{"/a", "/b", "/t"})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(reads[0].Node.Stat.Version, reads[1].Err == nil, reads[2].Err == nil)
	}
	b.swallow.Store(true)
	run()
	if got := applied(); got != "0 false true" {
		t.Errorf("requests that never arrived left %s", got)
	}
	b.swallow.Store(false)
	b.mute.Store(true)
	run()
	if got := applied(); got != "1 true false" {
		t.Errorf("requests whose answers were lost left %s", got)
	}
}

func TestACancelledWriteHasAnUnknownOutcome(t *testing.T) {
	b := &faultyBackend{}
	s, _ := newFaulty(t, b, time.Minute)
	b.swallow.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Multi(ctx, coord.Create("/a", nil))
	if !errors.Is(err, coord.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestErrorsOfEtcdAreToldApart(t *testing.T) {
	cases := map[string]struct{ err, want error }{
		"lease is gone":       {rpctypes.ErrLeaseNotFound, coord.ErrSessionExpired},
		"too many in flight":  {rpctypes.ErrTooManyRequests, coord.ErrUnavailable},
		"no leader":           {rpctypes.ErrNoLeader, coord.ErrUnavailable},
		"disk quota":          {rpctypes.ErrNoSpace, coord.ErrUnavailable},
		"leader changed":      {rpctypes.ErrLeaderChanged, coord.ErrUnknownOutcome},
		"timed out":           {rpctypes.ErrTimeout, coord.ErrUnknownOutcome},
		"timed out by leader": {rpctypes.ErrTimeoutDueToLeaderFail, coord.ErrUnknownOutcome},
		"stopped":             {rpctypes.ErrStopped, coord.ErrUnknownOutcome},
		"anything else":       {errors.New("x"), coord.ErrUnknownOutcome},
	}
	for name, c := range cases {
		if got := writeError(c.err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := writeError(rpctypes.ErrRequestTooLarge); errors.Is(got, coord.ErrUnknownOutcome) || errors.Is(got, coord.ErrUnavailable) {
		t.Errorf("too large: %v", got)
	}
}

// brokenFeed ends with a gap when the test says so.
type brokenFeed struct{ gap chan struct{} }

func (f brokenFeed) next(ctx context.Context) ([]change, error) {
	select {
	case <-f.gap:
		return nil, errGap
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f brokenFeed) close() {}

func TestAfterAGapAllWatchesFireAndWatchingGoesOn(t *testing.T) {
	f := brokenFeed{make(chan struct{})}
	b := &faultyBackend{feeds: make(chan feed, 1)}
	b.feeds <- f
	s, _ := newFaulty(t, b, time.Second)
	w := s.NewWatcher()
	w.Add("/a", coord.WatchNode)
	w.Add("/p", coord.WatchChildren)
	// The broken feed does not tell of this.
	if _, err := s.Multi(t.Context(), coord.Create("/a", nil)); err != nil {
		t.Fatal(err)
	}
	b.fails.Store(2)
	close(f.gap)
	if events, err := w.Next(t.Context()); err != nil || len(events) != 2 {
		t.Fatalf("events %v, %v", events, err)
	}
	if _, err := s.Multi(t.Context(), coord.Set("/a", nil, 0)); err != nil {
		t.Fatal(err)
	}
	if events, err := w.Next(t.Context()); err != nil || len(events) != 1 || events[0].Path != "/a" {
		t.Errorf("events %v, %v", events, err)
	}
}

func TestAFeedThatLagsBehindACompactionReportsAGap(t *testing.T) {
	b := &faultyBackend{}
	s, e := newFaulty(t, b, time.Minute)
	ctx := t.Context()
	slow, err := b.backend.subscribe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.close()
	if _, err := s.Multi(ctx, coord.Create("/a", nil)); err != nil {
		t.Fatal(err)
	}
	// More changes than the stream buffers (1,024), then history is dropped.
	for i := range int32(1500) {
		if _, err := s.Multi(ctx, coord.Set("/a", nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := e.client.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	for seen := 0; ; seen++ {
		_, err := slow.next(ctx)
		if errors.Is(err, errGap) {
			return
		}
		if err != nil || seen > 1500 {
			t.Fatalf("no gap after %d changes: %v", seen, err)
		}
	}
}

func TestOperationsOfABatchWaitForThoseTheyDependOn(t *testing.T) {
	ops := []coord.Op{
		coord.Create("/a", nil),           // 0
		coord.Create("/b", nil),           // 0
		coord.Create("/a/x", nil),         // 1: parent
		coord.Set("/a/x", nil, 0),         // 2: same node
		coord.Delete("/a", 0),             // 2: child was created in wave 1
		coord.CreateSequential("/q", nil), // 0
		coord.CreateSequential("/q", nil), // 1: order of numbers
		coord.Set("/c", nil, 0),           // 0
	}
	want := "[[0 1 5 7] [2 6] [3 4]]"
	if got := fmt.Sprint(waves(ops)); got != want {
		t.Errorf("waves are %s, want %s", got, want)
	}
}
