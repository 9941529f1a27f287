package sim

import (
	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// checks watch over a world; each rule is in a file of its own, check_*.go. They know what users asked for, and look at every write,
// every log created or deleted, every answer, every step of a core, and in the end at the whole. They share no code with
// the core: what they know of the cluster they read from the store and from the brokers.
type checks struct {
	w *World

	incarnations  map[int64]*incarnation // of topics, by creation id
	byID          map[cluster.TopicID]*incarnation
	touchedByHand map[string]bool // names that were removed by hand at some time: caches may keep them
	uncleanTopics map[string]bool // names that were allowed unclean elections at some time
	handedOut     map[int64]bool  // first ids of producer id blocks
	lastID        int64
	strays        map[stray]bool // see check_disk.go
	restored      map[stray]bool // replicas that a broker brought back with an old disk
	// writers are the processes that had writes applied, by controller epoch.
	writers map[cluster.ControllerEpoch]*controller.Core
}

// incarnation is a topic from its creation to its end.
type incarnation struct {
	name    string
	wanted  bool // exists and nobody asked to delete it
	byHand  bool // removed by hand
	removed bool // its nodes are gone
}

// stray is a replica on the disk of a broker that is not to have it.
type stray struct {
	broker cluster.BrokerID
	tp     cluster.TopicPartition
	id     cluster.TopicID
}

func newChecks(w *World) *checks {
	return &checks{w: w, incarnations: map[int64]*incarnation{}, byID: map[cluster.TopicID]*incarnation{},
		touchedByHand: map[string]bool{}, uncleanTopics: map[string]bool{}, handedOut: map[int64]bool{}, lastID: -1, strays: map[stray]bool{}, restored: map[stray]bool{},
		writers: map[cluster.ControllerEpoch]*controller.Core{}}
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

// state is called for every partition state that is written; old is nil for the first.
func (k *checks) state(tp cluster.TopicPartition, t *topicNode, old *cluster.LeaderAndISR, s cluster.LeaderAndISR) {
	k.epochs(tp, old, s)
	k.isr(tp, t, s)
	k.leader(tp, old, s)
	k.counted(tp, old, s)
}

// Final looks at a cluster that has settled with all brokers running.
func (w *World) Final() {
	k := w.checks
	k.everythingEnded()
	k.everyRequestAnswered()
	k.wantedTopicsExist()
	k.oneController()
	k.states()
	k.leaders()
	for _, n := range w.Nodes() {
		k.disk(n)
		k.cache(n)
	}
	k.finalMetrics()
}

// Degraded looks at a cluster that has settled as far as it can with failed log dirs: no leader is on one.
func (w *World) Degraded() {
	w.checks.noLeaderInFailedDir()
	w.CheckMetrics()
}

// settled reports whether nothing is under way: no event, no request, no timer.
func (w *World) settled() bool {
	for _, n := range w.Nodes() {
		if _, _, waits := n.nextTimer(); n.up && (waits || n.paused || n.frozen || n.session == 0) {
			return false
		}
	}
	return len(w.progress()) == 0 && len(w.deadSessions) == 0
}
