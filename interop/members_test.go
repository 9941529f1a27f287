//go:build interop

package interop

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// members runs `klamm cluster members` with the configuration of one broker.
func (b *broker) members(args ...string) result {
	b.t.Helper()
	return b.klamm(append(append([]string{"cluster", "members"}, args...), "--config", filepath.Join(b.dir, "server.properties"))...)
}

func TestTheMembersCommandShowsWhoIsDown(t *testing.T) {
	c := startTrio(t)
	if out := c.brokers[0].members("list").ok(t); strings.Count(out, "runs") != 3 || strings.Count(out, "leader") != 1 {
		t.Errorf("with all up:\n%s", out)
	}
	c.brokers[2].kill()
	eventually(t, 20*time.Second, "broker 3 is shown as down, and the others run", func() (bool, string) { // they know no leader until the next is elected
		out := c.brokers[0].members("list").ok(t)
		return strings.Count(out, "runs") == 2 && strings.Contains(out, "does not answer"), out
	})
	r := c.brokers[0].members("remove", "7")
	if r.exit != 1 || !strings.Contains(r.stderr, "there is no member 7") {
		t.Errorf("removing a stranger: %d, %s", r.exit, r.stderr)
	}
}

// An etcd that others run, which wants a name and a password.
func TestABrokerLogsInToAnEtcdOfOthers(t *testing.T) {
	endpoint := startGuardedEtcd(t)
	login := func(password string) *broker {
		return newBroker(t, "broker.id=1", "etcd.endpoints="+endpoint, "etcd.user=klamm", "etcd.password="+password)
	}
	wrong := login("wrong")
	if err := wrong.tryStart(); err == nil || !wrong.stderr.contains("authentication failed") {
		t.Errorf("a wrong password: %v\n%s", err, wrong.stderr.tail(5))
	}
	b := login("secret")
	b.start()
	b.topics("--create", "--topic", "t").ok(t)
	if code := b.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.start()
	if out := b.topics("--list").ok(t); out != "t\n" {
		t.Errorf("topics after the restart: %q", out)
	}
}

// startGuardedEtcd runs an etcd with authentication that knows the user klamm, in this process, and gives its endpoint.
func startGuardedEtcd(t *testing.T) string {
	t.Helper()
	address := func() []url.URL { return []url.URL{{Scheme: "http", Host: reserveAddress(t)}} }
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs = t.TempDir(), "fatal", []string{filepath.Join(t.TempDir(), "log")}
	c.ListenClientUrls, c.ListenPeerUrls = address(), address()
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, c.ListenPeerUrls
	c.InitialCluster = c.Name + "=" + c.AdvertisePeerUrls[0].String()
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	endpoint := c.AdvertiseClientUrls[0].String()
	cl, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for _, step := range []func() error{
		func() error { _, err := cl.UserAdd(t.Context(), "root", "root"); return err },
		func() error { _, err := cl.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := cl.RoleAdd(t.Context(), "broker"); return err },
		func() error {
			_, err := cl.RoleGrantPermission(t.Context(), "broker", "\x00", "\x00", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := cl.UserAdd(t.Context(), "klamm", "secret"); return err },
		func() error { _, err := cl.UserGrantRole(t.Context(), "klamm", "broker"); return err },
		func() error { _, err := cl.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(fmt.Errorf("prepare etcd: %w", err))
		}
	}
	return endpoint
}
