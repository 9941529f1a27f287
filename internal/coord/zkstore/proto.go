package zkstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"klamm/internal/coord"
)

// Operation codes (ZooKeeper: ZooDefs.OpCode).
const (
	opCreate        int32 = 1
	opDelete        int32 = 2
	opExists        int32 = 3
	opGetData       int32 = 4
	opSetData       int32 = 5
	opSync          int32 = 9
	opPing          int32 = 11
	opGetChildren2  int32 = 12
	opCheck         int32 = 13
	opMulti         int32 = 14
	opCreate2       int32 = 15
	opRemoveWatches int32 = 18
	opSASL          int32 = 102
	opAddWatch      int32 = 106
	opCloseSession  int32 = -11

	opError int32 = -1 // in the result of a multi
)

// Correlation ids of what is no answer to a request.
const (
	xidEvent int32 = -1
	xidPing  int32 = -2
)

// Flags of a create.
const (
	flagEphemeral  int32 = 1
	flagSequential int32 = 2
)

const (
	watchPersistent int32 = 0 // mode of addWatch
	watchersAny     int32 = 3 // type of removeWatches
)

// Types of watch events (ZooKeeper: Watcher.Event.EventType).
const (
	eventCreated         int32 = 1
	eventDeleted         int32 = 2
	eventDataChanged     int32 = 3
	eventChildrenChanged int32 = 4
)

// headerSize is what every request begins with: length, xid, operation.
const headerSize = 12

// newFrame starts a request. Its length and xid are written when it is sent.
func newFrame(op int32, size int) []byte {
	b := make([]byte, headerSize, headerSize+size)
	binary.BigEndian.PutUint32(b[8:], uint32(op))
	return b
}

// seal writes what newFrame left open.
func seal(frame []byte, xid int32) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	binary.BigEndian.PutUint32(frame[4:], uint32(xid))
}

// pathFrame is a request that names a path and has a flag.
func pathFrame(op int32, path string, watch bool) []byte {
	return appendBool(appendString(newFrame(op, len(path)+5), path), watch)
}

func syncFrame(path string) []byte { return appendString(newFrame(opSync, len(path)+4), path) }

// appendWrite writes an operation of a multi: its header and its record.
func appendWrite(b []byte, op coord.Op, path string, acl []byte) []byte {
	switch op.Kind {
	case coord.OpCreate:
		var flags int32
		if op.Session != nil {
			flags |= flagEphemeral
		}
		if op.Sequential {
			flags |= flagSequential
		}
		b = appendBuffer(appendString(appendMultiHeader(b, opCreate2, false), path), op.Data)
		return appendInt(append(b, acl...), flags)
	case coord.OpSet:
		b = appendBuffer(appendString(appendMultiHeader(b, opSetData, false), path), op.Data)
	case coord.OpDelete:
		b = appendString(appendMultiHeader(b, opDelete, false), path)
	case coord.OpCheck:
		b = appendString(appendMultiHeader(b, opCheck, false), path)
	}
	return appendInt(b, op.Version)
}

func appendMultiHeader(b []byte, op int32, done bool) []byte {
	return appendInt(appendBool(appendInt(b, op), done), -1)
}

func writeSize(op coord.Op, path string, acl []byte) int {
	return 9 + 4 + len(path) + 4 + len(op.Data) + len(acl) + 4
}

// stat reads a Stat record; pzxid is the last change to the set of children.
func (d *decoder) stat() (s coord.Stat, pzxid int64) {
	s.Czxid, s.Mzxid = d.long(), d.long()
	ctimeMs := d.long()
	d.long() // mtime
	s.Version = d.int()
	d.int() // cversion
	d.int() // aversion
	s.EphemeralOwner = d.long()
	d.int() // length of the data
	d.int() // number of children
	pzxid = d.long()
	if d.err == nil {
		s.Ctime = time.UnixMilli(ctimeMs)
	}
	return s, pzxid
}

// multiResult is the result of one operation of a multi. Where one failed, all have a code: 0 before it, its own, and
// codeRolledBack after it.
type multiResult struct {
	op   int32
	code int32
	path string
	stat coord.Stat
}

// multiResults reads the answer to a multi that was given at the change zxid. Servers before 3.6 answer a create without
// its stat; they apply and answer one write at a time, so the change is the answer's own.
func (d *decoder) multiResults(want int, zxid int64) ([]multiResult, error) {
	out := make([]multiResult, 0, want)
	for d.err == nil {
		op, done := d.int(), d.bool()
		d.int() // repeats the code
		if done || d.err != nil {
			break
		}
		r := multiResult{op: op}
		switch op {
		case opCreate:
			r.path = d.string()
			r.stat = coord.Stat{Czxid: zxid, Mzxid: zxid}
		case opCreate2:
			r.path = d.string()
			r.stat, _ = d.stat()
		case opSetData:
			r.stat, _ = d.stat()
		case opDelete, opCheck:
		case opError:
			r.code = d.int()
		default:
			return nil, fmt.Errorf("result of a transaction has unknown type %d", op)
		}
		out = append(out, r)
		if len(out) > want {
			break
		}
	}
	switch {
	case d.err != nil:
		return nil, d.err
	case len(out) != want:
		return nil, fmt.Errorf("a transaction of %d operations was answered with %d results", want, len(out))
	}
	return out, nil
}

// connectFrame asks for a session: a new one when id is 0. It has no header but its length.
func connectFrame(lastZxid int64, timeout time.Duration, id int64, password []byte) []byte {
	b := make([]byte, 4, 64)
	b = appendInt(b, 0) // protocol version
	b = appendLong(b, lastZxid)
	b = appendInt(b, int32(timeout.Milliseconds()))
	b = appendLong(b, id)
	if password == nil {
		password = make([]byte, 16)
	}
	b = appendBool(appendBuffer(b, password), false) // no read-only server
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// connected is a server's answer to connectFrame. A timeout of 0 means that the session has expired.
type connected struct {
	timeout  time.Duration
	session  int64
	password []byte
}

func decodeConnected(b []byte) (connected, error) {
	d := decoder{b: b}
	d.int() // protocol version
	c := connected{timeout: time.Duration(d.int()) * time.Millisecond, session: d.long()}
	c.password = append([]byte(nil), d.buffer()...)
	return c, d.err
}

// event is a watch that fired.
type event struct {
	kind int32
	path string
}

func decodeEvent(d *decoder) (event, error) {
	e := event{kind: d.int()}
	d.int() // state of the session
	e.path = d.string()
	return e, d.err
}
