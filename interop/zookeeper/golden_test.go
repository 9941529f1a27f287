//go:build interop

package zookeeper

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"

	core "klamm/internal/cluster"
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
	{regexp.MustCompile(`(salt|stored_key|server_key)=[\w+/]+=*`), `$1=S`},
	{regexp.MustCompile(`\[\d+\]`), `[B]`},
	{regexp.MustCompile(`\[\d+,\d+\]`), `[B,B]`},
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

// goldenStep is what is done to a cluster, and what its tree is called then.
type goldenStep struct {
	name string
	do   func(c *cluster)
}

// goldenSteps go on from each other, on two brokers of one kind of which the first is the controller.
var goldenSteps = []goldenStep{
	{"fresh", func(c *cluster) {
		c.eventually(20*time.Second, "the controller has written /feature", func() (bool, string) {
			_, err := c.store.Get(c.Context(), coord.FeaturePath)
			return err == nil, ""
		})
	}},
	{"topics created", func(c *cluster) {
		c.createTopic("plain", 2, nil)
		c.createTopic("tuned", 1, map[string]*string{"cleanup.policy": kadm.StringPtr("compact"), "retention.ms": kadm.StringPtr("1000")})
		c.awaitISR("plain")
		c.awaitISR("tuned")
	}},
	{"partitions added", func(c *cluster) {
		if r, err := c.admin.UpdatePartitions(c.Context(), 5, "plain"); err != nil || r.Error() != nil {
			c.Fatal(err, r.Error())
		}
		c.awaitStates("plain", 5)
	}},
	{"configs altered", func(c *cluster) {
		set := []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("9000")}}
		if r, err := c.admin.AlterTopicConfigs(c.Context(), set, "tuned"); err != nil || r[0].Err != nil {
			c.Fatal(err, r)
		}
	}},
	{"moved to one broker", func(c *cluster) { c.move("tuned", 0) }},
	{"being reassigned to a broker that has died", func(c *cluster) {
		c.kill(1) // its registration lives on for a session
		c.propose("tuned", 1)
		c.awaitUnregistered(1)
	}},
	{"reassigned", func(c *cluster) {
		c.start(1)
		c.awaitPlaced(core.TopicPartition{Topic: "tuned"}, []int32{1})
		c.awaitISR("plain")
	}},
	{"access rules added", func(c *cluster) {
		c.tool("kafka.admin.AclCommand", "--add", "--allow-principal", "User:alice", "--deny-principal", "User:bob", "--operation", "Read", "--operation", "Describe",
			"--topic", "tuned", "--group", "*")
		c.tool("kafka.admin.AclCommand", "--add", "--allow-principal", "User:alice", "--allow-host", "10.0.0.1", "--producer", "--topic", "tu", "--resource-pattern-type", "prefixed")
	}},
	{"access rules removed", func(c *cluster) {
		c.tool("kafka.admin.AclCommand", "--remove", "--force", "--group", "*")
	}},
	{"users added", func(c *cluster) {
		c.tool("kafka.admin.ConfigCommand", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=4096,password=one],SCRAM-SHA-512=[password=two]", "--entity-type", "users", "--entity-name", "al ice*")
		c.tool("kafka.admin.ConfigCommand", "--alter", "--delete-config", "SCRAM-SHA-512", "--entity-type", "users", "--entity-name", "al ice*")
	}},
	{"quotas and broker configs set", (*cluster).setQuotasAndConfigs},
	{"and taken away", (*cluster).takeQuotasAndConfigsAway},
	{"a broker down", func(c *cluster) {
		c.kill(1)
		c.awaitUnregistered(1)
	}},
	{"topic deleted with the broker down", func(c *cluster) { c.deleteTopic("plain") }},
	{"the broker back and the topic gone", func(c *cluster) {
		c.start(1)
		c.awaitGone("plain")
	}},
}

// TestTreesOfBothKindsAreEqual takes two brokers of each kind through the same steps.
func TestTreesOfBothKindsAreEqual(t *testing.T) {
	clusters := map[kind]*cluster{}
	for _, k := range []kind{kafka, klamm} {
		// klamm alone would end a deletion without a dead broker.
		c := newClusterOf(t, setup{brokers: []kind{k, k}, properties: "topic.deletion.offline.replicas=wait\n" +
			"authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS"})
		c.start(0) // the first is elected, in the first epoch
		c.start(1)
		clusters[k] = c
	}
	for _, s := range goldenSteps {
		s.do(clusters[kafka])
		s.do(clusters[klamm])
		// Parts are written after the answers to requests: both trees are looked at until they rest on one picture.
		var d string
		clusters[klamm].within(20*time.Second, func() bool {
			d = cmp.Diff(clusters[kafka].tree(), clusters[klamm].tree())
			return d == ""
		})
		if d != "" {
			t.Errorf("%s: Kafka - and klamm +\n%s", s.name, d)
		}
		clusters[klamm].step("%s", s.name)
	}
}

// tool runs one of Kafka's own.
func (c *cluster) tool(class string, args ...string) {
	c.Helper()
	args = append([]string{class, "--bootstrap-server", c.brokers[0].addr}, args...)
	if out, err := exec.CommandContext(c.Context(), "java", java(c.T, kafka, args...)...).CombinedOutput(); err != nil {
		c.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// propose asks for a topic of one partition to be moved.
func (c *cluster) propose(topic string, target ...int32) {
	c.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 0, target)
	c.reassign(req)
}

func (c *cluster) move(topic string, target ...int32) {
	c.Helper()
	c.propose(topic, target...)
	c.awaitPlaced(core.TopicPartition{Topic: topic}, target)
}

func (c *cluster) awaitUnregistered(id int32) {
	c.Helper()
	c.eventually(30*time.Second, fmt.Sprintf("broker %d is missed", id), func() (bool, string) { return c.registration(id) == 0, "" })
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
