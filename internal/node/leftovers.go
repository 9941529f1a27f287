package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// leftoversEvery is how often the records are looked at again when nobody said that they changed: a removal may have failed.
const leftoversEvery = time.Minute

// leftovers removes from this broker what deletions left on it that ended while it was absent (W15): the controller
// wrote it down in the store, by topic id. It is done before the first request of a controller is handled, and
// whenever a record comes later, as it does when the broker was only thought to be gone.
type leftovers struct{ b *broker }

// removeLeftovers is the look at start. A store that does not answer is asked again by run.
func (b *broker) removeLeftovers(ctx context.Context) error {
	if err := b.leftovers.remove(ctx); err != nil {
		b.log.Warn("what deletions left on this broker could not be removed, trying again", "err", err)
	}
	return ctx.Err()
}

// run looks at the records whenever they change, until ctx ends.
func (l *leftovers) run(ctx context.Context) error {
	root := coord.LeftoversOfPath(l.b.cfg.ID)
	w := l.b.store.NewWatcher()
	defer w.Close()
	w.Add(root, coord.WatchChildren)
	for {
		if err := l.remove(ctx); err != nil && ctx.Err() == nil {
			l.b.log.Warn("what deletions left on this broker could not be removed, trying again", "err", err, "pause", leftoversEvery)
		}
		next, cancel := context.WithTimeout(ctx, leftoversEvery)
		_, err := w.Next(next)
		cancel()
		if ctx.Err() != nil || errors.Is(err, coord.ErrClosed) {
			return nil
		}
	}
}

// remove carries out every record and takes back those that are done.
func (l *leftovers) remove(ctx context.Context) error {
	records, err := readLeftovers(ctx, l.b.store, l.b.cfg.ID)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range records {
		n, err := l.b.replicas.RemoveLeftovers(r.Topic, r.TopicID, r.Partitions)
		if n > 0 {
			l.b.log.Info("replicas removed of a topic that was deleted while this broker was absent", "topic", r.Topic, "id", r.TopicID, "replicas", n)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("topic %s, id %s: %w", r.Topic, r.TopicID, err))
			continue
		}
		_, err = l.b.store.Multi(ctx, coord.Delete(coord.LeftoverPath(l.b.cfg.ID, r.TopicID), coord.AnyVersion))
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			errs = append(errs, fmt.Errorf("take back the record of topic %s: %w", r.Topic, err))
		}
	}
	return errors.Join(errs...)
}

// readLeftovers reads what one broker has to remove, by topic id. Records that cannot be read are left out.
func readLeftovers(ctx context.Context, s coord.Store, id cluster.BrokerID) ([]coord.Leftover, error) {
	names, err := s.Children(ctx, coord.LeftoversOfPath(id))
	if errors.Is(err, coord.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list what deletions left on broker %d: %w", id, err)
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = coord.LeftoversOfPath(id) + "/" + name
	}
	reads, err := s.GetMany(ctx, paths)
	if err != nil {
		return nil, fmt.Errorf("read what deletions left on broker %d: %w", id, err)
	}
	var out []coord.Leftover
	for _, r := range reads {
		if r.Err != nil {
			continue
		}
		if l, err := coord.DecodeLeftover(r.Node.Data); err == nil {
			out = append(out, l)
		}
	}
	return out, nil
}
