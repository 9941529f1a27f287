package wire

import (
	"bufio"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// flushBytes is how much a writer gathers before it writes: record bytes are read from disk in stretches of
// about this size.
const flushBytes = 1 << 20

// sendFileBytes is from which length on records are sent by the kernel alone. Shorter ones are cheaper to copy and to
// write together with what surrounds them.
const sendFileBytes = 64 << 10

// connWriter is the writer goroutine's side of a connection. It gathers what is to be written in vecs and keeps
// what vecs point into in held until it is written.
type connWriter struct {
	c        *Conn
	batch    []*Request
	vecs     [][]byte
	pending  net.Buffers // vecs during a write, which consumes it
	size     int         // bytes in vecs
	held     []*buffer
	chunk    *buffer // where the next record bytes go; also in held
	deadline time.Time
	socket   syscall.RawConn // nil where nc is no socket: sendFile is not possible then
	// sealed gathers what goes over TLS, where every write would be a record of its own; nil elsewhere.
	sealed *bufio.Writer
}

// write sends answers, in order, until the connection is closed or nothing more will come.
func (c *Conn) write() {
	defer c.close()
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(p, nil)
		}
		c.out.dropAll()
	}()
	for {
		batch, more := c.takeReady(c.out.batch[:0])
		c.out.batch = batch
		if len(batch) == 0 {
			if !more {
				return
			}
			select {
			case <-c.wake:
			case <-c.ctx.Done():
				return
			}
			continue
		}
		for _, r := range batch {
			if !c.out.add(&r.answer) {
				return
			}
		}
		if !c.out.flush() {
			return
		}
		clear(batch)
	}
}

// add gathers an answer and writes what has become enough. It reports false when the connection must be closed.
func (w *connWriter) add(a *answer) bool {
	if a.unprepared != nil {
		a.prepare()
	}
	switch {
	case a.closing:
		w.flush()
		return false
	case a.encoded != nil:
		w.gather(a.encoded.b)
		w.hold(a.encoded)
		a.encoded = nil
	case a.fetch != nil:
		ok := w.addFetch(a.fetch)
		a.fetch.release()
		a.fetch = nil
		if !ok {
			return false
		}
	}
	return w.size < flushBytes || w.flush()
}

// addFetch gathers a fetch answer, reading its records as it goes.
func (w *connWriter) addFetch(f *fetchFrame) bool {
	head := f.head.b
	w.holdHead(f)
	at, left := 0, f.records
	for i := range f.cuts {
		cut := &f.cuts[i]
		w.gather(head[at:cut.at])
		at = cut.at
		sent, ok := w.sendRecords(f, cut)
		if !sent {
			ok = ok && w.readRecords(cut, left)
		}
		if !ok {
			return false
		}
		left -= cut.n
		if w.size >= flushBytes && !w.flushHead(f) {
			return false
		}
	}
	w.gather(head[at:])
	return true
}

// holdHead keeps the head of a fetch answer, which vecs point into also after f is released.
func (w *connWriter) holdHead(f *fetchFrame) {
	f.head.retain()
	w.hold(f.head)
}

// flushHead writes the first part of an answer, of which more will come.
func (w *connWriter) flushHead(f *fetchFrame) bool {
	ok := w.flush()
	w.holdHead(f) // flush has dropped it
	return ok
}

// sendRecords has the kernel send one partition's records, and releases their source. When nothing could be sent that way
// sent is false, and readRecords is the way: it also knows how to tell what is wrong with a file. ok is false when the
// connection must be closed.
func (w *connWriter) sendRecords(f *fetchFrame, cut *recordCut) (sent, ok bool) {
	if cut.n < sendFileBytes || w.socket == nil {
		return false, true
	}
	src, ok := cut.src.(FileSource)
	if !ok {
		return false, true
	}
	file, position, ok := src.File()
	if !ok {
		return false, true
	}
	if !w.flushHead(f) {
		return false, false
	}
	w.arm(time.Now())
	n, err := sendFile(w.socket, file, position, cut.n)
	if n == 0 {
		return false, true
	}
	w.c.srv.stats.BytesOut.Add(int64(n))
	w.c.touch(time.Now())
	cut.src = nil
	src.Release()
	if n == cut.n {
		return true, true
	}
	w.noteTimeout(err)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		w.logShort(n, cut.n, err)
	}
	return true, false
}

