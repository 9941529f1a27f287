package sim

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// store is the coordination store in the controller's terms: nodes with creation ids and versions, ephemeral nodes bound to
// sessions, watches. It executes controller.Store effects.
type store struct {
	w    *World
	zxid int64

	controller      cluster.BrokerID
	controllerOwner int64 // session
	epochExists     bool
	epoch           cluster.ControllerEpoch
	epochVersion    int32
	features        map[string]int16 // nil: no node
	featuresVersion int32

	brokers map[cluster.BrokerID]registration
	topics  map[string]*topicNode
	configs map[string]*bool // unclean.leader.election.enable by topic
	markers map[string]controller.Marker

	logDirEvents map[string]controller.LogDirEvent
	isrChanges   map[string]controller.ISRChange

	reassign         []controller.ReassignmentTarget // nil: no node
	reassignVersion  int32
	preferred        []cluster.TopicPartition // nil: no node
	preferredVersion int32

	klamm     map[cluster.BrokerID]bool // brokers that have run klamm
	leftovers map[cluster.BrokerID]map[cluster.TopicID]controller.Leftover

	block        controller.ProducerIDBlock
	blockExists  bool
	blockVersion int32
}

type registration struct {
	cluster.Broker
	session int64
}

type topicNode struct {
	czxid      int64
	version    int32
	id         cluster.TopicID
	partitions map[int32]cluster.ReplicaAssignment
	states     map[int32]cluster.LeaderAndISR // PartitionEpoch is the version
}

func newStore(w *World) *store {
	return &store{
		w: w, controller: cluster.NoBroker,
		brokers: map[cluster.BrokerID]registration{}, topics: map[string]*topicNode{}, configs: map[string]*bool{},
		markers: map[string]controller.Marker{}, logDirEvents: map[string]controller.LogDirEvent{},
		isrChanges: map[string]controller.ISRChange{}, klamm: map[cluster.BrokerID]bool{},
		leftovers: map[cluster.BrokerID]map[cluster.TopicID]controller.Leftover{},
	}
}

// fault is what happens to one store operation.
type fault uint8

const (
	noFault     fault = iota
	unavailable       // nothing applied, and the client knows
	lostBefore        // nothing applied, the client does not know
	lostAfter         // applied, the client does not know
	lostMiddle        // a part of the items applied, the client does not know
)

// execute runs an operation for a node's controller.
func (s *store) execute(n *Node, e controller.Store, f fault) controller.StoreResult {
	r := controller.StoreResult{Token: e.Token, Outcome: controller.Applied}
	if n.session == 0 {
		r.Outcome, r.Err = controller.Closed, "session expired"
		return r
	}
	if f == unavailable || f == lostBefore {
		r.Outcome, r.Err = map[fault]controller.Outcome{unavailable: controller.Unavailable, lostBefore: controller.UnknownOutcome}[f], "simulated"
		return r
	}
	if e.Fenced && (!s.epochExists || e.ZkVersion != s.epochVersion) {
		if f == noFault {
			r.Outcome, r.Err = controller.Fenced, "version of /controller_epoch differs"
		} else {
			r.Outcome, r.Err = controller.UnknownOutcome, "simulated"
		}
		return r
	}
	part := 1 << 30
	if f == lostMiddle {
		part = s.w.rng.IntN(4)
	}
	s.w.checks.write(n, e)
	r.Value = s.apply(n, e.Op, part)
	if f == lostAfter || f == lostMiddle {
		r.Outcome, r.Value, r.Err = controller.UnknownOutcome, nil, "simulated"
	}
	return r
}

