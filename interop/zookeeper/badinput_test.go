//go:build interop

package zookeeper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"klamm/internal/coord"
)

// TestKlammSaysWhyItDoesNotStart starts a broker on a ZooKeeper that is away, of another cluster, locked, or migrating to
// KRaft: each time it ends by itself and names the reason, and so do the tools that look at a ZooKeeper.
func TestKlammSaysWhyItDoesNotStart(t *testing.T) {
	c := newCluster(t, klamm)
	c.start(0)
	c.stop(0)
	for _, path := range []string{"/locked", "/locked/brokers", "/moving", "/hidden", "/hidden/brokers", "/hidden/brokers/topics"} {
		if _, err := c.store.Multi(t.Context(), coord.Create(path, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.store.Multi(t.Context(), coord.Create("/moving/migration", []byte(`{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1}`))); err != nil {
		t.Fatal(err)
	}
	for path, rights := range map[string]string{"/locked/brokers": "r", "/locked": "r", "/hidden/brokers/topics": "a"} {
		out, err := exec.Command("java", java(t, kafka, "org.apache.zookeeper.ZooKeeperMain", "-server", c.zk, "setAcl", path, "world:anyone:"+rights)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	nobody := freeAddr(t)
	for _, wrong := range []struct {
		name, connect, data string
		want                []string
	}{
		{"nobody listens", nobody, "", []string{"zookeeper.connect=" + nobody, "connection refused", "within 2s"}},
		{"no host", "/kafka", "", []string{"zookeeper.connect", "no server is named"}},
		{"the chroot of another cluster", c.zk + "/elsewhere", filepath.Join(c.brokers[0].dir, "data"), []string{"meta.properties belongs to cluster.id=", c.zk + "/elsewhere"}},
		{"a tree that may only be read", c.zk + "/locked", "", []string{"no permission", "zookeeper.set.acl", "create /"}},
		{"a cluster that migrates to KRaft", c.zk + "/moving", "", []string{"/migration says that the cluster migrates to KRaft (controller 3000, epoch 1)"}},
	} {
		data := wrong.data
		if data == "" {
			data = t.TempDir()
		}
		conf := c.write("wrong.properties", fmt.Sprintf("broker.id=0\nlisteners=PLAINTEXT://%s\nlog.dirs=%s\nzookeeper.connect=%s\nzookeeper.connection.timeout.ms=2000\nweb.listen=\n",
			freeAddr(t), data, wrong.connect))
		out, err := exec.CommandContext(t.Context(), klammBinary, "serve", conf).CombinedOutput()
		if err == nil {
			t.Errorf("%s: klamm ended as if all were well", wrong.name)
		}
		for _, want := range wrong.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: klamm does not say %q:\n%s", wrong.name, want, out)
			}
		}
	}

	away := c.write("away.properties", fmt.Sprintf("zookeeper.connect=%s\nzookeeper.connection.timeout.ms=1000\n", nobody))
	dir := filepath.Join(c.dir, "etcd")
	for _, tool := range []struct {
		name, args string
		exit       int
		want       []string
	}{
		{"doctor, nobody listens", "doctor --config " + away, 69, []string{"zookeeper.connect=" + nobody, "connection refused", "within 1s"}},
		{"doctor, no such chroot", "doctor --zookeeper " + c.zk + "/none", 69, []string{c.zk + "/none", "chroot"}},
		{"doctor, nothing below the chroot", "doctor --zookeeper " + c.zk + "/locked --pause 10ms", 2, []string{"no-brokers", "zookeeper.connect"}},
		{"doctor, no right to read", "doctor --zookeeper " + c.zk + "/hidden --pause 10ms", 2, []string{"not-permitted", "/brokers/topics: ", "--config"}},
		{"doctor, migrating to KRaft", "doctor --zookeeper " + c.zk + "/moving --pause 10ms", 1, []string{"kraft-migration", `/migration: {"version":0`}},
		{"repair, nobody listens", "doctor repair --config " + away, 69, []string{"connection refused"}},
		{"migrate, nobody listens", "migrate zookeeper-to-etcd --config " + away + " --etcd-data-dir " + dir, 1, []string{"connection refused"}},
		{"migrate, no such chroot", "migrate zookeeper-to-etcd --zookeeper " + c.zk + "/none --etcd-data-dir " + dir, 1, []string{c.zk + "/none", "chroot"}},
		{"migrate, no right to read", "migrate zookeeper-to-etcd --zookeeper " + c.zk + "/hidden --etcd-data-dir " + dir, 1, []string{"/brokers/topics", "no permission"}},
		{"migrate, migrating to KRaft", "migrate zookeeper-to-etcd --zookeeper " + c.zk + "/moving --etcd-data-dir " + dir, 1, []string{"not stopped", "/migration says"}},
	} {
		cmd := exec.CommandContext(t.Context(), klammBinary, strings.Fields(tool.args)...)
		out, _ := cmd.CombinedOutput() // the exit code says more
		if exit := cmd.ProcessState.ExitCode(); exit != tool.exit {
			t.Errorf("%s: exit %d, want %d\n%s", tool.name, exit, tool.exit, out)
		}
		for _, want := range tool.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: it does not say %q:\n%s", tool.name, want, out)
			}
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a migration that was refused made an etcd")
	}
}
