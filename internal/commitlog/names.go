package commitlog

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"klamm/internal/cluster"
)

// Suffixes of the files in a partition's directory (Kafka: LogFileUtils).
const (
	logSuffix       = ".log"
	indexSuffix     = ".index"
	timeIndexSuffix = ".timeindex"
	txnIndexSuffix  = ".txnindex"
	snapshotSuffix  = ".snapshot"
	deletedSuffix   = ".deleted" // waits for its physical removal
	cleanedSuffix   = ".cleaned" // a compaction's unfinished output
	swapSuffix      = ".swap"    // a compaction's finished output, being moved into place
)

const (
	deleteDirSuffix = "-delete"
	strayDirSuffix  = "-stray"
	futureDirSuffix = "-future"
)

// maxFileName is what file systems allow for one name, in bytes.
const maxFileName = 255

// Kafka: LocalLog.DeleteDirPattern and its siblings.
var specialDirPattern = regexp.MustCompile(`^(\S+)-(\S+)\.(\S+)-(delete|future|stray)$`)

// fileName gives the 20-digit name of a segment's or snapshot's file.
func fileName(offset int64, suffix string) string {
	var b [48]byte
	digits := strconv.AppendInt(b[:0], offset, 10)
	out := make([]byte, 0, 20+len(suffix))
	for range 20 - len(digits) {
		out = append(out, '0')
	}
	out = append(out, digits...)
	return string(append(out, suffix...))
}

// parseFileName splits a name at the first dot after its digits; ok is false for names that are no offset's.
func parseFileName(name string) (offset int64, suffix string, ok bool) {
	dot := strings.IndexByte(name, '.')
	if dot < 1 || name[0] == '+' || name[0] == '-' {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(name[:dot], 10, 64)
	return offset, name[dot:], err == nil
}

// parsePartitionDir reads "topic-partition".
func parsePartitionDir(name string) (cluster.TopicPartition, bool) {
	dash := strings.LastIndexByte(name, '-')
	if dash < 1 {
		return cluster.TopicPartition{}, false
	}
	p, err := strconv.ParseInt(name[dash+1:], 10, 32)
	if err != nil || p < 0 || name[dash+1] == '+' || cluster.ValidateTopicName(name[:dash]) != nil {
		return cluster.TopicPartition{}, false
	}
	return cluster.TopicPartition{Topic: name[:dash], Partition: int32(p)}, true
}

// deleteDirName gives a fresh "<topic>-<p>.<uuid>-delete". Where that is longer than a file name may be, the topic part is cut
// (Kafka: LocalLog.logDirNameWithSuffixCappedLength).
func deleteDirName(tp cluster.TopicPartition) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // crypto/rand.Read never fails
	tail := "-" + strconv.Itoa(int(tp.Partition)) + "." + hex.EncodeToString(id[:]) + deleteDirSuffix
	return tp.Topic[:min(len(tp.Topic), maxFileName-len(tail))] + tail
}

// futureDirName gives a fresh "<topic>-<p>.<uuid>-future". It is not cut: the name tells the partition (Kafka: LocalLog.logFutureDirName).
func futureDirName(tp cluster.TopicPartition) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // crypto/rand.Read never fails
	return tp.String() + "." + hex.EncodeToString(id[:]) + futureDirSuffix
}

// parseFutureDir reads "<topic>-<p>.<uuid>-future".
func parseFutureDir(name string) (cluster.TopicPartition, bool) {
	if !isSpecialDir(name, futureDirSuffix) {
		return cluster.TopicPartition{}, false
	}
	return parsePartitionDir(name[:strings.LastIndexByte(name, '.')])
}

func isSpecialDir(name, suffix string) bool {
	return strings.HasSuffix(name, suffix) && specialDirPattern.MatchString(name)
}
