package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/metadata"
)

// topicsPatience bounds the wait for the announcement of topics that were there before this broker: the controller may
// have a reason not to announce one, and a broker that serves all others is of use.
const topicsPatience = 10 * time.Second

// awaitReady waits until clients can work: this broker has been told of itself, of a controller, and of the topics that
// exist. Without the last, a client that comes first would hear that its topic is unknown.
func (b *broker) awaitReady(ctx context.Context) error {
	knowsItself := func(im *metadata.Image) bool {
		return im.Controller() != cluster.NoBroker && im.HasBroker(b.cfg.ID) && len(im.Brokers()) >= b.opts.Together
	}
	for known := false; !known; {
		var err error
		if known, err = b.await(ctx, nil, 10*time.Second, knowsItself); err != nil {
			return err
		}
		if !known {
			b.log.Warn("waiting for a controller to announce this broker", "broker", b.cfg.ID, "controller", b.driver.ActiveControllerID())
		}
	}
	topics, err := b.liveTopics(ctx)
	if err != nil {
		return err
	}
	missing := func(im *metadata.Image) []string {
		return slices.DeleteFunc(slices.Clone(topics), func(t string) bool { _, ok := im.Topic(t); return ok })
	}
	complete, err := b.await(ctx, topics, topicsPatience, func(im *metadata.Image) bool { return len(missing(im)) == 0 })
	if err != nil {
		return err
	}
	if !complete {
		b.log.Warn("ready, though the controller has not announced all topics", "missing", missing(b.cache.Image()))
	}
	b.web.setReady(true)
	return nil
}

// await waits for a condition on the metadata, and reports false when the time is over. A part of the broker that fails
// meanwhile ends the wait with its error.
func (b *broker) await(ctx context.Context, topics []string, patience time.Duration, cond func(*metadata.Image) bool) (bool, error) {
	met := make(chan bool, 1)
	b.cache.Await(topics, time.Now().Add(patience), cond, func(ok bool) { met <- ok })
	select {
	case ok := <-met:
		return ok, nil
	case err := <-b.parts.failed:
		return false, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// liveTopics lists the topics of the store that are not marked for deletion.
func (b *broker) liveTopics(ctx context.Context) ([]string, error) {
	topics, err := b.store.Children(ctx, coord.TopicsPath)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	marked, err := b.store.Children(ctx, coord.DeleteTopicsPath)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return nil, fmt.Errorf("list topics marked for deletion: %w", err)
	}
	return slices.DeleteFunc(topics, func(t string) bool { return slices.Contains(marked, t) }), nil
}
