package zkstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"klamm/internal/coord"
)

// errRefused is what a server says that is down.
var errRefused = errors.New("refused")

// fakeServer speaks enough of ZooKeeper's protocol over net.Pipe for the client to be tested in fake time: sessions,
// reads, multi, watches, and the faults that a network and a server have.
type fakeServer struct {
	mu        sync.Mutex
	down      bool // dials fail
	old       bool // does not know addWatch, as servers before 3.6
	mute      bool // reads requests and answers none
	loseReply bool // applies the next write and cuts the connection instead of answering
	zxid      int64
	nodes     map[string]*fakeNode
	sessions  map[int64]time.Duration // that are alive, with their timeouts
	conns     map[net.Conn]*fakeConn
	dials     int
	inFlight  int // requests that were read while answers are held
	hold      chan struct{}
	maxHeld   int
}

type fakeNode struct {
	data []byte
	stat coord.Stat
}

type fakeConn struct {
	session    int64
	persistent map[string]bool
	once       map[string]bool // exists watches
	out        chan []byte
}

func newFakeServer() *fakeServer {
	return &fakeServer{nodes: map[string]*fakeNode{"/": {}}, sessions: map[int64]time.Duration{}, conns: map[net.Conn]*fakeConn{}}
}

func (f *fakeServer) dial(context.Context, string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials++
	if f.down {
		return nil, errRefused
	}
	client, server := net.Pipe()
	go f.serve(server)
	return client, nil
}

// cut breaks all connections.
func (f *fakeServer) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *fakeServer) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeServer) serve(c net.Conn) {
	defer c.Close()
	hello, err := readFrame(c, 1<<20)
	if err != nil {
		return
	}
	fc := &fakeConn{persistent: map[string]bool{}, once: map[string]bool{}, out: make(chan []byte, 1<<14)}
	answer := f.connect(&decoder{b: hello}, fc)
	f.set(func() { f.conns[c] = fc })
	defer f.set(func() { delete(f.conns, c) })
	done := make(chan struct{})
	defer func() { close(fc.out); <-done }()
	go func() {
		defer close(done)
		for b := range fc.out {
			if _, err := c.Write(b); err != nil {
				_ = c.Close()
			}
		}
	}()
	fc.out <- answer
	for {
		frame, err := readFrame(c, 1<<20)
		if err != nil {
			return
		}
		reply, cut := f.handle(fc, &decoder{b: frame})
		if reply != nil {
			fc.out <- reply
		}
		if cut {
			return
		}
	}
}

