package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/coord/etcdstore"
	"klamm/internal/coord/zkstore"
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
	if z.TLS.Enable {
		var err error
		if o.TLS, err = zooKeeperTLS(z.TLS); err != nil {
			return nil, err
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

func zooKeeperTLS(f config.ZooKeeperTLS) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.TrustStore != "" {
		pem, err := os.ReadFile(f.TrustStore)
		if err != nil {
			return nil, fmt.Errorf("zookeeper.ssl.truststore.location: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("zookeeper.ssl.truststore.location: %s holds no certificate in PEM form", f.TrustStore)
		}
	}
	if f.KeyStore != "" {
		cert, err := tls.LoadX509KeyPair(f.KeyStore, f.KeyStore)
		if err != nil {
			return nil, fmt.Errorf("zookeeper.ssl.keystore.location: %s: %w", f.KeyStore, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	if f.AnyName {
		c.InsecureSkipVerify = true // the name only: the chain is verified below
		roots := c.RootCAs
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, roots) }
	}
	return c, nil
}

// verifyChain checks everything about a server's certificate but its name.
func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range s.PeerCertificates[1:] {
		o.Intermediates.AddCert(cert)
	}
	_, err := s.PeerCertificates[0].Verify(o)
	return err
}
