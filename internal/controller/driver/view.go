package driver

import (
	"sync"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// view is what request goroutines may know of the controller without asking its goroutine. The active id is fixed per
// view; the tables of the term grow and shrink in place, and reading them takes no lock. A new view is stored
// when the active controller changes; leaving office stores one with empty tables.
type view struct {
	controller cluster.BrokerID
	active     bool                    // this broker holds the office
	epoch      cluster.ControllerEpoch // 0 when not active
	topics     *sync.Map               // cluster.TopicID -> string; written by the owner only
	queued     *sync.Map               // topic name -> struct{}: queued for deletion; written by the owner only
}

func newView(id cluster.BrokerID) *view {
	return &view{controller: id, topics: &sync.Map{}, queued: &sync.Map{}}
}

// with returns a copy that names another controller and shares the tables.
func (v *view) with(id cluster.BrokerID) *view {
	c := *v
	c.controller = id
	return &c
}

func (v *view) know(topics []controller.TopicRef) {
	for _, t := range topics {
		if !t.ID.IsZero() {
			v.topics.Store(t.ID, t.Name)
		}
	}
}

func (v *view) forget(topics []controller.TopicRef) {
	for _, t := range topics {
		if !t.ID.IsZero() {
			v.topics.Delete(t.ID)
		}
	}
}

// IsActive reports whether this broker is the active controller.
func (d *Driver) IsActive() bool { return d.view.Load().active }

// ActiveControllerID is the broker in /controller as last read; cluster.NoBroker when there is none.
func (d *Driver) ActiveControllerID() cluster.BrokerID { return d.view.Load().controller }

// TopicName resolves a topic id in the context of the active controller; false when this broker is not it.
func (d *Driver) TopicName(id cluster.TopicID) (string, bool) {
	name, ok := d.view.Load().topics.Load(id)
	if !ok {
		return "", false
	}
	return name.(string), true
}

// IsTopicQueuedForDeletion reports whether the active controller has queued the topic for deletion; false when this
// broker is not it.
func (d *Driver) IsTopicQueuedForDeletion(topic string) bool {
	_, ok := d.view.Load().queued.Load(topic)
	return ok
}
