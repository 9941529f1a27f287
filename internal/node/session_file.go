package node

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"klamm/internal/commitlog"
	"klamm/internal/coord"
	"klamm/internal/vfs"
)

// sessionFile, in the log dirs, holds the id of the session that the broker has in the coordination engine. A broker that was killed
// and starts again ends that session, since nobody else will before its time is over: until then the cluster would take the
// broker for alive and refuse it as another one of the same id. It holds the locks of its log dirs by then, so no older
// process of it can be alive.
const sessionFile = ".klamm_session"

// formerSessions reads what former processes left. Files that cannot be read tell nothing: their session ends by itself.
func formerSessions(dirs []commitlog.DirSpec, clusterID string) []int64 {
	var out []int64
	for _, d := range dirs {
		if d.Err != nil {
			continue
		}
		data, err := vfs.ReadFile(d.FS, sessionFile)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(data))
		if len(fields) != 2 || fields[0] != clusterID {
			continue
		}
		if id, err := strconv.ParseInt(fields[1], 16, 64); err == nil {
			out = append(out, id)
		}
	}
	return out
}

// rememberSession writes the session's id to the first log dir that takes it.
func rememberSession(dirs []commitlog.DirSpec, clusterID string, session int64) error {
	var last error
	for _, d := range dirs {
		if d.Err != nil {
			continue
		}
		if last = writeSession(d.FS, clusterID, session); last == nil {
			return nil
		}
	}
	return last
}

func writeSession(fs vfs.FS, clusterID string, session int64) error {
	text := fmt.Sprintf("%s %x\n", clusterID, session)
	if err := vfs.WriteFile(fs, sessionFile+".new", []byte(text)); err != nil {
		return err
	}
	return fs.Rename(sessionFile+".new", sessionFile)
}

// endFormerSessions ends the sessions of this broker's former processes.
func (b *broker) endFormerSessions(ctx context.Context) {
	ender, ok := b.store.(coord.SessionEnder)
	if !ok {
		return
	}
	for _, id := range formerSessions(b.dirs, b.clusterID) {
		if err := ender.EndSession(ctx, id); err != nil {
			b.log.Warn("cannot end the session of the former process, it will expire", "session", id, "err", err)
		}
	}
}
