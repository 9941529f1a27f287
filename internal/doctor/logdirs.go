package doctor

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"klamm/internal/cluster"
)

// LogDir is what lies in a log dir that the examination can read itself, on the broker's machine.
type LogDir struct {
	Path      string
	Err       string           // why it cannot be read; "" when it can
	Broker    cluster.BrokerID // whose it is by meta.properties; NoBroker when that is not there
	ClusterID string           // likewise, "" unknown
	Entries   []LogDirEntry    // its directories, by name
}

// LogDirEntry is a directory in a log dir.
type LogDirEntry struct {
	Name    string
	TopicID cluster.TopicID // by partition.metadata; zero unknown
	Bytes   int64
	Changed time.Time // when it got its name or a file of it came or went
}

// ReadLogDirs reads log dirs and changes nothing. What cannot be read is told by its LogDir.
func ReadLogDirs(paths []string) []LogDir {
	var out []LogDir
	for _, path := range paths {
		d := LogDir{Path: path, Broker: cluster.NoBroker}
		if err := d.read(); err != nil {
			d.Err = err.Error()
		}
		out = append(out, d)
	}
	return out
}

func (d *LogDir) read() error {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return err
	}
	if err := d.readMeta(); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		entry, err := readEntry(d.Path, e)
		if os.IsNotExist(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		d.Entries = append(d.Entries, entry)
	}
	return nil
}

// readMeta reads whose the dir is. KRaft's brokers call themselves nodes.
func (d *LogDir) readMeta() error {
	data, err := os.ReadFile(filepath.Join(d.Path, "meta.properties"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		key, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		switch key {
		case "broker.id", "node.id":
			id, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return err
			}
			d.Broker = cluster.BrokerID(id)
		case "cluster.id":
			d.ClusterID = value
		}
	}
	return nil
}

func readEntry(dir string, e fs.DirEntry) (LogDirEntry, error) {
	out := LogDirEntry{Name: e.Name()}
	info, err := e.Info()
	if err != nil {
		return out, err
	}
	out.Changed = changed(info)
	path := filepath.Join(dir, e.Name())
	files, err := os.ReadDir(path)
	if err != nil {
		return out, err
	}
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			out.Bytes += info.Size()
		} else if !os.IsNotExist(err) {
			return out, err
		}
	}
	meta, err := os.ReadFile(filepath.Join(path, "partition.metadata"))
	if err != nil {
		return out, nil // written late, and not by old releases
	}
	if _, id, ok := strings.Cut(string(meta), "topic_id:"); ok {
		out.TopicID, _ = cluster.ParseTopicID(strings.TrimSpace(id)) // a torn file tells no id
	}
	return out, nil
}

// suffixed are the directories that are no replicas any more, or not yet (Kafka: LocalLog.DeleteDirPattern and its siblings).
var suffixed = regexp.MustCompile(`^(\S+)\.\S+-(delete|stray|future)$`)

// kindOf takes a directory's name apart. kind is "" for a replica; ok is false for what is none of Kafka's.
func kindOf(name string) (tp cluster.TopicPartition, kind string, ok bool) {
	if m := suffixed.FindStringSubmatch(name); m != nil {
		name, kind = m[1], m[2]
	}
	dash := strings.LastIndexByte(name, '-')
	if dash < 1 {
		return tp, kind, false
	}
	n, err := strconv.ParseInt(name[dash+1:], 10, 32)
	return cluster.TopicPartition{Topic: name[:dash], Partition: int32(n)}, kind, err == nil && n >= 0
}
