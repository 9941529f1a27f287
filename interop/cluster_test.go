//go:build interop && cluster

package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// trio is three brokers, each a process with a member of one etcd cluster.
type trio struct {
	t       *testing.T
	brokers []*broker // broker.id is the index plus one
	session time.Duration
}

// startTrio starts three brokers with a short session timeout, at once, as their order does not matter.
func startTrio(t *testing.T, properties ...string) *trio {
	t.Helper()
	c := &trio{t: t, session: 2 * time.Second}
	var members []string
	for i := range 3 {
		members = append(members, fmt.Sprintf("%d@%s", i+1, freeAddress(t)))
	}
	for i := range 3 {
		c.brokers = append(c.brokers, newBroker(t, append([]string{
			fmt.Sprint("broker.id=", i+1), "etcd.cluster=" + strings.Join(members, ","),
			fmt.Sprint("broker.session.timeout.ms=", c.session.Milliseconds()),
			"default.replication.factor=3", "min.insync.replicas=2", "offsets.topic.replication.factor=3",
		}, properties...)...))
	}
	c.start(0, 1, 2)
	return c
}

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (c *trio) start(indices ...int) {
	c.t.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(c.brokers))
	for _, i := range indices {
		all.Go(func() { errs[i] = c.brokers[i].tryStart() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatalf("%v\n%s", err, c.brokers[indices[0]].stderr.tail(40))
	}
}

func (c *trio) addresses() []string {
	var out []string
	for _, b := range c.brokers {
		out = append(out, b.addr)
	}
	return out
}

// client knows all brokers.
func (c *trio) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	return client(c.t, c.brokers[0], append([]kgo.Opt{
		kgo.SeedBrokers(c.addresses()...), kgo.MetadataMinAge(50 * time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.MaxBufferedRecords(20_000),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DialTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(time.Second), kgo.ProduceRequestTimeout(2 * time.Second),
	}, opts...)...)
}

func (c *trio) createTopic(name string) {
	c.t.Helper()
	c.brokers[0].topics("--create", "--topic", name, "--partitions", "4", "--replication-factor", "3").ok(c.t)
}

// awaitInSync waits until every replica of the topic is in its ISR, by the word of every broker.
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
			ps := m.Topics[topic].Partitions
			for _, p := range ps {
				if len(p.ISR) < 3 || p.Leader < 0 {
					return false, fmt.Sprintf("%s partition %d: leader %d, ISR %v", b.addr, p.Partition, p.Leader, p.ISR)
				}
			}
			return len(ps) == 4, "no partitions"
		})
		cl.Close()
	}
}

// awaitOtherLeaders waits until brokers other than a frozen one lead everything, by the word of another one.
func (c *trio) awaitOtherLeaders(topic string, frozen int) {
	c.t.Helper()
	began := time.Now()
	cl := kadm.NewClient(client(c.t, c.brokers[(frozen+1)%3], kgo.MetadataMinAge(20*time.Millisecond)))
	defer cl.Close()
	eventually(c.t, 30*time.Second, "the others lead", func() (bool, string) {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		m, err := cl.Metadata(ctx, topic)
		if err != nil {
			return false, err.Error()
		}
		for _, p := range m.Topics[topic].Partitions {
			if p.Leader < 0 || int(p.Leader) == frozen+1 {
				return false, fmt.Sprintf("partition %d is led by %d", p.Partition, p.Leader)
			}
		}
		return len(m.Topics[topic].Partitions) == 4, "no partitions"
	})
	if took := time.Since(began); took > c.goOn() {
		c.t.Errorf("others lead after %v only", took)
	}
}

