package commitlog

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// Checkpoint files of a log dir.
const (
	highWatermarkFile  = "replication-offset-checkpoint"
	recoveryPointFile  = "recovery-point-offset-checkpoint"
	logStartFile       = "log-start-offset-checkpoint"
	cleanerFile        = "cleaner-offset-checkpoint"
	leaderEpochFile    = "leader-epoch-checkpoint" // of a partition's dir
	cleanShutdownFile  = ".kafka_cleanshutdown"
	lockFile           = ".lock"
	cleanShutdownMark  = `{"version":0,"brokerEpoch":-1}`
	checkpointVersion0 = "0"
)

// Every checkpoint has Kafka's frame: a line with the version 0, a line with the number of entries, and a line per entry whose fields
// are separated by white space (Kafka: CheckpointFile).

// encodeFrame puts the frame around n entry lines.
func encodeFrame(n int, lines []byte) []byte {
	out := make([]byte, 0, len(lines)+16)
	out = append(out, checkpointVersion0+"\n"...)
	out = strconv.AppendInt(out, int64(n), 10)
	out = append(out, '\n')
	return append(out, lines...)
}

// decodeFrame calls entry with the fields of each entry line. Empty input has no entries.
func decodeFrame(data []byte, fields int, entry func([]string) error) error {
	if len(data) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if v := strings.TrimSpace(lines[0]); v != checkpointVersion0 {
		return fmt.Errorf("line 1: unknown version %q", v)
	}
	if len(lines) < 2 {
		return nil // Kafka: takes it for empty
	}
	want, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || want < 0 {
		return fmt.Errorf("line 2: %q is not a number of entries", lines[1])
	}
	if got := len(lines) - 2; got != want {
		return fmt.Errorf("expected %d entries, found %d", want, got)
	}
	for i, line := range lines[2:] {
		f := strings.Fields(line)
		if len(f) != fields {
			return fmt.Errorf("line %d: %q has %d fields, not %d", i+3, line, len(f), fields)
		}
		if err := entry(f); err != nil {
			return fmt.Errorf("line %d: %w", i+3, err)
		}
	}
	return nil
}

// encodeOffsets writes "topic partition offset" lines sorted by partition.
func encodeOffsets(offsets map[cluster.TopicPartition]int64) []byte {
	tps := make([]cluster.TopicPartition, 0, len(offsets))
	for tp := range offsets {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	var b bytes.Buffer
	for _, tp := range tps {
		fmt.Fprintf(&b, "%s %d %d\n", tp.Topic, tp.Partition, offsets[tp])
	}
	return encodeFrame(len(tps), b.Bytes())
}

func decodeOffsets(data []byte) (map[cluster.TopicPartition]int64, error) {
	out := map[cluster.TopicPartition]int64{}
	err := decodeFrame(data, 3, func(f []string) error {
		p, err := strconv.ParseInt(f[1], 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a partition", f[1])
		}
		offset, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not an offset", f[2])
		}
		out[cluster.TopicPartition{Topic: f[0], Partition: int32(p)}] = offset
		return nil
	})
	return out, err
}

// readOffsets reads a checkpoint of a log dir; a missing file has no entries.
func readOffsets(fsys vfs.FS, name string) (map[cluster.TopicPartition]int64, error) {
	data, err := vfs.ReadFile(fsys, name)
	if isNotExist(err) {
		return map[cluster.TopicPartition]int64{}, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := decodeOffsets(data)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s/%s: %w", fsys.Path(), name, err)
	}
	return out, nil
}

func encodeEpochs(entries []epochEntry) []byte {
	var b []byte
	for _, e := range entries {
		b = strconv.AppendInt(b, int64(e.epoch), 10)
		b = append(b, ' ')
		b = strconv.AppendInt(b, e.start, 10)
		b = append(b, '\n')
	}
	return encodeFrame(len(entries), b)
}

func decodeEpochs(data []byte) ([]epochEntry, error) {
	var out []epochEntry
	err := decodeFrame(data, 2, func(f []string) error {
		epoch, err := strconv.ParseInt(f[0], 10, 32)
		if err != nil || epoch < 0 {
			return fmt.Errorf("%q is not a leader epoch", f[0])
		}
		start, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil || start < 0 {
			return fmt.Errorf("%q is not an offset", f[1])
		}
		out = append(out, epochEntry{cluster.LeaderEpoch(epoch), start})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b epochEntry) int { return int(a.epoch) - int(b.epoch) })
	return out, nil
}
