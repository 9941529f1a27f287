//go:build interop

package zkstore

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// jarsOf gives a folder that interop/setup.sh has filled.
func jarsOf(t *testing.T, variable string) string {
	t.Helper()
	jars := os.Getenv(variable)
	if jars == "" {
		t.Fatalf("%s is not set: run the tests by `make interop`, or eval the output of interop/setup.sh", variable)
	}
	return jars
}

// startServer runs the standalone ZooKeeper that Kafka 3.9.1 brings, see startServerOf.
func startServer(t *testing.T, config string, jvm ...string) string {
	t.Helper()
	return startServerOf(t, jarsOf(t, "KAFKA_JARS_3_9_1"), config, jvm...)
}

// startServerOf runs a standalone ZooKeeper from a folder of jars on loopback, until the test ends, and gives its address.
// Its shortest session is one second.
func startServerOf(t *testing.T, jars, config string, jvm ...string) string {
	t.Helper()
	dir := t.TempDir()
	addr := freeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	conf := write("zk.cfg", fmt.Sprintf("tickTime=500\ndataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n%s\n",
		filepath.Join(dir, "data"), port, config))
	log := write("log4j.properties", "log4j.rootLogger=WARN,out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\nlog4j.appender.out.layout=org.apache.log4j.PatternLayout\nlog4j.appender.out.layout.ConversionPattern=%p %m%n\n")
	args := append([]string{"-Xmx512M", "-XX:TieredStopAtLevel=1", "-Dlog4j.configuration=file:" + log}, jvm...)
	cmd := exec.Command("java", append(args, "-cp", filepath.Join(jars, "*"), "org.apache.zookeeper.server.ZooKeeperServerMain", conf)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("zookeeper said:\n%s", tail(out.String(), 4000))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	// Open tries until the server is there.
	s, err := Open(ctx, Options{Connect: addr, SessionTimeout: 2 * time.Second, ConnectionTimeout: time.Minute})
	if err != nil {
		t.Fatalf("zookeeper did not start: %v\n%s", err, out.String())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return addr
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
