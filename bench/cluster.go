package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"klamm/internal/coord"
	"klamm/internal/coord/etcdstore"
	"klamm/internal/coord/zkstore"
)

// clusterSize is the number of brokers in a cluster. The scripts that start Kafka write its replication factors by it.
const clusterSize = 3

// trio is a running cluster of three brokers.
type trio struct {
	members []*member
	extra   []string // pid files of further processes whose CPU counts: ZooKeeper's
	stop    func() error
	// registry opens the store that holds the brokers' registrations; nil where there is none to look at (KRaft).
	registry func(ctx context.Context) (registry, error)
}

// member is one broker of a trio.
type member struct {
	id      int32
	addr    string
	data    string // log dir
	pid     func() (int, error)
	restart func(ctx context.Context) error
	client  *kgo.Client // of this broker alone
}

// registry is what the bench needs of a cluster's store.
type registry interface {
	Get(ctx context.Context, path string) (coord.Node, error)
	Close() error
}

// clusterSystem is a broker's software that can form a cluster of three in a fresh folder.
type clusterSystem interface {
	name() string
	startCluster(ctx context.Context, dir string) (*trio, error)
}

// clusterConfig is set in all systems. Leaderships move when the bench says so, not by the balancing of a running cluster.
const clusterConfig = sharedConfig + "min.insync.replicas=2\nauto.leader.rebalance.enable=false\nnum.partitions=1\n"

// zooKeeperEnv asks for a session as long as klamm's with etcd by default; Kafka's own default is 18 s.
var zooKeeperEnv = []string{"KAFKA_VERSION=3.9.1", "SESSION=6000"}

func clusterSystems(o options) []clusterSystem {
	args := strings.Fields(o.args)
	return []clusterSystem{klammCluster{o.bin, args}, klammOnZooKeeper{o.bin, args, o.scripts}, kafkaZK{o.scripts}, kafkaKRaft{o.scripts}}
}

// klammCluster is three klamm processes with etcd inside.
type klammCluster struct {
	bin  string
	args []string
}

func (klammCluster) name() string { return "klamm" }

func (k klammCluster) startCluster(ctx context.Context, dir string) (*trio, error) {
	port, err := basePort()
	if err != nil {
		return nil, err
	}
	var etcd, urls []string
	for id := 1; id <= clusterSize; id++ {
		etcd = append(etcd, fmt.Sprintf("%d@127.0.0.1:%d", id, port+10+id))
		urls = append(urls, fmt.Sprint("http://127.0.0.1:", port+10+id))
	}
	t := &trio{registry: func(ctx context.Context) (registry, error) {
		c, err := etcdstore.Dial(ctx, etcdstore.ClientConfig{Endpoints: urls, Own: true, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		return etcdRegistry{c.Store(), c}, nil
	}}
	return t, k.startMembers(ctx, t, dir, port, func(id int) string {
		return fmt.Sprintf("etcd.cluster=%s\netcd.data.dir=%s\n", strings.Join(etcd, ","), filepath.Join(dir, fmt.Sprint("etcd", id)))
	})
}

type etcdRegistry struct {
	coord.Store
	client *etcdstore.Client
}

func (e etcdRegistry) Close() error { return e.client.Close() }

// startMembers writes three configurations and starts a process for each. The trio can be stopped also when it fails.
func (k klammCluster) startMembers(ctx context.Context, t *trio, dir string, port int, engine func(id int) string) error {
	var running []*process
	also := t.stop
	t.stop = func() error {
		var errs []error
		for _, p := range running {
			_ = p.signal(syscall.SIGTERM)
		}
		for _, p := range running {
			if err := p.wait(); err != nil && !p.killed {
				errs = append(errs, err)
			}
		}
		if also != nil {
			errs = append(errs, also())
		}
		return errors.Join(errs...)
	}
	for i := range clusterSize {
		id := i + 1
		m := &member{id: int32(id), addr: fmt.Sprint("127.0.0.1:", port+id), data: filepath.Join(dir, fmt.Sprint("data", id))}
		conf := filepath.Join(dir, fmt.Sprintf("server%d.properties", id))
		text := fmt.Sprintf("broker.id=%d\nlisteners=PLAINTEXT://%s\nlog.dirs=%s\nweb.listen=\noffsets.topic.replication.factor=3\n%s%s",
			id, m.addr, m.data, clusterConfig, engine(id))
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			return err
		}
		running = append(running, nil)
		m.restart = func(context.Context) (err error) {
			running[i], err = startProcess(filepath.Join(dir, fmt.Sprintf("klamm%d.log", id)), k.bin, append([]string{"serve", conf}, k.argsOf(id)...)...)
			return err
		}
		m.pid = func() (int, error) { return running[i].cmd.Process.Pid, nil }
		if err := m.restart(ctx); err != nil {
			running = running[:i]
			return err
		}
		t.members = append(t.members, m)
	}
	return nil
}

// argsOf gives the additional arguments with %d as the broker's id, so that each can have a web address of its own.
func (k klammCluster) argsOf(id int) []string {
	var out []string
	for _, a := range k.args {
		out = append(out, strings.ReplaceAll(a, "%d", strconv.Itoa(id)))
	}
	return out
}

// process is a broker that the bench started itself.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // valid once exited is closed
	killed bool
}

