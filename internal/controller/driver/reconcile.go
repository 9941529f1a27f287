package driver

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"klamm/internal/coord"
	"klamm/internal/metadata"
)

// reconcileEvery is how often a Reconciler looks for topics that nobody announces any more.
const reconcileEvery = 10 * time.Second

// Reconciler makes a broker forget topics that were deleted while it could not be told: its session had expired, or the
// request that says so was lost with the controller that sent it. UpdateMetadata is a delta, so no later request would
// mention them (Kafka's brokers answer for such a topic until they are restarted). It looks only at topics that the
// controller left out when it last announced everything, and asks the store about those.
type Reconciler struct {
	Cache *metadata.Cache
	Store coord.Store
	// Forgotten is told what was removed, like the changes of an UpdateMetadata; nil when nobody needs to know.
	Forgotten func(metadata.Changes)
	Log       *slog.Logger
}

// Run looks every ten seconds until ctx ends.
func (r *Reconciler) Run(ctx context.Context) error {
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	suspects := map[*metadata.Topic]bool{} // unconfirmed at the last look too: the announcement has had its time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		unconfirmed := r.Cache.Image().Unconfirmed()
		var check []*metadata.Topic
		next := make(map[*metadata.Topic]bool, len(unconfirmed))
		for _, t := range unconfirmed {
			next[t] = true
			if suspects[t] {
				check = append(check, t)
			}
		}
		suspects = next
		r.forget(ctx, check)
	}
}

// forget removes the topics whose node is gone, or is another incarnation's. A store that does not answer is asked again
// at the next look.
func (r *Reconciler) forget(ctx context.Context, topics []*metadata.Topic) {
	if len(topics) == 0 {
		return
	}
	paths := make([]string, len(topics))
	for i, t := range topics {
		paths[i] = coord.TopicPath(t.Name)
	}
	reads, err := r.Store.GetMany(ctx, paths)
	if err != nil {
		r.Log.Debug("store cannot tell which topics exist", "err", err)
		return
	}
	var gone []*metadata.Topic
	for i, read := range reads {
		if isGone(topics[i], read) {
			gone = append(gone, topics[i])
		}
	}
	if changes := r.Cache.Forget(gone); len(changes.Topics) > 0 {
		r.Log.Warn("topics forgotten that were deleted while this broker could not be told", "topics", changes.Topics)
		if r.Forgotten != nil {
			r.Forgotten(changes)
		}
	}
}

func isGone(t *metadata.Topic, read coord.ReadResult) bool {
	if read.Err != nil {
		return errors.Is(read.Err, coord.ErrNoNode)
	}
	node, err := coord.DecodeTopic(read.Node.Data)
	return err == nil && !t.ID.IsZero() && !node.ID.IsZero() && node.ID != t.ID
}
