//go:build interop

package zkstore

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"klamm/internal/coord"
	"klamm/internal/coord/coordtest"
)

// TestConformance runs the suite of all engines against real servers: the newest of each minor release from 3.5 to 3.9, or what
// Kafka brings of it (3.7 came with none). The large tests are large on the oldest and the newest: what they are about, klamm's windows and
// frames, does not depend on the release.
func TestConformance(t *testing.T) {
	for release, server := range map[string]struct {
		jars  string
		small bool
	}{
		"3.5.9": {jars: "KAFKA_JARS_2_8_2"}, "3.6.4": {jars: "KAFKA_JARS_3_4_1", small: true},
		"3.8.4": {jars: "KAFKA_JARS_3_9_1", small: true}, "3.9.5": {jars: "ZOOKEEPER_JARS_3_9_5"},
	} {
		t.Run(release, func(t *testing.T) { conform(t, startServerOf(t, jarsOf(t, server.jars), ""), server.small) })
	}
}

// conform runs the suite with sessions on connections of their own, with the session of the store's connection, and with
// one-shot watches.
func conform(t *testing.T, addr string, small bool) {
	variants := map[string]struct {
		timeout time.Duration
		oneShot bool
		only    []string
	}{
		"sessions beside the connection": {10 * time.Second, false, nil},
		"the connection's own session":   {time.Second, false, []string{"session", "procedures"}},
		"one-shot watches as before 3.6": {10 * time.Second, true, []string{"watch", "procedures"}},
	}
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			var roots atomic.Int64
			coordtest.Run(t, func(t *testing.T) coordtest.Engine {
				o := Options{Connect: fmt.Sprintf("%s/%d/%d", addr, time.Now().UnixNano(), roots.Add(1)), SessionTimeout: v.timeout}
				e := engine(t, o, v.oneShot)
				e.Small = small
				return e
			}, v.only...)
		})
	}
}

func engine(t *testing.T, o Options, oneShot bool) coordtest.Engine {
	return coordtest.Engine{
		Connect: func() coord.Store {
			s, err := Open(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			s.watches.mu.Lock()
			s.watches.mu.oneShot = s.watches.mu.oneShot || oneShot
			s.watches.mu.Unlock()
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
		Expire: func(s coord.Session) { expire(t, o, s.(*session).zk) },
	}
}

// expire ends a session as the server does when its time has passed: other connections with its password close it, until
// the server says that it is gone. The session's owner takes it back in between.
func expire(t *testing.T, o Options, z *zkSession) {
	t.Helper()
	for !closeForeign(t, o, z) {
		if t.Context().Err() != nil {
			t.Fatal("the session does not expire")
		}
	}
}

func closeForeign(t *testing.T, o Options, z *zkSession) (gone bool) {
	t.Helper()
	addr, _, _ := strings.Cut(o.Connect, "/")
	c, err := net.Dial("tcp", addr)
	if o.TLS != nil {
		c, err = tls.Dial("tcp", addr, o.TLS)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(connectFrame(0, z.timeout, z.id, z.password)); err != nil {
		return false
	}
	frame, err := readFrame(c, replyBytesMax)
	if err != nil {
		return false
	}
	if answer, err := decodeConnected(frame); err != nil || answer.timeout == 0 {
		return err == nil
	}
	end := newFrame(opCloseSession, 0)
	seal(end, firstXid)
	if _, err := c.Write(end); err == nil {
		_, _ = readFrame(c, replyBytesMax)
	}
	return false
}