// readRecords gathers one partition's records and releases their source.
func (w *connWriter) readRecords(cut *recordCut, left int) bool {
	src := cut.src
	cut.src = nil
	defer src.Release()
	if cut.n == 0 {
		return true
	}
	if w.chunk == nil || cap(w.chunk.b)-len(w.chunk.b) < cut.n {
		w.chunk = getBuffer(max(cut.n, min(left, flushBytes)))
		w.hold(w.chunk)
	}
	start := len(w.chunk.b)
	dst := w.chunk.b[start : start+cut.n]
	n, err := src.ReadInto(dst)
	if n != cut.n {
		// The answer's head has promised more. Closing is all that is left; the client asks again.
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		w.logShort(n, cut.n, err)
		return false
	}
	w.chunk.b = w.chunk.b[:start+cut.n]
	w.gather(dst)
	return true
}

// logShort writes the one line about a connection that is closed because a segment has become shorter than was promised.
func (w *connWriter) logShort(n, want int, err error) {
	w.c.srv.log.Warn("connection closed", "reason", "records could not be read", "remote", w.c.nc.RemoteAddr().String(),
		"listener", w.c.listener.Name, "bytes", n, "want", want, "err", err)
}

func (w *connWriter) gather(b []byte) {
	if len(b) > 0 {
		w.vecs = append(w.vecs, b)
		w.size += len(b)
	}
}

// hold keeps a reference until the next flush.
func (w *connWriter) hold(b *buffer) { w.held = append(w.held, b) }

// flush writes what is gathered. It reports false when the connection is broken.
func (w *connWriter) flush() bool {
	if w.size == 0 {
		w.releaseHeld()
		return true
	}
	c := w.c
	w.arm(time.Now())
	n, err := w.writeVecs()
	c.srv.stats.BytesOut.Add(n)
	c.touch(time.Now())
	w.noteTimeout(err)
	w.releaseHeld()
	return err == nil
}

func (w *connWriter) writeVecs() (n int64, err error) {
	if w.sealed == nil {
		w.pending = w.vecs
		return w.pending.WriteTo(w.c.nc)
	}
	for _, b := range w.vecs {
		k, err := w.sealed.Write(b)
		if n += int64(k); err != nil {
			return n, err
		}
	}
	return n, w.sealed.Flush()
}

// arm keeps the write deadline ahead: a client that takes nothing for half the idle time or more is as good as gone.
func (w *connWriter) arm(now time.Time) {
	if idle := w.c.srv.limits.Load().ConnectionsMaxIdle; idle > 0 && w.deadline.Sub(now) < idle/2 {
		w.deadline = now.Add(idle)
		_ = w.c.nc.SetWriteDeadline(w.deadline)
	}
}

// noteTimeout counts a connection that the deadline ends.
func (w *connWriter) noteTimeout(err error) {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		w.c.srv.stats.ConnectionsIdled.Add(1)
	}
}

// releaseHeld forgets what was gathered.
func (w *connWriter) releaseHeld() {
	clear(w.vecs)
	w.vecs, w.pending, w.size, w.chunk = w.vecs[:0], nil, 0, nil
	for i, b := range w.held {
		b.release()
		w.held[i] = nil
	}
	w.held = w.held[:0]
}

// dropAll releases everything when the writer ends, answers that were taken and not written among it.
func (w *connWriter) dropAll() {
	w.releaseHeld()
	for _, r := range w.batch {
		if r != nil {
			r.answer.release()
		}
	}
	w.batch = nil
}
