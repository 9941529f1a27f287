//go:build interop

package zookeeper

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"klamm/internal/coord"
)

// TestKlammSaysWhyItDoesNotStart starts a broker on a ZooKeeper that is away, of another cluster, locked, or migrating to
// KRaft: each time it ends by itself and names the reason.
func TestKlammSaysWhyItDoesNotStart(t *testing.T) {
	c := newCluster(t, klamm)
	c.start(0)
	c.stop(0)
	for _, path := range []string{"/locked", "/locked/brokers", "/moving"} {
		if _, err := c.store.Multi(t.Context(), coord.Create(path, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.store.Multi(t.Context(), coord.Create("/moving/migration", []byte(`{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1}`))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/locked/brokers", "/locked"} {
		out, err := exec.Command("java", "-cp", jars(t, kafka), "org.apache.zookeeper.ZooKeeperMain", "-server", c.zk, "setAcl", path, "world:anyone:r").CombinedOutput()
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
}
