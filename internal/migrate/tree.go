// Package migrate copies the coordination state of a stopped cluster from one engine to another, and compares the two.
//
// What is copied are the persistent nodes with their data. Data versions and change ids are the target's own: all brokers
// are stopped, and a broker or controller that starts reads versions anew, also those of partition states, which are
// their partition epochs. One version means more than "has it changed": that of /brokers/seqid is the last broker id that
// was handed out, so it is carried over. What must not go back (controller epoch, leader epochs, topic ids, producer ids)
// is data.
//
// Not copied are: ephemeral nodes; notifications, which tell running brokers to read what they read at their start anyway,
// and whose numbers the target begins again; and /zookeeper, which is the engine's own.
package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"klamm/internal/coord"
)

// Tree is what is copied of a store.
type Tree struct {
	Nodes   []coord.Node // sorted by path, so parents come first
	Bytes   int64        // of data
	Skipped int          // notifications and ephemeral nodes left out
}

// ErrRunning reports that brokers still use the state.
var ErrRunning = errors.New("the cluster is not stopped")

// notificationRoots are the parents of sequential nodes.
var notificationRoots = []string{
	coord.ConfigChangesPath, coord.ISRChangePath, coord.LogDirEventPath,
	coord.ACLChangesPath, coord.ACLExtendedChangesPath, coord.DelegationTokenChangesPath,
}

func isNotification(path string) bool {
	for _, root := range notificationRoots {
		if strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}

// Read reads what is to be copied. ErrRunning when a broker is registered or in office, or the cluster migrates to KRaft.
func Read(ctx context.Context, s coord.Store, progress func(nodes int)) (Tree, error) {
	nodes, err := coord.ReadTree(ctx, s, coord.TreeReading{Skip: func(path string) bool { return path == "/zookeeper" }, Progress: progress})
	if err != nil {
		return Tree{}, err
	}
	var t Tree
	for _, n := range nodes {
		switch {
		case n.Path == coord.ControllerPath:
			return Tree{}, fmt.Errorf("%w: there is a controller (%s)", ErrRunning, n.Data)
		case strings.HasPrefix(n.Path, coord.BrokerIDsPath+"/"):
			return Tree{}, fmt.Errorf("%w: broker %s is registered; a broker that was killed is until its session ends", ErrRunning, coord.BaseName(n.Path))
		case n.Path == coord.MigrationPath:
			return Tree{}, fmt.Errorf("%w: %s says that it migrates to KRaft", ErrRunning, n.Path)
		case n.Stat.EphemeralOwner != 0, isNotification(n.Path):
			t.Skipped++
			continue
		}
		t.Nodes = append(t.Nodes, n)
		t.Bytes += int64(len(n.Data))
	}
	return t, nil
}

// Checksum is a SHA-256 over the paths and data of all nodes and the version of /brokers/seqid. Trees with the same
// checksum mean the same to brokers.
func (t Tree) Checksum() string {
	h := sha256.New()
	var size [4]byte
	put := func(b []byte) {
		binary.BigEndian.PutUint32(size[:], uint32(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	for _, n := range t.Nodes {
		put([]byte(n.Path))
		put(n.Data)
		if n.Path == coord.BrokerSequencePath {
			put(fmt.Append(nil, n.Stat.Version))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Count is how many nodes of a kind a tree has.
type Count struct {
	Kind  string
	Nodes int
}

// Counts gives the numbers of nodes by kind.
func (t Tree) Counts() []Count {
	out := []Count{{Kind: "topics"}, {Kind: "partition states"}, {Kind: "configs of topics"}, {Kind: "other configs, users and quotas"}, {Kind: "ACLs"}, {Kind: "delegation tokens"}, {Kind: "deletions"}, {Kind: "other nodes"}}
	for _, n := range t.Nodes {
		kind := 7
		_, isTopic := coord.ParseTopicPath(n.Path)
		_, isState := coord.ParsePartitionStatePath(n.Path)
		below := func(root string) bool { return strings.HasPrefix(n.Path, root+"/") }
		switch {
		case isTopic:
			kind = 0
		case isState:
			kind = 1
		case below(coord.ConfigTypePath(coord.TopicConfigs)):
			kind = 2
		case below(coord.ConfigPath) && len(n.Data) > 0:
			kind = 3
		case (below(coord.ACLPath) || below(coord.ACLExtendedPath)) && len(n.Data) > 0:
			kind = 4
		case below(coord.DelegationTokensPath):
			kind = 5
		case below(coord.DeleteTopicsPath):
			kind = 6
		}
		out[kind].Nodes++
	}
	return out
}
