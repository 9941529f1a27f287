//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// klammBinary is built once for all tests of the package.
var klammBinary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "klamm-interop")
	if err != nil {
		panic(err)
	}
	klammBinary = filepath.Join(dir, "klamm")
	args := []string{"build", "-o", klammBinary}
	build := exec.Command("go", append(args, "../cmd/klamm")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build klamm:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// broker is one klamm process with its folder.
type broker struct {
	t    *testing.T
	dir  string
	conf []string // server.properties lines of every start
	addr string   // bootstrap address; kept over restarts
	web  string   // base URL

	space string // network namespace to run in; "" for that of the test

	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone
	stdout lines
	stderr lines
}

// startBroker runs `klamm serve` with the given properties and waits until it says that it is ready.
// It is stopped when the test ends.
func startBroker(t *testing.T, properties ...string) *broker {
	t.Helper()
	b := newBroker(t, append([]string{"broker.id=1"}, properties...)...)
	b.start()
	return b
}

// newBroker prepares a broker that does not run yet. It is stopped when the test ends.
func newBroker(t *testing.T, properties ...string) *broker {
	t.Helper()
	b := &broker{t: t, dir: t.TempDir()}
	if dir := os.Getenv("KLAMM_INTEROP_LOGS"); dir != "" {
		log, err := os.CreateTemp(dir, "broker-*.log")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = log.Close() })
		t.Logf("the broker's log is kept in %s", log.Name())
		b.stderr.copy = log
	}
	b.conf = append([]string{
		"listeners=PLAINTEXT://" + reserveAddress(t), // a port that the kernel gives away could be another's before a restart
		"log.dirs=" + filepath.Join(b.dir, "data"),
		"etcd.data.dir=" + filepath.Join(b.dir, "etcd"),
		"web.listen=127.0.0.1:0",
	}, properties...)
	t.Cleanup(func() {
		if b.cmd != nil && b.running() {
			b.kill()
		}
		if t.Failed() {
			t.Logf("last lines of klamm's log:\n%s", b.stderr.tail(60))
		}
	})
	return b
}

// start launches the process; a restart keeps the port of the first start.
func (b *broker) start() {
	b.t.Helper()
	if err := b.tryStart(); err != nil {
		b.t.Fatalf("klamm did not start: %v\n%s", err, b.stderr.tail(40))
	}
}

var (
	listenersLine = regexp.MustCompile(`listeners\s+PLAINTEXT://(\S+)`)
	webLine       = regexp.MustCompile(`web\s+(http://\S+)`)
)

func (b *broker) tryStart() error {
	if b.addr != "" {
		b.conf = append(b.conf, "listeners=PLAINTEXT://"+b.addr)
	}
	file := filepath.Join(b.dir, "server.properties")
	if err := os.WriteFile(file, []byte(strings.Join(b.conf, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(klammBinary, "serve", file)
	if b.space != "" {
		cmd = exec.Command("ip", "netns", "exec", b.space, klammBinary, "serve", file)
	}
	cmd.Dir, cmd.Env = b.dir, neutralEnv()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.cmd, b.exited = cmd, make(chan struct{})
	ready := make(chan struct{})
	var readers sync.WaitGroup
	readers.Add(2)
	go func() { defer readers.Done(); b.stderr.read(stderr, nil) }()
	go func() {
		defer readers.Done()
		b.stdout.read(stdout, func(line string) {
			if m := listenersLine.FindStringSubmatch(line); m != nil {
				b.addr = m[1]
			}
			if m := webLine.FindStringSubmatch(line); m != nil {
				b.web = m[1]
				close(ready)
			}
		})
	}()
	go func() { readers.Wait(); _ = cmd.Wait(); close(b.exited) }()
	select {
	case <-ready:
		return nil
	case <-b.exited:
		return fmt.Errorf("exited with %v", cmd.ProcessState)
	case <-time.After(60 * time.Second):
		return fmt.Errorf("not ready after 60 s")
	}
}

// neutralEnv is the environment without the variables that configure a broker.
func neutralEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "KAFKA_") || strings.HasPrefix(kv, "KLAMM_") || strings.HasPrefix(kv, "CLUSTER_ID=")
	})
}

func (b *broker) running() bool {
	select {
	case <-b.exited:
		return false
	default:
		return true
	}
}

// kill ends the process as a power cut would end it, without a chance to write anything.
func (b *broker) kill() {
	b.signal(syscall.SIGKILL)
	<-b.exited
}

func (b *broker) signal(s syscall.Signal) { _ = b.cmd.Process.Signal(s) }

// stop asks for a clean stop and gives the exit code.
func (b *broker) stop() int {
	b.t.Helper()
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.exited:
	case <-time.After(60 * time.Second):
		b.t.Fatalf("klamm still runs 60 s after SIGTERM\n%s", b.stderr.tail(40))
	}
	return b.cmd.ProcessState.ExitCode()
}

// klamm runs one of the binary's commands to its end.
func (b *broker) klamm(args ...string) result {
	b.t.Helper()
	return command(b.t, klammBinary, args...)
}

// topics runs `klamm topics` against the broker.
func (b *broker) topics(args ...string) result {
	b.t.Helper()
	return b.klamm(append([]string{"topics", "--bootstrap-server", b.addr}, args...)...)
}

// get reads one page of the broker's web address.
func (b *broker) get(path string) (int, string) {
	b.t.Helper()
	resp, err := http.Get(b.web + path)
	if err != nil {
		b.t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, string(body)
}

// result is what a finished command left.
type result struct {
	exit   int
	stdout string
	stderr string
}

func command(t *testing.T, name string, args ...string) result {
	t.Helper()
	return commandInput(t, "", name, args...)
}

func commandInput(t *testing.T, stdin, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = neutralEnv()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s %v did not end within 120 s\nstdout: %s\nstderr: %s", name, args, out.String(), errs.String())
	}
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", name, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// ok fails the test unless the command ended with 0, and returns its standard output.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.exit != 0 {
		t.Fatalf("exit code %d\nstdout: %s\nstderr: %s", r.exit, r.stdout, r.stderr)
	}
	return r.stdout
}

// lines collects a stream's lines; safe for concurrent use.
type lines struct {
	copy io.Writer // gets every line too; nil for nobody

	mu  sync.Mutex
	all []string
}

func (l *lines) read(r io.Reader, each func(string)) {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 1<<16), 1<<24)
	for s.Scan() {
		l.mu.Lock()
		l.all = append(l.all, s.Text())
		if l.copy != nil {
			_, _ = fmt.Fprintln(l.copy, s.Text())
		}
		l.mu.Unlock()
		if each != nil {
			each(s.Text())
		}
	}
}

func (l *lines) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all[max(0, len(l.all)-n):], "\n")
}

// contains reports whether any line has the text.
func (l *lines) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			return true
		}
	}
	return false
}

// env reads a variable that setup.sh printed.
func env(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run the tests by `make interop`, or eval the output of interop/setup.sh", name)
	}
	return v
}

// eventually polls a condition of another process that gives no signal, and fails with what it last said.
func eventually(t *testing.T, within time.Duration, what string, cond func() (bool, string)) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := cond()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s; last seen: %s", within, what, state)
		}
	}
}
