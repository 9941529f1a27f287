package replica

import (
	"context"
	"hash/fnv"
	"sync"

	"klamm/internal/cluster"
)

// fetcherKey names a fetcher: partitions of one leader are spread over NumFetchers ids. An express fetcher takes
// partitions that come while the main one is waiting for an answer, so that their first records need not wait for the
// end of its poll; the main fetcher takes them over before its next request.
type fetcherKey struct {
	leader  cluster.BrokerID
	id      int
	express bool
}

// fetcherManager owns the fetchers (Kafka: ReplicaFetcherManager). run starts their goroutines and waits for them.
type fetcherManager struct {
	m     *Manager
	dial  func(ctx context.Context, broker cluster.BrokerID) (Conn, error)
	start chan struct{}

	mu struct { // taken before a fetcher's lock
		sync.Mutex
		n        int
		fetchers map[fetcherKey]*fetcher
		unborn   []*fetcher // without a goroutine yet
	}
}

// followStart asks to follow a leader.
type followStart struct {
	tp     cluster.TopicPartition
	leader cluster.BrokerID
	epoch  cluster.LeaderEpoch
	id     cluster.TopicID
	p      *Partition
}

func newFetcherManager(m *Manager, dial func(context.Context, cluster.BrokerID) (Conn, error)) *fetcherManager {
	fm := &fetcherManager{m: m, dial: dial, start: make(chan struct{}, 1)}
	fm.mu.n = m.cfg.NumFetchers
	fm.mu.fetchers = map[fetcherKey]*fetcher{}
	return fm
}

// run starts fetchers as they come up, until the context ends, and waits for all of them.
func (fm *fetcherManager) run(ctx context.Context) {
	var fetchers sync.WaitGroup
	defer fetchers.Wait()
	for {
		fm.mu.Lock()
		unborn := fm.mu.unborn
		fm.mu.unborn = nil
		fm.mu.Unlock()
		for _, f := range unborn {
			fetchers.Go(func() { f.run(ctx) })
		}
		select {
		case <-ctx.Done():
			return
		case <-fm.start:
		}
	}
}

// fetcherID spreads partitions over fetchers, by topic and partition (Kafka: getFetcherId).
func fetcherID(tp cluster.TopicPartition, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(tp.Topic))
	return int((h.Sum32()*31 + uint32(tp.Partition)) % uint32(n))
}

// add starts following. The partitions were removed before.
func (fm *fetcherManager) add(starts []followStart) {
	fm.mu.Lock()
	defer fm.mu.Unlock()
	byKey := map[fetcherKey][]*followed{}
	for _, s := range starts {
		if part := fm.followed(s); part != nil {
			key := fetcherKey{leader: s.leader, id: fetcherID(s.tp, fm.mu.n)}
			if main := fm.mu.fetchers[key]; main != nil && main.polling.Load() {
				key.express = true
			}
			byKey[key] = append(byKey[key], part)
		}
	}
	for key, parts := range byKey {
		fm.getLocked(key).add(parts...)
	}
}

// followed works out where to start: at the log's end, given that the leader finds a divergence from the epoch of the
// last record; else the log is cut first, by epochs or to its high watermark.
func (fm *fetcherManager) followed(s followStart) *followed {
	log := s.p.Log()
	if log == nil {
		return nil
	}
	id := s.id
	if id.IsZero() {
		id = log.TopicID()
	}
	part := &followed{tp: s.tp, p: s.p, topicID: id, epoch: s.epoch, offset: log.LogEndOffset(), lastEpoch: cluster.NoLeaderEpoch, lag: -1}
	switch epoch, known := log.LatestEpoch(); {
	case known && fm.m.cfg.Versions.TruncationOnFetch:
		part.lastEpoch = epoch
	case known:
		part.truncating = log.LogEndOffset() > log.LogStartOffset()
	default:
		part.truncating = log.LogEndOffset() > log.HighWatermark()
	}
	return part
}

func (fm *fetcherManager) getLocked(key fetcherKey) *fetcher {
	f := fm.mu.fetchers[key]
	if f == nil {
		f = newFetcher(fm.m, key, fm.dial)
		fm.mu.fetchers[key] = f
		fm.mu.unborn = append(fm.mu.unborn, f)
		select {
		case fm.start <- struct{}{}:
		default:
		}
	}
	return f
}

// remove stops following the partitions. An answer that is being processed may still come to an append, which the
// partition's own check of leadership decides.
func (fm *fetcherManager) remove(tps []cluster.TopicPartition) {
	if len(tps) == 0 {
		return
	}
	fm.mu.Lock()
	defer fm.mu.Unlock()
	if len(fm.mu.fetchers) == 0 {
		return
	}
	for _, f := range fm.mu.fetchers {
		f.remove(tps)
	}
}

func (fm *fetcherManager) setTopicID(tp cluster.TopicPartition, id cluster.TopicID) {
	fm.mu.Lock()
	defer fm.mu.Unlock()
	for _, f := range fm.mu.fetchers {
		f.setTopicID(tp, id)
	}
}

// retire removes the fetcher if it has nothing to do; its goroutine ends then.
func (fm *fetcherManager) retire(f *fetcher) bool {
	fm.mu.Lock()
	defer fm.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.parts) > 0 {
		return false
	}
	delete(fm.mu.fetchers, f.key)
	return true
}

// adoptExpress moves the express fetcher's partitions to the main one. An answer on its way to the express fetcher no
// longer finds them there.
func (fm *fetcherManager) adoptExpress(main *fetcher) {
	if main.key.express {
		return
	}
	key := main.key
	key.express = true
	fm.mu.Lock()
	defer fm.mu.Unlock()
	if express := fm.mu.fetchers[key]; express != nil {
		if parts := express.takeAll(); len(parts) > 0 {
			main.add(parts...)
		}
		express.nudge()
	}
}

// resize changes the number of fetchers per leader and moves partitions to where they belong now.
func (fm *fetcherManager) resize(n int) {
	fm.mu.Lock()
	defer fm.mu.Unlock()
	if n == fm.mu.n {
		return
	}
	fm.mu.n = n
	moving := map[fetcherKey][]*followed{}
	for key, f := range fm.mu.fetchers {
		for _, part := range f.takeAll() {
			to := fetcherKey{leader: key.leader, id: fetcherID(part.tp, n)}
			moving[to] = append(moving[to], part)
		}
		f.nudge()
	}
	for key, parts := range moving {
		fm.getLocked(key).add(parts...)
	}
}

// gauges gives the number of fetchers, of partitions fenced by their leaders, and the largest lag.
func (fm *fetcherManager) gauges() (fetchers, fenced int, maxLag int64) {
	fm.mu.Lock()
	defer fm.mu.Unlock()
	for _, f := range fm.mu.fetchers {
		f.mu.Lock()
		for _, part := range f.mu.order {
			maxLag = max(maxLag, part.lag)
			if part.fenced {
				fenced++
			}
		}
		f.mu.Unlock()
	}
	return len(fm.mu.fetchers), fenced, maxLag
}
