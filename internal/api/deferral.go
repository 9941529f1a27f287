package api

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"klamm/internal/wire"
)

// deferral puts requests back into lanes after a pause: what they wait for shows in the store only. One goroutine (run)
// and one timer serve all of them. A connection has a bounded number of requests, which bounds the queue.
//
// Locks: mu guards the fields beside it and is held for no channel operation that could block.
type deferral struct {
	lanes *lanes
	wake  chan struct{}

	mu    sync.Mutex
	queue deferredQueue
	over  bool
}

type deferred struct {
	at      time.Time
	request *wire.Request
	run     func(context.Context)
}

func newDeferral(l *lanes) *deferral { return &deferral{lanes: l, wake: make(chan struct{}, 1)} }

// after runs the request's job on the lanes once the pause is over; at the end of run, at once.
func (d *deferral) after(pause time.Duration, r *wire.Request, run func(context.Context)) {
	d.mu.Lock()
	over := d.over
	if !over {
		heap.Push(&d.queue, deferred{time.Now().Add(pause), r, run})
	}
	d.mu.Unlock()
	if over {
		d.submit([]deferred{{request: r, run: run}})
		return
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run submits jobs as they become due, until the context ends; then all that are left.
func (d *deferral) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := d.due(time.Now(), false)
		d.submit(due)
		timer.Reset(next)
		select {
		case <-d.wake:
		case <-timer.C:
		case <-ctx.Done():
			rest, _ := d.due(time.Now(), true)
			d.submit(rest)
			return
		}
	}
}

// submit waits for room, which the lanes make until they end and need no more from then on.
func (d *deferral) submit(jobs []deferred) {
	for _, j := range jobs {
		d.lanes.submit(context.Background(), j.request, j.run)
	}
}

// due takes out the jobs whose time has come, all of them at the end, and tells how long the next one has.
func (d *deferral) due(now time.Time, end bool) (jobs []deferred, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = d.over || end
	for len(d.queue) > 0 && (end || !d.queue[0].at.After(now)) {
		jobs = append(jobs, heap.Pop(&d.queue).(deferred))
	}
	if len(d.queue) == 0 {
		return jobs, time.Hour
	}
	return jobs, d.queue[0].at.Sub(now)
}

// deferredQueue is a heap by time.
type deferredQueue []deferred

func (q deferredQueue) Len() int           { return len(q) }
func (q deferredQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q deferredQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *deferredQueue) Push(x any) { *q = append(*q, x.(deferred)) }

// Pop implements heap.Interface.
func (q *deferredQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = deferred{}
	*q = (*q)[:last]
	return x
}
