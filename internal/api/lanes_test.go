package api

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"klamm/internal/wire"
)

func newTestLanes() *lanes { return newLanes(slog.New(slog.NewTextHandler(io.Discard, nil))) }

func TestLanesKeepTheOrderOfAConnectionAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newTestLanes()
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx, 4) })
		var mu sync.Mutex
		var order []string
		note := func(s string) { mu.Lock(); order = append(order, s); mu.Unlock() }
		release := make(chan struct{})
		slow, other := &wire.Request{Conn: &wire.Conn{}}, &wire.Request{Conn: &wire.Conn{}}
		l.submit(ctx, slow, func(context.Context) { <-release; note("slow 1") })
		l.submit(ctx, slow, func(context.Context) { note("slow 2") })
		l.submit(ctx, other, func(context.Context) { note("other") })
		synctest.Wait()
		close(release)
		synctest.Wait()
		if want := []string{"other", "slow 1", "slow 2"}; !slices.Equal(order, want) {
			t.Errorf("got %v, want %v", order, want)
		}
		cancel()
		running.Wait()
	})
}

func TestLanesBlockWhoSubmitsTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newTestLanes()
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx, 2) })
		release := make(chan struct{})
		r := &wire.Request{Conn: &wire.Conn{}}
		for range lanesJobsMax {
			l.submit(ctx, r, func(context.Context) { <-release })
		}
		admitted := make(chan struct{})
		go func() {
			l.submit(ctx, &wire.Request{Conn: &wire.Conn{}}, func(context.Context) {})
			close(admitted)
		}()
		synctest.Wait()
		select {
		case <-admitted:
			t.Error("a job was admitted beyond the limit")
		default:
		}
		close(release)
		<-admitted
		cancel()
		running.Wait()
	})
}

func TestLanesRunEveryJobAlsoAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newTestLanes()
		var running sync.WaitGroup
		running.Go(func() { l.run(ctx, 1) })
		var mu sync.Mutex
		ran, over := 0, 0
		job := func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			ran++
			if ctx.Err() != nil {
				over++
			}
		}
		release := make(chan struct{})
		l.submit(ctx, &wire.Request{Conn: &wire.Conn{}}, func(ctx context.Context) { <-release; job(ctx) })
		for range 3 {
			r := &wire.Request{Conn: &wire.Conn{}}
			for range 5 {
				l.submit(t.Context(), r, job)
			}
		}
		synctest.Wait()
		cancel()
		close(release)
		running.Wait()
		l.submit(t.Context(), &wire.Request{Conn: &wire.Conn{}}, job)
		if ran != 17 || over < 15 {
			t.Errorf("%d of 17 jobs ran, %d of them with a context that is over", ran, over)
		}
	})
}
