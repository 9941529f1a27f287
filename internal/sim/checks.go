package sim

import (
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// checks watch over a world. They know what users asked for, and look at every write, every log created or deleted, every step of
// a core, and at the end at the whole.
type checks struct {
	w *World
	// incarnations of topics by creation id.
	incarnations map[int64]*incarnation
	byID         map[cluster.TopicID]*incarnation
	// touchedByHand are names that were removed by hand at some time: caches may keep them.
	touchedByHand map[string]bool
	handedOut     map[int64]bool // first ids of producer id blocks
	lastID        int64
	// strays are replicas of deleted topics that a reassignment had moved away before, from a broker that did not get the
	// request to delete it, or could not. A broker looks for such replicas when it starts, while the topic exists.
	strays map[stray]bool
	// restored are replicas that a broker brought back with an old disk.
	restored map[stray]bool
}

type stray struct {
	broker cluster.BrokerID
	tp     cluster.TopicPartition
	id     cluster.TopicID
}

type incarnation struct {
	name    string
	wanted  bool // exists and nobody asked to delete it
	byHand  bool // removed by hand
	removed bool // its nodes are gone
}

func newChecks(w *World) *checks {
	return &checks{w: w, incarnations: map[int64]*incarnation{}, byID: map[cluster.TopicID]*incarnation{},
		touchedByHand: map[string]bool{}, handedOut: map[int64]bool{}, lastID: -1, strays: map[stray]bool{}, restored: map[stray]bool{}}
}

func (k *checks) created(name string, t *topicNode) {
	i := &incarnation{name: name, wanted: true}
	k.incarnations[t.czxid] = i
	if !t.id.IsZero() {
		k.byID[t.id] = i
	}
}

func (k *checks) unwanted(t *topicNode) { k.incarnations[t.czxid].wanted = false }

func (k *checks) removedByHand(name string, t *topicNode) {
	i := k.incarnations[t.czxid]
	i.wanted, i.byHand, i.removed = false, true, true
	k.touchedByHand[name] = true
}

// ---- writes

// storeOp: every write is fenced, and only the controller in office has writes applied.
func (k *checks) storeOp(n *Node, e controller.Store) {
	switch e.Op.(type) {
	case controller.Elect, controller.CreateControllerEpoch, controller.DeleteController,
		controller.ReadController, controller.ReadControllerEpoch, controller.ReadBrokers, controller.ReadTopicNames,
		controller.ReadTopics, controller.ReadPartitionStates, controller.ReadDeletionMarkers, controller.ReadTopicConfigs,
		controller.ReadLogDirEvents, controller.ReadISRChanges, controller.ReadProducerIDBlock, controller.ReadPreferredElection, controller.ReadReassignments:
		return
	}
	if !e.Fenced || n.core.Epoch() != k.w.store.epoch {
		k.w.failf("broker %d of epoch %d has %T applied in epoch %d, fenced: %v", n.id, n.core.Epoch(), e.Op, k.w.store.epoch, e.Fenced)
	}
}

func (k *checks) elected(before cluster.ControllerEpoch, op controller.Elect) {
	if op.Epoch != before+1 {
		k.w.failf("election from epoch %d to %d", before, op.Epoch)
	}
}

// state: epochs of a partition never go back, its leader is in its ISR, its ISR is assigned.
func (k *checks) state(tp cluster.TopicPartition, t *topicNode, old *cluster.LeaderAndISR, s cluster.LeaderAndISR) {
	if old != nil && (s.LeaderEpoch < old.LeaderEpoch || s.ControllerEpoch < old.ControllerEpoch) {
		k.w.failf("%s goes back from {%s} to {%s}", tp, old, s)
	}
	if old == nil && s.LeaderEpoch != 0 {
		k.w.failf("%s begins with {%s}", tp, s)
	}
	if s.ControllerEpoch != k.w.store.epoch {
		k.w.failf("%s is written with controller epoch %d in epoch %d", tp, s.ControllerEpoch, k.w.store.epoch)
	}
	if len(s.ISR) == 0 || s.Leader != cluster.NoBroker && !slices.Contains(s.ISR, s.Leader) {
		k.w.failf("%s has a leader outside of its ISR: {%s}", tp, s)
	}
	for _, id := range s.ISR {
		// A topic replaced by hand can meet the state of the one before; in the end it must be right, see finalCache.
		if a, ok := t.partitions[tp.Partition]; ok && !slices.Contains(a.Replicas, id) && !k.touchedByHand[tp.Topic] {
			k.w.failf("%s has %d in its ISR, which is not assigned", tp, id)
		}
	}
}

func (k *checks) topicID(name string, old, id cluster.TopicID) {
	if !old.IsZero() && old != id {
		k.w.failf("topic %s changes its id", name)
	}
	if t := k.w.store.topics[name]; old.IsZero() && !id.IsZero() {
		k.byID[id] = k.incarnations[t.czxid]
	}
}

// treeRemoved: only topics that somebody asked to delete lose their nodes, and only after their data is gone everywhere.
func (k *checks) treeRemoved(name string, t *topicNode) {
	i := k.incarnations[t.czxid]
	if i.wanted {
		k.w.failf("topic %s is removed and nobody asked for it", name)
	}
	i.removed = true
	for _, n := range k.w.Nodes() {
		for _, tp := range sortedPartitions(n.logs) {
			if tp.Topic != name || n.logs[tp].id != t.id || k.w.store.isLeft(n.id, tp, t.id) || k.restored[stray{n.id, tp, t.id}] {
				continue
			}
			if a, exists := t.partitions[tp.Partition]; exists && !slices.Contains(a.Replicas, n.id) {
				k.strays[stray{n.id, tp, t.id}] = true
			} else {
				k.w.failf("nodes of topic %s are removed and broker %d still has %s", name, n.id, tp)
			}
		}
	}
}

// markerRemoved: the marker stands until the topic is gone.
func (k *checks) markerRemoved(m controller.Marker) {
	t := k.w.store.topics[m.Topic]
	if t != nil && !k.incarnations[t.czxid].wanted && !k.w.opts.DeletionDisabled {
		k.w.failf("marker of topic %s is removed before the topic", m.Topic)
	}
	if _, config := k.w.store.configs[m.Topic]; config && t == nil && !k.touchedByHand[m.Topic] {
		k.w.failf("marker of topic %s is removed before its configuration", m.Topic)
	}
}

// ---- brokers

// logDeleted: no data of a topic that is wanted is ever deleted, but what a reassignment moved away: it is out of the ISR.
func (k *checks) logDeleted(n *Node, tp cluster.TopicPartition, id cluster.TopicID) {
	t := k.w.store.topics[tp.Topic]
	moved := t != nil && t.id == id && !slices.Contains(t.states[tp.Partition].ISR, n.id)
	if i := k.byID[id]; i != nil && i.wanted && !moved {
		k.w.failf("broker %d deletes %s of a topic that nobody asked to delete", n.id, tp)
	}
}

// logCreated: a deleted topic does not come back. A broker whose session has expired may still obey a controller that does not
// know either that it lost its office; what that leaves on disk must be gone in the end.
func (k *checks) logCreated(n *Node, tp cluster.TopicPartition, id cluster.TopicID) {
	if i := k.byID[id]; i != nil && i.removed && !i.byHand && !n.frozen && n.session != 0 {
		k.w.failf("broker %d creates a log of %s, which is deleted", n.id, tp)
	}
}

// ---- cores

// core: invariants hold after every step, and no two controllers share an epoch.
func (k *checks) core(n *Node) {
	if err := n.core.CheckInvariants(); err != nil {
		k.w.failf("broker %d: %v", n.id, err)
	}
	for _, o := range k.w.nodes {
		if o != n && o.up && o.core.IsActive() && n.core.IsActive() && o.core.Epoch() == n.core.Epoch() {
			k.w.failf("brokers %d and %d are both active in epoch %d", n.id, o.id, n.core.Epoch())
		}
	}
}

func (k *checks) producerIDs(b controller.ProducerIDBlock) {
	if b.Start != k.lastID+1 {
		k.w.failf("producer id block starts at %d after %d", b.Start, k.lastID)
	}
	k.lastID = b.End
}

func (k *checks) answer(req controller.Event, v controller.ReplyValue) {
	if b, ok := v.(controller.AllocateProducerIDsResult); ok && b.Err == cluster.None {
		if k.handedOut[b.Start] {
			k.w.failf("producer ids from %d are handed out twice", b.Start)
		}
		k.handedOut[b.Start] = true
	}
	if ask, ok := req.(controller.ElectLeaders); ok {
		k.electionAnswer(ask, v.(controller.ElectLeadersResult))
	}
}

// electionAnswer: every partition asked for is in the answer, once.
func (k *checks) electionAnswer(req controller.ElectLeaders, res controller.ElectLeadersResult) {
	if res.Err != cluster.None {
		return
	}
	got := map[cluster.TopicPartition]int{}
	for _, p := range res.Partitions {
		got[p.TopicPartition]++
	}
	for _, tp := range req.Partitions {
		if got[tp] != 1 {
			k.w.failf("an election of %s was asked for and answered %d times", tp, got[tp])
		}
	}
}

// Degraded looks at a cluster that has settled with failed log dirs: no leader is on one.
func (w *World) Degraded() {
	for name, t := range w.store.topics {
		if _, queued := w.store.markers[name]; queued {
			continue
		}
		for p, state := range t.states {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if _, assigned := t.partitions[p]; !assigned {
				continue // written while the topic was replaced by hand
			}
			if n := w.nodes[state.Leader]; n != nil {
				if log, ok := n.logs[tp]; ok && n.badDirs[log.dir] {
					w.failf("%s is led by broker %d, where it lies in a failed log dir", tp, n.id)
				}
			}
		}
	}
}

// Final looks at a cluster that has settled with all brokers running: deletions have ended, wanted topics live, brokers, caches and
// store agree, every request is answered.
func (w *World) Final() {
	k := w.checks
	for name := range w.store.markers {
		w.failf("topic %s is still marked for deletion", name)
	}
	for token, r := range w.requests {
		w.failf("request %d to broker %d is not answered: %T", token, r.node, r.ev)
	}
	for czxid, i := range k.incarnations {
		t := w.store.topics[i.name]
		exists := t != nil && t.czxid == czxid
		if i.wanted != exists {
			w.failf("topic %s (czxid %d) exists: %v, wanted: %v", i.name, czxid, exists, i.wanted)
		}
	}
	for name := range w.store.configs {
		if w.store.topics[name] == nil && !k.touchedByHand[name] {
			w.failf("configuration of topic %s is left", name)
		}
	}
	if w.store.preferred != nil {
		w.failf("the request for preferred elections is left: %v", w.store.preferred)
	}
	if w.store.reassign != nil {
		w.failf("the request for reassignments is left: %v", w.store.reassign)
	}
	for name, t := range w.store.topics {
		for p, a := range t.partitions {
			if a.BeingReassigned() {
				w.failf("the reassignment of %s-%d has not ended: %v", name, p, a)
			}
		}
	}
	active := 0
	for _, n := range w.Nodes() {
		if n.hasLeftovers() {
			w.failf("broker %d has not removed what deletions left", n.id)
		}
		if n.core.IsActive() {
			active++
			k.finalMetrics(n)
		}
		k.finalDisk(n)
		k.finalCache(n)
	}
	if active != 1 {
		w.failf("%d controllers are active", active)
	}
}

func (k *checks) finalMetrics(n *Node) {
	m := n.core.Metrics()
	partitions := 0
	for _, t := range k.w.store.topics {
		partitions += len(t.partitions)
	}
	if m.GlobalTopicCount != len(k.w.store.topics) || m.GlobalPartitionCount != partitions || m.TopicsToDeleteCount != 0 ||
		m.TopicsIneligibleToDeleteCount != 0 || m.OfflinePartitionsCount != 0 || m.ActiveBrokerCount != len(k.w.nodes) {
		k.w.failf("metrics do not match %d topics with %d partitions: %+v", len(k.w.store.topics), partitions, m)
	}
}

// finalDisk: nothing of deleted topics is left, every assigned replica is there.
func (k *checks) finalDisk(n *Node) {
	for _, tp := range sortedPartitions(n.logs) {
		id := n.logs[tp].id
		isKafka := slices.Contains(k.w.opts.Kafka, n.id) && k.w.store.isLeft(n.id, tp, id) // it does not know the record
		if i := k.byID[id]; i.removed && !i.byHand && !isKafka && !k.strays[stray{n.id, tp, id}] && !k.restored[stray{n.id, tp, id}] {
			k.w.failf("broker %d has %s of a deleted topic", n.id, tp)
		}
	}
	for name, t := range k.w.store.topics {
		for p, a := range t.partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			if log, ok := n.logs[tp]; ok && log.id == t.id && !slices.Contains(a.Replicas, n.id) && !k.mayKeepStray(n, stray{n.id, tp, log.id}) {
				k.w.failf("broker %d has %s, which is on %v", n.id, tp, a.Replicas)
			}
			if log, ok := n.logs[tp]; slices.Contains(a.Replicas, n.id) && (!ok || log.id != t.id) {
				k.w.failf("broker %d has no log of %s", n.id, tp)
			}
		}
	}
}

