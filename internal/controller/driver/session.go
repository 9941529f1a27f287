package driver

import (
	"context"
	"time"

	"klamm/internal/controller"
	"klamm/internal/coord"
)

// reregisterPause is the wait between two attempts to get a new session (Kafka: ZooKeeperClient.scheduleReinitialize).
const reregisterPause = time.Second

// sessionRun is a session with the context of the store operations made under it.
type sessionRun struct {
	coord.Session
	ctx context.Context // ends with the session or with Run: operations are then cut short (long-lived owner's context)
	end context.CancelFunc
}

func (d *Driver) setSession(s coord.Session) {
	ctx, cancel := context.WithCancel(context.Background())
	d.session.Store(&sessionRun{s, ctx, cancel})
}

// watchSession carries the controller through the ends of sessions, in Kafka's order: the core gives up office first
// (Expire, ahead of all waiting events), then a new session is made and the broker registered under it, then the
// broker stands for election again.
func (d *Driver) watchSession(ctx context.Context) {
	for {
		s := d.session.Load()
		select {
		case <-s.Done():
		case <-ctx.Done():
			return
		}
		d.log.Warn("session expired, the controller gives up office if it holds it")
		s.end()
		expire := &item{event: controller.Expire{}, processed: make(chan struct{})}
		d.preempt(d.queue.clearAndPut(expire))
		select {
		case <-expire.processed:
		case <-ctx.Done():
			return
		}
		next, ok := d.openSession(ctx, s.ID())
		if !ok {
			return
		}
		d.setSession(next)
		if ctx.Err() != nil {
			// awaitShutdown may have ended the session before this one was stored.
			d.session.Load().end()
			return
		}
		// A setting that changed in this moment was dropped with what waited; the next term must not go by the old one.
		d.queue.putOwn(&item{event: controller.UncleanLeaderElectionEnable{Enabled: d.unclean.Load()}})
		d.queue.putOwn(&item{event: controller.TopicDeletionEnable{Enabled: d.deletes.Load()}})
		d.queue.putOwn(&item{event: controller.RegisterBrokerAndReelect{}})
	}
}

// openSession asks for a new session until there is one; false when ctx ended first.
func (d *Driver) openSession(ctx context.Context, previous int64) (coord.Session, bool) {
	for {
		s, err := d.reregister(ctx, previous)
		if err == nil {
			d.log.Info("broker registered again under a new session")
			return s, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		d.log.Warn("broker could not register again, trying on", "err", err)
		pause := time.NewTimer(reregisterPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, false
		}
	}
}
