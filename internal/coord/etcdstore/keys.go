package etcdstore

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"klamm/internal/coord"
)

// A node is the key "<depth>:<path>", for instance "2:/brokers/topics". So the direct children of a node are one
// range of keys, however many nodes lie below them, and a tree is one range per depth.
// The counter of a parent's sequential children is the key "#:<path>", outside the range of nodes; its value is the
// next number in decimal. It outlives the parent, so numbers are never used again.
const (
	nodesBegin    = "0" // every node's key starts with a digit
	nodesEnd      = ":" // the byte after '9'
	counterPrefix = "#:"
)

// depthMax is the deepest node a tree may hold; Kafka's deepest is 6.
const depthMax = 12

func nodeKey(path string) string { return strconv.Itoa(coord.Depth(path)) + ":" + path }

func counterKey(parent string) string { return counterPrefix + parent }

func pathOfKey(key []byte) string {
	_, path, _ := strings.Cut(string(key), ":")
	return path
}

// keyRange is [begin, end).
type keyRange struct{ begin, end string }

func (r keyRange) option() clientv3.OpOption { return clientv3.WithRange(r.end) }

// childRange covers the direct children of a node.
func childRange(path string) keyRange { return depthRange(path, coord.Depth(path)+1) }

// depthRange covers the nodes below path at one depth.
func depthRange(path string, depth int) keyRange {
	if path == "/" {
		path = ""
	}
	prefix := strconv.Itoa(depth) + ":" + path
	return keyRange{prefix + "/", prefix + "0"} // '0' follows '/'
}

// exceptKeys splits a range at keys, which must be sorted, so that the pieces cover everything but them.
func (r keyRange) exceptKeys(keys []string) []keyRange {
	var out []keyRange
	for _, k := range keys {
		if r.begin != k {
			out = append(out, keyRange{r.begin, k})
		}
		r.begin = k + "\x00"
	}
	return append(out, r)
}

// A value is the node's data, except where the creation time is kept: then, and where the data itself starts with a
// zero byte, it is a zero byte, the creation time in milliseconds (8 bytes, big endian, 0 = not kept), the data.
const frameLen = 9

func encodeValue(data []byte, ctime time.Time) string {
	if ctime.IsZero() && (len(data) == 0 || data[0] != 0) {
		return string(data)
	}
	b := make([]byte, frameLen, frameLen+len(data))
	if !ctime.IsZero() {
		binary.BigEndian.PutUint64(b[1:], uint64(ctime.UnixMilli()))
	}
	return string(append(b, data...))
}

func decodeValue(v []byte) (data []byte, ctime time.Time) {
	if len(v) < frameLen || v[0] != 0 {
		return v, time.Time{}
	}
	if ms := binary.BigEndian.Uint64(v[1:]); ms != 0 {
		ctime = time.UnixMilli(int64(ms))
	}
	return v[frameLen:], ctime
}

// statOf reads what etcd knows of a key. The data version restarts at 0 with every creation, as etcd's at 1.
func statOf(kv *mvccpb.KeyValue) coord.Stat {
	return coord.Stat{
		Czxid: kv.CreateRevision, Mzxid: kv.ModRevision, Version: int32(kv.Version - 1), EphemeralOwner: kv.Lease,
	}
}

func nodeOf(path string, kv *mvccpb.KeyValue) coord.Node {
	n := coord.Node{Path: path, Stat: statOf(kv)}
	n.Data, n.Stat.Ctime = decodeValue(kv.Value)
	return n
}
