package driver

import (
	"context"
	"fmt"
	"maps"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// carryOut carries effects out in order. It returns the store operation that they end with, if they do.
func (d *Driver) carryOut(effects []controller.Effect) *controller.Store {
	for _, e := range effects {
		switch e := e.(type) {
		case controller.Store:
			return &e
		case controller.Elected:
			d.elected(e)
		case controller.ActiveController:
			d.view.Store(d.view.Load().with(e.Broker))
		case controller.Resigned:
			d.log.Info("controller resigned", "reason", e.Reason)
			d.endTerm()
		case controller.TopicsKnown:
			d.view.Load().know(e.Topics)
		case controller.TopicsForgotten:
			d.view.Load().forget(e.Topics)
		case controller.DeletionsQueued:
			for _, t := range e.Topics {
				d.view.Load().queued.Store(t, struct{}{})
			}
		case controller.DeletionsEnded:
			for _, t := range e.Topics {
				d.view.Load().queued.Delete(t)
			}
		case controller.DeletionsRefused:
			d.refusals.tell(e.Markers)
		case controller.Note:
			d.note(e)
		case controller.Transitions:
			d.stateChange.add(d.view.Load().epoch, e.Records)
		case controller.StartTimer:
			d.own.timers[e.Timer] = time.Now().Add(time.Duration(e.AfterMs) * time.Millisecond)
		case controller.CancelTimer:
			delete(d.own.timers, e.Timer)
		case controller.Reply:
			delete(d.own.open, e.Token)
			d.replies.complete(e)
		case controller.Watch:
			d.watches.add(e.Watched)
		case controller.Unwatch:
			d.watches.remove(e.Watched)
		case controller.StartSender:
			d.startSender(e.Broker)
		case controller.StopSender:
			d.stopSender(e.Broker)
		default:
			d.carryOutSend(e)
		}
	}
	return nil
}

func (d *Driver) elected(e controller.Elected) {
	v := newView(d.cfg.BrokerID)
	v.active, v.epoch = true, e.Epoch
	d.view.Store(v)
	d.log.Info("elected as controller", "broker", d.cfg.BrokerID, "controller_epoch", e.Epoch)
}

// carryOutSend queues requests to brokers. To a broker without a sender nothing is sent: it has died meanwhile.
func (d *Driver) carryOutSend(e controller.Effect) {
	switch e := e.(type) {
	case controller.SendLeaderAndISR:
		d.push(e.Target.Broker, newLeaderAndISR(e))
	case controller.SendUpdateMetadata:
		if d.own.body == nil || d.own.body.update != e.Update {
			d.own.body = newMetadataBody(e.Update)
		}
		d.push(e.Target.Broker, &updateMetadata{e, d.own.body})
	case controller.SendStopReplica:
		for _, part := range splitStopReplica(e, d.versions.StopReplica) {
			d.push(e.Target.Broker, part)
		}
	default:
		panic(fmt.Sprintf("effect %T has no implementation", e))
	}
}

func (d *Driver) push(to cluster.BrokerID, r outgoing) {
	s, ok := (*d.senders.Load())[to]
	if !ok {
		d.log.Debug("request to a broker that is gone is dropped", "broker", to, "api", r.name())
		return
	}
	if !s.push(r) {
		d.status.overflows.Add(1)
		d.log.Error("queue of requests to a broker is full", "broker", to, "queue", s.queueSize())
		d.own.reason = fmt.Sprintf("broker %d is too far behind", to)
	}
}

// startSender opens the queue to a broker. The set of senders is copied on change, for readers of metrics.
func (d *Driver) startSender(b cluster.Broker) {
	set := maps.Clone(*d.senders.Load())
	if _, ok := set[b.ID]; ok {
		return // Kafka: addBroker of a known broker does nothing
	}
	ctx, cancel := context.WithCancel(d.own.ctx)
	s := &sender{
		broker: b, dial: d.dial, log: d.log,
		builder:       requestBuilder{d.versions, d.cfg.InterBrokerListener},
		deliver:       d.queue.put,
		socketTimeout: d.cfg.SocketTimeout, requestTimeout: d.cfg.RequestTimeout,
		queueMax: d.cfg.BrokerQueueMax, entriesMax: d.cfg.BrokerQueueEntriesMax,
		cancel: cancel, stopped: make(chan struct{}), after: d.own.ending[b.ID],
		wake: make(chan struct{}, 1),
	}
	delete(d.own.ending, b.ID)
	set[b.ID] = s
	d.senders.Store(&set)
	d.running.Go(func() { s.run(ctx) })
}

// stopSender closes the queue to a broker and drops what is in it. The sender ends by itself; the broker's next one waits
// for that.
func (d *Driver) stopSender(id cluster.BrokerID) {
	s, ok := (*d.senders.Load())[id]
	if !ok {
		return
	}
	set := maps.Clone(*d.senders.Load())
	delete(set, id)
	d.senders.Store(&set)
	s.cancel()
	d.own.ending[id] = s.stopped
}
