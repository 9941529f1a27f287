// Package sim simulates a cluster on the controller's pure core: a coordination store that conflicts and loses
// answers, brokers that die, bounce and lose disks, requests that are repeated or arrive late. Everything happens in one
// goroutine, in an order chosen by a seed, so that every run can be repeated. Checkers, apart from the simulator, watch over it.
package sim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Options choose a world. The zero value is three brokers without faults.
type Options struct {
	Seed    uint64
	Brokers int
	// DeletionDisabled is delete.topic.enable=false.
	DeletionDisabled bool
	// OfflineReplicas and OfflineReplicaTimeoutMs are the settings of that name.
	OfflineReplicas         controller.OfflineReplicas
	OfflineReplicaTimeoutMs int64
	// Behind are brokers that support level 1 of the feature "f" only; all others support 1 to 3.
	Behind []cluster.BrokerID
	// NoTopicIDs is an inter.broker.protocol.version below 2.8-IV0.
	NoTopicIDs bool
	// AutoRebalance is auto.leader.rebalance.enable, with 10 per cent of imbalance allowed.
	AutoRebalance bool
	// Kafka are brokers that are Kafka's: they do not know what klamm's brokers have agreed on.
	Kafka []cluster.BrokerID
	// LeadersWriteISR is inter.broker.protocol.version below 2.7-IV2: leaders ask nobody for an ISR, and some die before
	// they tell of it. Topics have their ids all the same.
	LeadersWriteISR bool
	// ProtocolRolls lets every process draw at its start whether its inter.broker.protocol.version is below 2.7-IV2.
	ProtocolRolls bool
	// Trace receives a line for everything that happens.
	Trace func(string)
	// Filter stands between the core and its driver; tests plant faults with it.
	Filter func(controller.Effect) []controller.Effect
}

// World is a simulated cluster.
type World struct {
	opts   Options
	rng    *rand.Rand
	now    controller.Time
	store  *store
	nodes  map[cluster.BrokerID]*Node
	sorted []*Node // nodes by id

	faults       faults
	planned      *plannedFault
	refused      string        // a request to a broker whose text contains it, see RefuseNext
	faultAt      map[int]fault // by number of the effect carried out
	sessions     int64
	deadSessions []int64  // of processes that ended
	inFlight     []flight // requests whose senders, or their connections, are gone
	connections  connection
	ids          uint64

	tokens   controller.ReplyToken
	requests map[controller.ReplyToken]request

	replies map[controller.ReplyToken]controller.ReplyValue

	checks     *checks
	steps      int // events fed
	carried    int // effects carried out
	interrupts []interrupt
	unanswered map[string]func()  // requests that scenarios ask again at the end
	carriers   []cluster.BrokerID // whose effects were carried out, since Record
	failures   []string
	// uncleanAsked: somebody allowed unclean elections, by request or as the default of a broker.
	uncleanAsked bool
	// deletionsFailed: some deletion of a replica was refused at some time.
	deletionsFailed bool
}

// faults are probabilities in per cent.
type faults struct {
	storeUnavailable, storeLost, itemFails, replyLost, zombie, deleteFails, breaks int
}

// flight is a request of a controller to a broker, or of a leader to a controller, that arrives some time.
type flight struct {
	to    cluster.BrokerID
	req   controller.Effect
	on    connection
	asked *controller.AlterPartition // instead of req
}

type request struct {
	node cluster.BrokerID // whose controller has it
	ev   controller.Event
}

// New builds a world whose brokers all start at once.
func New(o Options) *World {
	if o.Brokers == 0 {
		o.Brokers = 3
	}
	w := &World{
		opts: o, rng: rand.New(rand.NewPCG(o.Seed, 1)), nodes: map[cluster.BrokerID]*Node{},
		requests: map[controller.ReplyToken]request{}, replies: map[controller.ReplyToken]controller.ReplyValue{},
		unanswered: map[string]func(){}, now: 1_000_000,
	}
	w.store = newStore(w)
	w.checks = newChecks(w)
	for id := cluster.BrokerID(1); int(id) <= o.Brokers; id++ {
		w.nodes[id] = &Node{id: id, w: w, broker: broker{logs: map[cluster.TopicPartition]diskLog{}}}
		w.sorted = append(w.sorted, w.nodes[id])
	}
	return w
}

// StartAll starts every broker that is down.
func (w *World) StartAll() {
	for _, n := range w.Nodes() {
		if !n.up {
			n.start()
		}
	}
}

// Nodes lists the nodes by id.
func (w *World) Nodes() []*Node { return w.sorted }

// Close abandons all cores.
func (w *World) Close() {
	for _, n := range w.nodes {
		if n.up {
			n.core.Close()
		}
	}
}

