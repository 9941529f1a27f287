package quota

import (
	"maps"
	"sync"
	"time"
)

// bucketKey names a measurement: the parts of the client that the limit looks at.
type bucketKey Client

const (
	// idleMax is how long a measurement without use is kept, for the metrics (Kafka: InactiveSensorExpirationTimeSeconds).
	idleMax = time.Hour
	// manyBuckets is from how many measurements on those that no longer count are dropped at once: client ids are the
	// clients' choice.
	manyBuckets = 10_000
	// sweepPause is the shortest time between two looks for measurements to drop.
	sweepPause = time.Minute
)

// buckets are the measurements of one kind.
type buckets struct {
	mu struct {
		sync.Mutex
		of    map[bucketKey]*bucket
		swept time.Duration
	}
}

// get finds or begins a measurement. window is how long a use counts.
func (b *buckets) get(key bucketKey, now, window time.Duration) *bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.mu.of[key]
	if found != nil {
		return found
	}
	if now-b.mu.swept >= sweepPause {
		b.sweepLocked(now, window)
	}
	if b.mu.of == nil {
		b.mu.of = map[bucketKey]*bucket{}
	}
	found = &bucket{}
	found.last.Store(int64(now))
	b.mu.of[key] = found
	return found
}

// sweepLocked drops what was not used for long. Whoever holds a dropped one still uses it, once.
func (b *buckets) sweepLocked(now, window time.Duration) {
	b.mu.swept = now
	keep := idleMax
	if len(b.mu.of) > manyBuckets {
		keep = window
	}
	maps.DeleteFunc(b.mu.of, func(_ bucketKey, m *bucket) bool { return now-time.Duration(m.last.Load()) > keep })
}

// all copies the map, for the metrics.
func (b *buckets) all() map[bucketKey]*bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.mu.of)
}
