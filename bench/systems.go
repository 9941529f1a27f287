package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// system is a broker that can be started on an empty folder. Each start uses a fresh folder below work.
type system interface {
	name() string
	// start launches the broker and returns at once or when it accepts connections.
	start(ctx context.Context, dir string) (*server, error)
}

// server is a running broker.
type server struct {
	addr        string
	began       time.Time     // just before the launch
	firstRecord time.Duration // from then on
	pids        []int         // processes whose CPU and memory count
	data        string        // log dir
	stop        func() (time.Duration, error)
}

// sharedConfig is set in all systems. Removed directories stay until the run is over: their removal would disturb a
// later figure of a system, and ext4 without a journal is slow to reuse the inodes of files that were just removed.
const sharedConfig = "log.segment.delete.delay.ms=3600000\n"

func systems(o options) []system {
	return []system{klamm{o.bin, strings.Fields(o.args)}, kafkaZK{o.scripts}, kafkaKRaft{o.scripts}}
}

func buildKlamm(ctx context.Context, work string) (string, error) {
	bin := filepath.Join(work, "klamm")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "./cmd/klamm")
	cmd.Stderr = os.Stderr
	return bin, cmd.Run()
}

type klamm struct {
	bin  string
	args []string
}

func (klamm) name() string { return "klamm" }

func (k klamm) start(_ context.Context, dir string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprint("127.0.0.1:", port)
	conf := filepath.Join(dir, "server.properties")
	data := filepath.Join(dir, "data")
	text := fmt.Sprintf("broker.id=1\nlisteners=PLAINTEXT://%s\nlog.dirs=%s\netcd.data.dir=%s\nweb.listen=\noffsets.topic.replication.factor=1\n%s",
		addr, data, filepath.Join(dir, "etcd"), sharedConfig)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := startProcess(filepath.Join(dir, "klamm.log"), k.bin, append([]string{"serve", conf}, k.args...)...)
	if err != nil {
		return nil, err
	}
	return &server{addr: addr, began: began, pids: []int{p.cmd.Process.Pid}, data: data, stop: func() (time.Duration, error) {
		t := time.Now()
		if err := p.signal(syscall.SIGTERM); err != nil {
			return 0, err
		}
		err := p.wait()
		return time.Since(t), err
	}}, nil
}

type kafkaZK struct{ scripts string }

func (kafkaZK) name() string { return "kafka-3.9" }

func (k kafkaZK) start(ctx context.Context, dir string) (*server, error) {
	return startByScript(ctx, filepath.Join(k.scripts, "zk-cluster.sh"), dir, []string{"KAFKA_VERSION=3.9.1"},
		func(port int) string { return fmt.Sprint("127.0.0.1:", port+1) }, "b0", []string{"b0/pid", "zk/pid"})
}

type kafkaKRaft struct{ scripts string }

func (kafkaKRaft) name() string { return "kafka-4.1" }

func (k kafkaKRaft) start(ctx context.Context, dir string) (*server, error) {
	return startByScript(ctx, filepath.Join(k.scripts, "kraft.sh"), dir, []string{"KAFKA_VERSION=4.1.0"},
		func(port int) string { return fmt.Sprint("127.0.0.1:", port+1) }, "n1", []string{"n1/pid"})
}

// startByScript runs one broker by a script that writes pid files. The script's own waiting is part of the start, as
// it is with the JVM's own scripts; formatting a KRaft data dir, another JVM, is too.
func startByScript(ctx context.Context, file, dir string, env []string, addr func(port int) string, broker string, pidFiles []string) (*server, error) {
	port, err := basePort()
	if err != nil {
		return nil, err
	}
	run := script{file: file, env: env, config: sharedConfig}.run
	began := time.Now()
	if err := run(ctx, "start", "1", dir, strconv.Itoa(port)); err != nil {
		return nil, errors.Join(err, run(context.Background(), "stop", dir))
	}
	s := &server{addr: addr(port), began: began, data: filepath.Join(dir, broker, "data")}
	for _, f := range pidFiles {
		pid, err := readPid(filepath.Join(dir, f))
		if err != nil {
			return nil, err
		}
		s.pids = append(s.pids, pid)
	}
	s.stop = func() (time.Duration, error) {
		t := time.Now()
		_ = syscall.Kill(s.pids[0], syscall.SIGTERM)
		for alive(s.pids[0]) && time.Since(t) < 2*time.Minute {
			time.Sleep(2 * time.Millisecond)
		}
		took := time.Since(t)
		return took, run(context.Background(), "stop", dir)
	}
	return s, nil
}

// script is one of the scripts that start Kafka.
type script struct {
	file   string
	env    []string
	config string // more lines of the brokers' configuration
}

func (s script) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.file, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(append(os.Environ(), "EXTRA="+strings.ReplaceAll(s.config, "\n", "\\n")), s.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", filepath.Base(s.file), args, err, out.String())
	}
	return nil
}

// basePort finds a port with room for the ports above it, below those that the kernel gives to clients.
func basePort() (int, error) {
	port, err := freePort()
	return 10000 + port%20000, err
}

func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	after := string(b[bytes.LastIndexByte(b, ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(after), "Z")
}

func readPid(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// rssMiB sums the resident memory of the processes.
func (s *server) rssMiB() float64 {
	kb := 0
	for _, pid := range s.pids {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for _, line := range strings.Split(string(b), "\n") {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				n, _ := strconv.Atoi(strings.Fields(rest)[0])
				kb += n
			}
		}
	}
	return float64(kb) / 1024
}

// cpuOver waits and says how much of one core the server used meanwhile, in percent.
func (s *server) cpuOver(ctx context.Context, d time.Duration) float64 {
	before, t := s.cpu(), time.Now()
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return 100 * float64(s.cpu()-before) / float64(time.Since(t))
}

// settle waits until the server is done with what earlier steps left it to do: it uses less than a twentieth of a core.
// It gives up after a while, since some never rest.
func (s *server) settle(ctx context.Context) {
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if s.cpuOver(ctx, 400*time.Millisecond) < 5 {
			return
		}
	}
}

// cpu is the processes' user and system time so far.
func (s *server) cpu() time.Duration {
	ticks := 0
	for _, pid := range s.pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		ticks += user + system
	}
	return time.Duration(ticks) * 10 * time.Millisecond // the kernel counts hundredths of a second
}
