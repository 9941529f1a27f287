// Package coord is the coordination port: a tree of versioned nodes with the semantics of ZooKeeper's
// (data version, creation id, ephemeral and sequential nodes, atomic multi with checks, watches, session expiry).
// Engines live in the packages below: memstore, etcdstore, and a ZooKeeper client.
// All engines pass the one suite in coordtest.
//
// Paths are absolute, "/"-separated, without a trailing slash. The parent of a node must exist when it is created.
// Every Store method is safe for concurrent use, honours its context, and returns one of the sentinel errors below
// (possibly wrapped) where a caller may want to branch.
package coord

import (
	"context"
	"errors"
	"time"
)

// Errors of node operations and of the link to the engine.
var (
	ErrNoNode              = errors.New("node does not exist")
	ErrNodeExists          = errors.New("node already exists")
	ErrBadVersion          = errors.New("node version differs")
	ErrNotEmpty            = errors.New("node has children")
	ErrNoEphemeralChildren = errors.New("ephemeral node cannot have children")
	// ErrAborted is the result of an operation that did not run because another one of its Multi failed.
	ErrAborted = errors.New("not run: another operation of the transaction failed")
	// ErrFenced reports that the guard of a Batch no longer holds: nothing of that batch part was applied.
	ErrFenced = errors.New("guard version differs: fenced by a newer owner")
	// ErrSessionExpired reports that the session's ephemeral nodes are gone or about to go.
	ErrSessionExpired = errors.New("session expired")
	// ErrUnknownOutcome reports that a write was sent and its answer lost: it may or may not have been applied.
	ErrUnknownOutcome = errors.New("outcome unknown: the write may have been applied")
	// ErrUnavailable reports that the engine cannot be reached or has no quorum; nothing was applied.
	ErrUnavailable = errors.New("coordination engine unavailable")
	ErrClosed      = errors.New("store closed")
	// ErrNoPermission reports a node that this user of the engine may not read or write.
	ErrNoPermission = errors.New("no permission")
	// ErrInvalidPath reports a path that is not absolute, has an empty element, or is the root where that cannot be written.
	ErrInvalidPath = errors.New("invalid path")
	// ErrRecreated reports a Multi that creates a path which it deleted before.
	ErrRecreated = errors.New("a transaction cannot create a node that it deleted")
)

// AnyVersion makes Set, Delete and Check accept every data version.
const AnyVersion int32 = -1

// Stat describes a node. Czxid and Mzxid are the engine's monotone change ids of the node's creation and last
// write; Version counts data writes since creation, from 0.
type Stat struct {
	Czxid int64
	Mzxid int64
	// Ctime is the time of creation by the creator's clock. etcd keeps it only for sequential nodes whose data was not
	// set since; where it is not kept it is zero.
	Ctime          time.Time
	Version        int32
	EphemeralOwner int64 // session id; 0 for persistent nodes
}

// Node is a path with what it holds.
type Node struct {
	Path string
	Data []byte
	Stat Stat
}

// OpKind selects what an Op does.
type OpKind uint8

// The operations of a Multi or Batch.
const (
	OpCreate OpKind = iota + 1
	OpSet
	OpDelete
	OpCheck // in Multi only: fails with ErrBadVersion or ErrNoNode
)

// String names the operation.
func (k OpKind) String() string {
	switch k {
	case OpCreate:
		return "create"
	case OpSet:
		return "set"
	case OpDelete:
		return "delete"
	case OpCheck:
		return "check"
	}
	return "unknown operation"
}

// Op is one write. Build it with Create, CreateEphemeral, CreateSequential, Set, Delete or Check.
type Op struct {
	Kind       OpKind
	Path       string
	Data       []byte
	Version    int32   // expected data version for Set, Delete, Check; AnyVersion accepts all
	Session    Session // owner of an ephemeral node; nil creates a persistent one
	Sequential bool    // append a 10-digit counter of the parent to Path
}

// Create makes a persistent node.
func Create(path string, data []byte) Op { return Op{Kind: OpCreate, Path: path, Data: data} }

// CreateEphemeral makes a node that goes with the session.
func CreateEphemeral(path string, data []byte, s Session) Op {
	return Op{Kind: OpCreate, Path: path, Data: data, Session: s}
}

// CreateSequential makes a persistent node whose name is path followed by a 10-digit counter of its parent.
func CreateSequential(path string, data []byte) Op {
	return Op{Kind: OpCreate, Path: path, Data: data, Sequential: true}
}

// Set replaces a node's data if its version is the expected one.
func Set(path string, data []byte, version int32) Op {
	return Op{Kind: OpSet, Path: path, Data: data, Version: version}
}

// Delete removes a childless node if its version is the expected one.
func Delete(path string, version int32) Op { return Op{Kind: OpDelete, Path: path, Version: version} }

