package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/coordtest"
)

// group is a cluster of members in this process, each with a listener on loopback.
type group struct {
	t       *testing.T
	dir     string
	peers   []Peer
	tls     TLS
	log     *slog.Logger
	listen  func(i int) net.Listener // nil: each binds its address
	members []*Engine
}

// newGroup binds the addresses, so that all configurations can name them. Nothing runs yet.
func newGroup(t *testing.T, size int) *group {
	g := &group{t: t, dir: t.TempDir(), log: quiet(), members: make([]*Engine, size)}
	t.Cleanup(func() {
		var all sync.WaitGroup
		for i := range g.members {
			all.Go(func() { g.stop(i) })
		}
		all.Wait()
	})
	for i := range size {
		l := bind(t, "127.0.0.1:0")
		g.peers = append(g.peers, Peer{cluster.BrokerID(i + 1), l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func bind(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (g *group) config(i int) MemberConfig {
	c := MemberConfig{
		Dir: filepath.Join(g.dir, fmt.Sprint(i+1)), Self: g.peers[i], Peers: g.peers, TLS: g.tls, Log: g.log,
	}
	if g.listen != nil {
		c.Listener = g.listen(i)
	}
	return c
}

func (g *group) start(indices ...int) {
	g.t.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(g.peers))
	for _, i := range indices {
		all.Go(func() { g.members[i], errs[i] = StartMember(context.Background(), g.config(i)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		g.t.Fatal(err)
	}
}

func (g *group) stop(i int) {
	if e := g.members[i]; e != nil {
		g.members[i] = nil
		if err := e.Close(); err != nil {
			g.t.Error(err)
		}
	}
}

func (g *group) leader() int {
	g.t.Helper()
	for i, e := range g.members {
		if e != nil && e.server.Leader() == e.server.MemberID() {
			return i
		}
	}
	g.t.Fatal("there is no leader")
	return -1
}

func (g *group) clientConfig() ClientConfig {
	var urls []string
	for _, p := range g.peers {
		urls = append(urls, g.tls.URL(p.Addr))
	}
	return ClientConfig{Endpoints: urls, TLS: g.tls, Own: true, Log: g.log}
}

func (g *group) dial() *Client {
	g.t.Helper()
	c, err := Dial(g.t.Context(), g.clientConfig())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			g.t.Error(err)
		}
	})
	return c
}

// clear removes all nodes and sessions of the test before.
func clear(t *testing.T, c *clientv3.Client) {
	t.Helper()
	if _, err := c.Delete(t.Context(), "\x00", clientv3.WithFromKey()); err != nil {
		t.Fatal(err)
	}
	left, err := c.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left.Leases {
		_, _ = c.Revoke(t.Context(), l.ID) // it may have expired just now
	}
}

func TestThreeMembersConform(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	remote := g.dial()
	coordtest.Run(t, func(t *testing.T) coordtest.Engine {
		clear(t, remote.client)
		n := 0
		return coordtest.Engine{
			Small: true,
			Connect: func() coord.Store {
				n++
				connect := remote.Connect
				if i := n % 4; i < 3 {
					connect = g.members[i].Connect
				}
				s, err := connect(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			},
			Expire: func(s coord.Session) {
				if _, err := remote.client.Revoke(context.Background(), clientv3.LeaseID(s.ID())); err != nil {
					t.Error(err)
				}
			},
		}
	})
}

// startForeignEtcd runs an etcd as an operator starts it, with etcd's own limits, and gives its endpoint.
func startForeignEtcd(t *testing.T, tls transport.TLSInfo) string {
	t.Helper()
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs = t.TempDir(), "fatal", []string{filepath.Join(t.TempDir(), "log")}
	c.TickMs, c.ElectionMs = 20, 100
	scheme := "http"
	if !tls.Empty() {
		scheme, c.ClientTLSInfo = "https", tls
	}
	address := func(scheme string) []url.URL { return []url.URL{{Scheme: scheme, Host: "127.0.0.1:0"}} }
	c.ListenClientUrls, c.ListenPeerUrls = address(scheme), address("http")
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = address(scheme), address("http")
	c.InitialCluster = c.Name + "=http://127.0.0.1:0"
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	return scheme + "://" + e.Clients[0].Addr().String()
}

func TestAnExternalEtcdConforms(t *testing.T) {
	endpoint := startForeignEtcd(t, transport.TLSInfo{})
	d, err := Dial(t.Context(), ClientConfig{Endpoints: []string{endpoint}, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	coordtest.Run(t, func(t *testing.T) coordtest.Engine {
		clear(t, d.client)
		return coordtest.Engine{
			Small: true,
			Connect: func() coord.Store {
				s, err := d.Connect(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				return s
			},
			Expire: func(s coord.Session) {
				if _, err := d.client.Revoke(context.Background(), clientv3.LeaseID(s.ID())); err != nil {
					t.Error(err)
				}
			},
		}
	})
}
