package coordinator

import (
	"container/heap"
	"time"

	"klamm/internal/group"
)

// timers are a shard's running timers, by name and by time. Nobody stops a timer; instead those that nobody needs any more are
// swept out whenever their number has doubled: clients choose how long they would run. Owned by the shard.
type timers struct {
	needs   func(group.Timer) bool // of the core
	byName  map[group.Timer]*entry
	queue   entries
	sweepAt int // how many timers make the next sweep
}

// timersKept is the number of timers up to which none are swept out.
const timersKept = 1024

// entry is one running timer.
type entry struct {
	timer group.Timer
	at    group.Time
	index int // in the queue
}

func newTimers(needs func(group.Timer) bool) timers {
	return timers{needs: needs, byName: map[group.Timer]*entry{}, sweepAt: timersKept}
}

// start runs a timer, or moves the one of that name.
func (t *timers) start(name group.Timer, at group.Time) {
	if e := t.byName[name]; e != nil {
		e.at = at
		heap.Fix(&t.queue, e.index)
		return
	}
	e := &entry{timer: name, at: at}
	t.byName[name] = e
	heap.Push(&t.queue, e)
	if len(t.queue) > t.sweepAt {
		t.sweep()
	}
}

// sweep drops the timers that are not needed.
func (t *timers) sweep() {
	needed := t.queue[:0]
	for _, e := range t.queue {
		if !t.needs(e.timer) {
			delete(t.byName, e.timer)
			continue
		}
		e.index = len(needed)
		needed = append(needed, e)
	}
	clear(t.queue[len(needed):])
	t.queue = needed
	heap.Init(&t.queue)
	t.sweepAt = max(timersKept, 2*len(needed))
}

// due takes the first timer that has run out.
func (t *timers) due(now group.Time) (group.Timer, bool) {
	if len(t.queue) == 0 || t.queue[0].at > now {
		return group.Timer{}, false
	}
	e := heap.Pop(&t.queue).(*entry)
	delete(t.byName, e.timer)
	return e.timer, true
}

// next is how long the first timer still runs.
func (t *timers) next(now group.Time) time.Duration {
	if len(t.queue) == 0 {
		return time.Hour
	}
	return time.Duration(max(0, t.queue[0].at-now)) * time.Millisecond
}

// entries order timers by time (container/heap).
type entries []*entry

func (q entries) Len() int           { return len(q) }
func (q entries) Less(i, j int) bool { return q[i].at < q[j].at }
func (q entries) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push adds an entry; called by container/heap only.
func (q *entries) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop takes the last entry; called by container/heap only.
func (q *entries) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