// apply carries an operation out; of one with items only the first part of them.
func (s *store) apply(n *Node, op controller.StoreOp, part int) controller.StoreValue {
	switch op := op.(type) {
	case controller.ReadController:
		return controller.ControllerRead{Broker: s.controller}
	case controller.ReadControllerEpoch:
		return controller.ControllerEpochRead{Exists: s.epochExists, Epoch: s.epoch, Version: s.epochVersion}
	case controller.CreateControllerEpoch:
		s.epochExists = true
		return controller.ControllerEpochRead{Exists: true, Epoch: s.epoch, Version: s.epochVersion}
	case controller.Elect:
		return s.elect(n, op)
	case controller.DeleteController:
		s.removeController()
		return one(controller.ItemOK)
	case controller.ReadBrokers:
		r := controller.BrokersRead{Klamm: slices.Sorted(maps.Keys(s.klamm))}
		for _, id := range slices.Sorted(maps.Keys(s.brokers)) {
			r.Brokers = append(r.Brokers, s.brokers[id].Broker)
		}
		return r
	case controller.ReadTopicNames:
		return controller.TopicNamesRead{Names: slices.Sorted(maps.Keys(s.topics))}
	case controller.ReadTopics:
		return controller.TopicsRead{Topics: each(op.Names, len(op.Names), s.readTopic)}
	case controller.ReadPartitionStates:
		return controller.StatesRead{States: each(op.Partitions, len(op.Partitions), s.readState)}
	case controller.ReadDeletionMarkers:
		r := controller.MarkersRead{}
		for _, t := range slices.Sorted(maps.Keys(s.markers)) {
			r.Markers = append(r.Markers, s.markers[t])
		}
		return r
	case controller.ReadTopicConfigs:
		return controller.TopicConfigsRead{Topics: each(op.Topics, len(op.Topics), func(t string) controller.TopicConfigRead {
			return controller.TopicConfigRead{Topic: t, Unclean: s.configs[t]}
		})}
	case controller.ReadLogDirEvents:
		r := controller.LogDirEventsRead{}
		for _, name := range slices.Sorted(maps.Keys(s.logDirEvents)) {
			r.Events = append(r.Events, s.logDirEvents[name])
		}
		return r
	case controller.ReadISRChanges:
		r := controller.ISRChangesRead{}
		for _, name := range slices.Sorted(maps.Keys(s.isrChanges)) {
			r.Changes = append(r.Changes, s.isrChanges[name])
		}
		return r
	case controller.ReadReassignments:
		return controller.ReassignmentsRead{Exists: s.reassign != nil, Version: s.reassignVersion, Targets: s.reassign}
	case controller.ReadPreferredElection:
		return controller.PreferredElectionRead{Exists: s.preferred != nil, Version: s.preferredVersion, Partitions: s.preferred}
	case controller.ReadFeatures:
		return s.readFeatures()
	case controller.ReadProducerIDBlock:
		return controller.ProducerIDBlockRead{Exists: s.blockExists, Block: s.block, Version: s.blockVersion}
	}
	return s.applyWrite(op, part)
}

func (s *store) applyWrite(op controller.StoreOp, part int) controller.StoreValue {
	switch op := op.(type) {
	case controller.EnsureFeatures:
		if s.features == nil {
			s.features, s.featuresVersion = map[string]int16{}, 0
		}
		return s.readFeatures()
	case controller.SetFeatures:
		return controller.Written{Items: []controller.ItemResult{s.setFeatures(op)}}
	case controller.CreatePartitionStates:
		return controller.Written{Items: each(op.States, part, orRefused(s, s.createState))}
	case controller.SetPartitionStates:
		return controller.Written{Items: each(op.States, part, orRefused(s, s.setState))}
	case controller.SetTopics:
		return controller.Written{Items: each(op.Topics, part, orRefused(s, s.setTopic))}
	case controller.DeleteTopicTrees:
		return controller.Written{Items: each(op.Topics, part, orRefused(s, func(r controller.NodeRef) controller.ItemResult { return s.deleteTree(r, part) }))}
	case controller.DeleteTopicConfigs:
		return controller.Written{Items: each(op.Topics, part, orRefused(s, func(t string) controller.ItemResult {
			delete(s.configs, t)
			return item(controller.ItemOK)
		}))}
	case controller.DeleteMarkers:
		return controller.Written{Items: each(op.Markers, part, orRefused(s, s.deleteMarker))}
	case controller.RecordLeftovers:
		return controller.Written{Items: each(op.Leftovers, part, orRefused(s, s.recordLeftover))}
	case controller.ForgetKlammBrokers:
		return controller.Written{Items: each(op.Brokers, part, func(id cluster.BrokerID) controller.ItemResult {
			delete(s.klamm, id)
			return item(controller.ItemOK)
		})}
	case controller.DeleteLogDirEvents:
		deleteNamed(s.logDirEvents, op.Names)
		return one(controller.ItemOK)
	case controller.DeleteISRChanges:
		deleteNamed(s.isrChanges, op.Names)
		return one(controller.ItemOK)
	case controller.SetReassignments:
		return one(s.setReassignments(op))
	case controller.DeletePreferredElection:
		if s.preferred != nil && op.Version != s.preferredVersion {
			return one(controller.ItemConflict)
		}
		s.preferred = nil
		return one(controller.ItemOK)
	case controller.SetProducerIDBlock:
		if op.Version != s.blockVersion {
			return one(controller.ItemConflict)
		}
		s.w.checks.blockWritten(op.Block)
		s.block, s.blockExists = op.Block, true
		s.blockVersion++
		return controller.Written{Items: []controller.ItemResult{{Status: controller.ItemOK, Version: s.blockVersion}}}
	}
	panic(fmt.Sprintf("sim: unknown store operation %T", op))
}

