//go:build interop

package zookeeper

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"klamm/interop/etcdserver"
)

// migrate runs a migration that goes well, and gives the checksum it tells of; both sides have the same.
func (c *cluster) migrate(args ...string) (sum string) {
	c.Helper()
	out, exit := c.klamm("", append([]string{"migrate"}, args...)...)
	if exit != 0 {
		c.Fatalf("klamm migrate %v: exit %d\n%s", args, exit, out)
	}
	if !slices.Contains(args, "--dry-run") && !strings.Contains(out, "The two sides are equal.") {
		c.Errorf("klamm migrate %v:\n%s", args, out)
	}
	for line := range strings.Lines(out) {
		if now, ok := strings.CutPrefix(strings.TrimSpace(line), "sha256 "); ok {
			if sum != "" && now != sum {
				c.Errorf("klamm migrate %v: two checksums\n%s", args, out)
			}
			sum = now
		}
	}
	return sum
}

// TestMigratesToAnEtcdOfOthersAndBack moves the state of two klamm brokers to three etcd servers that want a certificate and a login. The
// brokers serve from there, also when one of the servers is lost, and go back to ZooKeeper under another chroot.
func TestMigratesToAnEtcdOfOthersAndBack(t *testing.T) {
	c := newCluster(t, klamm, klamm)
	c.start(0, 1)
	day := "86400000"
	c.createTopic("kept", 2, map[string]*string{"retention.ms": &day})
	c.awaitISR("kept")
	c.writeOne("kept")
	before := c.describeTopics("kept")
	c.step("two brokers serve from ZooKeeper")

	etcd := etcdserver.Start(t, etcdserver.Options{Members: 3, TLS: true, User: "klamm", Password: "secret", Address: freeAddr})
	onEtcd := func(password string) []string {
		return []string{"etcd.endpoints=" + etcd.Endpoints, "etcd.tls.ca=" + etcd.Certificate, "etcd.tls.cert=" + etcd.Certificate, "etcd.tls.key=" + etcd.Key,
			"etcd.user=klamm", "etcd.password=" + password, "broker.session.timeout.ms=2000"}
	}
	for _, b := range c.brokers {
		b.writeProperties(onEtcd("secret")...)
	}
	conf := c.brokers[0].conf()
	there := []string{"zookeeper-to-etcd", "--zookeeper", c.zk, "--etcd-config", conf}
	if _, exit := c.klamm("", append([]string{"migrate"}, there...)...); exit != 1 {
		t.Errorf("a running cluster was copied")
	}
	c.stop(1)
	c.stop(0)
	wrong := c.write("wrong.properties", strings.Join(onEtcd("wrong"), "\n"))
	if out, exit := c.klamm("", "migrate", "zookeeper-to-etcd", "--zookeeper", c.zk, "--etcd-config", wrong); exit != 1 {
		t.Errorf("with a wrong password: exit %d\n%s", exit, out)
	}
	sums := map[string]bool{}
	for _, more := range []string{"--dry-run", "", "", "--verify"} {
		sums[c.migrate(slices.DeleteFunc(append(slices.Clone(there), more), func(a string) bool { return a == "" })...)] = true
	}
	c.step("copied to three etcd servers")
	alone := etcdserver.Start(t, etcdserver.Options{Address: freeAddr})
	plain := c.write("plain.properties", "etcd.endpoints="+alone.Endpoints)
	sums[c.migrate("zookeeper-to-etcd", "--zookeeper", c.zk, "--etcd-config", plain)] = true
	sums[c.migrate("etcd-to-zookeeper", "--zookeeper", c.zk+"/from/one", "--etcd-config", plain)] = true
	if len(sums) != 1 {
		t.Errorf("the checksums are %v", sums)
	}
	c.step("copied to one etcd server, and back")

	c.serveFrom(before)
	etcd.Stop(0)
	c.createTopicPatiently("later")
	c.writeOne("kept", "later")
	both := c.describeTopics("kept", "later")
	c.step("two brokers serve from etcd, and go on when a server of three is lost")

	c.stop(1)
	c.stop(0)
	c.migrate("etcd-to-zookeeper", "--zookeeper", c.zk+"/back", "--etcd-config", conf)
	for _, b := range c.brokers {
		b.writeProperties(c.onZooKeeper("/back")...)
	}
	c.serveFrom(both)
	c.writeOne("kept", "later")
	if n := c.records("kept"); n != 3 {
		t.Errorf("topic kept has %d records, 3 were written", n)
	}
	c.step("two brokers serve from ZooKeeper again")
}

// serveFrom starts both brokers by their files, and waits until they serve topics as they were.
func (c *cluster) serveFrom(want string) {
	c.Helper()
	for _, b := range c.brokers {
		b.launch()
	}
	c.awaitMembers()
	c.eventually(30*time.Second, "topics are as they were", func() (bool, string) {
		now := c.describeTopics("kept", "later")
		return now == want, now + "\nwant\n" + want
	})
}

// describeTopics writes out ids, settings and replicas in sync of those of the topics that exist.
func (c *cluster) describeTopics(names ...string) string {
	c.Helper()
	topics, err := c.admin.ListTopics(c.Context(), names...)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			continue
		}
		for _, p := range t.Partitions.Sorted() {
			slices.Sort(p.ISR)
			out = append(out, fmt.Sprintf("%s %v partition %d: replicas %v, in sync %v", t.Topic, t.ID, p.Partition, p.Replicas, p.ISR))
		}
		configs, err := c.admin.DescribeTopicConfigs(c.Context(), t.Topic)
		if err != nil {
			return err.Error()
		}
		for _, r := range configs {
			for _, kv := range r.Configs {
				if kv.Key == "retention.ms" {
					out = append(out, fmt.Sprintf("%s %s=%s", t.Topic, kv.Key, kv.MaybeValue()))
				}
			}
		}
	}
	return strings.Join(out, "\n")
}

// writeOne writes a record to each of the topics, acknowledged by all replicas.
func (c *cluster) writeOne(topics ...string) {
	c.Helper()
	for _, topic := range topics {
		if err := c.client.ProduceSync(c.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			c.Fatalf("write to %s: %v", topic, err)
		}
	}
}

// records counts those of a topic.
func (c *cluster) records(topic string) (n int64) {
	c.Helper()
	ends, err := c.admin.ListEndOffsets(c.Context(), topic)
	if err != nil {
		c.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}
