package driver

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

const (
	// releaseTimeout bounds the removal of /controller at the end of Run: the session's end removes it anyway.
	releaseTimeout = time.Second
	// restartPause is the first wait before a new core replaces one that was abandoned; it doubles up to RetryBackoffMax.
	restartPause = time.Second
	// restartForgiven is how long a core must have lived for the next restart to start at restartPause again.
	restartForgiven = 10 * time.Minute
)

// owner is the state of the goroutine that owns the core. Nothing else touches it while Run runs.
type owner struct {
	core *controller.Core // nil between an abandoned core and its successor
	// open holds the request events that the core was fed and has not answered.
	open   map[controller.ReplyToken]controller.Event
	timers map[controller.TimerID]time.Time
	// ending holds, per broker, the end of a sender that was stopped and not succeeded yet.
	ending map[cluster.BrokerID]<-chan struct{}
	body   *metadataBody   // of the last UpdateMetadata effect: the next ones mostly share it
	ctx    context.Context // of Run without its end: what senders live under (run-context of a long-lived owner)

	coreSince time.Time
	restartAt time.Time // when core is nil
	pause     time.Duration
	owes      bool   // /controller may still be there from an abandoned core
	reason    string // set by a handler that wants the core abandoned once its effects are handled
}

// runOwner feeds the core until Shutdown has been handled, then gives back what it holds.
func (d *Driver) runOwner(ctx context.Context) {
	o := &d.own
	o.ctx, o.coreSince = ctx, time.Now()
	o.open = map[controller.ReplyToken]controller.Event{}
	o.timers = map[controller.TimerID]time.Time{}
	o.ending = map[cluster.BrokerID]<-chan struct{}{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ended := false; !ended; {
		d.fireTimers(time.Now())
		it, ok := d.queue.pop()
		if !ok {
			timer.Reset(d.untilNextTimer())
			select {
			case <-d.queue.ready:
			case <-timer.C:
			}
			continue
		}
		_, ended = it.event.(controller.Shutdown)
		d.process(it)
	}
	d.preempt(d.queue.close())
	d.endTerm()
	d.answerOpen()
	if o.core != nil {
		o.core.Close()
	}
	d.releaseAtEnd(ctx)
}

// releaseAtEnd removes /controller within releaseTimeout, if it is still ours. A broker that last read another's name there has not stood for
// election since, so that it need not ask, and wait for, the store.
func (d *Driver) releaseAtEnd(ctx context.Context) {
	if holder := d.view.Load().controller; holder != cluster.NoBroker && holder != d.cfg.BrokerID && !d.own.owes {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for {
		err := d.releaseOffice(ctx, d.session.Load())
		if err == nil {
			return
		}
		if !wait(ctx, d.cfg.RetryBackoff) {
			d.log.Warn("controller node stays until the session ends", "err", err)
			return
		}
	}
}

// fireTimers queues the timers that have run out, and replaces an abandoned core whose pause is over.
func (d *Driver) fireTimers(now time.Time) {
	for id, at := range d.own.timers {
		if !at.After(now) {
			delete(d.own.timers, id)
			d.queue.putOwn(&item{event: controller.TimerFired{Timer: id}})
		}
	}
	if d.own.core == nil && !d.own.restartAt.After(now) {
		d.restart(now)
	}
}

func (d *Driver) untilNextTimer() time.Duration {
	next := time.Hour
	for _, at := range d.own.timers {
		next = min(next, time.Until(at))
	}
	if d.own.core == nil {
		next = min(next, time.Until(d.own.restartAt))
	}
	return max(0, next)
}

// process handles one item of the queue.
func (d *Driver) process(it *item) {
	defer it.finish()
	switch {
	case it.query != nil:
		it.query()
	case d.own.core == nil:
		// Between two cores nobody is in office. What changes meanwhile the next core reads when it starts.
		if r, ok := controller.Preempted(it.event); ok {
			d.replies.complete(r)
		}
	default:
		d.handle(it)
	}
}

// handle feeds one event and everything that follows from it. A broken invariant of the core, or a broker that is too far
// behind, ends the core.
func (d *Driver) handle(it *item) {
	began := time.Now()
	d.status.begin(it.event, began.Sub(it.enqueued))
	operations := 0
	defer func() {
		if p := recover(); p != nil {
			d.status.panics.Add(1)
			stack := string(debug.Stack())
			if broken, ok := p.(*controller.BrokenInvariant); ok {
				stack = broken.Stack
			}
			d.log.Error("controller core broke an invariant", "event", eventName(it.event), "state", d.describeCore(),
				"err", fmt.Sprint(p), "stack", stack)
			d.abandon("the core broke an invariant")
		}
		d.status.end(it.event, began, operations, it.enqueued)
	}()
	if token, ok := tokenOf(it.event); ok {
		d.own.open[token] = it.event
	}
	effects := d.own.core.Step(d.now(), it.event)
	for {
		op := d.carryOut(effects)
		if d.own.reason != "" {
			d.abandon(d.own.reason)
			return
		}
		if op == nil {
			break
		}
		operations++
		effects = d.own.core.Step(d.now(), d.runStore(*op))
	}
	d.status.setCore(d.own.core, d.queue.size() > 0)
}

func (d *Driver) now() controller.Time { return controller.Time(time.Now().UnixMilli()) }

// describeCore prints what there is to know about a core that is given up.
func (d *Driver) describeCore() (text string) {
	defer func() {
		if p := recover(); p != nil {
			text += fmt.Sprintf(" (and printing the rest panicked: %v)", p)
		}
	}()
	c := d.own.core
	text = fmt.Sprintf("active=%t epoch=%d awaits_store=%t", c.IsActive(), c.Epoch(), c.AwaitsStore())
	text += fmt.Sprintf(" metrics=%+v", c.Metrics())
	text += fmt.Sprintf(" deletions=%+v", c.Deletions())
	return text
}

// abandon gives up the core in the middle of whatever it did: the term ends, open requests are answered, /controller is
// removed so that another broker takes over, and a new core starts after a pause that grows with every time this happens,
// so that a fault which every controller meets does not make the cluster elect without end.
func (d *Driver) abandon(reason string) {
	o := &d.own
	now := time.Now()
	if now.Sub(o.coreSince) > restartForgiven {
		o.pause = 0
	}
	o.pause = min(max(restartPause, 2*o.pause), d.cfg.RetryBackoffMax)
	o.core.Close()
	o.core, o.reason, o.restartAt = nil, "", now.Add(o.pause)
	d.log.Error("controller gives up office", "reason", reason, "pause", o.pause)
	d.endTerm()
	clear(o.timers) // the election timer of the former core too
	d.answerOpen()
	d.status.clearCore()
	o.owes = !d.release()
}

// release removes what an abandoned core left of its office. False when the store could not be reached; a session that
// ended takes /controller along.
func (d *Driver) release() bool {
	s := d.session.Load()
	ctx, cancel := context.WithTimeout(s.ctx, d.cfg.StoreTimeout)
	defer cancel()
	err := d.releaseOffice(ctx, s)
	if err == nil || s.ctx.Err() != nil {
		return true
	}
	d.log.Warn("controller node could not be removed, trying again", "err", err)
	return false
}

// restart starts a new core, once the office of the former one is free: others get the pause to take it.
func (d *Driver) restart(now time.Time) {
	o := &d.own
	if o.owes {
		o.owes = !d.release()
		o.restartAt = now.Add(max(restartPause, o.pause))
		return
	}
	o.core, o.coreSince = d.newCore(), now
	d.queue.putOwn(&item{event: controller.Startup{}})
}

// answerOpen answers the requests that the core was fed and will not answer any more.
func (d *Driver) answerOpen() {
	for token, ev := range d.own.open {
		delete(d.own.open, token)
		if r, ok := controller.Preempted(ev); ok {
			d.replies.complete(r)
		}
	}
}

// endTerm drops what belongs to a time in office: senders with their queues, timers but the election's, watches but the
// one on /controller, the tables for request goroutines.
func (d *Driver) endTerm() {
	for id := range *d.senders.Load() {
		d.stopSender(id)
	}
	for id := range d.own.timers {
		if id != controller.TimerElection {
			delete(d.own.timers, id)
		}
	}
	d.watches.removeTerm()
	d.own.body = nil
	active := d.view.Load().controller
	if active == d.cfg.BrokerID {
		active = cluster.NoBroker
	}
	d.view.Store(newView(active))
}

func tokenOf(ev controller.Event) (controller.ReplyToken, bool) {
	if r, ok := controller.Preempted(ev); ok {
		return r.Token, true
	}
	return 0, false
}

// note writes a fact of the core into the log.
func (d *Driver) note(n controller.Note) {
	level := slog.LevelDebug
	switch n.Level {
	case controller.Info:
		level = slog.LevelInfo
	case controller.Warn:
		level = slog.LevelWarn
	}
	if !d.log.Enabled(d.own.ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 3)
	if n.Topic != "" {
		attrs = append(attrs, slog.String("topic", n.Topic))
	}
	if n.Broker != cluster.NoBroker {
		attrs = append(attrs, slog.Int("broker", int(n.Broker)))
	}
	if n.Detail != "" {
		attrs = append(attrs, slog.String("detail", n.Detail))
	}
	d.log.LogAttrs(d.own.ctx, level, n.Message, attrs...)
}
