package doctor

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// mendable is a small cluster with everything that can be repaired.
func mendable(t *testing.T) (*memstore.Engine, *memstore.Client) {
	t.Helper()
	e := memstore.New()
	s := e.Client()
	session, err := s.OpenSession(t.Context(), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(context.Background()) })
	if err := coord.EnsurePersistentPaths(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := coord.TryElect(t.Context(), s, session, 0); err != nil {
		t.Fatal(err)
	}
	write(t, s,
		coord.CreateEphemeral(coord.BrokerPath(0), coord.EncodeBroker(coord.BrokerNode{}), session),
		coord.Create(coord.TopicPath("t"), []byte(`{"partitions":{"0":[0]}}`)),
		coord.Create(coord.PartitionsPath("t"), nil),
		coord.Create(coord.PartitionsPath("t")+"/0", nil),
		coord.Create(coord.PartitionsPath("t")+"/0/state", []byte(`{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}`)),
		coord.Create(coord.DeleteTopicPath("gone"), nil),
		coord.Create(coord.DeleteTopicPath("half"), nil),
		coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, "half"), []byte(`{"version":1,"config":{"retention.ms":"1"}}`)),
		coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, "never"), []byte(`{"version":1,"config":{}}`)),
		coord.Create(coord.PreferredElectionPath, []byte(`{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"gone","partition":0}]}`)),
		coord.Create(coord.ReassignPartitionsPath, []byte(`{"version":1,"partitions":[{"topic":"gone","partition":0,"replicas":[1]}]}`)),
	)
	return e, s
}

func write(t *testing.T, s coord.Store, ops ...coord.Op) {
	t.Helper()
	if _, err := s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}
}

func examine(t *testing.T, s coord.Store) []Finding {
	t.Helper()
	o, err := Observe(t.Context(), s, 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Analyse(o)
}

func TestRepairMendsWhatIsSafeAndOnlyThat(t *testing.T) {
	e, s := mendable(t)
	before := e.Dump()
	plan := Plan(examine(t, s))
	if d := cmp.Diff(before, e.Dump()); d != "" {
		t.Errorf("the examination wrote: %s", d)
	}
	var shown strings.Builder
	WritePlan(&shown, plan)
	const want = `  1. remove /config/topics/never
     was  {"version":1,"config":{}}
     only while /brokers/topics/never is absent
  2. rewrite /admin/preferred_replica_election without gone-0
     was  {"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"gone","partition":0}]}
     now  {"version":1,"partitions":[{"topic":"t","partition":0}]}
  3. remove /config/topics/half
     was  {"version":1,"config":{"retention.ms":"1"}}
     only while /brokers/topics/half is absent
  4. remove /admin/delete_topics/half
     only while /brokers/topics/half is absent
  5. remove /admin/delete_topics/gone
     only while /brokers/topics/gone is absent
  6. remove /admin/reassign_partitions
     was  {"version":1,"partitions":[{"topic":"gone","partition":0,"replicas":[1]}]}
`
	if d := cmp.Diff(want, shown.String()); d != "" {
		t.Errorf("the plan: %s", d)
	}
	var log bytes.Buffer
	done, err := Apply(t.Context(), s, plan, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil || done != len(plan) {
		t.Fatalf("%d of %d done, %v\n%s", done, len(plan), err, log.String())
	}
	if n := strings.Count(log.String(), "msg=repaired"); n != len(plan) {
		t.Errorf("%d repairs were logged:\n%s", n, log.String())
	}
	left := map[string]bool{}
	for _, n := range before {
		left[n.Path] = true
	}
	for _, n := range e.Dump() {
		delete(left, n.Path)
	}
	removed := []string{"/admin/delete_topics/gone", "/admin/delete_topics/half", "/admin/reassign_partitions", "/config/topics/half", "/config/topics/never"}
	for _, p := range removed {
		if !left[p] {
			t.Errorf("%s is still there", p)
		}
	}
	if len(left) != len(removed) {
		t.Errorf("removed: %v", left)
	}
	for _, f := range examine(t, s) {
		if f.Code != "election-pending" {
			t.Errorf("still found: %s [%s]", f.Code, f.Subject)
		}
	}
}

func TestRepairPassesOverWhatHasChangedMeanwhile(t *testing.T) {
	changes := map[string]coord.Op{
		"the topic came":           coord.Create(coord.TopicPath("gone"), nil),
		"the marker went":          coord.Delete(coord.DeleteTopicPath("gone"), coord.AnyVersion),
		"the marker was written":   coord.Set(coord.DeleteTopicPath("gone"), nil, coord.AnyVersion),
		"something lies below now": coord.Create(coord.DeleteTopicPath("gone")+"/x", nil),
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			_, s := mendable(t)
			findings := examine(t, s)
			write(t, s, change)
			var log bytes.Buffer
			for _, f := range findings {
				if f.Code == "orphan-marker" {
					done, err := Apply(t.Context(), s, f.Repair, slog.New(slog.NewTextHandler(&log, nil)))
					if done != 0 || err != nil || !strings.Contains(log.String(), `msg="passed over"`) {
						t.Errorf("%d done, %v\n%s", done, err, log.String())
					}
				}
			}
		})
	}
}

