//go:build interop

// Package zookeeper holds the tests of klamm beside Apache Kafka on one ZooKeeper: real servers from Kafka's jars, on
// loopback, each in a folder of its own.
package zookeeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"klamm/internal/coord"
	"klamm/internal/coord/zkstore"
)

var klammBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "klamm-zookeeper")
	if err != nil {
		panic(err)
	}
	klammBinary = filepath.Join(dir, "klamm")
	build := exec.Command("go", "build", "-o", klammBinary, "../../cmd/klamm")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build klamm:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// sessionTimeout is short, so that brokers that were killed are missed soon.
const sessionTimeout = 4 * time.Second

// kind is the software that a broker runs: klamm, or a release of Kafka's.
type kind string

const (
	klamm    kind = "klamm"
	kafka    kind = "3.9.1"
	kafka341 kind = "3.4.1"
	kafka282 kind = "2.8.2"
	kafka241 kind = "2.4.1"
)

// cluster is a ZooKeeper with the brokers on it.
type cluster struct {
	*testing.T
	dir     string
	zk      string // addresses
	connect string // what brokers are told of them
	zks     []*zooKeeper
	// kafkaJVM are options of Kafka's brokers' JVMs.
	kafkaJVM []string
	// properties are of all brokers, beside what writeProperties gives them.
	properties      string
	session         time.Duration
	lag             time.Duration
	offsetsReplicas int
	committed       int64 // by audit
	store           *zkstore.Store
	brokers         []*broker
	client          *kgo.Client
	admin           *kadm.Client
	began           time.Time
}

// setup says what a cluster is made of; brokers get ids from 0.
type setup struct {
	properties      string        // more of them, for all brokers
	session         time.Duration // sessionTimeout if 0
	lag             time.Duration // replica.lag.time.max.ms, 10 s if 0
	offsetsReplicas int           // of __consumer_offsets, 1 if 0; with more, committed offsets are looked after whenever a load goes on
	zooKeepers      int           // servers of the ensemble, 1 if 0
	zooKeeper       kind          // the release of Kafka whose jars bring it; that of 3.9.1 if empty
	zooKeeperConfig string        // more lines of its zoo.cfg
	zooKeeperJVM    []string      // options of its JVM
	connect         string        // zookeeper.connect of brokers, where it is not the plain addresses of the ensemble
	kafkaJVM        []string      // options of the JVMs of Kafka's brokers
	brokers         []kind
}

// broker is a folder with server.properties and data, and the process that serves it.
type broker struct {
	c    *cluster
	id   int32
	kind kind
	dir  string
	addr string
	proc *process
}

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	log    string
}

func (c *cluster) launch(log string, name string, args ...string) *process {
	c.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Fatal(err)
	}
	defer out.Close()
	p := &process{cmd: exec.Command(name, args...), exited: make(chan struct{}), log: log}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = out, out, filepath.Dir(log)
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "KAFKA_") || strings.HasPrefix(kv, "KLAMM_") })
	if err := p.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.exited) }()
	return p
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// end sends a signal and waits for the process to go.
func (c *cluster) end(p *process, signal syscall.Signal) {
	c.Helper()
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.exited:
	case <-time.After(60 * time.Second):
		_ = p.cmd.Process.Kill()
		c.Fatalf("a process did not end within 60 s of signal %v:\n%s", signal, tail(p.log))
	}
}

func tail(file string) string {
	b, _ := os.ReadFile(file)
	return string(b[max(0, len(b)-6000):])
}

// newCluster starts a ZooKeeper; brokers of the given kinds get ids from 0, and are not started yet.
func newCluster(t *testing.T, kinds ...kind) *cluster {
	t.Helper()
	return newClusterOf(t, setup{brokers: kinds})
}

func newClusterOf(t *testing.T, s setup) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir(), properties: s.properties, session: cmp.Or(s.session, sessionTimeout), lag: cmp.Or(s.lag, 10*time.Second),
		offsetsReplicas: max(1, s.offsetsReplicas), kafkaJVM: s.kafkaJVM, began: time.Now()}
	c.write("log4j.properties", `log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.org.apache.kafka=WARN
`)
	c.startEnsemble(s)
	c.connect = cmp.Or(s.connect, c.zk)
	var err error
	if c.store, err = zkstore.Open(t.Context(), zkstore.Options{Connect: c.zk, SessionTimeout: sessionTimeout, ConnectionTimeout: time.Minute}); err != nil {
		t.Fatalf("zookeeper did not start: %v\n%s", err, tail(c.zks[0].proc.log))
	}
	t.Cleanup(func() { _ = c.store.Close() })
	var seeds []string
	for i, k := range s.brokers {
		b := &broker{c: c, id: int32(i), kind: k, dir: filepath.Join(c.dir, "b"+strconv.Itoa(i)), addr: freeAddr(t)}
		c.brokers, seeds = append(c.brokers, b), append(seeds, b.addr)
		b.writeProperties()
	}
	t.Cleanup(c.killAll)
	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RetryTimeout(30*time.Second), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c.client, c.admin = client, kadm.NewClient(client)
	return c
}

