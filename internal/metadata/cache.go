// Package metadata is a broker's view of the cluster: which brokers live, which topics and partitions exist, who leads.
// The controller tells it by UpdateMetadata requests and nothing else changes it (Kafka: ZkMetadataCache).
//
// Readers load an immutable Image through an atomic pointer and take no lock. An update builds the next image from the
// last one and copies only what it touches: the touched topics, their shards of the topic tables, and the list of names
// when topics come or go.
//
// Locks: Cache.mu guards the waiters and is held for no callback, no IO and no channel operation that could block.
// applyMu serialises updates; order: applyMu before mu.
package metadata

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// Changes says what an update did.
type Changes struct {
	// Removed lists the partitions that the controller announced as deleted, in the request's order, known here or not:
	// the group coordinator forgets committed offsets of them.
	Removed []cluster.TopicPartition
	// Topics names every topic of which the request spoke, in its order.
	Topics []string
	// Partitions lists every partition that was added or replaced, in the request's order.
	Partitions []cluster.TopicPartition
}

// Cache holds the current Image. All methods are safe for concurrent use.
type Cache struct {
	log     *slog.Logger
	applyMu sync.Mutex // one update at a time
	image   atomic.Pointer[Image]
	waiters waiters
}

// New returns an empty cache: no broker, no topic, no controller, generation 0.
func New(log *slog.Logger) *Cache {
	c := &Cache{log: log}
	c.image.Store(&Image{controller: cluster.NoBroker})
	c.waiters.init()
	return c
}

// Image returns the current image. It never returns nil.
func (c *Cache) Image() *Image { return c.image.Load() }

// Apply takes over an UpdateMetadata request of version 0 to 8 and returns what it changed. Broker epoch and controller
// epoch are the caller's to check (replica's common gate). The request is not kept.
//
// Live brokers and the controller are replaced; partition entries are a delta, where leader -2 removes the partition and
// the last partition takes its topic along; a listed topic's id is set, or removed when it is listed without one.
func (c *Cache) Apply(req *kmsg.UpdateMetadataRequest) Changes {
	c.applyMu.Lock()
	defer c.applyMu.Unlock()
	u := newUpdate(c.image.Load())
	u.setRound(req)
	u.setBrokers(req)
	if listenersDiffer(u.next.brokers) {
		c.log.Error("listeners are not identical across brokers", "controller_epoch", req.ControllerEpoch)
	}
	for _, t := range topicStates(req) {
		u.applyTopic(t)
	}
	c.image.Store(u.finish())
	c.waiters.touched(u.changes.Topics)
	return u.changes
}

// Forget removes topics that turned out to be deleted (see Image.Unconfirmed), each only if the cache still holds that very
// value: a topic announced meanwhile stays. It returns what was removed, as Apply does.
func (c *Cache) Forget(topics []*Topic) Changes {
	c.applyMu.Lock()
	defer c.applyMu.Unlock()
	u := newUpdate(c.image.Load())
	for _, t := range topics {
		if now, ok := u.next.Topic(t.Name); !ok || now != t {
			continue
		}
		u.changes.Topics = append(u.changes.Topics, t.Name)
		for _, p := range t.Partitions {
			u.changes.Removed = append(u.changes.Removed, cluster.TopicPartition{Topic: t.Name, Partition: p.Index})
		}
		u.next.partitions -= len(t.Partitions)
		u.removeTopic(t)
	}
	if len(u.changes.Topics) == 0 {
		return u.changes
	}
	c.image.Store(u.finish())
	c.waiters.touched(u.changes.Topics)
	return u.changes
}

// listenersDiffer reports whether two brokers have different sets of listener names (Kafka logs it and goes on).
func listenersDiffer(brokers []cluster.Broker) bool {
	for _, b := range brokers[min(1, len(brokers)):] {
		if len(b.Endpoints) != len(brokers[0].Endpoints) {
			return true
		}
		for _, e := range brokers[0].Endpoints {
			if _, ok := b.Endpoint(e.Listener); !ok {
				return true
			}
		}
	}
	return false
}
