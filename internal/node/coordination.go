package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"klamm/internal/config"
	"klamm/internal/controller/driver"
	"klamm/internal/coord"
	"klamm/internal/coord/etcdstore"
	"klamm/internal/coord/zkstore"
)

// Coordination is an open connection to a coordination engine, which may run in this process.
type Coordination struct {
	Store coord.Store
	// Name tells people which engine it is.
	Name string
	// Close ends the connection, and the engine if it is the broker's own.
	Close func() error
	// Stopped is closed when an engine in this process has stopped; nil where there is none. Reason then tells why.
	Stopped <-chan struct{}
	Reason  func() error
	// ZooKeeper counts its connections and times its requests; nil for another engine.
	ZooKeeper *ZooKeeperStats
}

// ZooKeeperStats are the figures of a client of ZooKeeper.
type ZooKeeperStats struct {
	zkstore.Stats
	latency driver.Timer
}

// settleFor bounds the tries of a write at start that may be made twice, settlePause is waited between two.
const (
	settleFor   = time.Minute
	settlePause = 100 * time.Millisecond
)

func (b *broker) openCoordination(ctx context.Context) error {
	open := b.opts.Coordination
	if open == nil {
		open = b.openConfigured
	}
	c, err := open(ctx)
	if err != nil {
		return err
	}
	b.coordination, b.store = c, c.Store
	b.clientStore = &migrationGuard{Store: c.Store, log: b.log}
	b.parts.start("migration to KRaft", b.clientStore.run)
	b.close.add("coordination", c.Close)
	if c.Stopped != nil {
		b.parts.start("coordination", func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-c.Stopped:
				return c.Reason()
			}
		})
	}
	if err := settle(ctx, func() error { return coord.EnsurePersistentPaths(ctx, b.store) }); err != nil {
		return fmt.Errorf("create the coordination tree: %w", err)
	}
	return b.checkClusterID(ctx)
}

// settle repeats what may be done twice as long as its outcome is not known.
func settle(ctx context.Context, do func() error) error {
	end := time.Now().Add(settleFor)
	for {
		err := do()
		if ctx.Err() != nil || time.Now().After(end) || !errors.Is(err, coord.ErrUnknownOutcome) && !errors.Is(err, coord.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
		}
	}
}

// openConfigured opens the engine that the configuration names.
func (b *broker) openConfigured(ctx context.Context) (*Coordination, error) {
	if b.cfg.ZooKeeper.Connect != "" {
		return openZooKeeper(ctx, b.cfg.ZooKeeper, b.log)
	}
	if elsewhere, ok := b.etcdElsewhere(); ok {
		return dialEtcd(ctx, elsewhere)
	}
	if self, ok := b.cfg.Etcd.Member(b.cfg.ID); ok {
		return b.openMember(ctx, self)
	}
	engine, err := etcdstore.Embedded(ctx, etcdstore.EmbeddedConfig{Dir: b.cfg.EtcdDataDir, Log: b.log})
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	return ofEngine(engine, "embedded etcd in "+b.cfg.EtcdDataDir), nil
}

// etcdElsewhere says how to reach an etcd outside this process; false when the broker runs one or a member of one itself.
func (b *broker) etcdElsewhere() (etcdstore.ClientConfig, bool) {
	e := b.cfg.Etcd
	if len(e.Endpoints) > 0 {
		return etcdstore.ClientConfig{Endpoints: e.Endpoints, TLS: etcdTLS(e), User: e.User, Password: e.Password, Log: b.log}, true
	}
	if _, self := e.Member(b.cfg.ID); len(e.Cluster) == 0 || self {
		return etcdstore.ClientConfig{}, false
	}
	return memberClients(e, b.log), true
}

func ofEngine(e *etcdstore.Engine, name string) *Coordination {
	return &Coordination{Store: e.Store(), Name: name, Close: e.Close, Stopped: e.Stopped(), Reason: e.Err}
}

func (b *broker) openMember(ctx context.Context, self config.EtcdMember) (*Coordination, error) {
	e := b.cfg.Etcd
	var peers []etcdstore.Peer
	for _, m := range e.Cluster {
		peers = append(peers, etcdstore.Peer{Broker: m.ID, Addr: m.Addr})
	}
	if len(peers)%2 == 0 {
		b.log.Warn("etcd.cluster has an even number of members: one more or one less bears the loss of as many", "members", len(peers))
	}
	engine, err := etcdstore.StartMember(ctx, etcdstore.MemberConfig{
		Dir: b.cfg.EtcdDataDir, Self: etcdstore.Peer{Broker: self.ID, Addr: self.Addr}, Peers: peers,
		Listen: e.Listen, TLS: etcdTLS(e), Former: b.clusterID != "", Log: b.log,
	})
	if err != nil {
		return nil, err
	}
	return ofEngine(engine, fmt.Sprintf("etcd member %s, one of %d, in %s", self, len(peers), b.cfg.EtcdDataDir)), nil
}

func dialEtcd(ctx context.Context, c etcdstore.ClientConfig) (*Coordination, error) {
	etcdstore.WarnPlain(c.Log, c.Endpoints)
	client, err := etcdstore.Dial(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Coordination{Store: client.Store(), Name: "etcd at " + strings.Join(c.Endpoints, " "), Close: client.Close}, nil
}
