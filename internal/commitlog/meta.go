package commitlog

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

const (
	metaFile          = "meta.properties"
	partitionMetaFile = "partition.metadata"
)

// MetaProperties is what a log dir's meta.properties says of its owner.
type MetaProperties struct {
	Version     int
	ClusterID   string           // "" when absent
	BrokerID    cluster.BrokerID // NoBroker when absent
	DirectoryID string           // "" when absent; kept when the file is rewritten
}

// MetaMismatchError tells that a log dir belongs to another cluster or broker, or has a version this broker does not read.
type MetaMismatchError struct {
	File   string
	Key    string // cluster.id, broker.id or version
	Stored string
	Wanted string
}

// Error names both values and the file.
func (e *MetaMismatchError) Error() string {
	return fmt.Sprintf("%s: stored %s %q does not match the configured %q", e.File, e.Key, e.Stored, e.Wanted)
}

// encode writes the file as Kafka in ZooKeeper mode does: an empty comment, the date as a comment, then the properties.
func (m MetaProperties) encode(now time.Time) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "#\n#%s\n", now.UTC().Format("Mon Jan 02 15:04:05 MST 2006"))
	fmt.Fprintf(&b, "broker.id=%d\nversion=%d\n", m.BrokerID, m.Version)
	if m.DirectoryID != "" {
		fmt.Fprintf(&b, "directory.id=%s\n", m.DirectoryID)
	}
	fmt.Fprintf(&b, "cluster.id=%s\n", m.ClusterID)
	return b.Bytes()
}

// decodeMeta reads Java properties of the simple kind that Kafka writes here: key=value or key:value lines and comments.
func decodeMeta(data []byte) (MetaProperties, error) {
	m := MetaProperties{BrokerID: cluster.NoBroker}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		sep := strings.IndexAny(line, "=:")
		if sep < 0 {
			return m, fmt.Errorf("line %q is not key=value", line)
		}
		key, value := strings.TrimSpace(line[:sep]), strings.TrimSpace(line[sep+1:])
		switch key {
		case "version":
			v, err := strconv.Atoi(value)
			if err != nil || v < 0 {
				return m, fmt.Errorf("version %q is not a number", value)
			}
			m.Version = v
		case "broker.id", "node.id":
			id, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return m, fmt.Errorf("%s %q is not a number", key, value)
			}
			m.BrokerID = cluster.BrokerID(id)
		case "cluster.id":
			m.ClusterID = value
		case "directory.id":
			m.DirectoryID = value
		}
	}
	return m, sc.Err()
}

// readMetaOf reads one dir's file; found is false when there is none.
func readMetaOf(fsys vfs.FS) (m MetaProperties, found bool, err error) {
	data, err := vfs.ReadFile(fsys, metaFile)
	if isNotExist(err) {
		return MetaProperties{BrokerID: cluster.NoBroker}, false, nil
	}
	if err != nil {
		return m, false, err
	}
	file := fsys.Path() + "/" + metaFile
	if m, err = decodeMeta(data); err != nil {
		return m, false, fmt.Errorf("%s: %w", file, err)
	}
	if m.Version != 0 {
		return m, false, &MetaMismatchError{File: file, Key: "version", Stored: strconv.Itoa(m.Version), Wanted: "0"}
	}
	return m, true, nil
}

// ReadMeta reads meta.properties of all dirs before the manager opens, so that the stored broker id and cluster id are known; dirs
// without the file and dirs that cannot be read are left out. found is false if none has it. *MetaMismatchError when two dirs disagree
// or a file is of the KRaft version 1.
func ReadMeta(dirs []DirSpec) (m MetaProperties, found bool, err error) {
	m.BrokerID = cluster.NoBroker
	for _, d := range dirs {
		if d.FS == nil {
			continue
		}
		one, there, err := readMetaOf(d.FS)
		if err != nil {
			return m, false, err
		}
		if !there {
			continue
		}
		if !found {
			m, found = one, true
			continue
		}
		if err := one.mustMatch(d.FS, m.ClusterID, m.BrokerID); err != nil {
			return m, false, err
		}
	}
	return m, found, nil
}

// mustMatch compares with what is wanted; absent values match anything.
func (m MetaProperties) mustMatch(fsys vfs.FS, clusterID string, broker cluster.BrokerID) error {
	file := fsys.Path() + "/" + metaFile
	if m.ClusterID != "" && clusterID != "" && m.ClusterID != clusterID {
		return &MetaMismatchError{File: file, Key: "cluster.id", Stored: m.ClusterID, Wanted: clusterID}
	}
	if m.BrokerID != cluster.NoBroker && broker != cluster.NoBroker && m.BrokerID != broker {
		return &MetaMismatchError{File: file, Key: "broker.id", Stored: strconv.Itoa(int(m.BrokerID)), Wanted: strconv.Itoa(int(broker))}
	}
	return nil
}

// claimMeta checks a dir's file against this broker and writes it where it is missing or incomplete.
func claimMeta(fsys vfs.FS, clusterID string, broker cluster.BrokerID) error {
	m, found, err := readMetaOf(fsys)
	if err != nil {
		return err
	}
	if err := m.mustMatch(fsys, clusterID, broker); err != nil {
		return err
	}
	want := MetaProperties{ClusterID: clusterID, BrokerID: broker, DirectoryID: m.DirectoryID}
	if found && m == want {
		return nil
	}
	return vfs.WriteFileAtomic(fsys, metaFile, want.encode(time.Now()))
}

// encodePartitionMeta writes partition.metadata; Kafka ends it without a newline.
func encodePartitionMeta(id cluster.TopicID) []byte {
	return []byte("version: 0\ntopic_id: " + id.String())
}

// decodePartitionMeta reads partition.metadata; an empty file, which a crash can leave, gives the zero id.
func decodePartitionMeta(data []byte) (cluster.TopicID, error) {
	if len(data) == 0 {
		return cluster.TopicID{}, nil
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) != 2 {
		return cluster.TopicID{}, fmt.Errorf("%d lines, not 2", len(lines))
	}
	version := strings.Fields(lines[0])
	if len(version) != 2 || version[0] != "version:" {
		return cluster.TopicID{}, fmt.Errorf("malformed line %q", lines[0])
	}
	if v, err := strconv.Atoi(version[1]); err != nil || v < 0 {
		return cluster.TopicID{}, fmt.Errorf("unknown version %q", version[1])
	}
	topic := strings.Fields(lines[1])
	if len(topic) != 2 || topic[0] != "topic_id:" {
		return cluster.TopicID{}, fmt.Errorf("malformed line %q", lines[1])
	}
	id, err := cluster.ParseTopicID(topic[1])
	if err != nil {
		return id, err
	}
	if id.IsZero() {
		return id, fmt.Errorf("the zero topic id is not allowed")
	}
	return id, nil
}