// elect makes an election between the look of a repair and its write, a number of times.
func elect(t *testing.T, e *memstore.Engine, s *memstore.Client, times int) {
	other := e.Client()
	s.SetHook(func(c memstore.Call) memstore.Fault {
		if c.Method == "Batch" && times > 0 {
			times--
			write(t, other, coord.Set(coord.ControllerEpochPath, []byte("7"), coord.AnyVersion))
		}
		return memstore.Fault{}
	})
}

func TestRepairLooksAgainWhenAControllerWasElected(t *testing.T) {
	e, s := mendable(t)
	plan := Plan(examine(t, s))
	elect(t, e, s, 5)
	if done, err := Apply(t.Context(), s, plan, slog.New(slog.DiscardHandler)); done != len(plan) || err != nil {
		t.Errorf("%d of %d done, %v", done, len(plan), err)
	}
	e, s = mendable(t)
	plan = Plan(examine(t, s))
	elect(t, e, s, 1<<30)
	before := e.Dump()
	done, err := Apply(t.Context(), s, plan, slog.New(slog.DiscardHandler))
	if done != 0 || !errors.Is(err, coord.ErrFenced) {
		t.Errorf("%d done, %v", done, err)
	}
	if got := len(e.Dump()); got != len(before) {
		t.Errorf("%d nodes, want the same %d", got, len(before))
	}
}

func TestRepairNeedsAControllerEpoch(t *testing.T) {
	_, s := mendable(t)
	plan := Plan(examine(t, s))
	write(t, s, coord.Delete(coord.ControllerEpochPath, coord.AnyVersion))
	if done, err := Apply(t.Context(), s, plan, slog.New(slog.DiscardHandler)); done != 0 || !errors.Is(err, ErrNotGuarded) {
		t.Errorf("%d done, %v", done, err)
	}
}

func TestNodesThatTheStoreDoesNotShowAreReported(t *testing.T) {
	_, s := mendable(t)
	refusal := errors.New("not authorized")
	refused := refusing{s, coord.ConfigTypePath(coord.UserConfigs), refusal}
	for _, f := range examine(t, refused) {
		if f.Code == "not-permitted" {
			want := []Evidence{{coord.ConfigTypePath(coord.UserConfigs), refusal.Error()}}
			if d := cmp.Diff(want, f.Evidence); d != "" {
				t.Error(d)
			}
			return
		}
	}
	t.Error("no finding says so")
}

// refusing is a store that does not list the children of one path.
type refusing struct {
	coord.Store
	path string
	err  error
}

func (r refusing) Children(ctx context.Context, path string) ([]string, error) {
	if path == r.path {
		return nil, r.err
	}
	return r.Store.Children(ctx, path)
}

// FuzzAnalyse puts foreign bytes into every node of a cluster: there is always an answer, and it can be printed.
func FuzzAnalyse(f *testing.F) {
	f.Add("/brokers/topics/t", []byte(`{"partitions":{"0":[1,1],"-1":null}}`))
	f.Add("/brokers/topics/t/partitions/0/state", []byte(`{"leader":-7,"isr":[],"leader_epoch":0,"controller_epoch":0}`))
	f.Add("/controller", []byte(`{"brokerid":-1}`))
	f.Add("/klamm/leftovers/x/y", []byte{0xff})
	f.Fuzz(func(t *testing.T, path string, data []byte) {
		if !coord.ValidPath(path) || path == "/" {
			return
		}
		var nodes []coord.Node
		for _, p := range []string{"/brokers/ids/1", "/brokers/topics/t", "/brokers/topics/t/partitions/0", "/brokers/topics/t/partitions/0/state", "/controller", "/controller_epoch", "/admin/delete_topics/d", path} {
			nodes = append(nodes, coord.Node{Path: p, Data: data})
		}
		o := Observation{First: &Snapshot{Taken: looked, Nodes: nodes}, Second: &Snapshot{Taken: looked, Nodes: nodes}, Brokers: &Answers{Brokers: []BrokerAnswer{{ID: 1}}}}
		r := NewReport("fuzz", o)
		var text, js strings.Builder
		if err := errors.Join(r.WriteText(&text), r.WriteJSON(&js)); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(text.String(), "\x1b\x00") {
			t.Errorf("control characters in %q", text.String())
		}
	})
}