func item(st controller.ItemStatus) controller.ItemResult { return controller.ItemResult{Status: st} }
func one(st controller.ItemStatus) controller.Written {
	return controller.Written{Items: []controller.ItemResult{item(st)}}
}
func deleteNamed[V any](from map[string]V, names []string) {
	if names == nil {
		clear(from)
	}
	for _, name := range names {
		delete(from, name)
	}
}

// orRefused has the store refuse single items of a write now and then: a node that may not be changed, or is too large.
func orRefused[T any](s *store, do func(T) controller.ItemResult) func(T) controller.ItemResult {
	return func(it T) controller.ItemResult {
		if s.w.chance(s.w.faults.itemFails) {
			return controller.ItemResult{Status: controller.ItemFailed, Err: "simulated"}
		}
		return do(it)
	}
}

// each applies do to the first n items.
func each[T, R any](items []T, n int, do func(T) R) []R {
	out := make([]R, 0, len(items))
	for i, it := range items {
		if i < n {
			out = append(out, do(it))
		}
	}
	return out
}

func (s *store) elect(n *Node, op controller.Elect) controller.ElectResult {
	switch {
	case s.controller != cluster.NoBroker:
		return controller.ElectResult{Status: controller.ItemExists}
	case !s.epochExists || s.epochVersion != op.Version:
		return controller.ElectResult{Status: controller.ItemConflict}
	}
	s.w.checks.elected(s.epoch, op)
	s.controller, s.controllerOwner = op.Broker, n.session
	s.epoch = op.Epoch
	s.epochVersion++
	s.fire(controller.Watched{Kind: controller.WatchController})
	return controller.ElectResult{Status: controller.ItemOK, Version: s.epochVersion}
}

func (s *store) removeController() {
	if s.controller != cluster.NoBroker {
		s.controller, s.controllerOwner = cluster.NoBroker, 0
		s.fire(controller.Watched{Kind: controller.WatchController})
	}
}

func (s *store) readFeatures() controller.FeaturesRead {
	if s.features == nil {
		return controller.FeaturesRead{Version: -1}
	}
	return controller.FeaturesRead{Levels: maps.Clone(s.features), Version: s.featuresVersion}
}

func (s *store) setFeatures(op controller.SetFeatures) controller.ItemResult {
	if s.readFeatures().Version != op.Version {
		return item(controller.ItemConflict)
	}
	s.features = maps.Clone(op.Levels)
	s.featuresVersion++
	return controller.ItemResult{Status: controller.ItemOK, Version: s.featuresVersion}
}

func (s *store) readTopic(name string) controller.TopicRead {
	t := s.topics[name]
	if t == nil {
		return controller.TopicRead{Name: name}
	}
	r := controller.TopicRead{Name: name, Exists: true, Czxid: t.czxid, Version: t.version, ID: t.id}
	for _, p := range slices.Sorted(maps.Keys(t.partitions)) {
		r.Partitions = append(r.Partitions, controller.PartitionAssignment{Partition: p, Assignment: t.partitions[p].Clone()})
	}
	return r
}

func (s *store) readState(tp cluster.TopicPartition) controller.ItemResult {
	if t := s.topics[tp.Topic]; t != nil {
		if st, ok := t.states[tp.Partition]; ok {
			return controller.ItemResult{Status: controller.ItemOK, State: st.Clone(), HasState: true}
		}
	}
	return item(controller.ItemNoNode)
}

func (s *store) createState(w controller.PartitionStateWrite) controller.ItemResult {
	t := s.topics[w.Topic]
	if t == nil {
		return item(controller.ItemNoNode)
	}
	if st, ok := t.states[w.Partition]; ok {
		return controller.ItemResult{Status: controller.ItemExists, State: st.Clone(), HasState: s.w.rng.IntN(2) == 0}
	}
	st := w.State.Clone()
	st.PartitionEpoch = 0
	s.w.checks.state(w.TopicPartition, t, nil, st)
	t.states[w.Partition] = st
	return controller.ItemResult{Status: controller.ItemOK}
}