// step tells how far the test has come.
func (c *cluster) step(format string, args ...any) {
	c.Helper()
	c.Logf("%6.1f s  %s", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

func (c *cluster) write(name, text string) string {
	c.Helper()
	file := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.Fatal(err)
	}
	return file
}

func (c *cluster) java(release kind, log string, args ...string) *process {
	c.Helper()
	log4j := "-Dlog4j.configuration=file:" + filepath.Join(c.dir, "log4j.properties")
	return c.launch(log, "java", java(c.T, release, append([]string{log4j}, args...)...)...)
}

func (c *cluster) killAll() {
	for _, b := range c.brokers {
		if b.proc == nil {
			continue
		}
		if b.proc.running() {
			_ = b.proc.cmd.Process.Kill()
			<-b.proc.exited
		}
		if c.Failed() {
			c.Logf("broker %d (%s) said last:\n%s", b.id, b.kind, tail(b.proc.log))
		}
	}
}

// conf is the broker's server.properties.
func (b *broker) conf() string { return filepath.Join(b.dir, "server.properties") }

// writeProperties writes the one server.properties that both kinds read. state are the keys that say where the cluster's state is, the
// test's ZooKeeper when there are none.
func (b *broker) writeProperties(state ...string) {
	b.c.Helper()
	if len(state) == 0 {
		state = b.c.onZooKeeper("")
	}
	text := fmt.Sprintf(`broker.id=%d
listeners=PLAINTEXT://%s
log.dirs=%s
offsets.topic.replication.factor=%d
offsets.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
controlled.shutdown.retry.backoff.ms=500
replica.lag.time.max.ms=%d
%s
%s
`, b.id, b.addr, filepath.Join(b.dir, "data"), b.c.offsetsReplicas, b.c.lag.Milliseconds(), strings.Join(state, "\n"), b.c.properties)
	if err := errors.Join(os.MkdirAll(b.dir, 0o700), os.WriteFile(b.conf(), []byte(text), 0o600)); err != nil {
		b.c.Fatal(err)
	}
}

// onZooKeeper are the keys of brokers whose state is in the test's ZooKeeper, under a chroot.
func (c *cluster) onZooKeeper(chroot string) []string {
	return []string{"zookeeper.connect=" + c.connect + chroot, fmt.Sprint("zookeeper.session.timeout.ms=", c.session.Milliseconds())}
}

// addProperties adds lines to the file; of a key that stands there twice both kinds take the last.
func (b *broker) addProperties(lines string) {
	b.c.Helper()
	f, err := os.OpenFile(b.conf(), os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(lines)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.c.Fatal(err)
	}
}

// launch starts the broker's process without waiting for it.
func (b *broker) launch() {
	b.c.Helper()
	if b.kind == klamm {
		b.proc = b.c.launch(filepath.Join(b.dir, "klamm.log"), klammBinary, "serve", b.conf(), "--override", "web.listen=")
		return
	}
	b.proc = b.c.java(b.kind, filepath.Join(b.dir, "kafka.log"), append(slices.Clone(b.c.kafkaJVM), "-Xmx400M", "kafka.Kafka", b.conf())...)
}

// awaitServing waits until the broker is registered and takes connections.
func (b *broker) awaitServing() {
	b.c.Helper()
	b.c.eventually(90*time.Second, fmt.Sprintf("broker %d (%s) serves", b.id, b.kind), func() (bool, string) {
		if !b.proc.running() {
			b.c.Fatalf("broker %d (%s) ended:\n%s", b.id, b.kind, tail(b.proc.log))
		}
		if _, err := b.c.store.Get(b.c.Context(), coord.BrokerPath(clusterID(b.id))); err != nil {
			return false, err.Error()
		}
		conn, err := net.Dial("tcp", b.addr)
		if err != nil {
			return false, err.Error()
		}
		return conn.Close() == nil, ""
	})
}

func (c *cluster) start(ids ...int32) {
	c.Helper()
	for _, id := range ids {
		c.brokers[id].launch()
	}
	for _, id := range ids {
		c.brokers[id].awaitServing()
	}
	c.awaitMembers()
}

// awaitMembers waits until every running broker knows every other.
func (c *cluster) awaitMembers() {
	c.Helper()
	n := 0
	for _, b := range c.brokers {
		if b.proc != nil && b.proc.running() {
			n++
		}
	}
	c.awaitAll(fmt.Sprintf("all %d brokers", n), func(ctx context.Context, admin *kadm.Client) (bool, string) {
		known, err := admin.ListBrokers(ctx)
		return err == nil && len(known) == n, fmt.Sprint(known, err)
	})
}

// awaitAll waits until every running broker knows something.
func (c *cluster) awaitAll(what string, knows func(context.Context, *kadm.Client) (bool, string)) {
	c.Helper()
	for _, b := range c.brokers {
		if b.proc == nil || !b.proc.running() {
			continue
		}
		c.eventually(60*time.Second, fmt.Sprintf("broker %d knows %s", b.id, what), func() (bool, string) {
			client, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
			if err != nil {
				c.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			return knows(ctx, kadm.NewClient(client))
		})
	}
}

func (c *cluster) stop(id int32) { c.Helper(); c.end(c.brokers[id].proc, syscall.SIGTERM) }
func (c *cluster) kill(id int32) { c.Helper(); c.end(c.brokers[id].proc, syscall.SIGKILL) }

// swap stops a broker and starts the other kind on its folder.
func (c *cluster) swap(id int32, to kind) {
	c.Helper()
	c.stop(id)
	c.brokers[id].kind = to
	c.start(id)
}

// controller gives the id in /controller; -1 when there is none.
func (c *cluster) controller() int32 {
	n, err := c.store.Get(c.Context(), coord.ControllerPath)
	if err != nil {
		return -1
	}
	d, err := coord.DecodeController(n.Data)
	if err != nil {
		c.Fatal(err)
	}
	return int32(d.BrokerID)
}

// moveController makes one of the brokers controller, as operators do: by removing /controller until it wins.
func (c *cluster) moveController(ids ...int32) int32 {
	c.Helper()
	var now int32
	c.eventually(60*time.Second, fmt.Sprintf("one of %v is controller", ids), func() (bool, string) {
		now = c.controller()
		for _, id := range ids {
			if now == id {
				return true, ""
			}
		}
		if now >= 0 {
			_, err := c.store.Multi(c.Context(), coord.Delete(coord.ControllerPath, coord.AnyVersion))
			if err != nil && !errors.Is(err, coord.ErrNoNode) {
				return false, err.Error()
			}
		}
		return false, fmt.Sprintf("controller is %d", now)
	})
	return now
}

func (c *cluster) createTopic(name string, partitions int32, configs map[string]*string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 60*time.Second)
	defer cancel()
	r, err := c.admin.CreateTopic(ctx, partitions, int16(min(3, len(c.brokers))), configs, name)
	if err != nil || r.Err != nil {
		c.Fatalf("create %s: %v, %v", name, err, r.Err)
	}
}

// deleteTopic waits first until all brokers know the topic: of one that the controller's own broker does not know yet Kafka says that
// it does not exist.
func (c *cluster) deleteTopic(name string) {
	c.Helper()
	c.awaitAll("topic "+name, func(ctx context.Context, admin *kadm.Client) (bool, string) {
		topics, err := admin.ListTopics(ctx, name)
		return err == nil && topics.Has(name), fmt.Sprint(topics, err)
	})
	ctx, cancel := context.WithTimeout(c.Context(), 60*time.Second)
	defer cancel()
	r, err := c.admin.DeleteTopic(ctx, name)
	if err != nil || r.Err != nil {
		c.Fatalf("delete %s: %v, %v", name, err, r.Err)
	}
}

// awaitGone waits until nothing of a topic is left in ZooKeeper and no running broker has a folder of it.
func (c *cluster) awaitGone(topic string) {
	c.Helper()
	paths := []string{coord.TopicPath(topic), coord.DeleteTopicPath(topic), coord.ConfigEntityPath(coord.TopicConfigs, topic)}
	c.eventually(60*time.Second, topic+" is gone", func() (bool, string) {
		for _, p := range paths {
			if _, err := c.store.Get(c.Context(), p); !errors.Is(err, coord.ErrNoNode) {
				return false, p
			}
		}
		for _, b := range c.brokers {
			left, _ := filepath.Glob(filepath.Join(b.dir, "*", topic+"-*"))
			for _, dir := range left {
				if !strings.HasSuffix(dir, "-delete") {
					return false, dir
				}
			}
		}
		return true, ""
	})
}

// awaitISR waits until every partition of a topic has all its replicas in sync, and a leader.
func (c *cluster) awaitISR(topic string) {
	c.Helper()
	c.eventually(90*time.Second, "all replicas of "+topic+" in sync", func() (bool, string) {
		names, err := c.store.Children(c.Context(), coord.PartitionsPath(topic))
		if err != nil || len(names) == 0 {
			return false, fmt.Sprint(names, err)
		}
		for _, name := range names {
			n, err := c.store.Get(c.Context(), coord.PartitionsPath(topic)+"/"+name+"/state")
			if err != nil {
				return false, err.Error()
			}
			state, err := coord.DecodePartitionState(n.Data, n.Stat.Version)
			if err != nil {
				c.Fatal(err)
			}
			if len(state.ISR) != min(3, len(c.brokers)) || state.Leader < 0 {
				return false, name + ": " + string(n.Data)
			}
		}
		return true, ""
	})
}

// eventually polls a condition of other processes that give no signal, and fails with what it last said.
func (c *cluster) eventually(within time.Duration, what string, cond func() (bool, string)) {
	c.Helper()
	var state string
	if !c.within(within, func() (ok bool) { ok, state = cond(); return ok }) {
		c.Fatalf("not within %v: %s; last seen: %s", within, what, state)
	}
}

// within polls a condition until it holds; false when it did not in time.
func (c *cluster) within(limit time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// readLines reads a file of JSON values, one on a line.
func readLines[T any](t *testing.T, file string) []T {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []T
	for d := json.NewDecoder(f); d.More(); {
		var v T
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}
