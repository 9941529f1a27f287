package api

import (
	"sync"

	"klamm/internal/metadata"
)

// refusedDeletions collects the deletion markers that the controller refuses while one DeleteTopics request is served:
// delete.topic.enable was switched off after the request had been accepted, and the change came to the controller before the
// marker. It listens from before the first marker is written, since a refusal may come before the answer to that write.
// Safe for concurrent use.
type refusedDeletions struct {
	cache *metadata.Cache // whose waiters look again
	stop  func()          // ends the listening

	mu      sync.Mutex
	markers map[refusedMarker]struct{}
}

// refusedMarker names one marker: a refusal of an earlier one of the same topic says nothing about the next.
type refusedMarker struct {
	topic string
	czxid int64
}

func listenForRefusals(c Controller, cache *metadata.Cache) *refusedDeletions {
	r := &refusedDeletions{cache: cache, markers: map[refusedMarker]struct{}{}}
	r.stop = c.OnDeletionRefused(r.refused)
	return r
}

func (r *refusedDeletions) refused(topic string, czxid int64) {
	r.mu.Lock()
	r.markers[refusedMarker{topic, czxid}] = struct{}{}
	r.mu.Unlock()
	r.cache.LookAgain(topic)
}

// has reports whether the deletion is refused.
func (r *refusedDeletions) has(d *topicDeletion) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.markers[refusedMarker{d.name, d.marker}]
	return ok
}
