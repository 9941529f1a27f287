package replica

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// HandleLeaderAndISR applies a LeaderAndIsr request, version 0 to 7 (Kafka: ReplicaManager.becomeLeaderOrFollower).
// The caller has checked the ClusterAction permission. It returns nil for a request whose connection is to be closed without an
// answer, see admitLocked.
func (m *Manager) HandleLeaderAndISR(req *kmsg.LeaderAndISRRequest, on ControlConn) *kmsg.LeaderAndISRResponse {
	states := transitions(req)
	codes := make([]cluster.ErrorCode, len(states))
	start := time.Now()
	m.control.Lock()
	verdict, code := m.admitLocked(controlOrigin{"LeaderAndIsr", cluster.BrokerEpoch(req.BrokerEpoch), cluster.BrokerID(req.ControllerID),
		cluster.ControllerEpoch(req.ControllerEpoch), on})
	if verdict != admitted {
		m.control.Unlock()
		if verdict == superseded {
			return nil
		}
		return leaderAndISRRefused(req, states, codes, code)
	}
	change := m.applyLeaderAndISRLocked(states, codes, req.IsKRaftController)
	m.checkpointing.Store(true)
	m.control.Unlock()
	for _, tp := range change.wake {
		m.wakeAll(tp)
	}
	m.log.Info("leader and isr request applied", "broker", req.ControllerID, "controller_epoch", req.ControllerEpoch,
		"partitions", len(states), "leaders", change.leaders, "followers", change.followers, "duration", time.Since(start))
	return leaderAndISRResponse(req, states, codes, cluster.None)
}

// transitions lists the request's partitions in its order.
func transitions(req *kmsg.LeaderAndISRRequest) []transition {
	if req.Version < 2 {
		out := make([]transition, len(req.PartitionStates))
		for i := range req.PartitionStates {
			p := &req.PartitionStates[i]
			out[i] = newTransition(p.Topic, cluster.TopicID{}, p)
		}
		return out
	}
	n := 0
	for i := range req.TopicStates {
		n += len(req.TopicStates[i].PartitionStates)
	}
	out := make([]transition, 0, n)
	for i := range req.TopicStates {
		t := &req.TopicStates[i]
		for j := range t.PartitionStates {
			out = append(out, newTransition(t.Topic, t.TopicID, &t.PartitionStates[j]))
		}
	}
	return out
}

func newTransition(topic string, id cluster.TopicID, p *kmsg.LeaderAndISRRequestTopicPartition) transition {
	// One array holds all four lists: a large request has tens of thousands of them.
	ids := make([]cluster.BrokerID, 0, len(p.ISR)+len(p.Replicas)+len(p.AddingReplicas)+len(p.RemovingReplicas))
	take := func(in []int32) []cluster.BrokerID {
		from := len(ids)
		for _, id := range in {
			ids = append(ids, cluster.BrokerID(id))
		}
		return ids[from:len(ids):len(ids)]
	}
	return transition{
		tp: cluster.TopicPartition{Topic: topic, Partition: p.Partition}, topicID: id,
		leader: cluster.BrokerID(p.Leader), leaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch),
		partitionEpoch: cluster.PartitionEpoch(p.ZKVersion), controllerEpoch: cluster.ControllerEpoch(p.ControllerEpoch),
		isr:        take(p.ISR),
		assignment: cluster.ReplicaAssignment{Replicas: take(p.Replicas), Adding: take(p.AddingReplicas), Removing: take(p.RemovingReplicas)},
		isNew:      p.IsNew,
	}
}

// controlChange is what a control request leaves to be done once the control lock is free.
type controlChange struct {
	wake               []cluster.TopicPartition
	leaders, followers int
}

// step is an accepted transition and how it went.
type step struct {
	*transition
	at       int // index in the request
	p        *Partition
	isHosted bool // p was hosted before the request
	log      *commitlog.Log
	out      outcome
	err      error
	orphan   bool // follower of a leader that is not alive
}

