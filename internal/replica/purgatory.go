package replica

import (
	"container/heap"
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
)

// pending is a request that waits for partitions to change.
type pending interface {
	// check looks again at the partition with that index in the key list, or at all of them when index is negative, and
	// reports whether the request can be answered. Calls for one request are serialised.
	check(index int) bool
	// complete answers the request. It is called once, without any lock; expired says that its time ran out first.
	complete(expired bool)
}

const purgatoryShards = 16 // a power of two

// purgatory keeps requests that wait for partitions (Kafka: DelayedOperationPurgatory). There is no goroutine and no
// timer per request: wake looks at the requests of one partition, the timer queue ends those whose time is over. A
// request leaves all its watch lists the moment it completes, so memory is bounded by the requests that really wait.
// Safe for concurrent use.
type purgatory struct {
	timers  *timerQueue
	seed    maphash.Seed
	shards  [purgatoryShards]purgatoryShard
	waiting atomic.Int64
	expired atomic.Int64
}

type purgatoryShard struct {
	sync.Mutex
	lists map[cluster.TopicPartition]*watch // first watch of each partition's ring
	_     [40]byte                          // keeps neighbouring locks off one cache line
}

// waiter is one waiting request.
type waiter struct {
	home     *purgatory
	op       pending
	deadline time.Time
	watches  []watch
	mu       sync.Mutex  // serialises op.check
	done     atomic.Bool // set under mu, once
	heapPos  int         // position in the timer queue, -1 outside; guarded by the queue's lock
}

// watch is a waiter's place in one partition's ring; guarded by the shard's lock.
type watch struct {
	waiter     *waiter
	index      int // in the waiter's key list
	key        cluster.TopicPartition
	prev, next *watch // nil when not in a ring
}

func newPurgatory(timers *timerQueue) *purgatory {
	p := &purgatory{timers: timers, seed: maphash.MakeSeed()}
	for i := range p.shards {
		p.shards[i].lists = map[cluster.TopicPartition]*watch{}
	}
	return p
}

func (p *purgatory) shard(tp cluster.TopicPartition) *purgatoryShard {
	h := maphash.String(p.seed, tp.Topic) + uint64(tp.Partition)
	return &p.shards[h&(purgatoryShards-1)]
}

// add lets the request wait for the partitions that key gives for 0 to n-1, at most until the deadline. The caller has
// just found that it cannot be answered; add looks once more after it is watched, so no change in between is missed.
func (p *purgatory) add(op pending, n int, key func(int) cluster.TopicPartition, deadline time.Time) *waiter {
	w := &waiter{home: p, op: op, deadline: deadline, watches: make([]watch, n), heapPos: -1}
	p.waiting.Add(1) // before the check below: wake relies on it
	for i := range w.watches {
		w.watches[i] = watch{waiter: w, index: i, key: key(i)}
	}
	for i := range w.watches {
		p.link(&w.watches[i])
	}
	if w.done.Load() {
		w.unwatch() // a wake answered it between two links and could not take away the later ones
		return w
	}
	if !w.try(-1) && !p.timers.add(w) {
		w.expire()
	}
	return w
}

// wake looks again at the requests that wait for the partition and answers those that can be.
func (p *purgatory) wake(tp cluster.TopicPartition) {
	if p.waiting.Load() == 0 {
		return
	}
	var few [8]*watch
	found := few[:0]
	s := p.shard(tp)
	s.Lock()
	if first := s.lists[tp]; first != nil {
		for e := first; ; e = e.next {
			found = append(found, e)
			if e.next == first {
				break
			}
		}
	}
	s.Unlock()
	for _, e := range found {
		e.waiter.try(e.index)
	}
}

func (p *purgatory) link(e *watch) {
	s := p.shard(e.key)
	s.Lock()
	defer s.Unlock()
	first := s.lists[e.key]
	if first == nil {
		e.prev, e.next = e, e
		s.lists[e.key] = e
		return
	}
	e.prev, e.next = first.prev, first
	e.prev.next, first.prev = e, e
}

