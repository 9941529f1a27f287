package replica

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
)

// counters count since start.
type counters struct {
	isrShrinks, isrExpands, failedISRUpdates atomic.Int64
	produceRequests, failedProduce           atomic.Int64
	fetchRequests, failedFetch               atomic.Int64
	followerFetches                          atomic.Int64
	fetcherErrors                            atomic.Int64
}

// topicStats counts one topic's traffic on this broker since its first partition came.
type topicStats struct {
	topic                              string
	partitions                         int // hosted; guarded by topicTable
	bytesIn, bytesOut, messagesIn      atomic.Int64
	failedProduce, failedFetch         atomic.Int64
	replicationBytesIn, replicationOut atomic.Int64
}

// topicTable has the stats of the topics with hosted partitions, and what those counted that have none any more: the broker's
// counters must not go back with a deletion.
type topicTable struct {
	sync.Mutex
	topics map[string]*topicStats
	gone   TopicMetrics
}

// join counts one more hosted partition of the topic.
func (t *topicTable) join(topic string) *topicStats {
	t.Lock()
	defer t.Unlock()
	s := t.topics[topic]
	if s == nil {
		s = &topicStats{topic: topic}
		t.topics[topic] = s
	}
	s.partitions++
	return s
}

// leave forgets the topic with its last partition.
func (t *topicTable) leave(topic string) {
	t.Lock()
	defer t.Unlock()
	if s := t.topics[topic]; s != nil {
		if s.partitions--; s.partitions == 0 {
			delete(t.topics, topic)
			t.gone.add(s.metrics())
		}
	}
}

// total sums up all topics, those that are gone among them.
func (t *topicTable) total() TopicMetrics {
	t.Lock()
	defer t.Unlock()
	sum := t.gone
	for _, s := range t.topics {
		sum.add(s.metrics())
	}
	return sum
}

func (s *topicStats) metrics() TopicMetrics {
	return TopicMetrics{
		Topic: s.topic, BytesIn: s.bytesIn.Load(), BytesOut: s.bytesOut.Load(), MessagesIn: s.messagesIn.Load(),
		ReplicationBytesIn: s.replicationBytesIn.Load(), ReplicationBytesOut: s.replicationOut.Load(),
		FailedProduce: s.failedProduce.Load(), FailedFetch: s.failedFetch.Load(),
	}
}

// Metrics are counters since start, and gauges taken at the call (Kafka's names in comments where they differ).
type Metrics struct {
	PartitionCount, LeaderCount int
	OfflineReplicaCount         int
	UnderReplicated             int // UnderReplicatedPartitions: led, with fewer ISR members than replicas
	UnderMinISR, AtMinISR       int
	Reassigning                 int
	ISRShrinks, ISRExpands      int64
	FailedISRUpdates            int64
	DelayedProduce              int64 // waiting now
	DelayedFetch                int64
	DelayedDeleteRecords        int64
	ExpiredProduce              int64
	ExpiredFetch                int64
	ProduceRequests             int64 // partitions of produce requests
	FailedProduce               int64
	FetchRequests               int64 // partitions of fetch requests that were read
	FailedFetch                 int64
	BytesIn, BytesOut           int64 // clients
	MessagesIn                  int64
	ReplicationBytesIn          int64
	ReplicationBytesOut         int64
	FetcherErrors               int64
	Fetchers                    int
	FailedPartitions            int   // follower partitions whose fetcher gave up until new metadata comes
	MaxLag                      int64 // most messages any follower partition here is behind
	LogDirMoves                 int   // replicas on their way to another log dir
	LogDirMovesMaxLag           int64 // most messages any of them is short of
	LogDirMovesFailed           int   // of them, those whose last step failed
}

