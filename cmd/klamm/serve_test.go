package main

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"klamm/internal/config"
)

func TestServeOptions(t *testing.T) {
	got, err := parseServe([]string{"a.properties", "--override", "num.partitions=3", "--override=x=1", "--log-format", "json", "--log-level=debug"})
	if err != nil {
		t.Fatal(err)
	}
	if got.file != "a.properties" || !slices.Equal(got.overrides, []string{"num.partitions=3", "x=1"}) || got.logFormat != "json" || got.logLevel != slog.LevelDebug {
		t.Errorf("parsed as %+v", got)
	}
}

func TestServeOptionMistakesAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"--override":            "--override needs a value",
		"--override nothing":    "want key=value",
		"--log-format=xml":      "want text or json",
		"--log-level loud":      "want debug, info, warn or error",
		"--no-such-option":      "is not an option",
		"a.properties b.proper": "only one configuration file",
	} {
		if _, err := parseServe(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// The README promises that the help lists klamm's own keys.
func TestTheHelpNamesEveryOwnKey(t *testing.T) {
	help := strings.ReplaceAll(serveHelp, "etcd.tls.*", "etcd.tls.ca etcd.tls.cert etcd.tls.key")
	for _, d := range config.BrokerKeys() {
		if d.Own && !strings.Contains(help, d.Name) {
			t.Errorf("klamm serve --help does not name %s", d.Name)
		}
	}
}

func TestCommandsAndExitCodes(t *testing.T) {
	for _, c := range []struct {
		args           string
		exit           int
		stdout, stderr string
	}{
		{"", 2, "", "Usage:"},
		{"help", 0, "klamm serve", ""},
		{"version", 0, "klamm ", ""},
		{"sevre", 2, "", `"sevre" is not a command`},
		{"serve --help", 0, "web.listen", ""},
		{"serve --bad", 2, "", "is not an option"},
		{"serve /does/not/exist.properties", 1, "", "/does/not/exist.properties"},
	} {
		var stdout, stderr bytes.Buffer
		if exit := run(strings.Fields(c.args), &stdout, &stderr); exit != c.exit {
			t.Errorf("klamm %s: exit code %d, want %d", c.args, exit, c.exit)
		}
		if !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("klamm %s\nstdout: %s\nstderr: %s", c.args, stdout.String(), stderr.String())
		}
	}
}