func (m *Manager) applyLeaderAndISRLocked(states []transition, codes []cluster.ErrorCode, kraft bool) controlChange {
	steps := make([]step, 0, len(states))
	var refresh []*step // the topic id of a follower's fetcher changes
	for i := range states {
		s := step{transition: &states[i], at: i}
		var verdict decision
		if verdict, codes[i] = m.decide(&s, kraft); verdict == apply {
			steps = append(steps, s)
		} else if verdict == refreshTopicID {
			refresh = append(refresh, &s)
		}
	}
	var stop []cluster.TopicPartition
	for i := range steps {
		if steps[i].leader == m.cfg.BrokerID {
			stop = append(stop, steps[i].tp)
		}
	}
	m.fetchers.remove(stop)
	now, image := time.Now(), m.metadata.Image()
	parallel(len(steps), func(i int) {
		s := &steps[i]
		s.orphan = s.leader != m.cfg.BrokerID && !image.HasBroker(s.leader)
		m.takeStep(s, now)
	})
	change := m.finishStepsLocked(steps, codes)
	for _, s := range refresh {
		m.fetchers.setTopicID(s.tp, s.topicID)
	}
	return change
}

// decision is what the epoch and id rules make of one partition of the request.
type decision uint8

const (
	ignore decision = iota
	apply
	refreshTopicID
)

// decide applies the table of control-plane behaviour 7.3 to one partition, in its order.
func (m *Manager) decide(s *step, kraft bool) (decision, cluster.ErrorCode) {
	p, state := m.Partition(s.tp)
	if lost := m.control.lost[s.tp]; state == HostedOffline && (!s.isNew || s.topicID.IsZero() || lost.IsZero() || lost == s.topicID) {
		return ignore, cluster.KafkaStorageError
	}
	// With another id it is a later topic of the name, and what lies in the failed dir is not its replica (Kafka refuses it).
	local, log := cluster.NoLeaderEpoch, (*commitlog.Log)(nil)
	if p != nil {
		s.isHosted = true
		_, local = p.leadership()
		log = p.Log()
	} else {
		p = newPartition(s.tp, &m.env, nil)
	}
	if log == nil {
		log, _ = m.logs.Get(s.tp)
	}
	s.p = p
	var logID cluster.TopicID
	if log != nil {
		logID = log.TopicID()
	}
	switch {
	case !s.topicID.IsZero() && !logID.IsZero() && s.topicID != logID:
		m.log.Error("topic id differs from the log's", "topic", s.tp.Topic, "partition", s.tp.Partition, "id", s.topicID, "log_id", logID)
		return ignore, cluster.InconsistentTopicID
	case s.leaderEpoch > local || kraft && s.leaderEpoch == local:
		if !contains(s.assignment.Replicas, m.cfg.BrokerID) {
			return ignore, cluster.UnknownTopicOrPartition
		}
		return apply, cluster.None
	case s.leaderEpoch < local:
		return ignore, cluster.StaleControllerEpoch
	case !s.topicID.IsZero() && logID.IsZero() && log != nil:
		if err := log.AssignTopicID(s.topicID); err != nil {
			return ignore, commitlog.Code(err)
		}
		return m.refreshUnlessLeader(s), cluster.None
	case s.topicID.IsZero() && !logID.IsZero() && s.leader != m.cfg.BrokerID:
		return refreshTopicID, cluster.None
	default:
		return ignore, cluster.StaleControllerEpoch // a duplicate of a request that was applied
	}
}

func (m *Manager) refreshUnlessLeader(s *step) decision {
	if s.leader == m.cfg.BrokerID {
		return ignore
	}
	return refreshTopicID
}

// takeStep opens the log and changes the partition. It runs on several goroutines, for different partitions.
func (m *Manager) takeStep(s *step, now time.Time) {
	if s.log, s.err = m.logs.GetOrCreate(s.tp, s.topicID, s.isNew); s.err != nil {
		return
	}
	switch {
	case s.leader == m.cfg.BrokerID:
		s.out, s.err = s.p.makeLeader(s.transition, s.log, now)
	case s.orphan:
		s.p.adoptLog(s.log)
	default:
		s.out = s.p.makeFollower(s.transition, s.log)
	}
}

// publish makes the partitions that are new here visible to clients. control is held.
func (m *Manager) publish(steps []step) {
	for i := range steps {
		if s := &steps[i]; s.err == nil && !s.isHosted {
			s.p.stats = m.topics.join(s.tp.Topic)
		}
	}
	m.hosted.Lock()
	for i := range steps {
		if s := &steps[i]; s.err == nil && !s.isHosted {
			m.hosted.partitions[s.tp] = s.p
		}
	}
	m.hosted.Unlock()
	image := m.metadata.Image()
	for i := range steps {
		s := &steps[i]
		if _, announced := image.Partition(s.tp); s.err == nil && !s.isHosted && !announced {
			m.unannounced.add(s.tp, s.topicID)
		}
	}
}

