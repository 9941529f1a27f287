package wire

import (
	"errors"
	"io"
	"net"
	"time"
)

// flushBytes is how much a writer gathers before it writes: record bytes are read from disk in stretches of
// about this size.
const flushBytes = 1 << 20

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
	f.head.retain() // vecs point into it, also after f is released
	w.hold(f.head)
	at, left := 0, f.records
	for i := range f.cuts {
		cut := &f.cuts[i]
		w.gather(head[at:cut.at])
		at = cut.at
		if !w.readRecords(cut, left) {
			return false
		}
		left -= cut.n
		if w.size >= flushBytes {
			if !w.flush() {
				return false
			}
			f.head.retain() // flush has dropped the last one
			w.hold(f.head)
		}
	}
	w.gather(head[at:])
	return true
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
		w.c.srv.log.Warn("connection closed", "reason", "records could not be read", "remote", w.c.nc.RemoteAddr().String(),
			"listener", w.c.listener.Name, "bytes", n, "want", cut.n, "err", err)
		return false
	}
	w.chunk.b = w.chunk.b[:start+cut.n]
	w.gather(dst)
	return true
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
	now := time.Now()
	// A client that takes nothing for half the idle time or more is as good as gone.
	if idle := c.srv.limits.Load().ConnectionsMaxIdle; idle > 0 && w.deadline.Sub(now) < idle/2 {
		w.deadline = now.Add(idle)
		_ = c.nc.SetWriteDeadline(w.deadline)
	}
	w.pending = w.vecs
	n, err := w.pending.WriteTo(c.nc)
	c.srv.stats.BytesOut.Add(n)
	c.touch(time.Now())
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.srv.stats.ConnectionsIdled.Add(1)
	}
	w.releaseHeld()
	return err == nil
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
