package driver

import (
	"context"
	"sync"
	"time"

	"klamm/internal/controller"
)

// item is one entry of the event queue.
type item struct {
	event controller.Event
	// query runs on the owner goroutine instead of an event.
	query    func()
	enqueued time.Time
	// processed is closed when the owner has finished the item, or when it was dropped; nil if nobody waits.
	processed chan struct{}
	counted   bool // holds one of the queue's places
}

func (it *item) finish() {
	if it.processed != nil {
		close(it.processed)
	}
}

// eventQueue is the controller's one FIFO queue (Kafka: ControllerEventManager). It holds at most max events of the
// outside world. What happens at the bound depends on who comes: watches and broker replies wait (a watcher coalesces
// meanwhile, a sender keeps its broker waiting), requests are refused at once and their callers told. Events
// of the driver itself (timers, expiry, queries) are few and always fit.
//
// A watch event that equals one still waiting is dropped: whoever handles the waiting one reads what is new anyway.
//
// Safe for concurrent use; pop belongs to the owner goroutine.
type eventQueue struct {
	places chan struct{} // one element per counted item
	ready  chan struct{} // capacity 1: a full channel already means "look again"
	mu     struct {
		sync.Mutex
		items   []*item
		waiting map[controller.Event]struct{} // watch events among items
		closed  bool
	}
}

func newEventQueue(size int) *eventQueue {
	q := &eventQueue{places: make(chan struct{}, size), ready: make(chan struct{}, 1)}
	q.mu.waiting = map[controller.Event]struct{}{}
	return q
}

// coalesces reports whether one waiting event of that value is enough. All of them are comparable.
func coalesces(ev controller.Event) bool {
	switch ev.(type) {
	case controller.ControllerChange, controller.BrokerChange, controller.BrokerModifications, controller.TopicChange,
		controller.PartitionModifications, controller.TopicDeletion, controller.LogDirEventNotification, controller.ISRChangeNotification,
		controller.ReassignmentISRChange:
		return true
	default:
		return false
	}
}

// put appends an event, waiting for a place while the queue is full. It reports false when the context ended or the
// queue is closed.
func (q *eventQueue) put(ctx context.Context, ev controller.Event) bool {
	select {
	case q.places <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	return q.append(&item{event: ev, enqueued: time.Now(), counted: true})
}

// offer appends an event unless the queue is full or closed.
func (q *eventQueue) offer(ev controller.Event) bool {
	select {
	case q.places <- struct{}{}:
	default:
		return false
	}
	return q.append(&item{event: ev, enqueued: time.Now(), counted: true})
}

// putOwn appends an event or query of the driver itself, whatever the bound.
func (q *eventQueue) putOwn(it *item) bool {
	it.enqueued = time.Now()
	return q.append(it)
}

func (q *eventQueue) append(it *item) bool {
	q.mu.Lock()
	_, doubled := q.mu.waiting[coalescingKey(it.event)]
	ok := !q.mu.closed
	if ok && !doubled {
		q.addLocked(it)
	}
	q.mu.Unlock()
	if !ok || doubled {
		q.release(it)
		return ok
	}
	q.signal()
	return true
}

// coalescingKey gives the event if it coalesces, else nil: other events may hold slices and cannot be map keys.
func coalescingKey(ev controller.Event) controller.Event {
	if ev != nil && coalesces(ev) {
		return ev
	}
	return nil
}

func (q *eventQueue) addLocked(it *item) {
	q.mu.items = append(q.mu.items, it)
	if ev := coalescingKey(it.event); ev != nil {
		q.mu.waiting[ev] = struct{}{}
	}
}

// clearAndPut drops all waiting items and appends one. The dropped ones are returned: the caller preempts them.
func (q *eventQueue) clearAndPut(it *item) (dropped []*item) {
	it.enqueued = time.Now()
	q.mu.Lock()
	dropped = q.mu.items
	q.mu.items = nil
	clear(q.mu.waiting)
	if q.mu.closed {
		dropped = append(dropped, it)
	} else {
		q.addLocked(it)
	}
	q.mu.Unlock()
	for _, d := range dropped {
		q.release(d)
	}
	q.signal()
	return dropped
}

// pop takes the oldest item, or reports false when there is none.
func (q *eventQueue) pop() (*item, bool) {
	q.mu.Lock()
	if len(q.mu.items) == 0 {
		q.mu.Unlock()
		return nil, false
	}
	it := q.mu.items[0]
	q.mu.items[0] = nil
	q.mu.items = q.mu.items[1:]
	if ev := coalescingKey(it.event); ev != nil {
		delete(q.mu.waiting, ev)
	}
	q.mu.Unlock()
	q.release(it)
	return it, true
}

// close makes the queue refuse everything from now on and returns what it held.
func (q *eventQueue) close() (dropped []*item) {
	q.mu.Lock()
	dropped = q.mu.items
	q.mu.items, q.mu.closed = nil, true
	clear(q.mu.waiting)
	q.mu.Unlock()
	for _, d := range dropped {
		q.release(d)
	}
	return dropped
}

func (q *eventQueue) release(it *item) {
	if it.counted {
		it.counted = false
		<-q.places
	}
}

func (q *eventQueue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *eventQueue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.items)
}