func (s *store) setState(w controller.PartitionStateWrite) controller.ItemResult {
	t := s.topics[w.Topic]
	if t == nil {
		return item(controller.ItemNoNode)
	}
	old, ok := t.states[w.Partition]
	if !ok {
		return item(controller.ItemNoNode)
	}
	if old.PartitionEpoch != w.State.PartitionEpoch {
		return controller.ItemResult{Status: controller.ItemConflict, State: old.Clone(), HasState: true}
	}
	st := w.State.Clone()
	st.PartitionEpoch++
	s.w.checks.state(w.TopicPartition, t, &old, st)
	t.states[w.Partition] = st
	return controller.ItemResult{Status: controller.ItemOK, State: cluster.LeaderAndISR{PartitionEpoch: st.PartitionEpoch}}
}

func (s *store) setTopic(w controller.TopicWrite) controller.ItemResult {
	t := s.topics[w.Name]
	if t == nil {
		return item(controller.ItemNoNode)
	}
	if t.version != w.Version || t.czxid != w.Czxid {
		return item(controller.ItemConflict)
	}
	s.w.checks.topicID(w.Name, t.id, w.ID)
	s.w.checks.assignmentWritten(w.Name, t, w.Partitions)
	t.id = w.ID
	t.partitions = map[int32]cluster.ReplicaAssignment{}
	for _, pa := range w.Partitions {
		t.partitions[pa.Partition] = pa.Assignment.Clone()
	}
	t.version++
	s.fire(controller.Watched{Kind: controller.WatchTopic, Topic: w.Name})
	return controller.ItemResult{Status: controller.ItemOK, Version: t.version}
}

// deleteTree removes a topic; with part in {1, 2, 3} only some of its states, as a crash in the middle would.
func (s *store) deleteTree(r controller.NodeRef, part int) controller.ItemResult {
	t := s.topics[r.Topic]
	if t == nil {
		return item(controller.ItemOK)
	}
	if r.Czxid != controller.AnyCzxid && r.Czxid != t.czxid {
		return item(controller.ItemConflict)
	}
	s.w.checks.treeRemoved(r.Topic, t)
	if part < len(t.states) {
		for _, p := range slices.Sorted(maps.Keys(t.states))[:part] {
			delete(t.states, p)
		}
		return item(controller.ItemFailed)
	}
	s.removeTopic(r.Topic)
	return item(controller.ItemOK)
}

func (s *store) setReassignments(op controller.SetReassignments) controller.ItemStatus {
	switch {
	case s.reassign == nil:
		return controller.ItemNoNode
	case op.Version != s.reassignVersion:
		return controller.ItemConflict
	}
	s.reassignVersion++
	if s.reassign = slices.Clone(op.Targets); len(op.Targets) == 0 {
		s.reassign = nil
	}
	s.fire(controller.Watched{Kind: controller.WatchReassignments})
	return controller.ItemOK
}

func (s *store) recordLeftover(l controller.Leftover) controller.ItemResult {
	if s.leftovers[l.Broker] == nil {
		s.leftovers[l.Broker] = map[cluster.TopicID]controller.Leftover{}
	}
	partitions := append(slices.Clone(l.Partitions), s.leftovers[l.Broker][l.ID].Partitions...)
	slices.Sort(partitions)
	l.Partitions = slices.Compact(partitions)
	s.leftovers[l.Broker][l.ID] = l
	return item(controller.ItemOK)
}

func (s *store) removeTopic(name string) {
	delete(s.topics, name)
	s.fire(controller.Watched{Kind: controller.WatchTopic, Topic: name})
	s.fire(controller.Watched{Kind: controller.WatchTopics})
}

func (s *store) deleteMarker(r controller.NodeRef) controller.ItemResult {
	k, ok := s.markers[r.Topic]
	if !ok {
		return item(controller.ItemOK)
	}
	if r.Czxid != controller.AnyCzxid && r.Czxid != k.Czxid {
		return item(controller.ItemConflict)
	}
	s.w.checks.markerRemoved(k)
	delete(s.markers, r.Topic)
	s.fire(controller.Watched{Kind: controller.WatchMarkers})
	return item(controller.ItemOK)
}
