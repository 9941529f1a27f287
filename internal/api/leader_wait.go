package api

import (
	"time"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
)

// leaderWait is a topic whose partitions are to have leaders before a request is answered.
type leaderWait struct {
	topic      string
	id         cluster.TopicID // zero: whatever topic has the name
	partitions int
	err        *answerError // set to REQUEST_TIMED_OUT when they do not have them in time
}

// awaitLeaders calls done once every partition of the topics has a leader in this broker's cache, or at the deadline.
// What is unfinished then goes on all the same (Kafka: DelayedCreatePartitions).
func (a *topicAdmin) awaitLeaders(waits []leaderWait, timeout time.Duration, done func()) {
	names := make([]string, len(waits))
	for i, w := range waits {
		names[i] = w.topic
	}
	allHave := func(im *metadata.Image) bool {
		for _, w := range waits {
			if !hasLeaders(im, w.topic, w.id, w.partitions) {
				return false
			}
		}
		return true
	}
	a.cache.Await(names, time.Now().Add(timeout), allHave, func(ok bool) {
		im := a.cache.Image()
		for _, w := range waits {
			if !ok && !hasLeaders(im, w.topic, w.id, w.partitions) {
				*w.err = answerError{Code: cluster.RequestTimedOut}
			}
		}
		done()
	})
}

// hasLeaders reports whether the topic of that id (zero: of any id) has a leader in each of its partitions. A cache that
// knows no id, as under an old controller, counts by the name alone.
func hasLeaders(im *metadata.Image, name string, id cluster.TopicID, partitions int) bool {
	t, ok := im.Topic(name)
	if !ok || len(t.Partitions) < partitions || !id.IsZero() && !t.ID.IsZero() && t.ID != id {
		return false
	}
	for _, p := range t.Partitions {
		if p.Leader == cluster.NoBroker {
			return false
		}
	}
	return true
}
