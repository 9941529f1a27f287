package api

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/metadata"
)

// topicAdmin creates and deletes topics and adds partitions by writing to the coordination store; the controller sees
// the change there and does the rest (Kafka: ZkAdminManager and AdminZkClient). Its methods read and write the store,
// so they run on a worker, and they handle all topics of a request in a few round trips.
//
// Whether a topic exists is asked of the store, the authority, besides this broker's metadata cache: Kafka asks the
// cache alone and so cannot delete a topic all whose replicas are dead.
type topicAdmin struct {
	log    *slog.Logger
	config *config.Dynamic
	cache  *metadata.Cache
	store  coord.Store
	// intn picks the random starts of replica assignments; nil takes math/rand.
	intn    func(n int) int
	waiting openWaits
	// afterAnswers is Controller.AfterAnswers.
	afterAnswers func(done func())
}

// chargeQuota asks for a number of partition mutations (KIP-599) and returns the refusal, if any. nil allows everything.
type chargeQuota func(partitions int) answerError

const (
	// maxPartitionsPerRequest bounds the work that one request may ask for, whatever number it names. A topic's
	// assignment is one node of the store, which takes about a megabyte in ZooKeeper.
	maxPartitionsPerRequest = 100_000
	// writeBytesMax and writeOpsMax bound one transaction: below ZooKeeper's packet limit of 1 MiB and etcd's of operations.
	writeBytesMax = 512 << 10
	writeOpsMax   = 512
	// conflictTriesMax ends a read-modify-write that keeps losing against others.
	conflictTriesMax = 16
)

// topicsInStore is what the store holds about some topics, by name.
type topicsInStore map[string]*topicInStore

// topicInStore is one topic's nodes. Marked tells of a deletion marker.
type topicInStore struct {
	exists  bool
	marked  bool
	marker  int64 // creation id of the marker, when there is one
	topic   coord.Topic
	version int32 // of the topic's node
	config  coord.ReadResult
}

// readTopics reads the topic, deletion marker and config nodes of all names in one call. Illegal names are left out:
// they must not become paths.
func readTopics(ctx context.Context, store coord.Store, names []string) (topicsInStore, error) {
	found := topicsInStore{}
	order := make([]string, 0, len(names))
	paths := make([]string, 0, 3*len(names))
	for _, name := range names {
		if found[name] != nil || cluster.ValidateTopicName(name) != nil {
			continue
		}
		found[name] = &topicInStore{}
		order = append(order, name)
		paths = append(paths, coord.TopicPath(name), coord.DeleteTopicPath(name), coord.ConfigEntityPath(coord.TopicConfigs, name))
	}
	if len(paths) == 0 {
		return found, nil
	}
	nodes, err := store.GetMany(ctx, paths)
	if err != nil {
		return nil, err
	}
	for i, name := range order {
		t := found[name]
		node, marker := nodes[3*i], nodes[3*i+1]
		t.marked, t.marker = marker.Err == nil, marker.Node.Stat.Czxid
		t.config = nodes[3*i+2]
		if node.Err != nil {
			continue
		}
		t.exists, t.version = true, node.Node.Stat.Version
		if t.topic, err = coord.DecodeTopic(node.Node.Data); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// atomicGroup is a set of writes that happen together or not at all; groups are independent of each other.
type atomicGroup struct {
	ops     []coord.Op
	err     error            // the outcome: nil, or the reason of the first operation that failed
	results []coord.OpResult // of the operations, when err is nil
}

func (g *atomicGroup) size() int {
	n := 0
	for _, op := range g.ops {
		n += len(op.Path) + len(op.Data) + 64
	}
	return n
}

// writeGroups applies the groups, many in one transaction. Where a group fails, it is left out with its error and the
// others of its transaction are tried again; callers sort out foreseeable failures by reading before.
func writeGroups(ctx context.Context, store coord.Store, groups []*atomicGroup) {
	for len(groups) > 0 {
		n, bytes, ops := 0, 0, 0
		for n < len(groups) && (n == 0 || bytes+groups[n].size() <= writeBytesMax && ops+len(groups[n].ops) <= writeOpsMax) {
			bytes += groups[n].size()
			ops += len(groups[n].ops)
			n++
		}
		writeTransaction(ctx, store, groups[:n])
		groups = groups[n:]
	}
}

func writeTransaction(ctx context.Context, store coord.Store, groups []*atomicGroup) {
	for len(groups) > 0 {
		var ops []coord.Op
		for _, g := range groups {
			ops = append(ops, g.ops...)
		}
		results, err := store.Multi(ctx, ops...)
		if err == nil {
			for _, g := range groups {
				g.results, results = results[:len(g.ops)], results[len(g.ops):]
			}
			return
		}
		failed := failedGroup(groups, results)
		if failed < 0 { // the call as a whole: unavailable, outcome unknown, context over
			for _, g := range groups {
				g.err = err
			}
			return
		}
		groups[failed].err = err
		groups = slices.Delete(slices.Clone(groups), failed, failed+1)
	}
}

// failedGroup finds the group whose operation made the transaction fail; -1 when no operation says so.
func failedGroup(groups []*atomicGroup, results []coord.OpResult) int {
	i := 0
	for g := range groups {
		for range groups[g].ops {
			if i < len(results) && results[i].Err != nil && !errors.Is(results[i].Err, coord.ErrAborted) {
				return g
			}
			i++
		}
	}
	return -1
}

// isConflict reports whether a conditional write lost against another writer, so that reading again may help.
func isConflict(err error) bool {
	return errors.Is(err, coord.ErrBadVersion) || errors.Is(err, coord.ErrNodeExists) || errors.Is(err, coord.ErrNoNode)
}

// joinIDs prints broker ids as Kafka's messages do.
func joinIDs(ids []cluster.BrokerID) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(brokerName(id))
	}
	return b.String()
}

// requestTimeout turns a request's timeout field into a duration; ok is false when the request must not wait.
func requestTimeout(timeoutMs int32) (d time.Duration, ok bool) {
	return time.Duration(timeoutMs) * time.Millisecond, timeoutMs > 0
}

// settings decodes the topic's config node; a topic without one has no settings of its own.
func (t *topicInStore) settings() (map[string]string, error) {
	if t.config.Err != nil {
		return nil, nil
	}
	return coord.DecodeConfig(t.config.Node.Data)
}
