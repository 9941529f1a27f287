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
	// renewed has an entry when the broker registered again, as it does when it was only thought to be gone: requests from before then may
	// have given it replicas that were moved away meanwhile.
	renewed chan struct{}
}

func newLeftovers(b *broker) *leftovers { return &leftovers{b: b, renewed: make(chan struct{}, 1)} }

// registeredAgain has the replicas looked through once more.
func (l *leftovers) registeredAgain() {
	select {
	case l.renewed <- struct{}{}:
	default:
	}
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

// run looks at the records whenever they change, and at all replicas after each new registration, until ctx ends.
func (l *leftovers) run(ctx context.Context) error {
	root := coord.LeftoversOfPath(l.b.cfg.ID)
	w := l.b.store.NewWatcher()
	defer w.Close()
	w.Add(root, coord.WatchChildren)
	for {
		if err := l.remove(ctx); err != nil && ctx.Err() == nil {
			l.b.log.Warn("what deletions left on this broker could not be removed, trying again", "err", err, "pause", leftoversEvery)
		}
		if renewed, err := l.await(ctx, w); err != nil {
			return nil
		} else if renewed {
			if err := l.removeUnassigned(ctx); err != nil && ctx.Err() == nil {
				l.b.log.Warn("cannot tell which replicas were moved away from this broker, they stay until it registers or starts again", "err", err)
			}
		}
	}
}

// await waits until the records may have changed, the broker has registered again, or leftoversEvery has passed. An error: there is
// nothing to wait for any more.
func (l *leftovers) await(ctx context.Context, w coord.Watcher) (renewed bool, err error) {
	next, cancel := context.WithTimeout(ctx, leftoversEvery)
	defer cancel()
	changed := make(chan error, 1)
	go func() {
		_, err := w.Next(next)
		changed <- err
	}()
	select {
	case <-l.renewed:
		renewed = true
		cancel()
		err = <-changed
	case err = <-changed:
	}
	if ctx.Err() != nil || errors.Is(err, coord.ErrClosed) {
		return false, coord.ErrClosed
	}
	return renewed, nil
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
		before := l.b.replicas.Hosted(r.Topic, r.Partitions) // before the assignment is read
		there, wanted, err := l.isWanted(ctx, r)
		if wanted || err != nil {
			errs = append(errs, err)
			continue
		}
		if !there {
			before = nil
		}
		n, err := l.b.replicas.RemoveLeftovers(r.Topic, r.TopicID, r.Partitions, before)
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

// isWanted reports whether a record's topic is there, and whether the record has to wait because a replica of it is assigned to this
// broker: the deletion has not ended yet, or the replica has come back since it was moved away.
func (l *leftovers) isWanted(ctx context.Context, r coord.Leftover) (there, wanted bool, err error) {
	topics, err := l.topics(ctx, []string{r.Topic})
	if err != nil {
		return false, false, err
	}
	t, exists := topics[r.Topic]
	if !exists || t.ID != r.TopicID {
		return false, false, nil
	}
	return true, slices.ContainsFunc(r.Partitions, func(p int32) bool {
		return slices.Contains(t.Partitions[p].Replicas, l.b.cfg.ID)
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
// the same id, and whose assignment does not name this broker. It runs before the first request of a controller is handled, and when the
// broker has registered again: what a controller sent to the former registration is refused by then.
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
	before := map[string]replica.Hosted{}
	for _, name := range names {
		before[name] = l.b.replicas.Hosted(name, partitions[name])
	}
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
		n, err := l.b.replicas.RemoveLeftovers(name, t.ID, moved, before[name])
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
