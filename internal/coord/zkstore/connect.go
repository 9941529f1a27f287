package zkstore

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"klamm/internal/coord"
)

// handshakeMax bounds an attempt to connect to one server.
const handshakeMax = 6 * time.Second

// connect makes a connection to one server: for the session there is, or for a new one when that is over.
func (l *link) connect(addr string) (*conn, error) {
	l.mu.Lock()
	s, zxid := l.mu.session, l.mu.zxid
	if s != nil && s.over {
		s = nil
	}
	l.mu.Unlock()
	// Every server gets its share of the session's time (ZooKeeper: ClientCnxn's connectTimeout), but not so much that one
	// which accepts and does not answer costs the session.
	within := max(min(l.o.SessionTimeout/time.Duration(len(l.hosts)), handshakeMax), time.Second)
	ctx, cancel := context.WithTimeout(l.ctx, within)
	defer cancel()
	raw, err := l.dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to zookeeper at %s: %w", addr, err)
	}
	unhook := context.AfterFunc(ctx, func() { _ = raw.Close() })
	c := &conn{Conn: raw, in: bufio.NewReaderSize(raw, 64<<10)}
	sent := time.Now()
	err = l.shakeHands(c, s, zxid)
	if !unhook() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to zookeeper at %s: %w", addr, err)
	}
	return c, l.established(c, sent)
}

func (l *link) dial(ctx context.Context, addr string) (net.Conn, error) {
	raw, err := l.o.Dial(ctx, addr)
	if err != nil || l.o.TLS == nil {
		return raw, err
	}
	cfg := l.o.TLS.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(raw, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		var unknown *tls.CertificateVerificationError
		if errors.As(err, &unknown) {
			return nil, fmt.Errorf("%w: %w", errAuth, err)
		}
		return nil, fmt.Errorf("tls: %w", err)
	}
	return secure, nil
}

// shakeHands asks for the session and logs in.
func (l *link) shakeHands(c *conn, s *zkSession, zxid int64) error {
	var id int64
	var password []byte
	timeout := l.o.SessionTimeout
	if s != nil {
		id, password, timeout = s.id, s.password, s.timeout
	}
	if _, err := c.Write(connectFrame(zxid, timeout, id, password)); err != nil {
		return err
	}
	frame, err := readFrame(c.in, l.o.ReplyBytesMax)
	if err != nil {
		return err
	}
	answer, err := decodeConnected(frame)
	switch {
	case err != nil:
		return err
	case answer.timeout <= 0 && s != nil:
		l.o.Stats.Expires.Add(1)
		l.o.Log.Warn("session expired", "session", fmt.Sprintf("%#x", s.id))
		l.endSession(s)
		return coord.ErrSessionExpired
	case answer.timeout <= 0:
		return errors.New("the server refuses to open a session")
	}
	if s == nil {
		s = &zkSession{id: answer.session, password: answer.password, done: make(chan struct{})}
	}
	s.timeout = answer.timeout
	c.session = s
	return l.logIn(c)
}

// logIn proves who we are, when there are credentials: what is sent before it would run as a stranger's.
func (l *link) logIn(c *conn) error {
	if l.o.Digest == nil {
		return nil
	}
	g := newDigest(*l.o.Digest)
	challenge, err := l.exchange(c, 1, []byte{})
	if err != nil {
		return err
	}
	answer, err := g.respond(challenge)
	if err != nil {
		return err
	}
	final, err := l.exchange(c, 2, answer)
	if err != nil {
		return err
	}
	if err := g.verify(final); err != nil {
		return err
	}
	l.o.Stats.Logins.Add(1)
	return nil
}

func (l *link) exchange(c *conn, xid int32, token []byte) ([]byte, error) {
	frame := appendBuffer(newFrame(opSASL, len(token)+4), token)
	seal(frame, xid)
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	for {
		answer, err := readFrame(c.in, l.o.ReplyBytesMax)
		if err != nil {
			return nil, err
		}
		d := decoder{b: answer}
		got, _, code := d.int(), d.long(), d.int()
		if got < 0 {
			continue // an event, or a ping
		}
		if code != codeOK {
			return nil, fmt.Errorf("%w: %w", errAuth, serverError(code))
		}
		token := d.buffer()
		return token, d.err
	}
}

// established takes a connection into use. The contact counts from when the session was asked for.
func (l *link) established(c *conn, sent time.Time) error {
	first := l.onConnect()
	now := time.Now()
	l.mu.Lock()
	fresh := l.mu.session != c.session
	if c.session.over {
		l.mu.Unlock()
		_ = c.Close()
		l.finishAll(first, coord.ErrUnavailable)
		return coord.ErrSessionExpired
	}
	c.lastHeard = now
	l.contactLocked(c.session, sent)
	l.mu.session, l.mu.conn, l.mu.connected, l.mu.lastErr = c.session, c, true, nil
	l.mu.queue = append(first, l.mu.queue...)
	close(l.mu.up)
	l.mu.Unlock()
	l.o.Stats.Connects.Add(1)
	if fresh {
		s := c.session
		l.running.Go(func() { l.fence(s) })
	}
	l.o.Log.Info("connected to zookeeper", "remote", c.RemoteAddr().String(), "session", fmt.Sprintf("%#x", c.session.id), "timeout", c.session.timeout)
	l.signal()
	return nil
}
