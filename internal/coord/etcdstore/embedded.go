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
	"golang.org/x/sys/unix"

	"klamm/internal/coord"
)

// EmbeddedConfig describes a cluster of one etcd member that lives in this process and listens nowhere.
type EmbeddedConfig struct {
	// Dir is the data directory. It is created if missing; one that holds anything but a klamm member is refused.
	Dir string
	// Log gets etcd's warnings and errors.
	Log *slog.Logger
}

// Engine is an embedded member.
type Engine struct {
	server *etcdserver.EtcdServer
	client *clientv3.Client
	lock   *os.File
	log    *slog.Logger
	store  *Store
}

// The member's name and peer address only identify it in its own data; nobody dials the address.
const (
	memberName = "klamm"
	memberURL  = "http://127.0.0.1:2380"
)

// Files that klamm keeps beside etcd's "member" folder.
const (
	lockName   = "klamm.lock"
	markerName = "klamm-member"
	markerText = "This directory holds the coordination data of klamm (an embedded etcd member, layout 1).\n"
)

// memberTryTimeout bounds a request to the member in this process. There is no other leader that it could be lost
// to, so only a stalled disk comes near it.
const memberTryTimeout = 5 * time.Second

// Embedded starts the member and waits until it serves. Leases that a former process of the directory left behind are
// revoked: as nothing but that process could reach the member, their owners are gone.
func Embedded(ctx context.Context, c EmbeddedConfig) (*Engine, error) {
	lock, err := claimDir(c.Dir)
	if err != nil {
		return nil, err
	}
	e := &Engine{lock: lock, log: c.Log}
	if err := e.start(ctx, c.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("coordination data in %s: %w", c.Dir, err), e.Close())
	}
	return e, nil
}

func (e *Engine) start(ctx context.Context, dir string) error {
	err := checkDatabase(filepath.Join(dir, "member", "snap", "db"))
	if err != nil {
		return err
	}
	if e.server, err = newServer(serverConfig(dir, newZapLogger(e.log))); err != nil {
		return err
	}
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
	e.store, err = newStore(ctx, member{e.client, e.server}, options{
		tryTimeout: memberTryTimeout, log: e.log,
	})
	return err
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

// Connect opens one more client, for tests of several clients on one tree. The caller closes it before the engine.
func (e *Engine) Connect(ctx context.Context) (*Store, error) {
	return newStore(ctx, member{e.client, e.server}, e.store.options)
}

// Stopped is closed when the member has stopped, by Close or because it failed.
func (e *Engine) Stopped() <-chan struct{} { return e.server.StopNotify() }

// Close stops the member. Sessions that are still open end at the next start.
func (e *Engine) Close() error {
	var err error
	if e.store != nil {
		err = e.store.Close()
	}
	if e.client != nil {
		err = errors.Join(err, ignoreCanceled(e.client.Close()))
	}
	if e.server != nil {
		e.server.Stop()
	}
	return errors.Join(err, e.lock.Close())
}

// ignoreCanceled drops what a client without a connection reports when it is closed: the end of its own context.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// claimDir makes sure that the directory is a klamm member's, or empty, and that no other process uses it.
func claimDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("coordination data dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("coordination data dir: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("coordination data dir %s is in use by another process (%s is locked)", dir, lock.Name())
	case err != nil:
		err = fmt.Errorf("lock coordination data dir %s: %w", dir, err)
	default:
		err = checkMarker(dir)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// checkMarker marks an empty directory as klamm's and refuses one that holds something else.
func checkMarker(dir string) error {
	marker := filepath.Join(dir, markerName)
	text, err := os.ReadFile(marker)
	switch {
	case err == nil && string(text) == markerText:
		return nil
	case err == nil:
		return fmt.Errorf("coordination data dir %s: %s is not of this version of klamm", dir, marker)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("coordination data dir: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("coordination data dir: %w", err)
	}
	for _, e := range entries {
		if e.Name() != lockName {
			return fmt.Errorf("coordination data dir %s holds %q but no %s: it is not klamm's; name an empty directory", dir, e.Name(), markerName)
		}
	}
	if err := os.WriteFile(marker, []byte(markerText), 0o600); err != nil {
		return fmt.Errorf("coordination data dir: %w", err)
	}
	return nil
}

// member is the backend in this process.
type member struct {
	*clientv3.Client
	server *etcdserver.EtcdServer
}

func (m member) subscribe(ctx context.Context) (feed, error) {
	return subscribeMember(ctx, m.server.Watchable())
}