func (p *purgatory) unlink(e *watch) {
	s := p.shard(e.key)
	s.Lock()
	defer s.Unlock()
	switch {
	case e.next == nil:
	case e.next == e:
		delete(s.lists, e.key)
	default:
		e.prev.next, e.next.prev = e.next, e.prev
		if s.lists[e.key] == e {
			s.lists[e.key] = e.next
		}
	}
	e.prev, e.next = nil, nil
}

// try checks the request and answers it when it is ready. It reports whether the request is finished.
func (w *waiter) try(index int) bool {
	w.mu.Lock()
	if w.done.Load() || !w.op.check(index) {
		finished := w.done.Load()
		w.mu.Unlock()
		return finished
	}
	w.done.Store(true)
	w.mu.Unlock()
	w.leave()
	w.op.complete(false)
	return true
}

// expire answers the request because its time is over, unless it was answered already.
func (w *waiter) expire() {
	w.mu.Lock()
	first := !w.done.Swap(true)
	w.mu.Unlock()
	if !first {
		return
	}
	w.leave()
	w.home.expired.Add(1)
	w.op.complete(true)
}

// expireAll ends the requests that wait now.
func (p *purgatory) expireAll() {
	for i := range p.shards {
		s := &p.shards[i]
		var found []*waiter
		s.Lock()
		for _, first := range s.lists {
			for e := first; ; e = e.next {
				found = append(found, e.waiter)
				if e.next == first {
					break
				}
			}
		}
		s.Unlock()
		for _, w := range found {
			w.expire()
		}
	}
}

func (w *waiter) leave() {
	w.unwatch()
	w.home.timers.remove(w)
	w.home.waiting.Add(-1)
}

func (w *waiter) unwatch() {
	for i := range w.watches {
		w.home.unlink(&w.watches[i])
	}
}

// timerQueue ends waiting requests at their deadlines: one heap for all purgatories, owned by run.
type timerQueue struct {
	mu struct {
		sync.Mutex
		heap   waiterHeap
		closed bool
	}
	earlier chan struct{} // tells run that the next deadline came closer
}

func newTimerQueue() *timerQueue { return &timerQueue{earlier: make(chan struct{}, 1)} }

// add queues the waiter unless it has finished meanwhile. False: the queue has ended, the caller expires it.
func (q *timerQueue) add(w *waiter) bool {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		return false
	}
	// The waiter sets done before it calls remove: either it is seen here, or remove finds the entry.
	if w.done.Load() {
		q.mu.Unlock()
		return true
	}
	heap.Push(&q.mu.heap, w)
	isNext := w.heapPos == 0
	q.mu.Unlock()
	if isNext {
		select {
		case q.earlier <- struct{}{}:
		default:
		}
	}
	return true
}

func (q *timerQueue) remove(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.heapPos >= 0 {
		heap.Remove(&q.mu.heap, w.heapPos)
	}
}

// run expires waiters until the context ends; then it expires all that are left, and add refuses new ones.
func (q *timerQueue) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := q.takeDue(time.Now(), ctx.Err() != nil)
		for _, w := range due {
			w.expire()
		}
		if ctx.Err() != nil && len(due) == 0 {
			return
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
		case <-q.earlier:
		case <-timer.C:
		}
	}
}

// takeDue removes the waiters whose deadline has come, or all of them at the end, and says how long to sleep.
func (q *timerQueue) takeDue(now time.Time, end bool) (due []*waiter, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = q.mu.closed || end
	for len(q.mu.heap) > 0 {
		w := q.mu.heap[0]
		if wait := w.deadline.Sub(now); wait > 0 && !end {
			return due, wait
		}
		heap.Pop(&q.mu.heap)
		due = append(due, w)
	}
	return due, time.Hour
}

func (q *timerQueue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.heap)
}

// waiterHeap orders waiters by deadline and keeps their positions (container/heap).
type waiterHeap []*waiter

func (h waiterHeap) Len() int           { return len(h) }
func (h waiterHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapPos, h[j].heapPos = i, j
}

func (h *waiterHeap) Push(x any) {
	w := x.(*waiter)
	w.heapPos = len(*h)
	*h = append(*h, w)
}

func (h *waiterHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.heapPos = -1
	return w
}