// mayKeepStray: a replica that a reassignment removed stays on a broker that could not delete it, or whose controller lost its
// office before the request to delete it was sent, until the broker starts the next time; on Kafka's brokers for ever.
func (k *checks) mayKeepStray(n *Node, s stray) bool {
	moved, ok := n.movedAway[s]
	if k.w.store.isLeft(s.broker, s.tp, s.id) && n.hosted[s.tp] != nil {
		return true // the record is for the next start: a broker never removes what runs on it
	}
	return k.w.deletionsFailed || n.lostDeletions || slices.Contains(k.w.opts.Kafka, n.id) || ok && moved != k.w.store.epoch
}

// assignmentWritten notes which replicas an assignment moves away.
func (k *checks) assignmentWritten(name string, t *topicNode, to []controller.PartitionAssignment) {
	for _, pa := range to {
		for _, id := range t.partitions[pa.Partition].Replicas {
			if n := k.w.nodes[id]; n != nil && n.up && !slices.Contains(pa.Assignment.Replicas, id) {
				n.movedAway[stray{id, cluster.TopicPartition{Topic: name, Partition: pa.Partition}, t.id}] = k.w.store.epoch
			}
		}
	}
}

// finalCache: the cache shows the store's leaderships, and nothing else.
func (k *checks) finalCache(n *Node) {
	for name, t := range k.w.store.topics {
		for p := range t.partitions {
			tp := cluster.TopicPartition{Topic: name, Partition: p}
			state, ok := t.states[p]
			if !ok || state.Leader == cluster.NoBroker {
				k.w.failf("%s has no leader: {%s}", tp, state)
			}
			for _, id := range state.ISR {
				if !slices.Contains(t.partitions[p].Replicas, id) {
					k.w.failf("%s has %d in its ISR, which is not assigned", tp, id)
				}
			}
			if got, cached := n.cache[tp]; !cached || !got.State.Equal(state) {
				k.w.failf("broker %d caches %s as {%s}, the store has {%s}", n.id, tp, got.State, state)
			}
		}
	}
	for _, tp := range sortedPartitions(n.cache) {
		t := k.w.store.topics[tp.Topic]
		if t != nil {
			if _, ok := t.partitions[tp.Partition]; ok {
				continue
			}
		}
		if !k.touchedByHand[tp.Topic] {
			k.w.failf("broker %d caches %s, which does not exist", n.id, tp)
		}
	}
}
