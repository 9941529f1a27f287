package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/coord/etcdstore"
	"klamm/internal/coord/zkstore"
	"klamm/internal/security/certs"
)

// openZooKeeper connects to the ZooKeeper of a cluster, which Kafka's brokers may share.
func openZooKeeper(ctx context.Context, z config.ZooKeeper, log *slog.Logger) (*Coordination, error) {
	c, err := dialZooKeeper(ctx, z, false, log)
	if err != nil {
		return nil, err
	}
	if err := coord.RefuseMigration(ctx, c.Store); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func dialZooKeeper(ctx context.Context, z config.ZooKeeper, expectChroot bool, log *slog.Logger) (*Coordination, error) {
	stats := &ZooKeeperStats{}
	stats.Latency = stats.latency.Observe
	o := zkstore.Options{
		Stats:   &stats.Stats,
		Connect: z.Connect, ExpectChroot: expectChroot, SessionTimeout: z.SessionTimeout, ConnectionTimeout: z.ConnectionTimeout,
		MaxInFlight: z.MaxInFlight, SetACL: z.SetACL, Log: log,
	}
	if z.User != "" {
		o.Digest = &zkstore.Credentials{Username: z.User, Password: z.Password}
	}
	if z.TLS != nil {
		var err error
		if o.TLS, err = certs.Client(z.TLS); err != nil {
			return nil, fmt.Errorf("zookeeper.%w", err) // the key that it begins with is one of zookeeper.ssl.*
		}
	}
	s, err := zkstore.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("zookeeper.connect=%s: %w", z.Connect, err)
	}
	return &Coordination{Store: s, Name: "ZooKeeper at " + z.Connect, Close: s.Close, ZooKeeper: stats}, nil
}

// ExamineZooKeeper connects to the ZooKeeper of a cluster for a tool: nothing is created, and a migration to KRaft is no
// obstacle.
func ExamineZooKeeper(ctx context.Context, z config.ZooKeeper, log *slog.Logger) (*Coordination, error) {
	return dialZooKeeper(ctx, z, true, log)
}

// NoChroot reports whether ExamineZooKeeper failed because the chroot is missing.
func NoChroot(err error) bool { return errors.Is(err, coord.ErrNoNode) }

// FillZooKeeper connects to a ZooKeeper for a tool that writes a cluster's state there; the chroot is created.
func FillZooKeeper(ctx context.Context, z config.ZooKeeper, log *slog.Logger) (*Coordination, error) {
	return openZooKeeper(ctx, z, log)
}

// OpenEtcdDir runs the etcd of a directory in this process, for a tool. No broker may use it meanwhile.
func OpenEtcdDir(ctx context.Context, dir string, log *slog.Logger) (*Coordination, error) {
	engine, err := etcdstore.Embedded(ctx, etcdstore.EmbeddedConfig{Dir: dir, Log: log})
	if err != nil {
		return nil, err
	}
	return ofEngine(engine, "embedded etcd in "+dir), nil
}

// OpenEtcd opens the etcd that a broker's configuration names, as that broker would, for a tool. No broker may use its directory
// meanwhile. An etcd elsewhere is waited for as long as given.
func OpenEtcd(ctx context.Context, c *config.Broker, wait time.Duration, log *slog.Logger) (*Coordination, error) {
	b := &broker{cfg: c, log: log}
	if elsewhere, ok := b.etcdElsewhere(); ok {
		ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("no answer within %v", wait))
		defer cancel()
		return dialEtcd(ctx, elsewhere)
	}
	return b.openConfigured(ctx)
}
