package wire

import (
	"sync"
	"time"
)

const (
	logInterval    = 10 * time.Second // one line per subject in this time
	logSubjectsMax = 1024
)

// logLimiter keeps a remote address that sends garbage in a loop from filling the log. It goes by address, listener and reason:
// many clients share an address, behind a NAT or on a developer's machine, and the faults of one must not hide another's.
type logLimiter struct {
	mu struct {
		sync.Mutex
		subjects map[logSubject]*loggedSubject
	}
}

// logSubject is what a line is about. Its reason is one of few constants, never what a client sent.
type logSubject struct{ host, listener, reason string }

type loggedSubject struct {
	last       time.Time
	suppressed int
}

func newLogLimiter() *logLimiter {
	l := &logLimiter{}
	l.mu.subjects = map[logSubject]*loggedSubject{}
	return l
}

// allow reports whether a line about the subject may be written now, and how many were not since the last one.
func (l *logLimiter) allow(about logSubject, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.mu.subjects[about]
	if r == nil {
		if len(l.mu.subjects) >= logSubjectsMax {
			l.forgetLocked(now)
		}
		l.mu.subjects[about] = &loggedSubject{last: now}
		return 0, true
	}
	if now.Sub(r.last) < logInterval {
		r.suppressed++
		return 0, false
	}
	suppressed = r.suppressed
	*r = loggedSubject{last: now}
	return suppressed, true
}

// forgetLocked drops subjects whose interval is over, or all when that frees nothing.
func (l *logLimiter) forgetLocked(now time.Time) {
	for about, r := range l.mu.subjects {
		if now.Sub(r.last) >= logInterval {
			delete(l.mu.subjects, about)
		}
	}
	if len(l.mu.subjects) >= logSubjectsMax {
		clear(l.mu.subjects)
	}
}
