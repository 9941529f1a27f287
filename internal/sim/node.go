package sim

import (
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Node is one broker process: a controller core with what a driver has around it, and the broker that obeys whichever
// controller is in office.
type Node struct {
	id cluster.BrokerID
	w  *World
	broker

	up       bool
	exiting  bool // it stops when the event in progress has ended
	stopping bool // it has asked for a controlled shutdown
	// movedAway are replicas that left the broker since this process started, with the controller epoch of the write.
	movedAway map[stray]cluster.ControllerEpoch
	// writesISR: the process has an inter.broker.protocol.version below 2.7-IV2.
	writesISR bool
	// untold are partitions whose ISR this process has written, and not told of yet.
	untold  []cluster.TopicPartition
	backup  Disk  // a copy of its disks, as random schedules take it
	frozen  bool  // its session has expired and it has not noticed
	paused  bool  // it does not run
	session int64 // 0: none

	core    *controller.Core
	queue   []controller.Event
	effects []controller.Effect // to be carried out, in order
	result  *controller.StoreResult
	links   map[cluster.BrokerID][]controller.Effect // requests waiting per broker; a key is a sender
	conns   map[cluster.BrokerID]connection          // of the senders, now
	timers  map[controller.TimerID]controller.Time
	watches map[controller.Watched]bool
}

// start begins a new process.
func (n *Node) start() {
	n.up, n.exiting, n.stopping, n.frozen, n.paused = true, false, false, false, false
	n.movedAway, n.untold = map[stray]cluster.ControllerEpoch{}, nil
	n.writesISR = n.w.opts.LeadersWriteISR || n.w.opts.ProtocolRolls && n.w.rng.IntN(2) == 0
	n.forgetMemory()
	n.core = controller.New(n.w.coreConfig(n.id))
	n.queue, n.effects, n.result = nil, nil, nil
	n.links, n.conns = map[cluster.BrokerID][]controller.Effect{}, map[cluster.BrokerID]connection{}
	n.timers = map[controller.TimerID]controller.Time{}
	n.watches = map[controller.Watched]bool{}
	n.removeUnassigned()
	n.w.store.register(n)
	n.removeLeftovers() // before the first request of a controller, as klamm's brokers do
	n.enqueue(controller.Startup{})
}

// kill ends the process. Its session lives on in the store until it expires. Requests on their way may still arrive.
func (n *Node) kill() {
	for _, id := range slices.Sorted(maps.Keys(n.links)) {
		n.dropLink(id)
	}
	n.up = false
	n.core.Close()
	n.w.dropRequests(n.id)
	n.queue, n.effects, n.result = nil, nil, nil
	n.timers, n.watches = nil, nil
}

// expire ends the session of a process that lives: it gives up office, registers again and stands for election.
func (n *Node) expire() {
	n.w.store.expire(n.session)
	n.session, n.frozen = 0, false
	for _, ev := range n.queue {
		if r, ok := controller.Preempted(ev); ok {
			n.w.answered(r)
		}
	}
	n.queue = []controller.Event{controller.Expire{}, controller.TopicDeletionEnable{Enabled: !n.w.opts.DeletionDisabled}, controller.RegisterBrokerAndReelect{}}
}

func (n *Node) enqueue(ev controller.Event) {
	if e, ok := ev.(controller.UncleanLeaderElectionEnable); ok && e.Enabled {
		n.w.uncleanAsked = true
	}
	n.queue = append(n.queue, ev)
}

// enqueueOnce adds the event of a watch unless it waits already: watches coalesce.
func (n *Node) enqueueOnce(ev controller.Event) {
	for _, q := range n.queue {
		if q, ok := plain(q); ok && q == ev {
			return
		}
	}
	n.enqueue(ev)
}

// plain reports whether an event can be compared.
func plain(ev controller.Event) (controller.Event, bool) {
	switch ev.(type) {
	case controller.LeaderAndISRReply, controller.UpdateMetadataReply, controller.StopReplicaReply, controller.AlterPartition, controller.ElectLeaders,
		controller.AlterPartitionReassignments, controller.ListPartitionReassignments:
		return nil, false
	}
	return ev, true
}

// busy reports whether the controller has anything to do now.
func (n *Node) busy() bool {
	return n.up && (len(n.effects) > 0 || n.result != nil || len(n.queue) > 0)
}

// step carries out one effect, or else feeds one event. A process that was asked to stop ends when its controller has given
// up office, and closes its session.
func (n *Node) step() {
	n.stepOnce()
	if n.up && n.exiting && len(n.effects) == 0 && n.result == nil && !n.core.AwaitsStore() {
		session := n.session
		n.w.Kill(n.id)
		n.w.closeSession(session)
	}
}

func (n *Node) stepOnce() {
	switch {
	case len(n.effects) > 0:
		e := n.effects[0]
		n.effects = n.effects[1:]
		n.carryOut(e)
		n.w.afterEffect(n.id)
	case n.result != nil:
		r := *n.result
		n.result = nil
		n.feed(r)
	default:
		ev := n.queue[0]
		n.queue = n.queue[1:]
		if _, ok := ev.(controller.RegisterBrokerAndReelect); ok && n.session == 0 {
			// klamm's broker begins a new registration with an empty cache; Kafka's keeps what it had, and
			// with it the topics that were deleted in between.
			clear(n.cache)
			clear(n.cacheIDs)
			n.w.store.register(n)
		}
		_, n.exiting = ev.(controller.Shutdown)
		n.feed(ev)
	}
}

func (n *Node) feed(ev controller.Event) {
	if n.w.tracing() {
		n.w.tracef(n, "> %s", FormatEvent(ev))
	}
	for _, e := range n.core.Step(n.w.now, ev) {
		if n.w.opts.Filter != nil {
			n.effects = append(n.effects, n.w.opts.Filter(e)...)
		} else {
			n.effects = append(n.effects, e)
		}
	}
	n.w.steps++
	n.w.checks.core(n)
}

func (n *Node) carryOut(e controller.Effect) {
	if n.w.tracing() {
		n.w.tracef(n, "  %s", FormatEffect(e))
	}
	n.w.carried++
	switch e := e.(type) {
	case controller.Store:
		n.w.now += controller.Time(e.DelayMs)
		r := n.w.store.execute(n, e, n.w.storeFault(e))
		n.result = &r
	case controller.Resigned:
		for _, id := range slices.Sorted(maps.Keys(n.links)) {
			n.dropLink(id)
		}
		n.timers = map[controller.TimerID]controller.Time{}
		n.watches = map[controller.Watched]bool{{Kind: controller.WatchController}: true}
	case controller.Watch:
		n.watches[e.Watched] = true
	case controller.Unwatch:
		delete(n.watches, e.Watched)
	case controller.StartTimer:
		n.timers[e.Timer] = n.w.now + controller.Time(e.AfterMs)
	case controller.CancelTimer:
		delete(n.timers, e.Timer)
	case controller.StartSender:
		if n.links[e.Broker.ID] == nil {
			n.links[e.Broker.ID] = []controller.Effect{}
			n.connect(e.Broker.ID)
		}
	case controller.StopSender:
		n.dropLink(e.Broker)
	case controller.SendLeaderAndISR:
		n.send(e.Target.Broker, e)
	case controller.SendUpdateMetadata:
		n.send(e.Target.Broker, e)
	case controller.SendStopReplica:
		n.send(e.Target.Broker, e)
	case controller.Reply:
		n.w.answered(e)
	}
}

func (n *Node) send(to cluster.BrokerID, e controller.Effect) {
	if n.links[to] == nil {
		n.w.failf("broker %d sends to %d without a sender: %s", n.id, to, FormatEffect(e))
		return
	}
	n.links[to] = append(n.links[to], e)
}

// dropLink closes a sender. The request at its head may be in flight and arrive at any later time.
func (n *Node) dropLink(id cluster.BrokerID) {
	if q := n.links[id]; len(q) > 0 && n.w.chance(n.w.faults.zombie) {
		n.w.inFlight = append(n.w.inFlight, flight{to: id, req: q[0], on: n.conns[id]})
	}
	delete(n.links, id)
}

// connect gives a sender a new connection.
func (n *Node) connect(to cluster.BrokerID) {
	n.w.connections++
	n.conns[to] = n.w.connections
}

// deliver hands the request at the head of a link to its broker. When the connection breaks, or the answer is lost with it, the request is sent again on
// another; the first may have got as far as the broker's socket, and be read at any later time.
func (n *Node) deliver(to *Node) {
	req := n.links[to.id][0]
	if n.w.chance(n.w.faults.breaks) && !to.isKafka() {
		n.w.inFlight = append(n.w.inFlight, flight{to: to.id, req: req, on: n.conns[to.id]})
		n.connect(to.id)
		return
	}
	if n.w.tracing() {
		n.w.tracef(to, "= from %d: %s", n.id, FormatEffect(req))
	}
	if n.w.refuses(req) {
		n.links[to.id] = n.links[to.id][1:]
		n.enqueue(refusal(req))
		return
	}
	reply := to.handle(req, n.conns[to.id])
	if reply == nil {
		n.w.failf("broker %d takes the connection of its controller %d for one that is given up", to.id, n.id)
		return
	}
	if n.w.chance(n.w.faults.replyLost) {
		n.connect(to.id)
		return
	}
	n.links[to.id] = n.links[to.id][1:]
	if n.w.tracing() {
		n.w.tracef(to, "= answers: %s", FormatEvent(reply))
	}
	n.enqueue(reply)
}

func (n *Node) nextTimer() (controller.TimerID, controller.Time, bool) {
	var id controller.TimerID
	var at controller.Time
	found := false
	for _, t := range slices.Sorted(maps.Keys(n.timers)) {
		if t == controller.TimerLeaderBalance {
			continue // it runs for ever: see BalanceLeaders
		}
		if !found || n.timers[t] < at {
			id, at, found = t, n.timers[t], true
		}
	}
	return id, at, found
}

func (n *Node) fireTimer(id controller.TimerID) {
	n.w.now = max(n.w.now, n.timers[id])
	delete(n.timers, id)
	n.enqueue(controller.TimerFired{Timer: id})
}
