//go:build interop

package interop

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// network is a bridge of this test's, with a network namespace for each broker: a cable that can be cut. Clients are at the
// bridge itself. It needs root.
type network struct {
	t    *testing.T
	name string // of the bridge, and what the namespaces' names begin with
	net  int    // third byte of the addresses 198.18.net.host, a range for such tests (RFC 2544)
}

// bridgeHost is the last byte of the clients' address.
const bridgeHost = 254

// nobody is a link-layer address that no interface has: what is sent there is lost, and the sender is not told.
const nobody = "02:00:00:00:00:99"

func newNetwork(t *testing.T, brokers int) *network {
	t.Helper()
	removeLeftNetworks(t)
	n := &network{t: t, name: fmt.Sprint("klamm", os.Getpid()), net: os.Getpid() % 250}
	t.Cleanup(func() { removeNetwork(t, n.name) })
	n.ip("link", "add", n.name, "type", "bridge")
	n.ip("addr", "add", fmt.Sprint(n.addr(bridgeHost), "/24"), "dev", n.name)
	n.ip("link", "set", n.name, "up")
	for i := range brokers {
		space, port := n.space(i), fmt.Sprint(n.name, "-", i+1)
		n.ip("netns", "add", space)
		n.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
		n.ip("link", "set", port, "master", n.name)
		n.ip("link", "set", port, "up")
		n.ip("-n", space, "addr", "add", fmt.Sprint(n.addr(i+1), "/24"), "dev", "eth0")
		n.ip("-n", space, "link", "set", "eth0", "up")
		n.ip("-n", space, "link", "set", "lo", "up")
	}
	return n
}

func (n *network) space(i int) string { return fmt.Sprint(n.name, "-", i+1) }

func (n *network) addr(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(n.net), byte(host)})
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// lose drops what broker from sends to broker to, by their indices, without a word to either.
func (n *network) lose(from, to int) {
	n.t.Helper()
	n.ip("-n", n.space(from), "neigh", "replace", n.addr(to+1).String(), "lladdr", nobody, "nud", "permanent", "dev", "eth0")
}

// cut drops what goes between two brokers.
func (n *network) cut(a, b int) {
	n.t.Helper()
	n.lose(a, b)
	n.lose(b, a)
}

// heal ends what lose and cut did to a broker, on both sides.
func (n *network) heal(i int) {
	n.t.Helper()
	for j := range 3 {
		if j != i {
			_ = exec.Command("ip", "-n", n.space(i), "neigh", "del", n.addr(j+1).String(), "dev", "eth0").Run()
			_ = exec.Command("ip", "-n", n.space(j), "neigh", "del", n.addr(i+1).String(), "dev", "eth0").Run()
		}
	}
}

// plug pulls a broker's cable, or plugs it in again.
func (n *network) plug(i int, in bool) {
	n.t.Helper()
	state := "down"
	if in {
		state = "up"
	}
	n.ip("link", "set", fmt.Sprint(n.name, "-", i+1), state)
}

// removeNetwork takes everything away that begins with the name.
func removeNetwork(t *testing.T, name string) {
	for _, space := range namespaces(t) {
		if strings.HasPrefix(space, name+"-") {
			_ = exec.Command("ip", "netns", "del", space).Run()
		}
	}
	_ = exec.Command("ip", "link", "del", name).Run()
}

// removeLeftNetworks removes those of test processes that are gone.
func removeLeftNetworks(t *testing.T) {
	for _, space := range namespaces(t) {
		name, _, _ := strings.Cut(space, "-")
		pid, err := strconv.Atoi(strings.TrimPrefix(name, "klamm"))
		if err != nil || !strings.HasPrefix(name, "klamm") {
			continue
		}
		if _, err := os.Stat(fmt.Sprint("/proc/", pid)); os.IsNotExist(err) {
			removeNetwork(t, name)
		}
	}
}

func namespaces(t *testing.T) []string {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Fatalf("list network namespaces: %v", err)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return names
}
