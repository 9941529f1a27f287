// Package loglevel keeps the levels of a broker's loggers, which can be seen and changed while the broker runs (Kafka: Log4jController). All
// loggers write to the same place; each has a name, and the level of the root logger as long as it has none of its own.
package loglevel

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
)

// The loggers, by Kafka's names.
const (
	Root        = "root"
	Authorizer  = "kafka.authorizer.logger" // who was refused what
	Controller  = "kafka.controller"
	StateChange = "state.change.logger" // every transition of a partition or replica, at debug
)

// Trace and Fatal are the levels that Kafka has beyond slog's. Nothing is written at either: at Trace a logger writes all, at Fatal nothing.
const (
	Trace = slog.LevelDebug - 4
	Fatal = slog.LevelError + 4
)

// names of the levels, the lowest first.
var names = []struct {
	level slog.Level
	name  string
}{{Trace, "TRACE"}, {slog.LevelDebug, "DEBUG"}, {slog.LevelInfo, "INFO"}, {slog.LevelWarn, "WARN"}, {slog.LevelError, "ERROR"}, {Fatal, "FATAL"}}

// Valid lists the names of the levels, from the one that writes all on.
func Valid() []string {
	var out []string
	for _, n := range names {
		out = append(out, n.name)
	}
	return out
}

// Parse reads the name of a level, in capitals as Kafka wants it.
func Parse(name string) (slog.Level, error) {
	for _, n := range names {
		if n.name == name {
			return n.level, nil
		}
	}
	return 0, fmt.Errorf("%q is no log level: want one of %s", name, strings.Join(Valid(), ", "))
}

// nameOf is the name of a level, or of the next lower one that has a name.
func nameOf(level slog.Level) string {
	out := names[0].name
	for _, n := range names {
		if level >= n.level {
			out = n.name
		}
	}
	return out
}

// Levels holds the loggers of one broker. It is safe for concurrent use.
type Levels struct {
	to      slog.Handler
	root    slog.LevelVar
	loggers []*logger // by name, root included
}

// logger is one logger's level.
type logger struct {
	name string
	root *slog.LevelVar
	own  atomic.Pointer[slog.Level] // nil: the root's; always nil of the root logger
}

// Level implements slog.Leveler.
func (l *logger) Level() slog.Level {
	if own := l.own.Load(); own != nil {
		return *own
	}
	return l.root.Level()
}

// New makes the loggers. What they write goes to a handler; a level below what that handler lets pass has no effect.
func New(to slog.Handler, root slog.Level) *Levels {
	l := &Levels{to: to}
	l.root.Set(root)
	for _, name := range []string{Root, Authorizer, Controller, StateChange} {
		l.loggers = append(l.loggers, &logger{name: name, root: &l.root})
	}
	slices.SortFunc(l.loggers, func(a, b *logger) int { return strings.Compare(a.name, b.name) })
	return l
}

func (l *Levels) find(name string) *logger {
	for _, g := range l.loggers {
		if g.name == name {
			return g
		}
	}
	return nil
}

// Exists reports whether there is a logger of that name.
func (l *Levels) Exists(name string) bool { return l.find(name) != nil }

// Logger returns the logger of a name, which must exist.
func (l *Levels) Logger(name string) *slog.Logger {
	return slog.New(handler{l.to, l.find(name)})
}

// Names lists the loggers in order.
func (l *Levels) Names() []string {
	var out []string
	for _, g := range l.loggers {
		out = append(out, g.name)
	}
	return out
}

// Level names the level that a logger, which must exist, has: its own or the root's.
func (l *Levels) Level(name string) string { return nameOf(l.find(name).Level()) }

// Set gives a logger, which must exist, a level of its own.
func (l *Levels) Set(name string, level slog.Level) {
	if name == Root {
		l.root.Set(level)
		return
	}
	l.find(name).own.Store(&level)
}

// Unset gives a logger, which must exist, the root's level. The root keeps its own.
func (l *Levels) Unset(name string) { l.find(name).own.Store(nil) }

// handler lets pass what its logger's level does.
type handler struct {
	slog.Handler
	at slog.Leveler
}

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.at.Level() && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs), h.at}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name), h.at} }