// Failures lists what the checkers found.
func (w *World) Failures() []string { return w.failures }

func (w *World) coreConfig(id cluster.BrokerID) controller.Config {
	return controller.Config{
		Broker: id, DeleteTopicEnable: !w.opts.DeletionDisabled, UseTopicIDs: !w.opts.NoTopicIDs, UseLeaderRecoveryState: true, NewTopicID: w.newTopicID,
		FeatureVersioning: true, SupportedFeatures: w.featuresOf(id),
		AutoLeaderRebalance: w.opts.AutoRebalance, LeaderImbalancePercentage: 10,
		LeadersWriteISR: w.nodes[id].writesISR,
		OfflineReplicas: w.opts.OfflineReplicas, OfflineReplicaTimeoutMs: w.opts.OfflineReplicaTimeoutMs,
	}
}

// featuresOf is what a broker supports.
func (w *World) featuresOf(id cluster.BrokerID) map[string]cluster.VersionRange {
	if slices.Contains(w.opts.Behind, id) {
		return map[string]cluster.VersionRange{"f": {Min: 1, Max: 1}}
	}
	return map[string]cluster.VersionRange{"f": {Min: 1, Max: 3}}
}

func (w *World) newTopicID() cluster.TopicID {
	w.ids++
	var id cluster.TopicID
	binary.BigEndian.PutUint64(id[8:], w.ids)
	return id
}

func (w *World) chance(percent int) bool { return percent > 0 && w.rng.IntN(100) < percent }

func (w *World) failf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	w.tracef(nil, "FAILED: %s", msg)
	w.failures = append(w.failures, msg)
}

func (w *World) tracing() bool { return w.opts.Trace != nil }

func (w *World) tracef(n *Node, format string, args ...any) {
	if w.opts.Trace == nil {
		return
	}
	prefix := "-"
	if n != nil {
		prefix = fmt.Sprint(n.id)
	}
	for line := range strings.SplitSeq(fmt.Sprintf(format, args...), "\n") {
		w.opts.Trace(prefix + " " + line)
	}
}

// storeFault chooses what happens to a store operation. Reads are never lost: they have no outcome.
func (w *World) storeFault(e controller.Store) fault {
	if p := w.planned; p != nil && strings.Contains(FormatEffect(e), p.op) {
		w.planned = nil
		return p.f
	}
	if f, ok := w.faultAt[w.carried]; ok && (e.Fenced || f == unavailable) {
		return f
	}
	if w.chance(w.faults.storeUnavailable) {
		return unavailable
	}
	_, elects := e.Op.(controller.Elect)
	if (e.Fenced || elects) && w.chance(w.faults.storeLost) {
		if elects {
			return []fault{lostBefore, lostAfter}[w.rng.IntN(2)]
		}
		return []fault{lostBefore, lostAfter, lostMiddle}[w.rng.IntN(3)]
	}
	return noFault
}

// ---- requests

func (w *World) nextToken() controller.ReplyToken {
	w.tokens++
	return w.tokens
}

// ask puts a request into a node's controller queue.
func (w *World) ask(n *Node, ev controller.Event) {
	r, _ := controller.Preempted(ev)
	w.requests[r.Token] = request{n.id, ev}
	if e, ok := ev.(controller.ElectLeaders); ok && e.Type == controller.UncleanElection {
		w.uncleanAsked = true
	}
	n.enqueue(ev)
}

// dropRequests forgets the requests of a process that ended: their connections are gone.
func (w *World) dropRequests(id cluster.BrokerID) {
	for token, r := range w.requests {
		if r.node == id {
			delete(w.requests, token)
			if a, ok := r.ev.(controller.AlterPartition); ok {
				w.proposalFailed(a)
			}
		}
	}
}

func (w *World) answered(r controller.Reply) {
	req, ok := w.requests[r.Token]
	if !ok {
		w.failf("request %d was answered twice, or never asked: %+v", r.Token, r.Value)
		return
	}
	delete(w.requests, r.Token)
	w.replies[r.Token] = r.Value
	w.checks.answer(req.ev, r.Value)
	if a, ok := req.ev.(controller.AlterPartition); ok {
		w.proposalAnswered(a, r.Value.(controller.AlterPartitionResult))
	}
}

// ---- running

// choice is something that can happen next.
type choice func()

// progress lists what moves the cluster on by itself.
func (w *World) progress() []choice { return w.progressUpTo(1 << 30) }

