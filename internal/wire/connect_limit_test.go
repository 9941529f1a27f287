package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAConnectionThatNobodyTakesIsGivenUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silence := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		refusal := func(context.Context) error { return errors.New("connection refused") }
		success := func(context.Context) error { return nil }
		var answer func(context.Context) error
		dial := NewConnectLimit(10*time.Second, 30*time.Second).Bound(func(ctx context.Context, _ string) (net.Conn, error) { return nil, answer(ctx) })
		for i, attempt := range []struct {
			addr   string
			answer func(context.Context) error
			want   time.Duration
		}{
			{"one:9092", silence, 10 * time.Second},
			{"one:9092", silence, 20 * time.Second},
			{"one:9092", silence, 30 * time.Second},
			{"one:9092", silence, 30 * time.Second},
			{"two:9092", silence, 10 * time.Second},
			{"one:9092", success, 0},
			{"one:9092", refusal, 0},
			{"one:9092", refusal, 0},
			{"one:9092", silence, 10 * time.Second},
		} {
			answer = attempt.answer
			began := time.Now()
			_, _ = dial(t.Context(), attempt.addr)
			if took := time.Since(began); took != attempt.want {
				t.Errorf("attempt %d, at %s, took %v, want %v", i, attempt.addr, took, attempt.want)
			}
		}
	})
}

func TestTheLimitOfConnectionsGrowsOnceByAttemptsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := NewConnectLimit(10*time.Second, 80*time.Second).Bound(func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _, _ = dial(t.Context(), "one:9092") })
		}
		all.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = dial(short, "one:9092") // the caller's end says nothing
		began := time.Now()
		_, _ = dial(t.Context(), "one:9092")
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("the attempt after three at the same time took %v", took)
		}
	})
}
