//go:build interop

package zookeeper

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"klamm/interop/jvm"
)

// zooKeeper is one server of the ensemble.
type zooKeeper struct {
	addr string
	conf string
	kind kind     // release of Kafka whose jars bring it
	jvm  []string // options of its JVM
	proc *process
}

// startEnsemble starts servers whose ports stay theirs while they are down.
func (c *cluster) startEnsemble(s setup) {
	c.Helper()
	n, release := max(1, s.zooKeepers), cmp.Or(s.zooKeeper, kafka)
	var members strings.Builder
	for i := range n {
		if n > 1 {
			_, peer, _ := net.SplitHostPort(freeAddr(c.T))
			_, election, _ := net.SplitHostPort(freeAddr(c.T))
			fmt.Fprintf(&members, "server.%d=127.0.0.1:%s:%s\n", i+1, peer, election)
		}
	}
	var addrs []string
	for i := range n {
		z := &zooKeeper{addr: freeAddr(c.T), kind: release, jvm: s.zooKeeperJVM}
		_, port, _ := net.SplitHostPort(z.addr)
		dir := filepath.Join("zk" + strconv.Itoa(i+1))
		c.write(filepath.Join(dir, "myid"), strconv.Itoa(i+1))
		z.conf = c.write(filepath.Join(dir, "zk.cfg"), fmt.Sprintf(`tickTime=500
initLimit=20
syncLimit=10
dataDir=%s
clientPort=%s
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
%s%s`, filepath.Join(c.dir, dir), port, members.String(), s.zooKeeperConfig))
		c.zks, addrs = append(c.zks, z), append(addrs, z.addr)
	}
	c.zk = strings.Join(addrs, ",")
	c.startZooKeeper(c.zks...)
	c.Cleanup(func() {
		for _, z := range c.zks {
			_ = z.proc.cmd.Process.Kill()
			<-z.proc.exited
		}
	})
}

func (c *cluster) startZooKeeper(servers ...*zooKeeper) {
	c.Helper()
	for _, z := range servers {
		args := append(slices.Clone(z.jvm), "-Xmx192M", "org.apache.zookeeper.server.quorum.QuorumPeerMain", z.conf)
		z.proc = c.java(z.kind, filepath.Join(filepath.Dir(z.conf), "zk.log"), args...)
	}
}

// mode asks a server what it is in the ensemble: leader, follower, or standalone; "" when it does not say.
func (z *zooKeeper) mode() string {
	conn, err := net.DialTimeout("tcp", z.addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return ""
	}
	answer := make([]byte, 4096)
	n := 0
	for n < len(answer) {
		k, err := conn.Read(answer[n:])
		if n += k; err != nil {
			break
		}
	}
	_, after, _ := strings.Cut(string(answer[:n]), "Mode: ")
	mode, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(mode)
}

// awaitLeader waits until the ensemble has a leader and all running servers follow it.
func (c *cluster) awaitLeader() *zooKeeper {
	c.Helper()
	var leader *zooKeeper
	c.eventually(60*time.Second, "the ensemble has a leader", func() (bool, string) {
		var modes []string
		leader = nil
		for _, z := range c.zks {
			if !z.proc.running() {
				continue
			}
			m := z.mode()
			if modes = append(modes, m); m == "leader" {
				leader = z
			}
		}
		return leader != nil && !slices.Contains(modes, ""), fmt.Sprint(modes)
	})
	return leader
}

// java are the arguments of a JVM with the jars of a release of Kafka's, which brings a ZooKeeper.
func java(t *testing.T, release kind, args ...string) []string {
	t.Helper()
	name := "KAFKA_JARS_" + strings.ReplaceAll(string(release), ".", "_")
	dir := os.Getenv(name)
	if dir == "" {
		t.Fatalf("%s is not set: run the tests by `make interop`, or eval the output of interop/setup.sh", name)
	}
	return append(jvm.Options(dir), args...)
}

// portsTaken are those that this process has given to servers.
var portsTaken = map[int]bool{}

// freeAddr reserves an address below the range of ports that the kernel gives to connections, so that nobody takes it
// while its server is down.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := 12_000 + rand.IntN(20_000)
		if portsTaken[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		portsTaken[port] = true
		defer l.Close()
		return l.Addr().String()
	}
	t.Fatal("no free port between 12000 and 32000")
	return ""
}
