// Package notify consumes change notifications: sequential nodes below a root that say what else changed (configs,
// ACLs, tokens). Kafka: ZkNodeChangeNotificationListener.
package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"klamm/internal/coord"
)

// PurgeAge is the age at which a processed notification is deleted.
const PurgeAge = 15 * time.Minute

// retryPause is waited after a pass that could not read the store.
const retryPause = time.Second

// Consumer handles the notifications below one root, in order of their numbers, from one goroutine.
type Consumer struct {
	Root string
	// Handle acts on one notification. It reads the current state of what changed: intermediate states may be lost.
	// A notification whose handling fails is logged and skipped.
	Handle func(ctx context.Context, data []byte) error
	// OnStart, if set, runs once, after the notifications found at start were handled.
	OnStart func(ctx context.Context) error
	// SessionChanged, if set, asks for one more pass with every value: a new session may have missed changes.
	SessionChanged <-chan struct{}
	Log            *slog.Logger

	last   int64                // number of the last handled notification
	purges map[string]time.Time // creation time of handled notifications that still exist
}

// Run consumes until the context ends, which is no error, or the store is closed.
func (c *Consumer) Run(ctx context.Context, s coord.Store) error {
	c.last, c.purges = -1, map[string]time.Time{}
	w := s.NewWatcher()
	w.Add(c.Root, coord.WatchChildren)
	wake := make(chan struct{}, 1) // at most one pending pass
	pump := make(chan error, 1)
	var pumping sync.WaitGroup
	pumping.Go(func() { pump <- forward(ctx, w, wake) })
	defer pumping.Wait()
	defer w.Close()

	started := false
	for {
		var retry <-chan time.Time
		err := c.pass(ctx, s)
		if err == nil && !started && c.OnStart != nil {
			if err = c.OnStart(ctx); err != nil {
				err = fmt.Errorf("apply current state: %w", err)
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, coord.ErrClosed):
			return err
		case err != nil:
			c.Log.Warn("change notifications not processed, trying again", "root", c.Root, "err", err)
			retry = time.After(retryPause)
		default:
			started = true
		}
		select {
		case <-wake:
		case <-retry:
		case <-c.SessionChanged:
		case err := <-pump:
			return err
		}
	}
}

// forward turns watch events into wake-ups until the context ends or the watcher is closed.
func forward(ctx context.Context, w coord.Watcher, wake chan<- struct{}) error {
	for {
		if _, err := w.Next(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case wake <- struct{}{}:
		default: // a pass is pending already and will see this change
		}
	}
}

// pass handles what is new and purges what is old.
func (c *Consumer) pass(ctx context.Context, s coord.Store) error {
	names, err := s.Children(ctx, c.Root)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return fmt.Errorf("list notifications: %w", err)
	}
	var paths []string
	for _, name := range names {
		if n, ok := coord.SequenceNumber(name); ok && n > c.last {
			paths = append(paths, c.Root+"/"+name)
		}
	}
	reads, err := s.GetMany(ctx, paths)
	if err != nil {
		return fmt.Errorf("read notifications: %w", err)
	}
	for i, r := range reads {
		if r.Err == nil {
			if err := c.Handle(ctx, r.Node.Data); err != nil {
				if ctx.Err() != nil {
					return ctx.Err() // handled again at the next start
				}
				c.Log.Warn("change notification skipped", "path", paths[i], "err", err)
			}
			c.purges[paths[i]] = r.Node.Stat.Ctime
		}
		c.last, _ = coord.SequenceNumber(paths[i])
	}
	return c.purge(ctx, s)
}

// purge deletes handled notifications that every broker had time to see. All brokers do; whoever comes first wins.
func (c *Consumer) purge(ctx context.Context, s coord.Store) error {
	var old []coord.Op
	for path, created := range c.purges {
		if !created.IsZero() && time.Since(created) > PurgeAge {
			old = append(old, coord.Delete(path, coord.AnyVersion))
		}
	}
	if len(old) == 0 {
		return nil
	}
	results, err := s.Batch(ctx, nil, old)
	if err != nil {
		return fmt.Errorf("purge notifications: %w", err)
	}
	for i, r := range results {
		if r.Err != nil && !errors.Is(r.Err, coord.ErrNoNode) {
			return fmt.Errorf("purge %s: %w", old[i].Path, r.Err)
		}
		delete(c.purges, old[i].Path)
	}
	return nil
}