func startProcess(logFile, bin string, args ...string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p := &process{cmd: exec.Command(bin, args...), exited: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is the bench's to handle
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		p.killed = p.cmd.ProcessState != nil && p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		close(p.exited)
	}()
	return p, nil
}

func (p *process) signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *process) wait() error {
	<-p.exited
	return p.err
}

// klammOnZooKeeper is three klamm processes with their state in the ZooKeeper that Kafka brings.
type klammOnZooKeeper struct {
	bin     string
	args    []string
	scripts string
}

func (klammOnZooKeeper) name() string { return "klamm-zk" }

func (k klammOnZooKeeper) startCluster(ctx context.Context, dir string) (*trio, error) {
	port, err := basePort()
	if err != nil {
		return nil, err
	}
	s := script{file: filepath.Join(k.scripts, "zk-cluster.sh"), env: zooKeeperEnv}
	if err := s.run(ctx, "start-zk", dir, strconv.Itoa(port)); err != nil {
		return nil, err
	}
	t := &trio{extra: []string{filepath.Join(dir, "zk", "pid")}, registry: zooKeeperRegistry(port),
		stop: func() error { return s.run(context.Background(), "stop", dir) }}
	return t, klammCluster{k.bin, k.args}.startMembers(ctx, t, dir, port, func(int) string {
		return fmt.Sprintf("zookeeper.connect=127.0.0.1:%d\nzookeeper.session.timeout.ms=6000\n", port)
	})
}

func zooKeeperRegistry(port int) func(context.Context) (registry, error) {
	return func(ctx context.Context) (registry, error) {
		s, err := zkstore.Open(ctx, zkstore.Options{Connect: fmt.Sprint("127.0.0.1:", port), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		return s, nil
	}
}

func (k kafkaZK) startCluster(ctx context.Context, dir string) (*trio, error) {
	port, err := basePort()
	if err != nil {
		return nil, err
	}
	s := script{file: filepath.Join(k.scripts, "zk-cluster.sh"), env: zooKeeperEnv, config: clusterConfig}
	t := &trio{extra: []string{filepath.Join(dir, "zk", "pid")}, registry: zooKeeperRegistry(port)}
	return t, s.startTrio(ctx, t, dir, port, 0, "b", "start-broker")
}

func (k kafkaKRaft) startCluster(ctx context.Context, dir string) (*trio, error) {
	port, err := basePort()
	if err != nil {
		return nil, err
	}
	s := script{file: filepath.Join(k.scripts, "kraft.sh"), env: []string{"KAFKA_VERSION=4.1.0"}, config: clusterConfig}
	t := &trio{}
	return t, s.startTrio(ctx, t, dir, port, 1, "n", "start-node")
}

// startTrio starts three of Kafka's brokers by their script, the first with the id given.
func (s script) startTrio(ctx context.Context, t *trio, dir string, port, first int, prefix, restart string) error {
	t.stop = func() error { return s.run(context.Background(), "stop", dir) }
	for i := range clusterSize {
		id := first + i
		folder := filepath.Join(dir, fmt.Sprint(prefix, id))
		t.members = append(t.members, &member{id: int32(id), addr: fmt.Sprint("127.0.0.1:", port+1+i), data: filepath.Join(folder, "data"),
			pid: func() (int, error) { return readPid(filepath.Join(folder, "pid")) },
			restart: func(ctx context.Context) error {
				return s.run(ctx, restart, strconv.Itoa(id), dir, strconv.Itoa(port))
			}})
	}
	return s.run(ctx, "start", strconv.Itoa(clusterSize), dir, strconv.Itoa(port))
}

// asServer gives the view of the cluster that steps for one server have: CPU and memory of all its processes.
func (t *trio) asServer() *server {
	s := &server{addr: t.members[0].addr}
	for _, m := range t.members {
		if pid, err := m.pid(); err == nil {
			s.pids = append(s.pids, pid)
		}
	}
	for _, f := range t.extra {
		if pid, err := readPid(f); err == nil {
			s.pids = append(s.pids, pid)
		}
	}
	return s
}

// open connects to each broker.
func (t *trio) open() (err error) {
	for _, m := range t.members {
		if m.client, err = rawClient(m.addr); err != nil {
			return err
		}
	}
	return nil
}

func (t *trio) close() error {
	for _, m := range t.members {
		if m.client != nil {
			m.client.Close()
		}
	}
	return t.stop()
}

// settle waits until the brokers are done with what earlier steps left them to do.
func (t *trio) settle(ctx context.Context) {
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if t.asServer().cpuOver(ctx, 500*time.Millisecond) < 15 {
			return
		}
	}
}
