package replica

import (
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
	TP        cluster.TopicPartition
	Size      int64 // bytes
	OffsetLag int64 // how far the log end lies behind the high watermark; -1 when the replica is not online
	Future    bool  // a copy on its way to another dir; never yet
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
	for _, log := range m.logs.Logs() {
		tp := log.TopicPartition()
		if dir := at[log.Dir()]; dir != nil && (want == nil || want(tp)) {
			dir.Replicas = append(dir.Replicas, LogDirReplica{TP: tp, Size: log.Size(), OffsetLag: m.offsetLag(tp, log)})
		}
	}
	return out
}

func (m *Manager) offsetLag(tp cluster.TopicPartition, log *commitlog.Log) int64 {
	if p, state := m.Partition(tp); state != HostedOnline || p.Log() == nil {
		return -1
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

// DescribeProducers lists the producers that a hosted partition remembers (DescribeProducers, KIP-664).
func (m *Manager) DescribeProducers(tp cluster.TopicPartition) ([]commitlog.ProducerState, cluster.ErrorCode) {
	log, _, code := m.LeaderLog(tp)
	if code != cluster.None {
		return nil, code
	}
	return log.ActiveProducers(), cluster.None
}