// Metrics computes the current metrics; it walks all hosted partitions.
func (m *Manager) Metrics() Metrics {
	c := &m.counters
	out := Metrics{
		ISRShrinks: c.isrShrinks.Load(), ISRExpands: c.isrExpands.Load(), FailedISRUpdates: c.failedISRUpdates.Load(),
		DelayedProduce: m.produces.waiting.Load(), DelayedFetch: m.fetches.waiting.Load(), DelayedDeleteRecords: m.deletes.waiting.Load(),
		ExpiredProduce: m.produces.expired.Load(), ExpiredFetch: m.fetches.expired.Load(),
		ProduceRequests: c.produceRequests.Load(), FailedProduce: c.failedProduce.Load(),
		FetchRequests: c.fetchRequests.Load(), FailedFetch: c.failedFetch.Load(), FetcherErrors: c.fetcherErrors.Load(),
	}
	out.Fetchers, out.FailedPartitions, out.MaxLag = m.fetchers.gauges()
	out.LogDirMoves, out.LogDirMovesMaxLag, out.LogDirMovesFailed = m.moves.gauges()
	all := m.topics.total()
	out.BytesIn, out.BytesOut, out.MessagesIn = all.BytesIn, all.BytesOut, all.MessagesIn
	out.ReplicationBytesIn, out.ReplicationBytesOut = all.ReplicationBytesIn, all.ReplicationBytesOut
	online, offline := m.online()
	out.PartitionCount, out.OfflineReplicaCount = len(online)+offline, offline
	for _, p := range online {
		p.addTo(&out)
	}
	return out
}

func (p *Partition) addTo(out *Metrics) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.isLeaderLocked() {
		return
	}
	out.LeaderCount++
	isr, minISR := len(p.mu.isr.committed), p.minISRLocked()
	if len(p.mu.assignment.Replicas)-len(p.mu.assignment.Adding) > isr {
		out.UnderReplicated++
	}
	switch {
	case isr < minISR:
		out.UnderMinISR++
	case isr == minISR:
		out.AtMinISR++
	}
	if p.mu.assignment.BeingReassigned() {
		out.Reassigning++
	}
}

// LastFollowerFetch is the time of the last fetch by a follower from a partition that is led here; zero when there was none.
func (m *Manager) LastFollowerFetch() time.Time {
	var last time.Time
	online, _ := m.online()
	for _, p := range online {
		p.followers.Lock()
		for i := range p.followers.list {
			last = later(last, p.followers.list[i].fetchTime)
		}
		p.followers.Unlock()
	}
	return last
}

// TopicMetrics is one topic's traffic on this broker.
type TopicMetrics struct {
	Topic                                   string
	BytesIn, BytesOut, MessagesIn           int64
	ReplicationBytesIn, ReplicationBytesOut int64
	FailedProduce, FailedFetch              int64
}

// TopicMetrics lists topics with hosted partitions, busiest first, at most limit of them (negative: all). The others are
// summed up under the empty name, so that the number of series stays bounded.
func (m *Manager) TopicMetrics(limit int) []TopicMetrics {
	m.topics.Lock()
	all := make([]TopicMetrics, 0, len(m.topics.topics))
	for _, s := range m.topics.topics {
		all = append(all, s.metrics())
	}
	m.topics.Unlock()
	slices.SortFunc(all, func(a, b TopicMetrics) int {
		if x, y := a.BytesIn+a.BytesOut, b.BytesIn+b.BytesOut; x != y {
			if x > y {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Topic, b.Topic)
	})
	if limit < 0 || len(all) <= limit {
		return all
	}
	var rest TopicMetrics
	for _, t := range all[limit:] {
		rest.add(t)
	}
	return append(all[:limit:limit], rest)
}

func (t *TopicMetrics) add(o TopicMetrics) {
	t.BytesIn += o.BytesIn
	t.BytesOut += o.BytesOut
	t.MessagesIn += o.MessagesIn
	t.ReplicationBytesIn += o.ReplicationBytesIn
	t.ReplicationBytesOut += o.ReplicationBytesOut
	t.FailedProduce += o.FailedProduce
	t.FailedFetch += o.FailedFetch
}

func brokerIDs(in []int32) []cluster.BrokerID {
	out := make([]cluster.BrokerID, len(in))
	for i, id := range in {
		out[i] = cluster.BrokerID(id)
	}
	return out
}
