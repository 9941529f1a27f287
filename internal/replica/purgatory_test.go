package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/cluster"
)

// testOp completes once all of its keys were marked.
type testOp struct {
	mu      sync.Mutex
	open    map[int]bool
	ended   int
	expired bool
	at      time.Time
}

func newTestOp(n int) *testOp {
	op := &testOp{open: map[int]bool{}}
	for i := range n {
		op.open[i] = true
	}
	return op
}

func (op *testOp) mark(i int) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.open[i] = false
}

func (op *testOp) check(int) bool {
	op.mu.Lock()
	defer op.mu.Unlock()
	for _, open := range op.open {
		if open {
			return false
		}
	}
	return true
}

func (op *testOp) complete(expired bool) {
	op.mu.Lock()
	defer op.mu.Unlock()
	op.ended++
	op.expired, op.at = expired, time.Now()
}

func testTP(i int) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: "t", Partition: int32(i)}
}

// empty reports whether nothing of any request is left in the purgatory.
func (p *purgatory) empty() bool {
	for i := range p.shards {
		s := &p.shards[i]
		s.Lock()
		n := len(s.lists)
		s.Unlock()
		if n > 0 {
			return false
		}
	}
	return p.waiting.Load() == 0 && p.timers.len() == 0
}

// withTimers runs fn while a timer queue is owned by its goroutine, inside a bubble with fake time.
func withTimers(t *testing.T, fn func(p *purgatory)) {
	synctest.Test(t, func(t *testing.T) {
		q := newTimerQueue()
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { q.run(ctx); close(ended) }()
		fn(newPurgatory(q))
		stop()
		<-ended
	})
}

func TestAWaitingRequestEndsWhenItsLastPartitionIsReady(t *testing.T) {
	withTimers(t, func(p *purgatory) {
		op := newTestOp(3)
		p.add(op, 3, testTP, time.Now().Add(time.Minute))
		for i := range 3 {
			if op.ended != 0 {
				t.Fatalf("ended before partition %d was ready", i)
			}
			op.mark(i)
			p.wake(testTP(i))
		}
		if op.ended != 1 || op.expired || !p.empty() {
			t.Fatalf("ended %d times, expired %v, purgatory empty %v", op.ended, op.expired, p.empty())
		}
	})
}

func TestAWaitingRequestEndsAtItsDeadline(t *testing.T) {
	withTimers(t, func(p *purgatory) {
		start := time.Now()
		var ops []*testOp
		for _, after := range []time.Duration{3 * time.Second, time.Second, 2 * time.Second, time.Second} {
			op := newTestOp(2)
			ops = append(ops, op)
			p.add(op, 2, testTP, start.Add(after))
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		for i, want := range []time.Duration{3 * time.Second, time.Second, 2 * time.Second, time.Second} {
			if got := ops[i].at.Sub(start); ops[i].ended != 1 || !ops[i].expired || got != want {
				t.Errorf("request %d ended %d times, expired %v, after %v; want once, expired, after %v", i, ops[i].ended, ops[i].expired, got, want)
			}
		}
		if !p.empty() || p.expired.Load() != 4 {
			t.Errorf("empty %v, expired %d", p.empty(), p.expired.Load())
		}
	})
}

func TestARequestThatIsReadyWhenAddedEndsAtOnce(t *testing.T) {
	withTimers(t, func(p *purgatory) {
		op := newTestOp(1)
		op.mark(0)
		p.add(op, 1, testTP, time.Now().Add(time.Minute))
		if op.ended != 1 || !p.empty() {
			t.Fatalf("ended %d times, purgatory empty %v", op.ended, p.empty())
		}
	})
}

func TestTheEndOfTheTimerQueueEndsAllRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTimerQueue()
		p := newPurgatory(q)
		early := newTestOp(1)
		p.add(early, 1, testTP, time.Now().Add(time.Hour))
		ctx, stop := context.WithCancel(context.Background())
		stop()
		q.run(ctx)
		late := newTestOp(1)
		p.add(late, 1, testTP, time.Now().Add(time.Hour))
		if early.ended != 1 || late.ended != 1 || !early.expired || !late.expired || !p.empty() {
			t.Fatalf("early %d, late %d, purgatory empty %v", early.ended, late.ended, p.empty())
		}
	})
}

func TestRequestsEndOnceUnderConcurrentWakesAndDeadlines(t *testing.T) {
	q := newTimerQueue()
	p := newPurgatory(q)
	ctx, stop := context.WithCancel(context.Background())
	var background sync.WaitGroup
	background.Go(func() { q.run(ctx) })
	const requests, keys = 2000, 5
	ops := make([]*testOp, requests)
	var ended atomic.Int64
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for i := w; i < requests; i += 4 {
				ops[i] = newTestOp(2)
				key := func(k int) cluster.TopicPartition { return testTP((i + k) % keys) }
				p.add(ops[i], 2, key, time.Now().Add(time.Duration(i%3)*time.Millisecond))
				ops[i].mark(0)
				p.wake(key(0))
				if i%2 == 0 {
					ops[i].mark(1)
					p.wake(key(1))
				}
			}
		})
	}
	work.Wait()
	stop()
	background.Wait()
	for i, op := range ops {
		if op.ended != 1 {
			t.Errorf("request %d ended %d times", i, op.ended)
		}
		ended.Add(int64(op.ended))
	}
	if !p.empty() {
		t.Errorf("%d requests left", p.waiting.Load())
	}
}

// A wake may find a request through its first partition while its later ones are still to come.
func TestARequestAnsweredWhileItIsEnteredLeavesNothingBehind(t *testing.T) {
	withTimers(t, func(p *purgatory) {
		const partitions = 40
		for last := range partitions {
			op := newTestOp(1)
			key := func(i int) cluster.TopicPartition {
				if i == last {
					op.mark(0)
					p.wake(testTP(0))
				}
				return testTP(i)
			}
			var waker sync.WaitGroup
			waker.Go(func() {
				for range 100 {
					p.wake(testTP(0))
				}
			})
			p.add(op, partitions, key, time.Now().Add(time.Hour))
			waker.Wait()
			if op.ended != 1 {
				t.Fatalf("answered %d times", op.ended)
			}
		}
		if !p.empty() {
			t.Error("watches of answered requests are left")
		}
	})
}