// progressUpTo lists the first few of them.
func (w *World) progressUpTo(limit int) []choice {
	var out []choice
	for _, n := range w.sorted {
		if len(out) >= limit {
			return out
		}
		if !n.up || n.paused {
			continue
		}
		if n.busy() {
			out = append(out, n.step, n.step)
		}
		if n.hasLeftovers() {
			out = append(out, n.removeLeftovers)
		}
		for _, to := range w.sorted {
			if len(n.links[to.id]) > 0 && to.up && !to.paused {
				out = append(out, func() { n.deliver(to) })
			}
		}
	}
	for i := range w.inFlight {
		out = append(out, func() { w.arrive(i) })
	}
	return out
}

// arrive delivers a request whose sender or connection is gone, between whatever is sent after it, sometimes more than once; nobody
// waits for the answer.
func (w *World) arrive(i int) {
	f := w.inFlight[i]
	if !w.chance(w.faults.replyLost) {
		w.inFlight = slices.Delete(w.inFlight, i, i+1)
	}
	n := w.nodes[f.to]
	switch {
	case !n.up:
	case f.asked != nil:
		ev := *f.asked
		ev.Reply = w.nextToken()
		w.tracef(n, "= late: %s", FormatEvent(ev))
		w.ask(n, ev)
	default:
		if w.tracing() {
			w.tracef(n, "= late: %s", FormatEffect(f.req))
		}
		n.handle(f.req, f.on)
	}
}

// fireNextTimer advances the clock to the earliest timer; false when there is none.
func (w *World) fireNextTimer() bool {
	var first *Node
	var timer controller.TimerID
	var at controller.Time
	for _, n := range w.Nodes() {
		if !n.up || n.paused {
			continue
		}
		if id, t, ok := n.nextTimer(); ok && (first == nil || t < at) {
			first, timer, at = n, id, t
		}
	}
	if first == nil {
		return false
	}
	first.fireTimer(timer)
	return true
}

// Settle runs without disturbance, always the first thing possible, until nothing is left to do.
func (w *World) Settle() { w.SettleUntil(func() bool { return false }) }

// SettleFor is Settle that ends after some milliseconds of simulated time: what is broken may be tried again for ever.
func (w *World) SettleFor(ms controller.Time) {
	end := w.now + ms
	w.SettleUntil(func() bool { return w.now > end })
}

// SettleUntil is Settle that stops early.
func (w *World) SettleUntil(stop func() bool) {
	for range 50_000 {
		if len(w.failures) > 0 || stop() {
			return
		}
		if p := w.progressUpTo(1); len(p) > 0 {
			p[0]()
		} else if !w.fireNextTimer() {
			return
		}
	}
	w.failf("the cluster does not settle")
}

// Calm ends the disturbance: no faults any more, sessions of ended processes expire, all brokers run. Failed log dirs
// stay failed, and brokers that asked for a controlled shutdown stay in it.
func (w *World) Calm() {
	w.deletionsFailed = w.deletionsFailed || w.faults.deleteFails > 0
	w.faults, w.refused = faults{}, ""
	w.ExpireDead()
	for _, n := range w.Nodes() {
		n.paused = false
		if n.up && n.frozen {
			n.expire()
		}
	}
	w.StartAll()
}

// Heal repairs what Calm left: brokers with failed log dirs, and those in a controlled shutdown, start again with
// working disks.
func (w *World) Heal() {
	for _, n := range w.Nodes() {
		if n.up && (n.badDirs[0] || n.badDirs[1] || n.stopping) {
			w.Kill(n.id)
		}
		n.badDirs = [2]bool{}
	}
	w.Calm()
}

// Kill ends a broker's process.
func (w *World) Kill(id cluster.BrokerID) {
	n := w.nodes[id]
	w.tracef(nil, "broker %d is killed", id)
	if n.session != 0 {
		w.deadSessions = append(w.deadSessions, n.session)
		n.session = 0
	}
	n.kill()
}

// Start starts a broker's process.
func (w *World) Start(id cluster.BrokerID) {
	w.tracef(nil, "broker %d starts", id)
	w.nodes[id].start()
}

// ExpireDead lets the sessions of all ended processes expire.
func (w *World) ExpireDead() {
	for len(w.deadSessions) > 0 {
		w.expireDead(0)
	}
}

// closeSession ends the session of a process that has just ended in order.
func (w *World) closeSession(session int64) {
	if i := slices.Index(w.deadSessions, session); i >= 0 {
		w.expireDead(i)
	}
}

func (w *World) expireDead(i int) {
	s := w.deadSessions[i]
	w.deadSessions = slices.Delete(w.deadSessions, i, i+1)
	w.store.expire(s)
}

func sortedPartitions[V any](m map[cluster.TopicPartition]V) []cluster.TopicPartition {
	return slices.SortedFunc(maps.Keys(m), cluster.TopicPartition.Compare)
}
