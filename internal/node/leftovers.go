package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/replica"
)

// leftoversEvery is how often the records are looked at again when nobody said that they changed: a removal may have failed.
const leftoversEvery = time.Minute

// leftovers removes from this broker what deletions left on it that ended while it was absent (W15), and what reassignments
// moved away (W20): the controller
// wrote it down in the store, by topic id. It is done before the first request of a controller is handled, and
// whenever a record comes later, as it does when the broker was only thought to be gone.
type leftovers struct {
	b *broker
	// open counts the records that could not be carried out when they were last looked at; for metrics.
	open atomic.Int64
}

// removeLeftovers is the look at start. A store that does not answer is asked again by run.
func (b *broker) removeLeftovers(ctx context.Context) error {
	if err := b.leftovers.remove(ctx); err != nil {
		b.log.Warn("what deletions left on this broker could not be removed, trying again", "err", err)
	}
	if err := b.leftovers.removeUnassigned(ctx); err != nil {
		b.log.Warn("cannot tell which replicas were moved away from this broker, they stay until the next start", "err", err)
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
	open := len(records)
	defer func() { l.open.Store(int64(open)) }()
	for _, r := range records {
		if there, err := l.mayBeWanted(ctx, r); there || err != nil {
			errs = append(errs, err)
			continue
		}
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
			continue
		}
		open--
	}
	return errors.Join(errs...)
}

// mayBeWanted reports whether a record has to wait: while its topic exists a replica that is assigned to this broker, or runs on it,
// stays. The deletion has not ended yet, or the replica has come back since it was moved away.
func (l *leftovers) mayBeWanted(ctx context.Context, r coord.Leftover) (bool, error) {
	topics, err := l.topics(ctx, []string{r.Topic})
	if err != nil {
		return false, err
	}
	t, exists := topics[r.Topic]
	if !exists || t.ID != r.TopicID {
		return false, nil
	}
	return slices.ContainsFunc(r.Partitions, func(p int32) bool {
		_, state := l.b.replicas.Partition(cluster.TopicPartition{Topic: r.Topic, Partition: p})
		return state != replica.HostedNone || slices.Contains(t.Partitions[p].Replicas, l.b.cfg.ID)
	}), nil
}

// topics reads the topics that exist and can be decoded.
func (l *leftovers) topics(ctx context.Context, names []string) (map[string]coord.Topic, error) {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = coord.TopicPath(name)
	}
	reads, err := l.b.store.GetMany(ctx, paths)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	out := map[string]coord.Topic{}
	for i, r := range reads {
		if r.Err != nil {
			continue
		}
		if t, err := coord.DecodeTopic(r.Node.Data); err == nil {
			out[names[i]] = t
		}
	}
	return out, nil
}

// removeUnassigned removes replicas that were moved away while this broker could not be told (W20): those of topics that exist, with
// the same id, and whose assignment does not name this broker. It runs before any request of a controller is
// handled, so a replica that is given back to this broker in this moment begins anew after it.
func (l *leftovers) removeUnassigned(ctx context.Context) error {
	partitions := map[string][]int32{}
	ids := map[string]cluster.TopicID{}
	for _, log := range l.b.logs.Logs() {
		if tp := log.TopicPartition(); !log.TopicID().IsZero() {
			partitions[tp.Topic] = append(partitions[tp.Topic], tp.Partition)
			ids[tp.Topic] = log.TopicID()
		}
	}
	names := slices.Sorted(maps.Keys(partitions))
	topics, err := l.topics(ctx, names)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		t, exists := topics[name]
		if !exists || t.ID != ids[name] {
			continue
		}
		moved := slices.DeleteFunc(partitions[name], func(p int32) bool {
			a, known := t.Partitions[p]
			return !known || slices.Contains(a.Replicas, l.b.cfg.ID)
		})
		if len(moved) == 0 {
			continue
		}
		n, err := l.b.replicas.RemoveLeftovers(name, t.ID, moved)
		l.b.log.Info("replicas removed that were moved away while this broker was absent", "topic", name, "replicas", n)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// deletedWhileAway tells the logs of topics that were deleted while this broker, or one of its log dirs, was away.
func (b *broker) deletedWhileAway(ctx context.Context) (func(cluster.TopicPartition, cluster.TopicID) bool, error) {
	records, err := readLeftovers(ctx, b.store, b.cfg.ID)
	if err != nil {
		return nil, err
	}
	return func(tp cluster.TopicPartition, id cluster.TopicID) bool {
		return slices.ContainsFunc(records, func(l coord.Leftover) bool {
			return l.TopicID == id && l.Topic == tp.Topic && slices.Contains(l.Partitions, tp.Partition)
		})
	}, nil
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
