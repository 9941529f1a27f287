package loglevel

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// written gives the messages that a logger lets pass, one tried at each level.
func written(out *bytes.Buffer, log *slog.Logger) string {
	out.Reset()
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		log.Log(context.Background(), level, "m"+level.String())
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(line, "msg=m")
		level, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		got = append(got, level)
	}
	return strings.Join(got, " ")
}

func TestALoggerHasTheRootsLevelUntilItHasItsOwn(t *testing.T) {
	var out bytes.Buffer
	l := New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: Trace}), slog.LevelInfo)
	root, states := l.Logger(Root), l.Logger(StateChange).With("a", 1).WithGroup("g")
	for _, step := range []struct {
		name         string
		do           func()
		root, states string
		level        string
	}{
		{"at first", func() {}, "INFO WARN ERROR", "INFO WARN ERROR", "INFO"},
		{"its own", func() { l.Set(StateChange, slog.LevelDebug) }, "INFO WARN ERROR", "DEBUG INFO WARN ERROR", "DEBUG"},
		{"the root's changes", func() { l.Set(Root, slog.LevelError) }, "ERROR", "DEBUG INFO WARN ERROR", "DEBUG"},
		{"nothing at all", func() { l.Set(StateChange, Fatal) }, "ERROR", "", "FATAL"},
		{"the root's again", func() { l.Unset(StateChange) }, "ERROR", "ERROR", "ERROR"},
		{"the root keeps its own", func() { l.Unset(Root) }, "ERROR", "ERROR", "ERROR"},
		{"everything", func() { l.Set(Root, Trace) }, "DEBUG INFO WARN ERROR", "DEBUG INFO WARN ERROR", "TRACE"},
	} {
		step.do()
		if got := written(&out, root); got != step.root {
			t.Errorf("%s: the root writes %q, want %q", step.name, got, step.root)
		}
		if got := written(&out, states); got != step.states {
			t.Errorf("%s: the state-change log writes %q, want %q", step.name, got, step.states)
		}
		if got := l.Level(StateChange); got != step.level {
			t.Errorf("%s: its level is %s", step.name, got)
		}
	}
	if !strings.Contains(out.String(), "a=1") {
		t.Errorf("attributes are lost: %s", out.String())
	}
}

func TestBrokersOfOneProcessHaveLevelsOfTheirOwn(t *testing.T) {
	var out bytes.Buffer
	to := slog.New(slog.NewTextHandler(&out, nil))
	one, two := New(to.With("self", 1).Handler(), slog.LevelWarn), New(to.With("self", 2).Handler(), slog.LevelWarn)
	one.Set(Root, slog.LevelError)
	if got := one.Level(Root) + " " + two.Level(Controller); got != "ERROR WARN" {
		t.Errorf("levels %s", got)
	}
	two.Logger(Controller).Warn("x")
	if !strings.Contains(out.String(), "msg=x self=2") {
		t.Errorf("written %q", out.String())
	}
}

func TestLevelsHaveKafkasNames(t *testing.T) {
	want := []string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
	if got := Valid(); !slices.Equal(got, want) {
		t.Errorf("levels %v", got)
	}
	for _, name := range want {
		if level, err := Parse(name); err != nil || nameOf(level) != name {
			t.Errorf("%s is read as %v, %v", name, level, err)
		}
	}
	for _, bad := range []string{"", "debug", "ALL", "OFF"} {
		if level, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %v", bad, level)
		}
	}
	if got := nameOf(slog.LevelInfo + 2); got != "INFO" {
		t.Errorf("between INFO and WARN: %s", got)
	}
	l := New(slog.DiscardHandler, slog.LevelInfo)
	if got := l.Names(); !slices.IsSorted(got) || !slices.Contains(got, Root) || l.Exists("nope") || !l.Exists(Controller) {
		t.Errorf("loggers %v", got)
	}
}
