package node

import (
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// The views of deletions in the web API; their JSON names are a contract with its users.
type (
	deletionView struct {
		Topic     string                   `json:"topic"`
		TopicID   string                   `json:"topicId,omitempty"`
		Phase     controller.DeletionPhase `json:"phase"`
		QueuedAt  time.Time                `json:"queuedAt"`
		Attempts  int                      `json:"attempts"`
		LastError string                   `json:"lastError,omitempty"`
		RetryAt   *time.Time               `json:"retryAt,omitempty"`
		Reasons   []deletionReasonView     `json:"reasons"`
		Replicas  []replicaDeletionView    `json:"replicas"`
	}
	deletionReasonView struct {
		Kind     controller.ReasonKind `json:"waitsFor"`
		Broker   *cluster.BrokerID     `json:"broker,omitempty"`
		LiftedBy string                `json:"liftedBy"`
		RetryAt  *time.Time            `json:"retryAt,omitempty"`
		Detail   string                `json:"detail,omitempty"`
	}
	replicaDeletionView struct {
		Partition int32               `json:"partition"`
		Broker    cluster.BrokerID    `json:"broker"`
		State     string              `json:"state"`
		Since     time.Time           `json:"since"`
		Attempts  int                 `json:"attempts"`
		LastError string              `json:"lastError,omitempty"`
		WaitsFor  *deletionReasonView `json:"waitsFor,omitempty"`
	}
)

func viewOf(d controller.DeletionExplanation) deletionView {
	v := deletionView{Topic: d.Name, Phase: d.Phase, QueuedAt: wallClock(d.QueuedAt), Attempts: d.Attempts, LastError: d.LastError,
		RetryAt: moment(d.RetryAt), Reasons: []deletionReasonView{}, Replicas: []replicaDeletionView{}}
	if !d.ID.IsZero() {
		v.TopicID = d.ID.String()
	}
	for _, r := range d.Reasons {
		v.Reasons = append(v.Reasons, reasonView(r))
	}
	for _, r := range d.Replicas {
		rv := replicaDeletionView{Partition: r.Partition, Broker: r.Replica, State: r.State.String(), Since: wallClock(r.Since), Attempts: r.Attempts}
		if r.LastError != cluster.None {
			rv.LastError = r.LastError.String()
		}
		if r.WaitsFor != nil {
			w := reasonView(*r.WaitsFor)
			rv.WaitsFor = &w
		}
		v.Replicas = append(v.Replicas, rv)
	}
	return v
}

func reasonView(r controller.DeletionReason) deletionReasonView {
	v := deletionReasonView{Kind: r.Kind, LiftedBy: r.LiftedBy, RetryAt: moment(r.RetryAt), Detail: r.Detail}
	if r.Broker != cluster.NoBroker {
		v.Broker = &r.Broker
	}
	return v
}

func wallClock(t controller.Time) time.Time { return time.UnixMilli(int64(t)).UTC() }

// moment is the wall-clock time of a moment that may not be set, which 0 means.
func moment(t controller.Time) *time.Time {
	if t == 0 {
		return nil
	}
	at := wallClock(t)
	return &at
}
