package doctor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"klamm/internal/cluster"
)

func TestALogDirIsReadAsItLies(t *testing.T) {
	dir := t.TempDir()
	id := cluster.TopicID{1: 2, 15: 3}
	for name, text := range map[string]string{
		"meta.properties":               "#\n#Mon Nov 30 02:00:00 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=abc\n",
		"t-0/00000000000000000000.log":  "12345",
		"t-0/partition.metadata":        "version: 0\ntopic_id: " + id.String(),
		"t-1.0123-delete/x.log.deleted": "1",
		".lock":                         "",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := ReadLogDirs([]string{dir, filepath.Join(dir, "absent")})
	if got[0].Broker != 7 || got[0].ClusterID != "abc" || got[0].Err != "" || len(got[0].Entries) != 2 {
		t.Fatalf("read %+v", got[0])
	}
	replica, deleted := got[0].Entries[0], got[0].Entries[1]
	if replica.Name != "t-0" || replica.TopicID != id || replica.Bytes < 5 || time.Since(replica.Changed) > time.Minute {
		t.Errorf("replica %+v", replica)
	}
	if deleted.Name != "t-1.0123-delete" || deleted.Bytes != 1 || !deleted.TopicID.IsZero() {
		t.Errorf("deleted %+v", deleted)
	}
	if got[1].Err == "" || got[1].Broker != cluster.NoBroker {
		t.Errorf("an absent dir: %+v", got[1])
	}
}
