package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/coord"
	"klamm/internal/coord/etcdstore"
	"klamm/internal/coord/memstore"
)

// stopped fills a store as a stopped cluster leaves it.
func stopped(t *testing.T, s coord.Store) {
	t.Helper()
	if err := coord.EnsurePersistentPaths(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ops := []coord.Op{
		coord.Create(coord.ControllerEpochPath, []byte("7")),
		coord.Create("/cluster", nil), coord.Create(coord.ClusterIDPath, []byte(`{"version":"1","id":"wpMVfTiOSKGq3eACY1zEjA"}`)),
		coord.Create(coord.ConfigChangesPath+"/config_change_0000000003", []byte(`{"version":2,"entity_path":"topics/t0"}`)),
		coord.Create(coord.ConfigTypePath(coord.BrokerConfigs)+"/<default>", []byte(`{"version":1,"config":{"a":"b"}}`)),
		coord.Create("/foreign", []byte{0, 1, 2}),
	}
	for i := range 5 {
		ops = append(ops, coord.Set(coord.BrokerSequencePath, nil, int32(i)))
	}
	for i := range 700 {
		topic := fmt.Sprintf("t%d", i)
		ops = append(ops, coord.Create(coord.TopicPath(topic), []byte(`{"partitions":{"0":[1]},"topic_id":"iXSowKrDRC-SdTPijpkHgQ"}`)),
			coord.Create(coord.PartitionsPath(topic), nil), coord.Create(coord.PartitionsPath(topic)+"/0", nil),
			coord.Create(coord.PartitionsPath(topic)+"/0/state", []byte(`{"leader":-1}`)))
	}
	results, err := s.Batch(t.Context(), nil, ops)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			t.Fatal(r)
		}
	}
}

func read(t *testing.T, s coord.Store) Tree {
	t.Helper()
	tree, err := Read(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestATreeGoesToEtcdAndBack(t *testing.T) {
	from := memstore.New().Client()
	stopped(t, from)
	source := read(t, from)
	wantCounts := []Count{{"topics", 700}, {"partition states", 700}, {"configs of topics", 0}, {"other configs, users and quotas", 1}, {"ACLs", 0},
		{"delegation tokens", 0}, {"deletions", 0}, {"other nodes", len(source.Nodes) - 1401}}
	if d := cmp.Diff(wantCounts, source.Counts()); d != "" || source.Skipped != 1 {
		t.Errorf("%s, %d skipped", d, source.Skipped)
	}
	dir := filepath.Join(t.TempDir(), "etcd")
	engine, err := etcdstore.Embedded(t.Context(), etcdstore.EmbeddedConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	written, err := Copy(t.Context(), source, engine.Store(), func(n int) { said = n })
	if err != nil || written != len(source.Nodes) || said != written {
		t.Fatalf("%d of %d written, %d said, %v", written, len(source.Nodes), said, err)
	}
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	if engine, err = etcdstore.Embedded(t.Context(), etcdstore.EmbeddedConfig{Dir: dir, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	inEtcd := read(t, engine.Store())
	if source.Checksum() != inEtcd.Checksum() {
		t.Errorf("after a restart the checksum is %s, want %s", inEtcd.Checksum(), source.Checksum())
	}
	seq, err := engine.Store().Get(t.Context(), coord.BrokerSequencePath)
	if err != nil || seq.Stat.Version != 5 {
		t.Errorf("the last id that was handed out is %d, want 5; %v", seq.Stat.Version, err)
	}
	back := memstore.New().Client()
	if _, err := Copy(t.Context(), inEtcd, back, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, back).Checksum(); got != source.Checksum() {
		t.Errorf("back again the checksum is %s, want %s", got, source.Checksum())
	}
}

func TestACopyThatBrokeOffGoesOn(t *testing.T) {
	from, to := memstore.New().Client(), memstore.New().Client()
	stopped(t, from)
	source := read(t, from)
	calls := 0
	broke := errors.New("broke off")
	to.SetHook(func(c memstore.Call) memstore.Fault {
		if c.Method == "Batch" {
			if calls++; calls == 3 {
				return memstore.Fault{Err: broke}
			}
		}
		return memstore.Fault{}
	})
	written, err := Copy(t.Context(), source, to, nil)
	if !errors.Is(err, broke) || written != 2*copyChunk {
		t.Fatalf("%d written, %v", written, err)
	}
	again, err := Copy(t.Context(), source, to, nil)
	if err != nil || again != len(source.Nodes)-written {
		t.Fatalf("%d written, %v", again, err)
	}
	if n, err := Copy(t.Context(), source, to, nil); n != 0 || err != nil {
		t.Errorf("a third time wrote %d, %v", n, err)
	}
}

func TestATargetThatHoldsSomethingElseIsRefused(t *testing.T) {
	changes := map[string]coord.Op{
		"a node that the source has not": coord.Create("/brokers/topics/other", nil),
		"other data":                     coord.Set(coord.ControllerEpochPath, []byte("9"), coord.AnyVersion),
		"higher broker ids":              coord.Set(coord.BrokerSequencePath, nil, coord.AnyVersion),
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			from, to := memstore.New().Client(), memstore.New().Client()
			stopped(t, from)
			stopped(t, to)
			if _, err := to.Multi(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			n, err := Copy(t.Context(), read(t, from), to, nil)
			var conflict *ConflictError
			if n != 0 || !errors.As(err, &conflict) || conflict.Count != 1 || conflict.Paths[0] != change.Path {
				t.Errorf("%d written, %v", n, err)
			}
		})
	}
}

func TestARunningClusterIsRefused(t *testing.T) {
	for path, data := range map[string]string{coord.ControllerPath: `{"brokerid":1}`, coord.BrokerPath(1): "{}", coord.MigrationPath: "{}"} {
		t.Run(path[1:], func(t *testing.T) {
			s := memstore.New().Client()
			stopped(t, s)
			session, err := s.OpenSession(t.Context(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = session.Close(context.Background()) }()
			if _, err := s.Multi(t.Context(), coord.CreateEphemeral(path, []byte(data), session)); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(t.Context(), s, nil); !errors.Is(err, ErrRunning) {
				t.Errorf("read: %v", err)
			}
			if n, err := Copy(t.Context(), Tree{}, s, nil); n != 0 || !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "target") {
				t.Errorf("copied %d to it: %v", n, err)
			}
		})
	}
}

func TestTheChecksumTellsTreesApart(t *testing.T) {
	node := func(path, data string, version int32) coord.Node {
		return coord.Node{Path: path, Data: []byte(data), Stat: coord.Stat{Version: version}}
	}
	trees := [][]coord.Node{
		{}, {node("/a", "", 0)}, {node("/a", "b", 0)}, {node("/ab", "", 0)}, {node("/a", "", 0), node("/b", "", 0)},
		{node("/brokers/seqid", "", 0)}, {node("/brokers/seqid", "", 1)},
	}
	seen := map[string]int{}
	for i, nodes := range trees {
		sum := Tree{Nodes: nodes}.Checksum()
		if other, ok := seen[sum]; ok {
			t.Errorf("trees %d and %d have one checksum", other, i)
		}
		seen[sum] = i
	}
	a, b := Tree{Nodes: []coord.Node{node("/a", "x", 0)}}, Tree{Nodes: []coord.Node{node("/a", "x", 9)}}
	if a.Checksum() != b.Checksum() {
		t.Error("data versions other than that of /brokers/seqid count")
	}
}
