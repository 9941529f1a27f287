package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestToolsSayWhatIsWrongWithTheirUse(t *testing.T) {
	dir := t.TempDir()
	tests := map[string]struct {
		args string
		exit int
		says string
	}{
		"doctor without a cluster":         {"doctor", exitUsage, "--zookeeper or --config"},
		"doctor of an unknown option":      {"doctor --zookeper a:1", exitUsage, "klamm doctor --help"},
		"doctor with an option cut short":  {"doctor --zookeeper", exitUsage, "needs a value"},
		"doctor in another format":         {"doctor --zookeeper a:1 -o yaml", exitUsage, "text or json"},
		"doctor without a pause":           {"doctor --zookeeper a:1 --pause x", exitUsage, "duration"},
		"doctor that is to agree":          {"doctor --zookeeper a:1 --yes", exitUsage, "goes with repair"},
		"doctor of another word":           {"doctor heal --zookeeper a:1", exitUsage, `"heal"`},
		"doctor of a file that is missing": {"doctor --config " + filepath.Join(dir, "none"), exitUsage, "none"},
		"doctor of a chroot that is none":  {"doctor --zookeeper a:1//b", exitUnavailable, "not a path"},
		"migrate of nothing":               {"migrate", 2, "zookeeper-to-etcd"},
		"migrate without a directory":      {"migrate zookeeper-to-etcd --zookeeper a:1", 2, "--etcd-data-dir"},
		"migrate to two places":            {"migrate zookeeper-to-etcd --zookeeper a:1 --etcd-data-dir d --etcd-config f", 2, "or by --etcd-config"},
		"migrate by no file":               {"migrate zookeeper-to-etcd --zookeeper a:1 --etcd-config " + dir + "/absent", 2, "absent"},
		"migrate before and after":         {"migrate zookeeper-to-etcd --zookeeper a:1 --etcd-data-dir d --dry-run --verify", 2, "one of them"},
		"migrate from an etcd that is not": {"migrate etcd-to-zookeeper --zookeeper a:1 --etcd-data-dir " + dir, 1, "holds no etcd"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs strings.Builder
			if exit := run(strings.Fields(c.args), &out, &errs); exit != c.exit || !strings.Contains(errs.String(), c.says) || out.Len() > 0 {
				t.Errorf("exit %d, want %d; stdout %q, stderr %q", exit, c.exit, out.String(), errs.String())
			}
		})
	}
	for _, cmd := range []string{"doctor", "migrate"} {
		var out, errs strings.Builder
		if exit := run([]string{cmd, "--help"}, &out, &errs); exit != 0 || !strings.Contains(out.String(), "Exit codes") || errs.Len() > 0 {
			t.Errorf("%s --help: exit %d, %q, %q", cmd, exit, out.String(), errs.String())
		}
	}
}
