package api

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
)

// leaderWait is a topic whose partitions are to have leaders before a request is answered.
type leaderWait struct {
	topic      string
	id         cluster.TopicID // zero: whatever topic has the name
	partitions int
	err        *answerError // set to REQUEST_TIMED_OUT when they do not have them in time
}

// openWaits are the requests that wait for leaders. Its lock is held for no callback.
type openWaits struct {
	mu    sync.Mutex
	waits map[*openWait]struct{}
	over  bool
}

// openWait is answered once, by whoever ends it.
type openWait struct{ answer func() }

// add notes a wait; false when waits are over.
func (o *openWaits) add(w *openWait) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return false
	}
	if o.waits == nil {
		o.waits = map[*openWait]struct{}{}
	}
	o.waits[w] = struct{}{}
	return true
}

// take reports whether the wait is the caller's to answer.
func (o *openWaits) take(w *openWait) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, open := o.waits[w]
	delete(o.waits, w)
	return open
}

// end answers all that wait, and from now on nobody waits.
func (o *openWaits) end() {
	o.mu.Lock()
	waits := o.waits
	o.waits, o.over = nil, true
	o.mu.Unlock()
	for w := range waits {
		w.answer()
	}
}

// EndWaits blocks until ctx ends; then requests that created something and wait for its leaders are answered, with
// success: it is written, and the next controller elects. A stopping broker would not hear of it any more, and a client
// that got no answer would ask again and be told that the topic exists already.
func (h *Handlers) EndWaits(ctx context.Context) error {
	<-ctx.Done()
	h.admin.waiting.end()
	return nil
}

// toldWaitMax bounds the wait for brokers that do not answer, which a frozen one does not before its session is over.
const toldWaitMax = 500 * time.Millisecond

// awaitLeaders calls done once every partition of the topics has a leader in this broker's cache, or at the deadline.
// What is unfinished then goes on all the same (Kafka: DelayedCreatePartitions). On the controller's broker the others have been told, too,
// before done is called: else a client that goes on at once would hear from the new leaders that they do not know the topic
// (Kafka does not wait for them).
func (a *topicAdmin) awaitLeaders(waits []leaderWait, timeout time.Duration, done func()) {
	names := make([]string, len(waits))
	for i, w := range waits {
		names[i] = w.topic
	}
	allHave := func(im *metadata.Image) bool {
		for _, w := range waits {
			if !hasLeaders(im, w.topic, w.id, w.partitions) {
				return false
			}
		}
		return true
	}
	open := &openWait{answer: done}
	if !a.waiting.add(open) {
		done()
		return
	}
	deadline := time.Now().Add(timeout)
	finish := func() {
		if a.waiting.take(open) {
			done()
		}
	}
	a.cache.Await(names, deadline, allHave, func(ok bool) {
		if ok {
			a.awaitTold(deadline, finish)
			return
		}
		if !a.waiting.take(open) {
			return
		}
		im := a.cache.Image()
		for _, w := range waits {
			if !hasLeaders(im, w.topic, w.id, w.partitions) {
				*w.err = answerError{Code: cluster.RequestTimedOut}
			}
		}
		done()
	})
}

// awaitTold calls finish, maybe more than once, when the brokers have been told what the controller has to say, and at the deadline
// or after toldWaitMax at the latest.
func (a *topicAdmin) awaitTold(deadline time.Time, finish func()) {
	var told atomic.Bool
	a.afterAnswers(func() {
		told.Store(true)
		finish()
	})
	if told.Load() {
		return
	}
	if latest := time.Now().Add(toldWaitMax); latest.Before(deadline) {
		deadline = latest
	}
	a.cache.Await(nil, deadline, func(*metadata.Image) bool { return told.Load() }, func(bool) { finish() })
}

// hasLeaders reports whether the topic of that id (zero: of any id) has a leader in each of its partitions. A cache that
// knows no id, as under an old controller, counts by the name alone.
func hasLeaders(im *metadata.Image, name string, id cluster.TopicID, partitions int) bool {
	t, ok := im.Topic(name)
	if !ok || len(t.Partitions) < partitions || !id.IsZero() && !t.ID.IsZero() && t.ID != id {
		return false
	}
	for _, p := range t.Partitions {
		if p.Leader == cluster.NoBroker {
			return false
		}
	}
	return true
}