// leader asks the others for the broker that leads a partition, controller for the controller's.
func (c *trio) leader(topic string, partition int32) int {
	c.t.Helper()
	m := c.metadata(topic)
	return int(m.Topics[topic].Partitions[partition].Leader) - 1
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

// production is a producer under way, with what it got acknowledged.
type production struct {
	c      *trio
	topic  string
	acked  acked
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
}

func (c *trio) produce(topic string) *production {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	l := &production{c: c, topic: topic, client: c.client(), cancel: cancel, done: make(chan struct{})}
	go func() { defer close(l.done); l.acked.produceUntil(ctx, c.t, l.client, topic) }()
	l.awaitProgress(200, 30*time.Second)
	return l
}

// awaitProgress waits until every partition has n more records acknowledged, and gives the time that took.
func (l *production) awaitProgress(n int64, within time.Duration) time.Duration {
	l.c.t.Helper()
	var from [len(l.acked.next)]int64
	for p := range from {
		from[p] = l.acked.next[p].Load()
	}
	began := time.Now()
	eventually(l.c.t, within, "the producer goes on", func() (bool, string) {
		for p := range from {
			if got := l.acked.next[p].Load() - from[p]; got < n {
				return false, fmt.Sprintf("partition %d: %d acknowledged", p, got)
			}
		}
		return true, ""
	})
	return time.Since(began)
}

// finish ends the producer and checks every record that was acknowledged.
func (l *production) finish() {
	l.c.t.Helper()
	l.cancel()
	<-l.done
	l.client.Close()
	l.c.awaitInSync(l.topic)
	for _, b := range l.c.brokers {
		l.acked.verify(l.c.t, b, l.topic)
	}
	total := int64(0)
	for p := range l.acked.next {
		total += l.acked.next[p].Load()
	}
	l.c.t.Logf("%d records acknowledged, all there, none twice, all in order", total)
}

// goOn is how long a producer may be held up by a broker that died. The etcd member of that broker may have been the
// etcd leader: then the next one is elected within a second, and gives all sessions their whole time again.
func (c *trio) goOn() time.Duration { return c.session + 3*time.Second }

// fault is something that happens to one broker.
type fault struct {
	name string
	do   func(c *trio, i int)
	undo func(c *trio, i int)
	// held is how long producers may be held up; 0 for trio.goOn.
	held time.Duration
}

// frozenHeld allows for what the client adds when a broker keeps its connections but does not answer: it waits for its
// request to time out, and then tries to open connections to the same broker, several times, before it looks for others.
const frozenHeld = 30 * time.Second

var faults = []fault{
	{"kill -9", func(c *trio, i int) { c.brokers[i].kill() }, func(c *trio, i int) { c.start(i) }, 0},
	{"kill -9 and start at once", func(c *trio, i int) { c.brokers[i].kill(); c.start(i) }, func(*trio, int) {}, 0},
	{"SIGSTOP and SIGCONT", func(c *trio, i int) {
		c.brokers[i].signal(syscall.SIGSTOP)
		c.awaitOtherLeaders("n", i)
	}, func(c *trio, i int) { c.brokers[i].signal(syscall.SIGCONT) }, frozenHeld},
	{"SIGTERM", func(c *trio, i int) {
		if code := c.brokers[i].stop(); code != 0 {
			c.t.Errorf("exit code %d after SIGTERM", code)
		}
	}, func(c *trio, i int) { c.start(i) }, 2 * time.Second},
}

// strike lets a fault happen under load, waits until the producer goes on, undoes it, and waits until all replicas are in sync.
func (l *production) strike(f fault, victim int) {
	l.c.t.Helper()
	began := time.Now()
	f.do(l.c, victim)
	l.awaitProgress(1, max(l.c.goOn(), f.held)+10*time.Second)
	held := time.Since(began)
	f.undo(l.c, victim)
	l.c.awaitInSync(l.topic)
	l.c.t.Logf("%s of broker %d: went on after %v, all in sync after %v", f.name, victim+1, held.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if held > cmp.Or(f.held, l.c.goOn()) {
		l.c.t.Errorf("%s of broker %d: the producer was held up for %v", f.name, victim+1, held)
	}
	l.awaitProgress(100, 30*time.Second)
}

func TestThreeBrokersBearTheLossOfAnyOne(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			c := startTrio(t)
			c.createTopic("n")
			c.awaitInSync("n")
			l := c.produce("n")
			l.strike(f, c.controller())
			l.strike(f, c.leader("n", 0))
			for i := range 3 {
				l.strike(f, i)
			}
			l.finish()
		})
	}
}

