package sim

import (
	"maps"
	"math/rand/v2"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// topicNames are the few names that random users create and delete, so that incarnations of a name meet.
var topicNames = []string{"a", "b", "c"}

// Schedule is a random course of things: numbered steps, each drawn from the seed and its own number alone. So steps can be
// left out without changing what the others try to do, which is how a failing schedule shrinks.
type Schedule struct {
	Seed  uint64
	Steps []int // the numbers of the steps; Settles stands for as many quiet steps as there is something to do
	// Quiet leaves out faults of the store, of links and of deletions; what is done from outside stays.
	Quiet bool
}

// Settles is a step in a Schedule that a failing schedule shrinks to: the cluster runs until it has settled.
const Settles = -1

// NewSchedule is the whole schedule of a seed.
func NewSchedule(seed uint64, steps int) Schedule {
	s := Schedule{Seed: seed, Steps: make([]int, steps)}
	for i := range s.Steps {
		s.Steps[i] = i
	}
	return s
}

// Run plays the steps with the faults and the settings that the seed draws.
func (w *World) Run(s Schedule) {
	w.rng = rand.New(rand.NewPCG(s.Seed, 1))
	w.faults = faults{
		storeUnavailable: w.rng.IntN(6), storeLost: w.rng.IntN(6), replyLost: w.rng.IntN(10), zombie: w.rng.IntN(60),
		deleteFails: w.rng.IntN(10), itemFails: w.rng.IntN(4),
	}
	if s.Quiet {
		w.faults = faults{}
	}
	disturbance := 2 + w.rng.IntN(12)
	w.randomPolicy()
	if !s.Quiet {
		w.faults.breaks = w.rng.IntN(15)
	}
	w.StartAll()
	for _, number := range s.Steps {
		if len(w.failures) > 0 {
			break
		}
		if number == Settles {
			w.tracef(nil, "settles")
			w.SettleFor(2000)
			continue
		}
		w.rng = rand.New(rand.NewPCG(s.Seed, uint64(number)+2))
		w.tracef(nil, "step %d", number)
		w.randomStep(disturbance)
	}
	w.rng = rand.New(rand.NewPCG(s.Seed, 0))
}

func (w *World) randomStep(disturbance int) {
	p := w.progress()
	switch {
	case w.chance(disturbance):
		w.disturb()
	case len(p) > 0:
		p[w.rng.IntN(len(p))]()
	case !w.fireNextTimer():
		w.disturb()
	}
	w.now += controller.Time(w.rng.IntN(3))
}

// randomPolicy draws what deletions do about absent brokers, and whether a broker is Kafka's.
func (w *World) randomPolicy() {
	w.opts.OfflineReplicas = controller.OfflineReplicas(w.rng.IntN(3))
	if w.rng.IntN(3) == 0 {
		w.opts.OfflineReplicaTimeoutMs = int64(1 + w.rng.IntN(300))
	}
	w.opts.AutoRebalance = w.rng.IntN(2) == 0
	if w.rng.IntN(3) == 0 {
		w.opts.Kafka = []cluster.BrokerID{cluster.BrokerID(1 + w.rng.IntN(len(w.nodes)))}
	}
}

// disturb does one thing to the cluster from outside.
func (w *World) disturb() {
	n := w.nodes[cluster.BrokerID(1+w.rng.IntN(len(w.nodes)))]
	name := topicNames[w.rng.IntN(len(topicNames))]
	t := w.store.topics[name]
	switch k := w.rng.IntN(100); {
	case k < 20:
		w.createRandom(name)
	case k < 36:
		w.DeleteTopic(name, w.rng.IntN(3) > 0)
	case k < 42:
		if t != nil {
			w.AddPartition(name, w.randomReplicas())
		}
	case k < 49:
		if n.up {
			w.Kill(n.id)
		}
	case k < 50:
		w.disturbDisk(n)
	case k < 61:
		if !n.up {
			w.Start(n.id)
		}
	case k < 62:
		if n.up {
			w.tracef(n, "stops in order")
			n.enqueue(controller.Shutdown{})
		}
	case k < 66:
		if n.up && n.session != 0 {
			w.tracef(n, "session expires")
			n.expire()
		}
	case k < 68:
		if n.up && n.session != 0 && !n.frozen {
			n.paused = w.rng.IntN(2) == 0
			w.tracef(n, "session expires and the process does not notice; it is suspended: %v", n.paused)
			w.store.expire(n.session)
			n.frozen = true
		}
	case k < 69:
		if n.paused {
			w.Resume(n.id)
		}
	case k < 76:
		if len(w.deadSessions) > 0 {
			w.tracef(nil, "a dead session expires")
			w.expireDead(w.rng.IntN(len(w.deadSessions)))
		}
	case k < 78:
		if n.up {
			w.tracef(n, "log dir fails")
			n.failDir(w.rng.IntN(2))
		}
	case k < 80:
		w.byHand(name, t)
	case k < 82:
		w.lateMarker(name, t)
	default:
		w.askRandom(n)
	}
}

// disturbDisk gives a broker that is down empty disks, or those that it had at some time before.
func (w *World) disturbDisk(n *Node) {
	switch {
	case n.up:
		n.backup = w.CopyDisk(n.id)
	case n.backup != nil && w.rng.IntN(2) == 0:
		w.RestoreDisk(n.id, n.backup)
	default:
		w.LoseDisk(n.id)
	}
}

func (w *World) randomReplicas() []cluster.BrokerID {
	ids := slices.Sorted(maps.Keys(w.nodes))
	w.rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids[:1+w.rng.IntN(len(ids))]
}

// createRandom creates a topic, sometimes without an id as an old broker would.
func (w *World) createRandom(name string) {
	if _, marked := w.store.markers[name]; marked || w.store.topics[name] != nil {
		return
	}
	assignment := make([][]cluster.BrokerID, 1+w.rng.IntN(3))
	for i := range assignment {
		assignment[i] = w.randomReplicas()
	}
	id := cluster.TopicID{}
	if w.rng.IntN(5) > 0 {
		id = w.newTopicID()
	}
	w.createNode(name, id, assignment)
}

// byHand removes a topic outside of the protocol, and perhaps creates another of its name at once. With a marker in
// Kafka's layout nobody could tell whether the marker means the old topic or the new one.
func (w *World) byHand(name string, t *topicNode) {
	if k, marked := w.store.markers[name]; t == nil || t.id.IsZero() || marked && k.ID.IsZero() {
		return
	}
	w.RemoveByHand(name)
	if w.rng.IntN(2) == 0 {
		w.createNode(name, w.newTopicID(), [][]cluster.BrokerID{w.randomReplicas(), w.randomReplicas()})
	}
}

// lateMarker marks a topic for an incarnation that is long gone: a request that was slow (W11).
func (w *World) lateMarker(name string, t *topicNode) {
	if t != nil && !t.id.IsZero() {
		w.tracef(nil, "a late marker for %s", name)
		w.store.createMarker(name, cluster.TopicID{0: 0xff})
	}
}

// askRandom sends a request of a broker to some controller, mostly the one in office.
func (w *World) askRandom(from *Node) {
	to := w.nodes[cluster.BrokerID(1+w.rng.IntN(len(w.nodes)))]
	for _, n := range w.Nodes() {
		if n.up && n.core.IsActive() && w.rng.IntN(4) > 0 {
			to = n
		}
	}
	if !from.up || !to.up {
		return
	}
	token := w.nextToken()
	switch w.rng.IntN(20) {
	case 15:
		w.ask(to, controller.UpdateFeatures{Reply: token, ValidateOnly: w.rng.IntN(4) == 0, Updates: []controller.FeatureUpdate{
			{Feature: []string{"f", "g"}[w.rng.IntN(2)], Level: int16(w.rng.IntN(5)), Type: controller.FeatureUpdateType(w.rng.IntN(5))}}})
	case 12:
		w.writeRandomISR(from)
	case 13:
		name := topicNames[w.rng.IntN(len(topicNames))]
		if w.store.topics[name] != nil {
			w.SetUnclean(name, w.rng.IntN(2) == 0)
			to.enqueue(controller.TopicUncleanLeaderElectionEnable{Topic: name})
		}
	case 14:
		w.ChangeRack(from.id, []string{"east", "west"}[w.rng.IntN(2)])
	case 0, 1:
		w.ask(to, controller.AllocateProducerIDs{Reply: token, Broker: from.id, BrokerEpoch: from.epoch})
	case 2:
		from.stopping = true
		w.ask(to, controller.ControlledShutdown{Reply: token, Broker: from.id, BrokerEpoch: from.epoch})
	case 3:
		to.enqueue(controller.UncleanLeaderElectionEnable{Enabled: w.rng.IntN(2) == 0})
	case 4:
		w.RequestPreferredElection(w.randomPartitions()...)
	case 5:
		w.BalanceLeaders()
	case 8:
		w.requestRandomReassignment()
	case 9, 10:
		w.ask(to, controller.AlterPartitionReassignments{Reply: token, Partitions: w.randomReassignment()})
	case 11:
		w.ask(to, controller.ListPartitionReassignments{Reply: token, All: w.rng.IntN(2) == 0, Partitions: w.randomPartitions()})
	case 6, 7:
		w.ask(to, controller.ElectLeaders{Reply: token, Type: controller.ElectionType(w.rng.IntN(2)), Partitions: w.randomPartitions()})
	default:
		w.proposeRandomISR(from, to)
	}
}

// randomPartitions names partitions that may exist.
func (w *World) randomPartitions() []cluster.TopicPartition {
	tps := make([]cluster.TopicPartition, 1+w.rng.IntN(4))
	for i := range tps {
		tps[i] = cluster.TopicPartition{Topic: topicNames[w.rng.IntN(len(topicNames))], Partition: int32(w.rng.IntN(3))}
	}
	return tps
}

// writeRandomISR has a leader write a part of its ISR itself.
func (w *World) writeRandomISR(from *Node) {
	for _, tp := range sortedPartitions(from.hosted) {
		t := w.store.topics[tp.Topic]
		if t == nil || t.id != from.hosted[tp].id || t.states[tp.Partition].Leader != from.id || w.rng.IntN(2) == 0 {
			continue
		}
		isr := slices.DeleteFunc(slices.Clone(t.states[tp.Partition].ISR), func(id cluster.BrokerID) bool { return id != from.id && w.rng.IntN(2) == 0 })
		if slices.Contains(isr, from.id) {
			w.WriteISR(tp, isr...)
			return
		}
	}
}

// proposeRandomISR takes one follower in or out of the ISR of a partition that the broker leads.
func (w *World) proposeRandomISR(from, to *Node) {
	var led []cluster.TopicPartition
	for _, tp := range sortedPartitions(from.hosted) {
		if from.hosted[tp].state.Leader == from.id {
			led = append(led, tp)
		}
	}
	if len(led) == 0 {
		return
	}
	tp := led[w.rng.IntN(len(led))]
	h := from.hosted[tp]
	isr := slices.Clone(h.state.ISR)
	r := h.replicas[w.rng.IntN(len(h.replicas))]
	if i := slices.Index(isr, r); i < 0 {
		isr = append(isr, r)
	} else if r != from.id {
		isr = slices.Delete(isr, i, i+1)
	}
	if !from.writesISR {
		w.propose(from, to, tp, isr)
	} else if t := w.store.topics[tp.Topic]; t != nil && t.states[tp.Partition].Leader == from.id {
		w.WriteISR(tp, isr...) // of one that has been deposed the store refuses it
	}
}
