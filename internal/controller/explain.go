package controller

import (
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// DeletionPhase is how far the deletion of a topic has come.
type DeletionPhase string

// Phases of a topic's deletion.
const (
	// DeletionQueued: the marker has been seen, nothing was done yet.
	DeletionQueued DeletionPhase = "queued"
	// DeletionDeletingReplicas: brokers are removing the replicas.
	DeletionDeletingReplicas DeletionPhase = "deleting replicas"
	// DeletionBlocked: nothing is in progress, see the reasons.
	DeletionBlocked DeletionPhase = "blocked"
	// DeletionRemovingNodes: all replicas are gone, the topic's nodes could not yet be removed.
	DeletionRemovingNodes DeletionPhase = "removing nodes"
)

// ReasonKind says what a deletion or a replica waits for.
type ReasonKind string

// Reasons.
const (
	WaitingForReply    ReasonKind = "waiting for the broker's answer"
	BrokerOffline      ReasonKind = "broker is offline"
	BrokerShuttingDown ReasonKind = "broker is shutting down"
	LogDirOffline      ReasonKind = "log dir is offline"
	DeletionFailed     ReasonKind = "the broker could not delete the replica"
	StoreFailed        ReasonKind = "the coordination store refused a write"
	CachesNotCleared   ReasonKind = "the broker has not yet confirmed that it forgot the topic"
	OtherReplicas      ReasonKind = "other replicas of the topic come first"
)

// DeletionReason is one thing a deletion waits for, and what lifts it.
type DeletionReason struct {
	Kind     ReasonKind
	Broker   cluster.BrokerID // NoBroker when it is none of a broker
	LiftedBy string
	// RetryAt is when the core tries again by itself; 0 when it waits for an event.
	RetryAt Time
	Detail  string
}

// ReplicaDeletion explains one replica of a queued topic.
type ReplicaDeletion struct {
	cluster.TopicPartitionReplica
	State ReplicaState
	Since Time // of the state
	// Attempts counts failed deletions of the replica, LastError is the last one's code.
	Attempts  int
	LastError cluster.ErrorCode
	// WaitsFor is nil for a replica that is deleted.
	WaitsFor *DeletionReason
}

// DeletionExplanation explains one queued topic.
type DeletionExplanation struct {
	TopicRef
	Phase DeletionPhase
	// QueuedAt is when this controller queued the topic; a failover starts it anew.
	QueuedAt  Time
	Attempts  int
	LastError string
	RetryAt   Time // 0 when it waits for an event
	// Reasons lists what the topic waits for, each once per broker.
	Reasons  []DeletionReason
	Replicas []ReplicaDeletion
}

// Deletions explains every topic queued for deletion, by name. All of it is derived from the state of now.
func (c *Core) Deletions() []DeletionExplanation {
	if c.ctx == nil {
		return nil
	}
	var out []DeletionExplanation
	for _, name := range slices.Sorted(maps.Keys(c.ctx.deletions)) {
		out = append(out, c.explain(c.ctx.deletions[name]))
	}
	return out
}

func (c *Core) explain(d *topicDeletion) DeletionExplanation {
	e := DeletionExplanation{
		TopicRef: TopicRef{Name: d.name}, Phase: DeletionQueued,
		QueuedAt: d.queuedAt, Attempts: d.attempts, LastError: d.lastError, RetryAt: d.retryAt,
	}
	inProgress := false
	if d.topic != nil {
		e.TopicRef = d.topic.TopicRef
		inProgress = d.topic.replicas[ReplicaDeletionStarted] > 0
		for _, r := range d.topic.allReplicas() {
			e.Replicas = append(e.Replicas, c.explainReplica(d, r))
		}
	}
	type key struct {
		kind   ReasonKind
		broker cluster.BrokerID
	}
	seen := map[key]bool{}
	for _, r := range e.Replicas {
		if w := r.WaitsFor; w != nil && w.Kind != OtherReplicas && !seen[key{w.Kind, w.Broker}] {
			seen[key{w.Kind, w.Broker}] = true
			e.Reasons = append(e.Reasons, *w)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.toForget)) {
		e.Reasons = append(e.Reasons, DeletionReason{Kind: CachesNotCleared, Broker: id, LiftedBy: "answer of the broker, or its end"})
	}
	switch {
	case d.removing:
		e.Phase = DeletionRemovingNodes
		e.Reasons = append(e.Reasons, DeletionReason{Kind: StoreFailed, Broker: cluster.NoBroker, LiftedBy: "retry", RetryAt: d.retryAt, Detail: d.lastError})
	case inProgress:
		e.Phase = DeletionDeletingReplicas
	case d.started || d.ineligible:
		e.Phase = DeletionBlocked
	}
	return e
}

func (c *Core) explainReplica(d *topicDeletion, r replicaRef) ReplicaDeletion {
	entry := r.replica(r.id)
	e := ReplicaDeletion{
		TopicPartitionReplica: cluster.TopicPartitionReplica{TopicPartition: r.TopicPartition, Replica: r.id},
		State:                 entry.state, Since: entry.since, Attempts: entry.attempts, LastError: entry.lastError,
	}
	if entry.state == ReplicaDeletionSuccessful {
		return e
	}
	reason := DeletionReason{Broker: r.id, RetryAt: d.retryAt}
	_, registered := c.ctx.brokers[r.id]
	switch {
	case entry.state == ReplicaDeletionStarted:
		reason.Kind, reason.LiftedBy, reason.RetryAt = WaitingForReply, "answer of the broker, or its restart", 0
	case !registered:
		reason.Kind, reason.LiftedBy, reason.Detail = BrokerOffline, "start of the broker", c.tdm().whyItWaits(d)
	case c.ctx.shuttingDown[r.id]:
		reason.Kind, reason.LiftedBy = BrokerShuttingDown, "restart of the broker"
	case entry.offlineDir:
		reason.Kind, reason.LiftedBy = LogDirOffline, "restart of the broker with its log dirs repaired or removed"
	case entry.lastError != cluster.None:
		reason.Kind, reason.LiftedBy, reason.Detail = DeletionFailed, "retry, or restart of the broker", entry.lastError.String()
	case d.retryAt != 0:
		reason.Kind, reason.LiftedBy, reason.Detail = StoreFailed, "retry", d.lastError
	default:
		reason.Kind, reason.LiftedBy = OtherReplicas, "the end of the replicas in progress"
	}
	if at := c.tdm().givesUpAt(d); at != 0 && reason.RetryAt == 0 && entry.offlineSince != 0 {
		reason.RetryAt = at
		reason.LiftedBy += ", or the end of topic.deletion.offline.replica.timeout.ms"
	}
	e.WaitsFor = &reason
	return e
}

// TopicName returns the name of the topic with an id.
func (c *Core) TopicName(id cluster.TopicID) (string, bool) {
	if c.ctx == nil {
		return "", false
	}
	name, ok := c.ctx.topicNames[id]
	return name, ok
}

// TopicID returns the id of a topic; false when the topic is unknown or has none.
func (c *Core) TopicID(name string) (cluster.TopicID, bool) {
	if c.ctx == nil || c.ctx.topics[name] == nil {
		return cluster.TopicID{}, false
	}
	id := c.ctx.topics[name].ID
	return id, !id.IsZero()
}

// DeletionBlocked reports whether a topic is queued for deletion and waits for what need not come by itself: a broker that is gone, a log dir,
// a retry. False while registered brokers have still to answer or the topic's nodes are being removed, and for a topic that is not queued:
// its deletion has just ended, or its marker was not seen yet.
func (c *Core) DeletionBlocked(topic string) bool {
	if !c.IsTopicQueuedForDeletion(topic) {
		return false
	}
	d := c.ctx.deletions[topic]
	underWay := d.topic == nil || d.removing || len(d.toForget) > 0 || d.topic.replicas[ReplicaDeletionStarted] > 0
	return d.retryAt != 0 || !underWay
}

// IsTopicQueuedForDeletion reports whether a topic is queued for deletion.
func (c *Core) IsTopicQueuedForDeletion(topic string) bool {
	return c.ctx != nil && c.ctx.isQueued(topic)
}
