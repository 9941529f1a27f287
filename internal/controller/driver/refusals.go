package driver

import (
	"slices"
	"sync"

	"klamm/internal/controller"
)

// refusals are those who want to hear of deletions that the core refuses. Safe for concurrent use.
type refusals struct {
	mu struct {
		sync.Mutex
		listening []*refusalListener
	}
}

// refusalListener is told of one marker at a time.
type refusalListener struct {
	refused func(topic string, czxid int64)
}

func (r *refusals) tell(markers []controller.NodeRef) {
	r.mu.Lock()
	listening := slices.Clone(r.mu.listening)
	r.mu.Unlock()
	for _, l := range listening {
		for _, k := range markers {
			l.refused(k.Topic, k.Czxid)
		}
	}
}

// OnDeletionRefused has refused called for each deletion marker that this broker's controller removes because
// delete.topic.enable is false, with the topic's name and the marker's creation id. It is called on the goroutine of the controller and must not block.
// A call that is under way may still come when stop has returned.
func (d *Driver) OnDeletionRefused(refused func(topic string, czxid int64)) (stop func()) {
	l := &refusalListener{refused}
	r := &d.refusals
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.listening = append(r.mu.listening, l)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.listening = slices.DeleteFunc(r.mu.listening, func(o *refusalListener) bool { return o == l })
	}
}
