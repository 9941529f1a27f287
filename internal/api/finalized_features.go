package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// featuresPause is the wait before /feature is read again after the store did not answer.
const featuresPause = time.Second

// FinalizedFeatures is this broker's view of /feature (Kafka: FinalizedFeatureChangeListener). It is safe for concurrent use.
type FinalizedFeatures struct {
	store     coord.Store
	supported map[string]cluster.VersionRange
	log       *slog.Logger

	mu struct {
		sync.Mutex
		levels  map[string]int16 // replaced as a whole
		version int32            // data version of the node; -1 when it is absent, disabled or not read yet
		waiting []*featureWait
		ended   bool
	}
}

// featureWait is one wait for a version of the node.
type featureWait struct {
	version int32
	done    func(seen bool)
	timer   *time.Timer
}

// NewFinalizedFeatures returns a view that knows nothing before Run.
func NewFinalizedFeatures(store coord.Store, supported map[string]cluster.VersionRange, log *slog.Logger) *FinalizedFeatures {
	f := &FinalizedFeatures{store: store, supported: supported, log: log}
	f.mu.version = -1
	return f
}

// Now gives the finalized levels, which must not be changed, and the version of the node that holds them; -1 when none is known.
func (f *FinalizedFeatures) Now() (levels map[string]int16, version int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.levels, f.mu.version
}

// Await calls done once the node was seen at the version or a later one, or at the deadline. done is called exactly once, on any goroutine.
func (f *FinalizedFeatures) Await(version int32, deadline time.Time, done func(seen bool)) {
	w := &featureWait{version: version, done: done}
	f.mu.Lock()
	seen, over := f.mu.version >= version, f.mu.ended
	if !seen && !over {
		w.timer = time.AfterFunc(time.Until(deadline), func() { f.giveUp(w) })
		f.mu.waiting = append(f.mu.waiting, w)
	}
	f.mu.Unlock()
	if seen || over {
		done(seen)
	}
}

func (f *FinalizedFeatures) giveUp(w *featureWait) {
	f.mu.Lock()
	i := slices.Index(f.mu.waiting, w)
	if i >= 0 {
		f.mu.waiting = slices.Delete(f.mu.waiting, i, i+1)
	}
	f.mu.Unlock()
	if i >= 0 {
		w.done(false)
	}
}

// Run follows the node until the context ends, which is no error. A feature that is finalized and not supported by this broker ends it
// with an error: the broker must not serve then.
func (f *FinalizedFeatures) Run(ctx context.Context) error {
	defer f.end()
	w := f.store.NewWatcher()
	defer w.Close()
	w.Add(coord.FeaturePath, coord.WatchNode)
	for {
		err := f.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errIncompatible), errors.Is(err, coord.ErrClosed):
			return err
		case err != nil:
			f.log.Warn("finalized features not read, trying again", "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(featuresPause):
				continue
			}
		}
		if _, err := w.Next(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

var errIncompatible = errors.New("a finalized feature is not supported by this broker")

func (f *FinalizedFeatures) read(ctx context.Context) error {
	levels, version := map[string]int16(nil), int32(-1)
	node, err := f.store.Get(ctx, coord.FeaturePath)
	switch {
	case errors.Is(err, coord.ErrNoNode):
	case err != nil:
		return fmt.Errorf("read features: %w", err)
	default:
		features, err := coord.DecodeFeatures(node.Data)
		if err != nil {
			f.log.Warn("the node of features cannot be decoded; no feature is taken for finalized", "path", coord.FeaturePath, "err", err)
			break
		}
		if features.Enabled {
			levels, version = map[string]int16{}, node.Stat.Version
			for name, r := range features.Levels {
				levels[name] = r.Max
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		if !f.supported[name].Contains(levels[name]) {
			return fmt.Errorf("%w: %s at level %d in %s; delete it there by UpdateFeatures, or run a release that supports it",
				errIncompatible, name, levels[name], coord.FeaturePath)
		}
	}
	f.set(levels, version)
	return nil
}

func (f *FinalizedFeatures) set(levels map[string]int16, version int32) {
	f.mu.Lock()
	f.mu.levels, f.mu.version = levels, version
	var seen []*featureWait
	f.mu.waiting = slices.DeleteFunc(f.mu.waiting, func(w *featureWait) bool {
		if w.version <= version {
			seen = append(seen, w)
			return true
		}
		return false
	})
	f.mu.Unlock()
	for _, w := range seen {
		w.timer.Stop()
		w.done(true)
	}
}

// end gives up all waits.
func (f *FinalizedFeatures) end() {
	f.mu.Lock()
	waiting := f.mu.waiting
	f.mu.waiting, f.mu.ended = nil, true
	f.mu.Unlock()
	for _, w := range waiting {
		w.timer.Stop()
		w.done(false)
	}
}