// Check demands a version of a node without writing.
func Check(path string, version int32) Op { return Op{Kind: OpCheck, Path: path, Version: version} }

// OpResult is the outcome of one Op. Path is the created name for sequential nodes. Stat is valid after Create and Set.
type OpResult struct {
	Err  error
	Path string
	Stat Stat
}

// ReadResult is the outcome of reading one path.
type ReadResult struct {
	Node Node
	Err  error // ErrNoNode, or nil
}

// Guard is the condition that fences a Batch: the node at Path has data version Version.
type Guard struct {
	Path    string
	Version int32
}

// Store is a connection to a coordination engine.
type Store interface {
	// Get reads a node. It sees every write that was acknowledged before the call.
	Get(ctx context.Context, path string) (Node, error)
	// GetMany reads many nodes in as few round trips as the engine allows; the result has one entry per path, in order.
	// The error is for the call as a whole.
	GetMany(ctx context.Context, paths []string) ([]ReadResult, error)
	// Children lists the names (not paths) of a node's direct children, sorted. ErrNoNode when the parent is absent.
	Children(ctx context.Context, path string) ([]string, error)
	// Multi applies all operations atomically or none. When one fails its result has the reason and the others
	// ErrAborted, and the returned error is that reason. A path may repeat: operations see those before them. But a
	// path cannot be created after it was deleted in the same Multi, and an engine may count several writes of a path
	// in one Multi as one in its data version. Ephemeral nodes of one Multi belong to one session.
	Multi(ctx context.Context, ops ...Op) ([]OpResult, error)
	// Batch applies operations that are independent of each other: each succeeds or fails alone (results in order), and
	// each only while the guard (if not nil) holds. Operations on a child may follow the creation of its parent in the
	// same batch. The returned error is for the call as a whole: ErrFenced when the guard failed, ErrUnknownOutcome,
	// ErrUnavailable; results up to then may have been applied. OpCheck is not for batches.
	Batch(ctx context.Context, guard *Guard, ops []Op) ([]OpResult, error)
	// DeleteTree removes a node with everything below it, under the guard. An absent node is no error. Engines that
	// delete node by node may leave a part of the tree behind when they fail; the node itself always goes last.
	DeleteTree(ctx context.Context, guard *Guard, path string) error
	// NewWatcher starts an empty set of watches.
	NewWatcher() Watcher
	// OpenSession starts a session whose ephemeral nodes live until Close or until ttl passed without contact.
	OpenSession(ctx context.Context, ttl time.Duration) (Session, error)
	// Close ends the connection and its watchers. Sessions that are open expire by their ttl.
	Close() error
}

// SessionEnder is what engines offer that can end a session by its id: a process that was killed and starts again need
// not wait for what it left behind.
type SessionEnder interface {
	// EndSession removes the session and its ephemeral nodes. A session that is gone already is no error, nor is a key that
	// is not the session's: then it stays. key is the session's SessionKey.
	EndSession(ctx context.Context, id int64, key []byte) error
}

// KeyedSession is what sessions offer whose engine asks for more than the id before another process may end them.
type KeyedSession interface {
	// Key is a secret: whoever has it can end the session, and own its nodes.
	Key() []byte
}

// SessionKey gives a session's key; nil where the id is enough.
func SessionKey(s Session) []byte {
	if k, ok := s.(KeyedSession); ok {
		return k.Key()
	}
	return nil
}

// WatchKind says what of a path is watched.
type WatchKind uint8

// Watch kinds. WatchNode fires on creation, deletion and data change of the path itself, also while it is absent;
// WatchChildren on any change to the set of its direct children.
const (
	WatchNode WatchKind = iota + 1
	WatchChildren
)

// WatchEvent says that a watched path may have changed: read it again. Several changes may be one event;
// after a reconnect all watches of a Watcher may fire without a change.
type WatchEvent struct {
	Path string
	Kind WatchKind
}

// Watcher is a set of persistent watches whose pending events coalesce per path and kind, so it never holds more
// events than it has watches. A change made after Add returned is never missed.
type Watcher interface {
	Add(path string, kind WatchKind)
	Remove(path string, kind WatchKind)
	// Next blocks until events are pending and returns them in the order in which they first fired. ErrClosed after Close.
	Next(ctx context.Context) ([]WatchEvent, error)
	Close()
}

// Session owns ephemeral nodes.
type Session interface {
	// ID is the engine's id of the session, as Stat.EphemeralOwner shows it.
	ID() int64
	// Done is closed when the session has expired or was closed. It closes no later than the moment from which
	// the engine may have removed the session's nodes, judged by the local monotonic clock.
	Done() <-chan struct{}
	// Close ends the session at once and removes its ephemeral nodes.
	Close(ctx context.Context) error
}