// The seed of the last failure can be given as KLAMM_INTEROP_SEED.
func TestThreeBrokersBearRandomFaults(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("KLAMM_INTEROP_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("KLAMM_INTEROP_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c := startTrio(t)
	c.createTopic("n")
	c.awaitInSync("n")
	l := c.produce("n")
	for range 20 {
		f := faults[r.IntN(len(faults))]
		var victim int
		switch r.IntN(3) {
		case 0:
			victim = c.controller()
		case 1:
			victim = c.leader("n", int32(r.IntN(4)))
		default:
			victim = r.IntN(3)
		}
		l.strike(f, victim)
	}
	l.finish()
}

func TestAControlledShutdownHandsLeadershipsOverWithoutErrors(t *testing.T) {
	c := startTrio(t)
	c.createTopic("n")
	c.awaitInSync("n")
	l := c.produce("n")
	victim := c.leader("n", 0)
	if code := c.brokers[victim].stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !c.brokers[victim].stderr.contains("leaderships moved to other brokers") {
		t.Errorf("the log does not tell of the hand-over:\n%s", c.brokers[victim].stderr.tail(20))
	}
	if held := l.awaitProgress(1, 20*time.Second); held > time.Second {
		t.Errorf("the producer was held up for %v", held)
	}
	c.start(victim)
	l.finish()
}

func TestAllThreeStopTogether(t *testing.T) {
	c := startTrio(t)
	c.createTopic("n")
	l := c.produce("n")
	l.cancel()
	<-l.done
	began := time.Now()
	var all sync.WaitGroup
	codes := make([]int, 3)
	for i, b := range c.brokers {
		b.signal(syscall.SIGTERM)
		all.Go(func() { <-b.exited; codes[i] = b.cmd.ProcessState.ExitCode() })
	}
	all.Wait()
	t.Logf("stopped after %v with codes %v", time.Since(began), codes)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	c.start(2, 0, 1)
	l.finish()
}

func TestAGroupGoesOnAfterItsCoordinatorDied(t *testing.T) {
	c := startTrio(t)
	c.createTopic("n")
	c.awaitInSync("n")
	l := c.produce("n")
	consumer := c.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("n"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(200*time.Millisecond), kgo.SessionTimeout(10*time.Second))
	read := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		seen := map[int32]bool{}
		for n := 0; n < 500 || len(seen) < 4; {
			fs := consumer.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("%s: read %d records of partitions %v", what, n, seen)
			}
			fs.EachRecord(func(r *kgo.Record) { n++; seen[r.Partition] = true })
		}
	}
	read("at first")
	admin := kadm.NewClient(c.client())
	for range 3 {
		coordinators := admin.FindGroupCoordinators(t.Context(), "g")
		id := int(coordinators["g"].NodeID) - 1
		if id < 0 {
			t.Fatalf("coordinator: %+v", coordinators["g"])
		}
		c.brokers[id].kill()
		read(fmt.Sprint("after broker ", id+1, " died"))
		c.start(id)
		c.awaitInSync("n")
	}
	offsets, err := admin.FetchOffsets(t.Context(), "g")
	if err != nil || len(offsets["n"]) != 4 {
		t.Errorf("committed offsets %v, %v", offsets, err)
	}
	consumer.Close()
	admin.Close()
	l.finish()
}

func TestTheMembersCommandShowsWhoIsDown(t *testing.T) {
	c := startTrio(t)
	file := slices.Concat([]string{"--config"}, []string{c.brokers[0].dir + "/server.properties"})
	list := func() string {
		return c.brokers[0].klamm(append([]string{"cluster", "members", "list"}, file...)...).ok(t)
	}
	if out := list(); strings.Count(out, "runs") != 3 || strings.Count(out, "leader") != 1 {
		t.Errorf("with all up:\n%s", out)
	}
	c.brokers[2].kill()
	if out := list(); strings.Count(out, "runs") != 2 || !strings.Contains(out, "does not answer") {
		t.Errorf("with broker 3 down:\n%s", out)
	}
	r := c.brokers[0].klamm(append([]string{"cluster", "members", "remove", "7"}, file...)...)
	if r.exit != 1 || !strings.Contains(r.stderr, "there is no member 7") {
		t.Errorf("removing a stranger: %d, %s", r.exit, r.stderr)
	}
}