func framed(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func (f *fakeServer) connect(d *decoder, fc *fakeConn) []byte {
	d.int()
	d.long()
	timeout, id, password := time.Duration(d.int())*time.Millisecond, d.long(), d.buffer()
	f.mu.Lock()
	defer f.mu.Unlock()
	if id == 0 {
		f.zxid++
		id = 100 + f.zxid
		f.sessions[id] = timeout
		password = fakePassword(id)
	}
	granted := f.sessions[id] // 0 for a session that is gone
	if !bytes.Equal(password, fakePassword(id)) {
		granted = 0
	} else {
		fc.session = id
	}
	b := appendInt(appendInt(nil, 0), int32(granted.Milliseconds()))
	return framed(appendBool(appendBuffer(appendLong(b, id), fakePassword(id)), false))
}

// fakePassword is what the server gives with a session.
func fakePassword(id int64) []byte { return appendLong(make([]byte, 8), id) }

func (f *fakeServer) handle(fc *fakeConn, d *decoder) (reply []byte, cut bool) {
	xid, op := d.int(), d.int()
	f.mu.Lock()
	hold := f.hold
	f.inFlight++
	f.maxHeld = max(f.maxHeld, f.inFlight)
	f.mu.Unlock()
	if hold != nil && op != opPing {
		<-hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inFlight--
	if f.mute {
		return nil, false
	}
	code, body := f.applyLocked(fc, op, d)
	if f.loseReply && op == opMulti {
		f.loseReply = false
		return nil, true
	}
	b := appendInt(appendLong(appendInt(nil, xid), f.zxid), code)
	return framed(append(b, body...)), op == opCloseSession || code == codeUnimplemented
}

func (f *fakeServer) applyLocked(fc *fakeConn, op int32, d *decoder) (int32, []byte) {
	switch op {
	case opGetData, opExists:
		path := d.string()
		if d.bool() {
			fc.once[path] = true
		}
		n := f.nodes[path]
		switch {
		case n == nil:
			return codeNoNode, nil
		case op == opExists:
			return codeOK, appendStat(nil, n.stat)
		}
		return codeOK, appendStat(appendBuffer(nil, n.data), n.stat)
	case opGetChildren2:
		path := strings.TrimSuffix(d.string(), "/") + "/"
		var names []string
		for p := range f.nodes {
			if rest, below := strings.CutPrefix(p, path); below && rest != "" && !strings.Contains(rest, "/") {
				names = append(names, rest)
			}
		}
		b := appendInt(nil, int32(len(names)))
		for _, n := range names {
			b = appendString(b, n)
		}
		return codeOK, appendStat(b, coord.Stat{})
	case opAddWatch:
		if f.old {
			return codeUnimplemented, nil
		}
		fc.persistent[d.string()] = true
	case opRemoveWatches:
		delete(fc.persistent, d.string())
	case opMulti:
		return codeOK, f.multiLocked(d)
	case opCloseSession:
		delete(f.sessions, fc.session)
	}
	return codeOK, nil
}

// multiLocked applies a transaction of creates and sets without conditions other than existence and version.
func (f *fakeServer) multiLocked(d *decoder) []byte {
	var out []byte
	f.zxid++
	for d.err == nil {
		op, done := d.int(), d.bool()
		d.int()
		if done {
			break
		}
		path := d.string()
		var code int32
		switch op {
		case opCreate2:
			data := d.buffer()
			for range d.int() {
				d.int()
				d.string()
				d.string()
			}
			d.int()
			if f.nodes[path] != nil {
				code = codeNodeExists
				break
			}
			f.nodes[path] = &fakeNode{data, coord.Stat{Czxid: f.zxid, Mzxid: f.zxid}}
			f.fireLocked(path, eventCreated)
			if f.old {
				out = appendString(appendMultiHeader(out, opCreate, false), path)
				break
			}
			out = appendStat(appendString(appendMultiHeader(out, op, false), path), f.nodes[path].stat)
		case opSetData:
			data, version := d.buffer(), d.int()
			n := f.nodes[path]
			switch {
			case n == nil:
				code = codeNoNode
			case version >= 0 && version != n.stat.Version:
				code = codeBadVersion
			default:
				n.data, n.stat.Mzxid = data, f.zxid
				n.stat.Version++
				f.fireLocked(path, eventDataChanged)
				out = appendStat(appendMultiHeader(out, op, false), n.stat)
			}
		}
		if code != codeOK {
			out = appendInt(appendMultiHeader(out, opError, false), code)
		}
	}
	return appendMultiHeader(out, opError, true)
}

// fireLocked sends the event to whoever watches the path.
func (f *fakeServer) fireLocked(path string, kind int32) {
	for _, fc := range f.conns {
		if !fc.persistent[path] && !fc.once[path] {
			continue
		}
		delete(fc.once, path)
		b := appendInt(appendLong(appendInt(nil, xidEvent), -1), 0)
		fc.out <- framed(appendString(appendInt(appendInt(b, kind), 3), path))
	}
}

func appendStat(b []byte, s coord.Stat) []byte {
	b = appendLong(appendLong(appendLong(appendLong(b, s.Czxid), s.Mzxid), 0), 0)
	b = appendLong(appendInt(appendInt(appendInt(b, s.Version), 0), 0), s.EphemeralOwner)
	return appendLong(appendInt(appendInt(b, 0), 0), s.Mzxid)
}

// open connects a store to the fake server and closes it with the test.
func (f *fakeServer) open(t *testing.T, o Options) *Store {
	t.Helper()
	o.Dial = f.dial
	if o.Connect == "" {
		o.Connect = "zk1:2181,zk2:2181"
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 9 * time.Second
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
