package metadata

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// waiter is one waiting operation. Owned by the Run loop once it left the inbox.
type waiter struct {
	topics   []string
	cond     func(*Image) bool
	deadline time.Time
	done     func(ok bool)
	index    int // position in the heap, -1 when it is out of it
}

// waiters is the table of waiting operations. Its size is bounded by the callers: one entry per request in flight.
type waiters struct {
	wake chan struct{} // capacity 1: a full channel already means "look again"
	mu   struct {
		sync.Mutex
		inbox   []*waiter
		touched []string // topics of updates the loop has not looked at yet; kept only while somebody waits
		updated bool     // an update came, possibly without topics
		open    int      // waiters not completed yet, inbox included
		stopped bool
	}

	// Owned by the Run loop.
	deadlines deadlineHeap
	byTopic   map[string]map[*waiter]struct{}
	onAny     map[*waiter]struct{} // waiters that named no topic: looked at after every update
}

func (w *waiters) init() {
	w.wake = make(chan struct{}, 1)
	w.byTopic = map[string]map[*waiter]struct{}{}
	w.onAny = map[*waiter]struct{}{}
}

// Await calls done(true) once cond holds for the current image, or done(false) at the deadline or when Run ends. cond is
// evaluated at once and then after every update that speaks of one of the topics; without topics after every update.
// done is called exactly once, on the goroutine of Run; neither function may block. Once Run has ended the caller is
// answered at once with what holds then.
// No goroutine or timer is held per waiter. Waiters added before Run starts are served when it does.
func (c *Cache) Await(topics []string, deadline time.Time, cond func(*Image) bool, done func(ok bool)) {
	w := &waiter{topics: topics, cond: cond, deadline: deadline, done: done, index: -1}
	c.waiters.mu.Lock()
	stopped := c.waiters.mu.stopped
	if !stopped {
		c.waiters.mu.inbox = append(c.waiters.mu.inbox, w)
		c.waiters.mu.open++
	}
	c.waiters.mu.Unlock()
	if stopped {
		done(cond(c.Image()))
		return
	}
	c.waiters.signal()
}

// LookAgain has the conditions of those who wait for a topic evaluated once more: for one that asks about more than the
// image, when that has changed. It does not block.
func (c *Cache) LookAgain(topic string) { c.waiters.touched([]string{topic}) }

func (w *waiters) touched(topics []string) {
	w.mu.Lock()
	waiting := w.mu.open > 0
	if waiting {
		w.mu.touched = append(w.mu.touched, topics...)
		w.mu.updated = true
	}
	w.mu.Unlock()
	if waiting {
		w.signal()
	}
}

func (w *waiters) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run completes waiters until the context ends; then the remaining ones are told false. It must run once.
func (c *Cache) Run(ctx context.Context) error {
	w := &c.waiters
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		c.step(time.Now())
		timer.Reset(w.untilNext())
		select {
		case <-ctx.Done():
			w.stop()
			return nil
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// step takes in new waiters and updates and completes what is decided.
func (c *Cache) step(now time.Time) {
	w := &c.waiters
	w.mu.Lock()
	inbox, touched, updated := w.mu.inbox, w.mu.touched, w.mu.updated
	w.mu.inbox, w.mu.touched, w.mu.updated = nil, nil, false
	w.mu.Unlock()
	// Loaded after the take: an update stores its image before it reports its topics, so this image has them all.
	image := c.Image()
	for _, n := range inbox {
		w.add(n)
		w.check(n, image)
	}
	for _, t := range touched {
		for n := range w.byTopic[t] {
			w.check(n, image)
		}
	}
	if updated {
		for n := range w.onAny {
			w.check(n, image)
		}
	}
	for len(w.deadlines) > 0 && !w.deadlines[0].deadline.After(now) {
		w.complete(w.deadlines[0], false)
	}
}

func (w *waiters) check(n *waiter, image *Image) {
	if n.cond(image) {
		w.complete(n, true)
	}
}

// complete takes the waiter out of the table before it tells it, so that done may add the next one.
func (w *waiters) complete(n *waiter, ok bool) {
	w.remove(n)
	w.mu.Lock()
	w.mu.open--
	w.mu.Unlock()
	n.done(ok)
}

func (w *waiters) add(n *waiter) {
	heap.Push(&w.deadlines, n)
	if len(n.topics) == 0 {
		w.onAny[n] = struct{}{}
	}
	for _, t := range n.topics {
		if w.byTopic[t] == nil {
			w.byTopic[t] = map[*waiter]struct{}{}
		}
		w.byTopic[t][n] = struct{}{}
	}
}

func (w *waiters) remove(n *waiter) {
	heap.Remove(&w.deadlines, n.index)
	delete(w.onAny, n)
	for _, t := range n.topics {
		delete(w.byTopic[t], n)
		if len(w.byTopic[t]) == 0 {
			delete(w.byTopic, t)
		}
	}
}

func (w *waiters) untilNext() time.Duration {
	if len(w.deadlines) == 0 {
		return time.Hour
	}
	return max(0, time.Until(w.deadlines[0].deadline))
}

func (w *waiters) stop() {
	w.mu.Lock()
	left := w.mu.inbox
	w.mu.inbox, w.mu.touched, w.mu.open, w.mu.stopped = nil, nil, 0, true
	w.mu.Unlock()
	left = append(left, w.deadlines...)
	w.deadlines = nil
	clear(w.byTopic)
	clear(w.onAny)
	for _, n := range left {
		n.done(false)
	}
}

// deadlineHeap orders waiters by deadline (container/heap).
type deadlineHeap []*waiter

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds a waiter; called by container/heap only.
func (h *deadlineHeap) Push(x any) {
	n := x.(*waiter)
	n.index = len(*h)
	*h = append(*h, n)
}

// Pop takes the last waiter; called by container/heap only.
func (h *deadlineHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	n.index = -1
	return n
}
