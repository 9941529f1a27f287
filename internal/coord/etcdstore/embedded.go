package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"klamm/internal/coord"
)

// EmbeddedConfig describes a cluster of one etcd member that lives in this process and listens nowhere.
type EmbeddedConfig struct {
	// Dir is the data directory. It is created if missing; one that holds anything but a klamm member is refused.
	Dir string
	// Log gets etcd's warnings and errors.
	Log *slog.Logger
}

// Engine is an etcd member in this process.
type Engine struct {
	dir     *dataDir
	log     *slog.Logger
	server  *etcdserver.EtcdServer
	client  *clientv3.Client
	backend backend
	options options
	store   *Store
	group   *groupMember // what it is besides in a cluster of several; nil for a lone member
}

// The lone member's name and peer address only identify it in its own data; nobody dials the address.
const (
	memberName = "klamm"
	memberURL  = "http://127.0.0.1:2380"
)

// memberTryTimeout bounds a request to the lone member in this process. There is no other leader that it could be lost
// to, so only a stalled disk comes near it.
const memberTryTimeout = 5 * time.Second

// Embedded starts the member and waits until it serves. Leases that a former process of the directory left behind are
// revoked: as nothing but that process could reach the member, their owners are gone.
func Embedded(ctx context.Context, c EmbeddedConfig) (*Engine, error) {
	dir, err := claimDir(c.Dir)
	if err != nil {
		return nil, err
	}
	e := &Engine{dir: dir, log: c.Log}
	if err := e.startLone(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("coordination data in %s: %w", c.Dir, err), e.Close())
	}
	return e, nil
}

func (e *Engine) startLone(ctx context.Context) error {
	if e.dir.kind == clusterKind {
		return errors.New("it holds a member of an etcd cluster, which cannot run alone: set etcd.cluster as it was")
	}
	if err := e.dir.mark(loneKind); err != nil {
		return err
	}
	server, err := openServer(serverConfig(e.dir.path, newZapLogger(e.log)))
	if err != nil {
		return err
	}
	e.server = server
	e.server.Start()
	select {
	case <-e.server.ReadyNotify():
	case <-e.server.StopNotify():
		return errors.New("etcd stopped while it started")
	case <-ctx.Done():
		return fmt.Errorf("etcd did not become ready: %w", ctx.Err())
	}
	e.client = v3client.New(e.server)
	if err := e.revokeLeftLeases(ctx); err != nil {
		return err
	}
	e.backend, e.options = member{e.client, e.server}, options{tryTimeout: memberTryTimeout, log: e.log}
	e.store, err = newStore(ctx, e.backend, e.options)
	return err
}

// openServer makes a server that does not run yet.
func openServer(c config.ServerConfig) (*etcdserver.EtcdServer, error) {
	if err := checkDatabase(filepath.Join(c.DataDir, "member", "snap", "db")); err != nil {
		return nil, err
	}
	return newServer(c)
}

// checkDatabase opens the database of a former run: etcd opens it on a goroutine of its own, where a panic about a
// damaged file could not be caught.
func checkDatabase(file string) error {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("%s is not readable, it may be corrupt: %w", file, err)
	}
	return db.Close()
}

// newServer turns etcd's panics about data it cannot read into errors. Its logger panics where it would exit.
func newServer(c config.ServerConfig) (s *etcdserver.EtcdServer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not readable, it may be corrupt: %v", r)
		}
	}()
	return etcdserver.NewServer(c)
}

// serverConfig is the configuration of a lone member.
func serverConfig(dir string, zapLog *zapLogger) config.ServerConfig {
	d := embed.NewConfig() // for etcd's defaults
	urls, err := types.NewURLsMap(memberName + "=" + memberURL)
	if err != nil {
		panic(err)
	}
	return config.ServerConfig{
		Name: memberName, DataDir: dir, NewCluster: true, Logger: zapLog.logger(),
		InitialPeerURLsMap: urls, PeerURLs: urls[memberName], InitialClusterToken: memberName,
		// A lone member waits out an election at every start.
		TickMs: 20, ElectionTicks: 5, InitialElectionTickAdvance: true, PreVote: true,
		StrictReconfigCheck: true, MaxLearners: d.MaxLearners,
		// The entries kept in memory and replayed at start dominate both its size and the time to start.
		SnapshotCount: 1000, SnapshotCatchUpEntries: 1000, MaxSnapFiles: 2, MaxWALFiles: 2,
		MaxTxnOps: 10240, MaxRequestBytes: 10 << 20, QuotaBackendBytes: 8 << 30, MaxConcurrentStreams: d.MaxConcurrentStreams,
		// Nobody reads old revisions; a revision may hold chunkOpsMax writes.
		AutoCompactionMode: "revision", AutoCompactionRetention: 1000,
		CompactionBatchLimit: d.CompactionBatchLimit, CompactionSleepInterval: d.CompactionSleepInterval,
		BootstrapDefragThresholdMegabytes: 64,
		AuthToken:                         d.AuthToken, BcryptCost: d.BcryptCost, TokenTTL: d.AuthTokenTTL,
		DowngradeCheckTime: d.DowngradeCheckTime, CompactHashCheckTime: d.CompactHashCheckTime,
		WarningApplyDuration: time.Second, WarningUnaryRequestDuration: time.Second,
		WatchProgressNotifyInterval: d.WatchProgressNotifyInterval,
		V2Deprecation:               d.V2DeprecationEffective(), ServerFeatureGate: d.ServerFeatureGate, Metrics: d.Metrics,
	}
}

func (e *Engine) revokeLeftLeases(ctx context.Context) error {
	left, err := e.client.Leases(ctx)
	if err != nil {
		return fmt.Errorf("list sessions of the former process: %w", err)
	}
	for _, l := range left.Leases {
		if _, err := e.client.Revoke(ctx, l.ID); err != nil {
			return fmt.Errorf("end session of the former process: %w", err)
		}
	}
	return nil
}

// Store returns the engine's client. It is closed with the engine.
func (e *Engine) Store() coord.Store { return e.store }

// Connect opens one more client. The caller closes it before the engine.
func (e *Engine) Connect(ctx context.Context) (*Store, error) {
	return newStore(ctx, e.backend, e.options)
}

// Stopped is closed when the member has stopped, by Close or because it failed.
func (e *Engine) Stopped() <-chan struct{} { return e.server.StopNotify() }

// Close stops the member; a leader hands its office over first. Sessions that are still open end at the next start of a
// lone member, by their ttl in a cluster.
func (e *Engine) Close() error {
	var err error
	if e.store != nil {
		err = e.store.Close()
	}
	e.group.stopClients()
	if e.client != nil {
		err = errors.Join(err, ignoreCanceled(e.client.Close()))
	}
	if e.server != nil {
		e.handOver()
		e.server.HardStop()
	}
	return errors.Join(err, e.group.close(), e.dir.Close())
}

// ignoreCanceled drops what a client without a connection reports when it is closed: the end of its own context.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// member is the backend in this process.
type member struct {
	*clientv3.Client
	server *etcdserver.EtcdServer
}

func (m member) subscribe(ctx context.Context) (feed, error) {
	return subscribeMember(ctx, m.server.Watchable())
}
