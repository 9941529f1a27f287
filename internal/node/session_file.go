package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/coord"
	"klamm/internal/vfs"
)

// sessionFile, in the log dirs, holds the session that the broker has in the coordination engine: one line with the cluster
// id, the session's id in hex and, where the engine has one, its key in hex. A broker that was killed and starts again ends
// that session, since nobody else will before its time is over: until then the cluster would take the broker for alive and
// refuse it as another one of the same id. It holds the locks of its log dirs by then, so no older process of it can be
// alive. The file is readable by its owner only: who has the key can end the session of a live broker.
const (
	sessionFile     = ".klamm_session"
	sessionFilePerm = 0o600
)

// formerSession is a session that an earlier process of this broker had.
type formerSession struct {
	id  int64
	key []byte // nil where the engine has none
}

// formerSessions reads what former processes left. Files that cannot be read tell nothing: their session ends by itself.
func formerSessions(dirs []commitlog.DirSpec, clusterID string) []formerSession {
	var out []formerSession
	for _, d := range dirs {
		if d.Err != nil {
			continue
		}
		data, err := vfs.ReadFile(d.FS, sessionFile)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(data))
		if len(fields) < 2 || len(fields) > 3 || fields[0] != clusterID {
			continue
		}
		var s formerSession
		if s.id, err = strconv.ParseInt(fields[1], 16, 64); err != nil {
			continue
		}
		if len(fields) == 3 {
			if s.key, err = hex.DecodeString(fields[2]); err != nil {
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// rememberSession writes the session to the first log dir that takes it.
func rememberSession(dirs []commitlog.DirSpec, clusterID string, s formerSession) error {
	var last error
	for _, d := range dirs {
		if d.Err != nil {
			continue
		}
		if last = writeSession(d.FS, clusterID, s); last == nil {
			return nil
		}
	}
	return last
}

func writeSession(fs vfs.FS, clusterID string, s formerSession) error {
	text := fmt.Sprintf("%s %x", clusterID, s.id)
	if len(s.key) > 0 {
		text += " " + hex.EncodeToString(s.key)
	}
	f, err := fs.OpenFile(sessionFile+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, sessionFilePerm)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text+"\n"), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fs.Rename(sessionFile+".new", sessionFile)
}

// endFormerSessions ends the sessions of this broker's former processes. One under which a broker of this id advertises other
// addresses is left alone: the log dirs may be a copy of those of a broker that lives elsewhere.
func (b *broker) endFormerSessions(ctx context.Context) {
	ender, ok := b.store.(coord.SessionEnder)
	if !ok {
		return
	}
	for _, s := range formerSessions(b.dirs, b.clusterID) {
		name := fmt.Sprintf("%#x", s.id)
		if elsewhere, holder := b.isRegisteredElsewhere(ctx, s.id); elsewhere {
			b.log.Warn("the session in the log dirs belongs to a broker with other addresses, it is left alone", "session", name, "broker", b.cfg.ID, "registration", holder)
			continue
		}
		if err := ender.EndSession(ctx, s.id, s.key); err != nil {
			b.log.Warn("cannot end the session of the former process, it will expire", "session", name, "err", err)
		}
	}
}

// isRegisteredElsewhere reports whether a session holds a registration of this id with other addresses than this broker's.
func (b *broker) isRegisteredElsewhere(ctx context.Context, session int64) (elsewhere bool, registration string) {
	node, err := b.store.Get(ctx, coord.BrokerPath(b.cfg.ID))
	if err != nil || node.Stat.EphemeralOwner != session {
		return false, ""
	}
	holder, err := coord.DecodeBroker(node.Data)
	return err != nil || !slices.EqualFunc(holder.Endpoints, b.reg.node.Endpoints, b.mayBeMine), string(node.Data)
}

// mayBeMine compares an address with that of a listener, whose port is another after each start where it is configured as 0.
func (b *broker) mayBeMine(theirs, mine cluster.Endpoint) bool {
	for _, l := range b.cfg.AdvertisedListeners {
		if l.Port == 0 && l.Name == mine.Listener {
			theirs.Port = mine.Port
		}
	}
	return theirs == mine
}
