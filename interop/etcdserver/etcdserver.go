//go:build interop

// Package etcdserver runs etcd in the test's process, configured as one that others run would be: klamm reaches it by etcd.endpoints.
package etcdserver

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

// Options say what the servers are like. The zero value is one server that lets everybody in.
type Options struct {
	// Members is how many servers there are; 1 if 0.
	Members int
	// TLS has clients come over TLS and show the servers' own certificate.
	TLS bool
	// User may read and write what klamm keeps, and nobody may without logging in; "" for no users.
	User, Password string
	// Address gives a free host:port that stays so until the test ends.
	Address func(*testing.T) string
}

// Cluster is some servers that run.
type Cluster struct {
	// Endpoints are the servers' addresses, as etcd.endpoints has them.
	Endpoints string
	// Certificate and Key are the files of a certificate that vouches for itself; "" without TLS.
	Certificate, Key string
	// Stop ends the servers of these indexes, all of them without any. They are ended with the test at the latest.
	Stop func(...int)
}

const readyWithin = 20 * time.Second

func addresses(t *testing.T, o Options) (client, peer url.URL) {
	client, peer = url.URL{Scheme: "http", Host: o.Address(t)}, url.URL{Scheme: "http", Host: o.Address(t)}
	if o.TLS {
		client.Scheme = "https"
	}
	return client, peer
}

// Start runs the servers and waits until they serve.
func Start(t *testing.T, o Options) Cluster {
	t.Helper()
	n := max(1, o.Members)
	configs := make([]*embed.Config, n)
	var members, endpoints []string
	var tls transport.TLSInfo
	if o.TLS {
		tls = selfSigned(t)
	}
	for i := range configs {
		c := embed.NewConfig()
		c.Name, c.Dir, c.LogLevel, c.ClientTLSInfo = fmt.Sprintf("m%d", i), t.TempDir(), "fatal", tls
		client, peer := addresses(t, o)
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		configs[i], members, endpoints = c, append(members, c.Name+"="+peer.String()), append(endpoints, client.Host)
	}
	servers, stop := start(t, configs, strings.Join(members, ","))
	if o.User != "" {
		demandLogin(t, servers[0], o.User, o.Password)
	}
	return Cluster{Endpoints: strings.Join(endpoints, ","), Certificate: tls.CertFile, Key: tls.KeyFile, Stop: stop}
}

// start runs the servers until the test ends, or stop is called for them.
func start(t *testing.T, configs []*embed.Config, members string) (servers []*embed.Etcd, stop func(...int)) {
	t.Helper()
	var ends []func()
	for _, c := range configs {
		c.InitialCluster = members
		s, err := embed.StartEtcd(c) // it does not wait for the others
		if err != nil {
			t.Fatal(err)
		}
		end := sync.OnceFunc(s.Close)
		t.Cleanup(end)
		servers, ends = append(servers, s), append(ends, end)
	}
	late := time.After(readyWithin)
	for _, s := range servers {
		select {
		case <-s.Server.ReadyNotify():
		case <-late:
			t.Fatalf("etcd is not ready after %v", readyWithin)
		}
	}
	return servers, func(which ...int) {
		for i, end := range ends {
			if len(which) == 0 || slices.Contains(which, i) {
				end()
			}
		}
	}
}

func selfSigned(t *testing.T) transport.TLSInfo {
	t.Helper()
	info, err := transport.SelfCert(zap.NewNop(), filepath.Join(t.TempDir(), "tls"), []string{"127.0.0.1:0"}, 1, x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	info.TrustedCAFile, info.ClientCertAuth = info.CertFile, true
	return info
}

// demandLogin switches users on. The user's role is what docs/migration.md gives.
func demandLogin(t *testing.T, server *embed.Etcd, user, password string) {
	t.Helper()
	client := v3client.New(server.Server)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	for _, do := range []func() error{
		func() error { _, err := client.UserAdd(ctx, "root", "root"); return err },
		func() error { _, err := client.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := client.RoleAdd(ctx, "klamm"); return err },
		func() error {
			_, err := client.RoleGrantPermission(ctx, "klamm", "#", ":", clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := client.UserAdd(ctx, user, password); return err },
		func() error { _, err := client.UserGrantRole(ctx, user, "klamm"); return err },
		func() error { _, err := client.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}
