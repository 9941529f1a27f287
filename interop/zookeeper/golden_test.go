//go:build interop

package zookeeper

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	"klamm/internal/coord"
)

// znode is a node as recorded in testdata, and what of it must be equal everywhere.
type znode struct {
	Path           string
	Data           string
	Version        int32
	EphemeralOwner string
}

// Values that differ between clusters: times, addresses, ids, and who leads or holds which replica. The rest of a node,
// order of keys included, must be equal byte for byte.
var differing = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`,"klamm":\{[^}]*\}`), ``}, // what klamm adds to a registration, see coord.KlammRegistration
	{regexp.MustCompile(`"timestamp":"\d+"`), `"timestamp":"T"`},
	{regexp.MustCompile(`"port":\d+`), `"port":P`},
	{regexp.MustCompile(`://[^"]*:\d+"`), `://HOST:P"`},
	{regexp.MustCompile(`"host":"[^"]*"`), `"host":"HOST"`},
	{regexp.MustCompile(`"(id|topic_id)":"[\w-]{22}"`), `"$1":"ID"`},
	{regexp.MustCompile(`"(leader|brokerid|broker)":\d+`), `"$1":B`},
	{regexp.MustCompile(`\[\d+\]`), `[B]`},
	{regexp.MustCompile(`\[\d+,\d+,\d+\]`), `[B,B,B]`},
}

func (n znode) String() string {
	data := n.Data
	for _, d := range differing {
		data = d.pattern.ReplaceAllString(data, d.instead)
	}
	owner := ""
	if n.EphemeralOwner != "0x0" {
		owner = " ephemeral"
	}
	return n.Path + " v" + string(rune('0'+n.Version)) + owner + " " + data
}

// tree lists all nodes, sorted, without ZooKeeper's own.
func (c *cluster) tree() []string {
	c.Helper()
	var out []string
	level := []string{"/"}
	for len(level) > 0 {
		reads, err := c.store.GetMany(c.Context(), level)
		if err != nil {
			c.Fatal(err)
		}
		var next []string
		for _, r := range reads {
			if r.Err != nil {
				c.Fatal(r.Err)
			}
			n := znode{r.Node.Path, string(r.Node.Data), r.Node.Stat.Version, "0x0"}
			if r.Node.Stat.EphemeralOwner != 0 {
				n.EphemeralOwner = "some"
			}
			out = append(out, n.String())
			names, err := c.store.Children(c.Context(), r.Node.Path)
			if err != nil {
				c.Fatal(err)
			}
			for _, name := range names {
				next = append(next, strings.TrimSuffix(r.Node.Path, "/")+"/"+name)
			}
		}
		level = next
	}
	return golden(out)
}

// golden leaves out what is ZooKeeper's own, and klamm's own root (see coord.KlammPath).
func golden(nodes []string) []string {
	nodes = slices.DeleteFunc(nodes, func(n string) bool {
		return strings.HasPrefix(n, "/zookeeper") || n == coord.KlammPath+" v0 " || strings.HasPrefix(n, coord.KlammPath+"/")
	})
	slices.Sort(nodes)
	return nodes
}

func recorded(t *testing.T, file string) []string {
	t.Helper()
	var out []string
	for _, n := range readLines[znode](t, file) {
		out = append(out, n.String())
	}
	return golden(out)
}

func TestTreeOfThreeBrokersIsAsRecordedFromKafka(t *testing.T) {
	c := newCluster(t, klamm, klamm, klamm)
	c.start(0, 1, 2)
	c.awaitTree("three fresh brokers", recorded(t, "testdata/a-fresh.jsonl"))
	c.createTopic("t3", 3, map[string]*string{"retention.ms": kadm.StringPtr("3600000")})
	c.awaitISR("t3")
	c.awaitTree("with a topic", recorded(t, "testdata/b-created.jsonl"))
}

// awaitTree waits for the tree, parts of which are written after the answers to requests.
func (c *cluster) awaitTree(what string, want []string) {
	c.Helper()
	c.eventually(20*time.Second, what, func() (bool, string) {
		d := cmp.Diff(want, c.tree())
		return d == "", d
	})
}

// TestTreesOfBothKindsAreEqual takes one broker of each kind through the same steps.
func TestTreesOfBothKindsAreEqual(t *testing.T) {
	live := func(k kind) (states [][]string) {
		c := newCluster(t, k)
		c.start(0)
		c.moveController(0)
		c.eventually(20*time.Second, "the controller has written /feature", func() (bool, string) {
			_, err := c.store.Get(t.Context(), coord.FeaturePath)
			return err == nil, ""
		})
		states = append(states, c.tree())
		c.createTopic("plain", 2, nil)
		c.createTopic("tuned", 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact"), "retention.ms": kadm.StringPtr("1000")})
		c.awaitStates("plain", 2)
		c.awaitStates("tuned", 1)
		states = append(states, c.tree())
		if r, err := c.admin.UpdatePartitions(t.Context(), 5, "plain"); err != nil || r.Error() != nil {
			t.Fatal(err, r.Error())
		}
		c.awaitStates("plain", 5)
		states = append(states, c.tree())
		set := []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("9000")}}
		if r, err := c.admin.AlterTopicConfigs(t.Context(), set, "tuned"); err != nil || r[0].Err != nil {
			t.Fatal(err, r)
		}
		states = append(states, c.tree())
		c.setQuotasAndConfigs()
		states = append(states, c.tree())
		c.takeQuotasAndConfigsAway()
		states = append(states, c.tree())
		c.deleteTopic("plain")
		c.awaitGone("plain")
		return append(states, c.tree())
	}
	want, got := live(kafka), live(klamm)
	for i, what := range []string{"fresh", "topics created", "partitions added", "configs altered", "quotas and broker configs set", "and taken away", "topic deleted"} {
		if d := cmp.Diff(want[i], got[i]); d != "" {
			t.Errorf("%s: Kafka - and klamm +\n%s", what, d)
		}
	}
}

// awaitStates waits until a topic has that many partition states.
func (c *cluster) awaitStates(topic string, n int) {
	c.Helper()
	c.eventually(20*time.Second, "states of "+topic, func() (bool, string) {
		names, _ := c.store.Children(c.Context(), coord.PartitionsPath(topic))
		found := 0
		for _, name := range names {
			if _, err := c.store.Get(c.Context(), coord.PartitionsPath(topic)+"/"+name+"/state"); err == nil {
				found++
			}
		}
		return found == n, ""
	})
}