// finishStepsLocked publishes new partitions, takes failed ones offline, starts fetchers and moves and calls the coordinator hooks.
func (m *Manager) finishStepsLocked(steps []step, codes []cluster.ErrorCode) controlChange {
	var change controlChange
	var failed, refetch []cluster.TopicPartition
	var follow []followStart
	var elected, resigned []PartitionEpoch
	orphans := 0
	m.publish(steps)
	for i := range steps {
		s := &steps[i]
		delete(m.control.orphans, s.tp)
		switch {
		case s.err != nil:
			codes[s.at] = commitlog.Code(s.err)
			if codes[s.at] == cluster.KafkaStorageError {
				failed = append(failed, s.tp)
				m.control.lost[s.tp] = s.topicID
			}
		case s.orphan:
			orphans++
			if s.leader != cluster.NoBroker {
				m.control.orphans[s.tp] = *s.transition
			}
		case s.leader == m.cfg.BrokerID:
			change.leaders++
			change.wake = append(change.wake, s.tp) // waiting requests may name an older epoch
			if s.out.changed && cluster.IsInternalTopic(s.tp.Topic) {
				elected = append(elected, PartitionEpoch{s.tp, s.leaderEpoch})
			}
		case s.out.changed:
			change.followers++
			refetch = append(refetch, s.tp)
			follow = append(follow, followStart{tp: s.tp, leader: s.leader, epoch: s.leaderEpoch, id: s.topicID, p: s.p})
			if cluster.IsInternalTopic(s.tp.Topic) {
				resigned = append(resigned, PartitionEpoch{s.tp, s.leaderEpoch})
			}
		}
	}
	m.logFailedSteps(steps, failed, orphans)
	if len(failed) > 0 {
		m.takeOfflineLocked(failed)
	}
	m.fetchers.remove(refetch)
	m.fetchers.add(follow)
	m.resumeMovesLocked()
	if (len(elected) > 0 || len(resigned) > 0) && m.hooks.LeadershipChanged != nil {
		m.hooks.LeadershipChanged(elected, resigned)
	}
	change.wake = append(append(change.wake, refetch...), failed...)
	return change
}

func (m *Manager) logFailedSteps(steps []step, offline []cluster.TopicPartition, orphans int) {
	if orphans > 0 {
		m.log.Warn("partitions cannot follow: their leaders are not known to be alive", "partitions", orphans)
	}
	if len(offline) > 0 {
		m.log.Error("partitions are offline: no log dir serves them", "partitions", len(offline))
	}
	for i := range steps {
		if s := &steps[i]; s.err != nil && commitlog.Code(s.err) != cluster.KafkaStorageError {
			m.log.Error("leader and isr state not applied", "topic", s.tp.Topic, "partition", s.tp.Partition, "err", s.err)
		}
	}
}

func leaderAndISRRefused(req *kmsg.LeaderAndISRRequest, states []transition, codes []cluster.ErrorCode, code cluster.ErrorCode) *kmsg.LeaderAndISRResponse {
	for i := range codes {
		codes[i] = code
	}
	return leaderAndISRResponse(req, states, codes, code)
}

// leaderAndISRResponse names partitions by topic name before version 5, by topic id from it on.
func leaderAndISRResponse(req *kmsg.LeaderAndISRRequest, states []transition, codes []cluster.ErrorCode, top cluster.ErrorCode) *kmsg.LeaderAndISRResponse {
	resp := kmsg.NewPtrLeaderAndISRResponse()
	resp.Version, resp.ErrorCode = req.Version, int16(top)
	at := map[cluster.TopicID]int{}
	for i := range states {
		p := kmsg.NewLeaderAndISRResponseTopicPartition()
		p.Partition, p.ErrorCode = states[i].tp.Partition, int16(codes[i])
		if req.Version < 5 {
			p.Topic = states[i].tp.Topic
			resp.Partitions = append(resp.Partitions, p)
			continue
		}
		t, known := at[states[i].topicID]
		if !known {
			t = len(resp.Topics)
			at[states[i].topicID] = t
			topic := kmsg.NewLeaderAndISRResponseTopic()
			topic.TopicID = states[i].topicID
			resp.Topics = append(resp.Topics, topic)
		}
		resp.Topics[t].Partitions = append(resp.Topics[t].Partitions, p)
	}
	return resp
}
