package wire

import (
	"sync"
	"time"
)

const (
	logInterval   = 10 * time.Second // one line per remote address in this time
	logRemotesMax = 1024
)

// logLimiter keeps a remote address that sends garbage in a loop from filling the log.
type logLimiter struct {
	mu struct {
		sync.Mutex
		remotes map[string]*loggedRemote
	}
}

type loggedRemote struct {
	last       time.Time
	suppressed int
}

func newLogLimiter() *logLimiter {
	l := &logLimiter{}
	l.mu.remotes = map[string]*loggedRemote{}
	return l
}

// allow reports whether a line about the address may be written now, and how many were not since the last one.
func (l *logLimiter) allow(host string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.mu.remotes[host]
	if r == nil {
		if len(l.mu.remotes) >= logRemotesMax {
			l.forgetLocked(now)
		}
		l.mu.remotes[host] = &loggedRemote{last: now}
		return 0, true
	}
	if now.Sub(r.last) < logInterval {
		r.suppressed++
		return 0, false
	}
	suppressed = r.suppressed
	*r = loggedRemote{last: now}
	return suppressed, true
}

// forgetLocked drops addresses whose interval is over, or all when that frees nothing.
func (l *logLimiter) forgetLocked(now time.Time) {
	for host, r := range l.mu.remotes {
		if now.Sub(r.last) >= logInterval {
			delete(l.mu.remotes, host)
		}
	}
	if len(l.mu.remotes) >= logRemotesMax {
		clear(l.mu.remotes)
	}
}
