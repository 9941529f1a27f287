package node

import (
	"context"
	"errors"
	"time"

	"klamm/internal/commitlog"
	"klamm/internal/coord"
)

// dirFailures tells the controller of failed log dirs, by a notification in the store; it then probes this broker's
// replicas and elects other leaders (Kafka: LogDirFailureHandler). When no dir is left the broker stops.
type dirFailures struct {
	b      *broker
	failed chan string // as many as there are dirs: a dir fails once
}

func newDirFailures(b *broker) *dirFailures {
	return &dirFailures{b: b, failed: make(chan string, len(b.cfg.LogDirs))}
}

// report takes note of a failed dir; it does not block.
func (f *dirFailures) report(dir string) {
	select {
	case f.failed <- dir:
	default:
		panic("node: log dir " + dir + " failed twice")
	}
}

// run announces failures until ctx ends; an announcement is tried until the store takes it. It ends with an error once
// every dir has failed.
func (f *dirFailures) run(ctx context.Context) error {
	for {
		var dir string
		select {
		case <-ctx.Done():
			return nil
		case dir = <-f.failed:
		}
		if allOffline(f.b.logs.Dirs()) {
			return errors.New("every log dir has failed: look at the disk errors in the log, repair the disks and start again")
		}
		f.announce(ctx, dir)
	}
}

func allOffline(dirs []commitlog.DirStatus) bool {
	for _, d := range dirs {
		if d.Online {
			return false
		}
	}
	return true
}

func (f *dirFailures) announce(ctx context.Context, dir string) {
	for {
		_, err := f.b.store.Multi(ctx, coord.CreateSequential(coord.LogDirEventPrefix, coord.EncodeLogDirEvent(f.b.cfg.ID)))
		if err == nil || ctx.Err() != nil {
			return
		}
		f.b.log.Warn("cannot tell the controller of a failed log dir, trying again", "dir", dir, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
