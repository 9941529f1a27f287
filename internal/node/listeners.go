package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/wire"
)

// boundListener is an open listener with the address it tells clients.
type boundListener struct {
	name       string
	protocol   string
	net        net.Listener
	advertised cluster.Endpoint
}

// bindListeners opens every configured listener. Ports are taken here, before any data is touched, so that a port in
// use costs nothing; connections wait until requests are served.
func (b *broker) bindListeners(ctx context.Context) error {
	for _, e := range b.cfg.Listeners {
		l, err := listen(ctx, e.Host, e.Port)
		if err != nil {
			return fmt.Errorf("listener %s: cannot listen on %s: %w; stop what uses the port, or change listeners", e.Name, hostPort(e.Host, int32(e.Port)), err)
		}
		b.close.add("listener "+e.Name, func() error { _ = l.Close(); return nil })
		b.bound = append(b.bound, boundListener{name: e.Name, protocol: e.Protocol, net: l})
	}
	for i := range b.bound {
		b.bound[i].advertised = b.advertisedEndpoint(&b.bound[i])
		b.warnOpenListener(&b.bound[i])
	}
	return nil
}

// listen opens one address. "localhost" means both loopback families, where the machine has them, on one port.
func listen(ctx context.Context, host string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	if !strings.EqualFold(host, "localhost") {
		return lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
	v4, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	bound := v4.Addr().(*net.TCPAddr).Port
	v6, err := lc.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(bound)))
	if err != nil {
		return v4, nil // no IPv6 loopback here, or its port is taken: v4 alone is what the client resolves to then
	}
	return newPairListener(v4, v6), nil
}

// advertisedEndpoint is what clients are told: advertised.listeners, else listeners with the bound port, and the machine's
// name where no host is configured.
func (b *broker) advertisedEndpoint(l *boundListener) cluster.Endpoint {
	ep := cluster.Endpoint{Listener: l.name, SecurityProtocol: l.protocol}
	for _, a := range b.cfg.AdvertisedListeners {
		if a.Name == l.name {
			ep.Host, ep.Port = a.Host, int32(a.Port)
		}
	}
	if ep.Port == 0 {
		ep.Port = int32(l.net.Addr().(*net.TCPAddr).Port)
	}
	if ep.Host == "" {
		ep.Host = canonicalHost()
	}
	return ep
}

func canonicalHost() string {
	if name, err := os.Hostname(); err == nil {
		return name
	}
	return "localhost"
}

func (b *broker) warnOpenListener(l *boundListener) {
	if risk := b.risk(l); risk != "" && !l.net.Addr().(*net.TCPAddr).IP.IsLoopback() {
		b.log.Warn(risk, "listener", l.name, "address", l.net.Addr().String())
	}
}

func (b *broker) endpoints() []cluster.Endpoint {
	var eps []cluster.Endpoint
	for _, l := range b.bound {
		eps = append(eps, l.advertised)
	}
	return eps
}

func (b *broker) serverConfig() wire.ServerConfig {
	c := b.cfg
	var ls []wire.Listener
	for _, l := range b.bound {
		interBroker := len(b.bound) == 1 || l.name == c.InterBrokerListener || l.name == c.ControlPlaneListener
		ls = append(ls, b.secured[l.name].apply(wire.Listener{Name: l.name, Net: l.net, InterBroker: interBroker}))
	}
	return wire.ServerConfig{
		Listeners: ls, API: b.table, Handler: b.handlers, Log: b.log,
		Limits: limits(b.dynamic.Broker()), Features: b.wireFeatures,
		Quota:          b.handlers.RequestQuota(),
		PaceConnection: b.quotas.pace,
		HoldConnection: func(host string) time.Duration { return b.quotas.connections.Admit(host, time.Now()) },
	}
}

// wireFeatures is what ApiVersions tells of features: none is supported; Kafka gives a finalized one the same lower and upper level.
func (b *broker) wireFeatures() wire.Features {
	levels, version := b.features.Now()
	f := wire.Features{FinalizedEpoch: int64(version)}
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		l := kmsg.NewApiVersionsResponseFinalizedFeature()
		l.Name, l.MinVersionLevel, l.MaxVersionLevel = name, levels[name], levels[name]
		f.Finalized = append(f.Finalized, l)
	}
	return f
}

type dialFunc func(ctx context.Context, addr string) (*wire.ClientConn, error)

// dialer connects to a listener of other brokers and of this one, as that is secured here; the client id is the broker's id,
// as between Kafka's brokers.
func (b *broker) dialer(listener string) dialFunc {
	cfg := b.secured[listener].client(wire.ClientConfig{ClientID: strconv.Itoa(int(b.cfg.ID)), Dial: wire.DialTCP})
	cfg.Dial = wire.NewConnectLimit(b.cfg.SocketConnectionSetupTimeout, b.cfg.SocketConnectionSetupTimeoutMax).Bound(cfg.Dial)
	return func(ctx context.Context, addr string) (*wire.ClientConn, error) { return wire.Dial(ctx, addr, cfg) }
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
