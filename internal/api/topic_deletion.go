package api

import (
	"context"
	"errors"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/metadata"
)

// topicDeletion is one topic to delete and, afterwards, what became of it.
type topicDeletion struct {
	name string
	// id is set when the request named the topic by its id: another incarnation of the name is then not touched.
	id cluster.TopicID

	err     answerError
	current cluster.TopicID // the id of what is being deleted; zero when the topic has none
	marker  int64           // creation id of the marker that the deletion waits with
}

// delete puts a deletion marker for each topic, which the controller turns into a deletion (Kafka:
// ZkAdminManager.deleteTopics). An item that comes with an error is left as it is; afterwards an item without error is
// marked. A marker that is there already counts as ours, so that repeated and concurrent requests all end well.
//
// The marker's data stays null, as Kafka writes it. What a request by id was about is checked here: the topic's node is
// read, compared with the id, and the marker is written only while that node still exists at the version read.
func (a *topicAdmin) delete(ctx context.Context, items []*topicDeletion, charge chargeQuota) {
	pending := items
	for try := 0; len(pending) > 0; try++ {
		found, err := a.readForDeletion(ctx, pending)
		if err != nil {
			return
		}
		var groups []*atomicGroup
		var writing []*topicDeletion
		for _, d := range pending {
			if d.err.failed() {
				continue
			}
			t := found[d.name]
			if d.err = a.deletable(d, t); d.err.failed() {
				continue
			}
			if t.marked {
				d.marker = t.marker
				continue
			}
			if charge != nil && try == 0 {
				if d.err = charge(len(t.topic.Partitions)); d.err.failed() {
					continue
				}
			}
			groups = append(groups, &atomicGroup{ops: []coord.Op{
				coord.Check(coord.TopicPath(d.name), t.version),
				coord.Create(coord.DeleteTopicPath(d.name), nil),
			}})
			writing = append(writing, d)
		}
		writeGroups(ctx, a.store, groups)
		pending = a.settleDeletions(writing, groups, try)
	}
}

func (a *topicAdmin) readForDeletion(ctx context.Context, items []*topicDeletion) (topicsInStore, error) {
	names := make([]string, 0, len(items))
	for _, d := range items {
		if !d.err.failed() {
			names = append(names, d.name)
		}
	}
	found, err := readTopics(ctx, a.store, names)
	if err != nil {
		a.log.Error("read topics before deletion", "err", err)
		for _, d := range items {
			if !d.err.failed() {
				d.err = storeError(err)
			}
		}
	}
	return found, err
}

// deletable checks existence and identity. A topic that is marked and has left the metadata of this broker is gone as
// far as clients can tell, and answered so, as Kafka does while such a deletion waits for a broker.
func (a *topicAdmin) deletable(d *topicDeletion, t *topicInStore) answerError {
	if t == nil { // not a legal name
		return answerError{Code: cluster.UnknownTopicOrPartition}
	}
	_, cached := a.cache.Image().Topic(d.name)
	switch {
	case !d.id.IsZero() && (!t.exists || t.topic.ID != d.id):
		return answerError{Code: cluster.UnknownTopicID}
	case !t.exists, t.marked && !cached:
		return answerError{Code: cluster.UnknownTopicOrPartition}
	}
	d.current = t.topic.ID
	return answerError{}
}

// settleDeletions turns the outcomes of the writes into answers and returns the items whose topic or marker changed
// between reading and writing, to be looked at again.
func (a *topicAdmin) settleDeletions(items []*topicDeletion, groups []*atomicGroup, try int) (again []*topicDeletion) {
	for i, d := range items {
		switch err := groups[i].err; {
		case err == nil:
			d.marker = groups[i].results[1].Stat.Czxid
		case isConflict(err) && try < conflictTriesMax, errors.Is(err, coord.ErrUnknownOutcome) && try == 0:
			again = append(again, d)
		default:
			a.log.Error("mark topic for deletion", "topic", d.name, "err", err)
			d.err = storeError(err)
		}
	}
	return again
}

// awaitGone calls done once the topics of the items without error have left this broker's metadata or will not do so, or at the deadline.
// A deletion that the controller refuses carries refusal; the unfinished ones carry REQUEST_TIMED_OUT, and their deletion goes on (Kafka:
// DelayedDeleteTopics). A name that came back with another id is gone: the waiting is for the topic, not for the name.
func (a *topicAdmin) awaitGone(items []*topicDeletion, timeout time.Duration, refused *refusedDeletions, refusal answerError, done func()) {
	var names []string
	var waiting []*topicDeletion
	for _, d := range items {
		if !d.err.failed() {
			names = append(names, d.name)
			waiting = append(waiting, d)
		}
	}
	a.cache.Await(names, time.Now().Add(timeout),
		func(im *metadata.Image) bool {
			for _, d := range waiting {
				if !refused.has(d) && !isGone(im, d) {
					return false
				}
			}
			return true
		},
		func(bool) {
			im := a.cache.Image()
			for _, d := range waiting {
				switch {
				case refused.has(d):
					d.err = refusal
				case isGone(im, d):
				default:
					d.err = answerError{Code: cluster.RequestTimedOut}
				}
			}
			done()
		})
}

func isGone(im *metadata.Image, d *topicDeletion) bool {
	t, ok := im.Topic(d.name)
	return !ok || !d.current.IsZero() && !t.ID.IsZero() && t.ID != d.current
}
