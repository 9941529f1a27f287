// Package commitlog keeps partitions' records on disk in Apache Kafka's format: one Log per partition, one Manager for all logs of the
// broker's log dirs.
//
// A log is a directory <topic>-<partition> of segments (<base>.log with .index, .timeindex and .txnindex), leader-epoch-checkpoint,
// partition.metadata and producer snapshots; a log dir holds those directories, meta.properties, four offset checkpoints, .lock, and after a
// clean stop .kafka_cleanshutdown. All of it is Kafka 3.9's byte for byte, so that either program can take over the other's directory.
// The formats are described where they are written: index.go, txnindex.go, snapshot.go, checkpoint.go, meta.go.
//
// # What survives
//
// An append is one write into the page cache; it survives the death of the process. What lies below the recovery point also survives a
// power cut. A start without the clean mark checks everything from the recovery point on and cuts the log at the first bad batch. Files
// that can be told from the batches (indexes, leader epochs, producer snapshots) are written behind the append; a deletion is one rename
// per partition, made durable before Delete returns.
//
// A log that has been silent for a while is settled: its files are completed as at a clean stop, without a sync (settle.go). A stop then syncs
// it and touches none of its files, and recovery after a crash finds them right and leaves them alone.
//
// A log that was created but never appended to exists in memory only.
//
// # Failures
//
// A file error fails its log dir, once: its logs leave the manager and answer *StorageError, other dirs go on, Options.OnDirFailure is told.
// An error while a log is being deleted fails nothing: it is the deletion's.
//
// # Locks, outermost first
//
// Manager.mu (maps and queues; no IO) is never held while another is taken. Log.mu orders one log's appends, rolls, truncations and
// deletion and is held across their file writes. Log.saving, segment.files, index.mu and Log.marks are leaves.
package commitlog

import (
	"log/slog"
	"os"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/vfs"
)

// DirSpec is one of the broker's log dirs.
type DirSpec struct {
	Path string
	FS   vfs.FS // nil: the dir is offline from the start
	Err  error  // why FS is nil
}

// OpenDirs creates missing directories and opens them. A dir that cannot be opened is returned with its error: the broker starts without it
// as long as another one works.
func OpenDirs(paths []string) []DirSpec {
	out := make([]DirSpec, 0, len(paths))
	for _, p := range paths {
		d := DirSpec{Path: p}
		if d.Err = os.MkdirAll(p, vfs.DirPerm); d.Err == nil {
			var fsys *vfs.OS
			if fsys, d.Err = vfs.OpenOS(p); d.Err == nil {
				d.FS = fsys
			}
		}
		out = append(out, d)
	}
	return out
}

// Options configure a Manager; zero durations mean Kafka's defaults.
type Options struct {
	Dirs      []DirSpec
	BrokerID  cluster.BrokerID
	ClusterID string
	// LogConfig gives a topic's configuration in force; it is asked at start, at creation and by UpdateConfig.
	LogConfig func(topic string) *config.LogConfig
	Log       *slog.Logger
	// Deleted reports whether a log is one of a topic that was deleted while its log dir was away: when the partition is found in
	// two dirs, that one goes. Asked at start only; nil for none.
	Deleted func(tp cluster.TopicPartition, id cluster.TopicID) bool
	// OnDirFailure is called once per failed dir, by Run, after the dir's logs left the manager.
	OnDirFailure func(dir string, err error)

	RecoveryThreads            int                  // num.recovery.threads.per.data.dir
	DeleteDelay                func() time.Duration // the broker's log.segment.delete.delay.ms
	InitialTaskDelay           time.Duration        // log.initial.task.delay.ms
	RetentionInterval          time.Duration        // log.retention.check.interval.ms
	FlushInterval              time.Duration        // log.flush.scheduler.interval.ms; unset or config.Forever: logs' flush.ms is looked at every second
	CheckpointInterval         time.Duration        // log.flush.offset.checkpoint.interval.ms
	LogStartCheckpointInterval time.Duration        // log.flush.start.offset.checkpoint.interval.ms
	ProducerIDExpiration       func() time.Duration // producer.id.expiration.ms
	ProducerIDCheckInterval    time.Duration        // producer.id.expiration.check.interval.ms
	CleanerEnable              bool                 // log.cleaner.enable
	CleanerBackoff             func() time.Duration // log.cleaner.backoff.ms
	CleanerDedupeBytes         func() int64         // log.cleaner.dedupe.buffer.size
}

func (o *Options) setDefaults() {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&o.InitialTaskDelay, 30*time.Second)
	set(&o.RetentionInterval, 5*time.Minute)
	if o.FlushInterval == config.Forever {
		o.FlushInterval = 0 // Kafka's default, under which it ignores a topic's flush.ms
	}
	set(&o.FlushInterval, time.Second)
	set(&o.CheckpointInterval, time.Minute)
	set(&o.LogStartCheckpointInterval, time.Minute)
	set(&o.ProducerIDCheckInterval, 10*time.Minute)
	if o.CleanerBackoff == nil {
		o.CleanerBackoff = func() time.Duration { return 15 * time.Second }
	}
	if o.CleanerDedupeBytes == nil {
		o.CleanerDedupeBytes = func() int64 { return 128 << 20 }
	}
	if o.RecoveryThreads <= 0 {
		o.RecoveryThreads = 1
	}
	if o.DeleteDelay == nil {
		o.DeleteDelay = func() time.Duration { return time.Minute }
	}
	if o.ProducerIDExpiration == nil {
		o.ProducerIDExpiration = func() time.Duration { return 24 * time.Hour }
	}
	if o.OnDirFailure == nil {
		o.OnDirFailure = func(string, error) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}
