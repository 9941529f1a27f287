package commitlog

import (
	"slices"
	"sync"

	"klamm/internal/cluster"
)

// epochEntry tells at which offset a leader epoch starts.
type epochEntry struct {
	epoch cluster.LeaderEpoch
	start int64
}

// epochCache holds a log's leader epochs (Kafka: LeaderEpochFileCache). Its file is written behind the appends: until it is, recovery
// finds the epochs in the batch headers, and the recovery point never passes an epoch that is not durable.
//
// Invariant: both epochs and start offsets strictly increase.
type epochCache struct {
	mu      sync.Mutex // guards the fields below; no IO under it
	entries []epochEntry
	version int // counts changes
	saved   int // version in the file
	synced  int // version durable in the file
}

// assign notes that an epoch starts at an offset, dropping entries that contradict it. It reports whether anything changed.
func (c *epochCache) assign(epoch cluster.LeaderEpoch, start int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.entries); n > 0 {
		if last := c.entries[n-1]; last.epoch == epoch && start >= last.start {
			return false
		}
	}
	for n := len(c.entries); n > 0 && (c.entries[n-1].epoch >= epoch || c.entries[n-1].start >= start); n-- {
		c.entries = c.entries[:n-1]
	}
	c.entries = append(c.entries, epochEntry{epoch, start})
	c.version++
	return true
}

// confirm makes the cache agree with a batch found on disk at an offset. The epoch file may be ahead of the batches after a power cut: it is
// made durable before a truncated part of the log is, and then older batches are in the place of those that it tells of.
func (c *epochCache) confirm(epoch cluster.LeaderEpoch, at int64) {
	if known, ok := c.forOffset(at); ok && known == epoch {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	n := len(c.entries)
	for n > 0 && (c.entries[n-1].start >= at || c.entries[n-1].epoch > epoch) {
		n--
	}
	c.entries = c.entries[:n]
	if n == 0 || c.entries[n-1].epoch < epoch {
		c.entries = append(c.entries, epochEntry{epoch, at})
	}
}

func (c *epochCache) latest() (epochEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) == 0 {
		return epochEntry{cluster.NoLeaderEpoch, -1}, false
	}
	return c.entries[len(c.entries)-1], true
}

// earliest returns the first entry.
func (c *epochCache) earliest() (epochEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) == 0 {
		return epochEntry{cluster.NoLeaderEpoch, -1}, false
	}
	return c.entries[0], true
}

// endOffset returns the largest known epoch at or below the asked one and the offset after its last record (KIP-279); -1, -1 when undefined.
func (c *epochCache) endOffset(epoch cluster.LeaderEpoch, logEnd int64) (cluster.LeaderEpoch, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.entries)
	if epoch < 0 || n == 0 {
		return cluster.NoLeaderEpoch, -1
	}
	if c.entries[n-1].epoch == epoch {
		return epoch, logEnd
	}
	higher := slices.IndexFunc(c.entries, func(e epochEntry) bool { return e.epoch > epoch })
	switch higher {
	case -1: // the asked epoch is newer than any here
		return cluster.NoLeaderEpoch, -1
	case 0: // older than any here: it ends where the first one starts
		return epoch, c.entries[0].start
	}
	return c.entries[higher-1].epoch, c.entries[higher].start
}

// forOffset returns the epoch that an offset belongs to.
func (c *epochCache) forOffset(offset int64) (cluster.LeaderEpoch, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.entries) - 1; i >= 0; i-- {
		if c.entries[i].start <= offset {
			return c.entries[i].epoch, true
		}
	}
	return cluster.NoLeaderEpoch, false
}

// truncateFromEnd drops epochs that start at or after the log's new end.
func (c *epochCache) truncateFromEnd(end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := len(c.entries); n > 0 && c.entries[n-1].start >= end; n-- {
		c.entries = c.entries[:n-1]
		c.version++
	}
}

// dropUnused drops epochs that start at or after the log's end: no batch has them. The file may keep them, since loading drops them too
// (Kafka: UnifiedLog.initializeLeaderEpochCache) and the first batch at that offset replaces them; a broker that hands over thousands of
// partitions without having written to them need not write thousands of files.
func (c *epochCache) dropUnused(end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := len(c.entries); n > 0 && c.entries[n-1].start >= end; n-- {
		c.entries = c.entries[:n-1]
	}
}

// truncateFromStart drops epochs that end before the log's new start; the one that contains it then starts there.
func (c *epochCache) truncateFromStart(start int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.entries) && c.entries[n].start <= start {
		n++
	}
	if n == 0 || n == 1 && c.entries[0].start == start {
		return
	}
	c.entries = slices.Clone(c.entries[n-1:])
	c.entries[0].start = start
	c.version++
}

func (c *epochCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) > 0 {
		c.entries = nil
		c.version++
	}
}

// pending returns what the file should hold; want is false when it already does, durably if asked so.
func (c *epochCache) pending(durably bool) (data []byte, version int, want bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.saved
	if durably {
		have = c.synced
	}
	if have == c.version {
		return nil, 0, false
	}
	return encodeEpochs(c.entries), c.version, true
}

// wrote notes that the file holds a version.
func (c *epochCache) wrote(version int, durably bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved = max(c.saved, version)
	if durably {
		c.synced = max(c.synced, version)
	}
}
