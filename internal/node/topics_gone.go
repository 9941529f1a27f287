package node

import (
	"context"
	"errors"
	"fmt"

	"klamm/internal/coord"
)

// topicsGone gives those of the topics that do not exist in the coordination store. One that is marked for deletion counts as gone once this broker has
// been told of topics at all: then it has forgotten this one already, since it is asked only about topics that it does not know.
func (b *broker) topicsGone(ctx context.Context, topics []string) (gone []string, err error) {
	paths := make([]string, 0, 2*len(topics))
	for _, t := range topics {
		paths = append(paths, coord.TopicPath(t), coord.DeleteTopicPath(t))
	}
	nodes, err := b.store.GetMany(ctx, paths)
	if err != nil {
		return nil, fmt.Errorf("read topics: %w", err)
	}
	told := b.cache.Image().TopicCount() > 0
	for i, t := range topics {
		topic, marker := nodes[2*i], nodes[2*i+1]
		if errors.Is(topic.Err, coord.ErrNoNode) || told && marker.Err == nil {
			gone = append(gone, t)
		}
	}
	return gone, nil
}
