package etcdstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/soheilhy/cmux"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// door is the one listener of a member: peers speak HTTP/1 on it, clients gRPC, which is HTTP/2.
type door struct {
	listener *openConns
	mux      cmux.CMux
	forPeers net.Listener
	forGRPC  net.Listener
	peers    *http.Server
	clients  *grpc.Server
	running  sync.WaitGroup
}

// firstBytesTimeout bounds the wait for what tells a peer from a client.
const firstBytesTimeout = 10 * time.Second

// openDoor binds the address before any data is touched; nothing is answered yet.
func openDoor(ctx context.Context, c MemberConfig) (*door, error) {
	config, err := c.TLS.server()
	if err != nil {
		return nil, err
	}
	l := c.Listener
	if l == nil {
		addr := c.Listen
		if addr == "" {
			addr = c.Self.Addr
		}
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr); err != nil {
			return nil, fmt.Errorf("listen on %s: %w; etcd.listen names the address to bind where it differs from the one in etcd.cluster", addr, err)
		}
	}
	warnOpenDoor(c, l.Addr())
	if config != nil {
		l = tls.NewListener(l, config)
	}
	open := &openConns{Listener: l}
	d := &door{listener: open, mux: cmux.New(open)}
	d.mux.SetReadTimeout(firstBytesTimeout)
	d.forGRPC = d.mux.Match(cmux.HTTP2())
	d.forPeers = peerListener{d.mux.Match(cmux.Any())}
	return d, nil
}

func warnOpenDoor(c MemberConfig, bound net.Addr) {
	tcp, ok := bound.(*net.TCPAddr)
	if !ok {
		return
	}
	if !tcp.IP.IsLoopback() && !c.TLS.on() {
		c.Log.Warn("the etcd member is open to the network without authentication: whoever reaches it can change and delete everything the cluster knows. Set etcd.tls.ca, etcd.tls.cert and etcd.tls.key",
			"address", bound.String())
	}
	if tcp.IP.IsLoopback() && othersAreElsewhere(c) {
		c.Log.Warn("the etcd member listens on loopback only, where members on other machines cannot reach it: the name in etcd.cluster leads there. Set etcd.listen",
			"address", bound.String(), "member", c.Self.String())
	}
}

// othersAreElsewhere reports whether a peer has an address that cannot be this machine's loopback.
func othersAreElsewhere(c MemberConfig) bool {
	for _, p := range c.Peers {
		host, _, err := net.SplitHostPort(p.Addr)
		if err != nil || p == c.Self {
			continue
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return true
		}
	}
	return false
}

// servePeers answers the other members from now on.
func (d *door) servePeers(s *etcdserver.EtcdServer) {
	d.peers = &http.Server{
		Handler: etcdhttp.NewPeerHandler(s.Logger(), s), ReadHeaderTimeout: firstBytesTimeout,
		ErrorLog: log.New(io.Discard, "", 0), // what peers do wrong is said by etcd itself
	}
	d.running.Go(func() { _ = d.peers.Serve(d.forPeers) }) // ends with close
	d.running.Go(func() { _ = d.mux.Serve() })
}

// serveClients answers clients from now on; those that came before were kept waiting.
func (d *door) serveClients(s *etcdserver.EtcdServer) {
	d.clients = v3rpc.Server(s, nil, nil,
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
	d.running.Go(func() { _ = d.clients.Serve(d.forGRPC) })
}

// stopClients lets short requests end and cuts the rest, watches above all, which never end by themselves.
func (d *door) stopClients() {
	if d.clients == nil {
		return
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); d.clients.GracefulStop() }()
	select {
	case <-stopped:
	case <-time.After(clientsDrainTimeout):
		d.clients.Stop()
		<-stopped
	}
}

// close ends everything; the member itself has stopped by then.
func (d *door) close() error {
	d.mux.Close()
	err := d.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if d.peers != nil {
		err = errors.Join(err, d.peers.Close())
	}
	d.listener.closeAll()
	d.running.Wait()
	return err
}

// openConns knows its connections, so that those can be closed which have not said yet what they are for: the mux
// waits for their first bytes.
type openConns struct {
	net.Listener

	mu struct {
		sync.Mutex
		open map[*openConn]struct{}
	}
}

type openConn struct {
	net.Conn
	of *openConns
}

func (l *openConns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	giveUpSilent(c, peerSilence)
	o := &openConn{c, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.open == nil {
		l.mu.open = map[*openConn]struct{}{}
	}
	l.mu.open[o] = struct{}{}
	return o, nil
}

func (l *openConns) closeAll() {
	l.mu.Lock()
	open := slices.Collect(maps.Keys(l.mu.open))
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

func (c *openConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.mu.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// peerIdle is how long a peer may say nothing on a connection of single requests, which it keeps for the next, or take nothing of an answer.
const peerIdle = rafthttp.DefaultConnReadTimeout

// peerListener ends connections that are silent for longer than members are: they talk several times a second.
type peerListener struct{ net.Listener }

func (l peerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{c}, nil
}

type peerConn struct{ net.Conn }

func (c peerConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(peerIdle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c peerConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(peerIdle)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// WarnPlain tells of a connection to etcd that leaves the machine unprotected.
func WarnPlain(l *slog.Logger, endpoints []string) {
	for _, e := range endpoints {
		host, _, err := net.SplitHostPort(addrOfURL(e))
		if err != nil || len(e) >= 8 && e[:8] == "https://" {
			continue
		}
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			continue
		}
		l.Warn("the connection to etcd is not protected: whoever is on the way can read and change everything the cluster knows. Use etcd.tls.*", "address", e)
		return
	}
}
