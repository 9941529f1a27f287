//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// trio is three brokers, each a process with a member of one etcd cluster.
type trio struct {
	processes
	members []string // addresses of their etcd members
}

// trioPartitions is how many partitions a trio's topics have.
const trioPartitions = 4

// trioSession is the shortest session timeout that the promise of docs/three-brokers.md holds for: a broker takes a
// second off for what etcd may be late.
const (
	trioSession = 3 * time.Second
	trioLease   = trioSession - time.Second // what it asks etcd for
)

// startTrio starts three brokers.
func startTrio(t *testing.T, properties ...string) *trio {
	t.Helper()
	c := newTrio(t, properties...)
	c.start(0, 1, 2)
	return c
}

// newTrio prepares three brokers that do not run yet.
func newTrio(t *testing.T, properties ...string) *trio {
	t.Helper()
	c := &trio{processes: processes{t: t, session: trioSession}}
	c.members = []string{reserveAddress(t), reserveAddress(t), reserveAddress(t)}
	for i := range 3 {
		c.brokers = append(c.brokers, newBroker(t, c.properties(i, reserveAddress(t), properties...)...))
	}
	return c
}

// startTrioIn starts three brokers, each in its namespace of the network.
func startTrioIn(n *network, properties ...string) *trio {
	n.t.Helper()
	c := &trio{processes: processes{t: n.t, session: trioSession}}
	for i := range 3 {
		c.members = append(c.members, fmt.Sprint(n.addr(i+1), ":2380"))
	}
	for i := range 3 {
		b := newBroker(n.t, c.properties(i, fmt.Sprint(n.addr(i+1), ":9092"), properties...)...)
		b.space = n.space(i)
		c.brokers = append(c.brokers, b)
	}
	c.start(0, 1, 2)
	return c
}

func (c *trio) properties(i int, listen string, more ...string) []string {
	var members []string
	for j, addr := range c.members {
		members = append(members, fmt.Sprintf("%d@%s", j+1, addr))
	}
	return append([]string{
		fmt.Sprint("broker.id=", i+1), "etcd.cluster=" + strings.Join(members, ","), "listeners=PLAINTEXT://" + listen,
		fmt.Sprint("broker.session.timeout.ms=", c.session.Milliseconds()),
		"default.replication.factor=3", "min.insync.replicas=2", "offsets.topic.replication.factor=3", "group.initial.rebalance.delay.ms=0",
	}, more...)
}

func (c *trio) addresses() []string {
	var out []string
	for _, b := range c.brokers {
		out = append(out, b.addr)
	}
	return out
}

// Timing of the test's clients. A broker that is frozen or cut off keeps its connections, and the client notices by its own
// time-outs only, which have to be shorter than what is measured with them.
const (
	clientOverhead = 250 * time.Millisecond
	clientProduce  = 750 * time.Millisecond
	clientBackoff  = 50 * time.Millisecond
)

// client knows all brokers.
func (c *trio) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	return client(c.t, c.brokers[0], c.options(opts...)...)
}

func (c *trio) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(c.addresses()...), kgo.MetadataMinAge(clientBackoff), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return clientBackoff }), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.DialTimeout(clientOverhead), kgo.RequestTimeoutOverhead(clientOverhead), kgo.ProduceRequestTimeout(clientProduce),
	}, more...)
}

func (c *trio) createTopic(name string) {
	c.t.Helper()
	c.brokers[0].topics("--create", "--topic", name, "--partitions", fmt.Sprint(trioPartitions), "--replication-factor", "3").ok(c.t)
	c.awaitInSync(name)
}

// awaitInSync waits until every broker says that all brokers are there and that every replica of the topic is in its ISR.
func (c *trio) awaitInSync(topic string) {
	c.t.Helper()
	for _, b := range c.brokers {
		cl := kadm.NewClient(client(c.t, b, kgo.MetadataMinAge(20*time.Millisecond)))
		eventually(c.t, 60*time.Second, "all replicas are in sync", func() (bool, string) {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			m, err := cl.Metadata(ctx, topic)
			if err != nil {
				return false, err.Error()
			}
			return c.whole(m, topic)
		})
		cl.Close()
	}
}

// whole reports whether nothing is missing.
func (c *trio) whole(m kadm.Metadata, topic string) (bool, string) {
	if len(m.Brokers) < len(c.brokers) || m.Controller < 0 {
		return false, fmt.Sprintf("%d brokers, controller %d", len(m.Brokers), m.Controller)
	}
	ps := m.Topics[topic].Partitions
	for _, p := range ps {
		if len(p.ISR) < 3 || p.Leader < 0 {
			return false, fmt.Sprintf("partition %d: leader %d, ISR %v", p.Partition, p.Leader, p.ISR)
		}
	}
	return len(ps) == trioPartitions, fmt.Sprint(len(ps), " partitions")
}

// leader is the index of the broker that leads a partition, controller that of the controller.
func (c *trio) leader(topic string, partition int32) int {
	c.t.Helper()
	return int(c.metadata(topic).Topics[topic].Partitions[partition].Leader) - 1
}

func (c *trio) controller() int {
	c.t.Helper()
	return int(c.metadata().Controller) - 1
}

func (c *trio) metadata(topics ...string) kadm.Metadata {
	c.t.Helper()
	cl := kadm.NewClient(c.client())
	defer cl.Close()
	m, err := cl.Metadata(c.t.Context(), topics...)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// noticed is when the other brokers learned that one is gone: by the word of the controller, or, if it was the controller
// itself, of its successor. It is zero while none has said so since a moment.
func (c *trio) noticed(victim int, since time.Time) time.Time {
	var first time.Time
	for i, b := range c.brokers {
		if i == victim {
			continue
		}
		for _, words := range [][]string{{`msg="broker is gone"`, fmt.Sprint("broker=", victim+1)}, {`msg="elected as controller"`}} {
			if at := b.stderr.said(since, words...); !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// said is when the first line of the log since a moment was written that has all the words; zero if there is none.
func (l *lines) said(since time.Time, words ...string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Time
	for _, line := range slices.Backward(l.all) {
		stamp, rest, _ := strings.Cut(line, " ")
		at, err := time.Parse("time=2006-01-02T15:04:05.000Z07:00", stamp)
		switch {
		case err != nil:
			continue
		case at.Before(since.Truncate(time.Millisecond)):
			return first
		}
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(" "+rest+" ", " "+w+" ") }) {
			first = at
		}
	}
	return first
}
