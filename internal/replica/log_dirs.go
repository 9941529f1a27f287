package replica

import (
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// LogDirInfo describes one log dir. An offline one has KAFKA_STORAGE_ERROR and nothing else.
type LogDirInfo struct {
	Err                     cluster.ErrorCode
	Path                    string
	TotalBytes, UsableBytes int64 // of the file system; -1 unknown
	Replicas                []LogDirReplica
}

// LogDirReplica is one replica in a log dir.
type LogDirReplica struct {
	TP   cluster.TopicPartition
	Size int64 // bytes
	// OffsetLag is how far the log end lies behind the high watermark, or a copy's behind its log's; -1 when the replica is not online.
	OffsetLag int64
	Future    bool // a copy on its way to this dir
}

// DescribeLogDirs describes all log dirs with the wanted replicas, sorted by partition; nil wants all.
func (m *Manager) DescribeLogDirs(want func(cluster.TopicPartition) bool) []LogDirInfo {
	dirs := m.logs.Dirs()
	out := make([]LogDirInfo, len(dirs))
	at := make(map[string]*LogDirInfo, len(dirs))
	for i, d := range dirs {
		out[i] = LogDirInfo{Path: d.Path, TotalBytes: d.Usage.Total, UsableBytes: d.Usage.Usable}
		if !d.Online {
			out[i] = LogDirInfo{Path: d.Path, Err: cluster.KafkaStorageError, TotalBytes: -1, UsableBytes: -1}
			continue
		}
		at[d.Path] = &out[i]
	}
	futures := m.logs.Futures()
	for _, log := range append(m.logs.Logs(), futures...) {
		tp := log.TopicPartition()
		if dir := at[log.Dir()]; dir != nil && (want == nil || want(tp)) {
			r := LogDirReplica{TP: tp, Size: log.Size(), Future: slices.Contains(futures, log)}
			r.OffsetLag = m.offsetLag(log, r.Future)
			dir.Replicas = append(dir.Replicas, r)
		}
	}
	if len(futures) > 0 {
		for i := range out {
			slices.SortStableFunc(out[i].Replicas, func(a, b LogDirReplica) int { return a.TP.Compare(b.TP) })
		}
	}
	return out
}

func (m *Manager) offsetLag(log *commitlog.Log, future bool) int64 {
	p, state := m.Partition(log.TopicPartition())
	if state != HostedOnline {
		return -1
	}
	current := p.Log()
	switch {
	case current == nil:
		return -1
	case future:
		return current.LogEndOffset() - log.LogEndOffset()
	}
	return max(log.HighWatermark()-log.LogEndOffset(), 0)
}

// OfflineLogDirs lists the log dirs that have failed or could not be opened.
func (m *Manager) OfflineLogDirs() []string {
	var out []string
	for _, d := range m.logs.Dirs() {
		if !d.Online {
			out = append(out, d.Path)
		}
	}
	return out
}

// DescribeProducers lists the producers that a hosted partition, led or followed, remembers (KIP-664).
func (m *Manager) DescribeProducers(tp cluster.TopicPartition) ([]commitlog.ProducerState, cluster.ErrorCode) {
	p, code := m.lookup(tp)
	if code != cluster.None {
		return nil, code
	}
	log := p.Log()
	if log == nil {
		return nil, cluster.NotLeaderOrFollower
	}
	return log.ActiveProducers(), cluster.None
}

// StrayReplica is a log on this broker that no partition uses.
type StrayReplica struct {
	TP      cluster.TopicPartition
	TopicID cluster.TopicID // zero when the log has none
	Dir     string
	Size    int64 // bytes
	Reason  string
}

// StrayReplicas lists logs, and copies that were on their way to another log dir, that the controller has not asked for and, as far as this broker's metadata goes, will not:
// their topic is gone or another one of that name has taken its place, or the partition was moved away while this
// broker was down. Kafka leaves them on the disk without a word. Nothing is deleted here: the metadata may be behind.
// Before the first LeaderAndIsr and UpdateMetadata requests the list is empty.
func (m *Manager) StrayReplicas() []StrayReplica {
	image := m.metadata.Image()
	if !m.checkpointing.Load() || image.TopicCount() == 0 {
		return nil
	}
	var out []StrayReplica
	for _, log := range append(m.logs.Logs(), m.logs.Futures()...) {
		tp := log.TopicPartition()
		if _, state := m.Partition(tp); state != HostedNone {
			continue
		}
		stray := StrayReplica{TP: tp, TopicID: log.TopicID(), Dir: log.Dir(), Size: log.Size()}
		part, known := image.Partition(tp)
		switch id := image.TopicID(tp.Topic); {
		case !known:
			stray.Reason = "the partition does not exist"
		case !id.IsZero() && !stray.TopicID.IsZero() && id != stray.TopicID:
			stray.Reason = "the topic was deleted and created again"
		case !contains(part.Replicas, m.cfg.BrokerID):
			stray.Reason = "this broker is not a replica of the partition"
		default:
			continue // a LeaderAndIsr request is on its way
		}
		out = append(out, stray)
	}
	return out
}
