package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"klamm/internal/config"
	"klamm/internal/migrate"
	"klamm/internal/node"
)

const migrateHelp = `Copy the state of a stopped cluster between ZooKeeper and the etcd that klamm
brings along, with a checksum over both sides. docs/migration.md has the steps
around it.

Usage: klamm migrate zookeeper-to-etcd --zookeeper HOST:PORT[/CHROOT] --etcd-data-dir DIR
       klamm migrate etcd-to-zookeeper --zookeeper HOST:PORT[/CHROOT] --etcd-data-dir DIR

  --zookeeper LIST       where ZooKeeper is, as in zookeeper.connect
  --config FILE          a broker's server.properties, for zookeeper.connect,
                         zookeeper.sasl.*, zookeeper.ssl.*, zookeeper.set.acl
  --etcd-data-dir DIR    etcd.data.dir of the broker that will run on it, or did
  --etcd-config FILE     instead: a broker's server.properties with etcd.endpoints,
                         or with etcd.cluster and etcd.data.dir
  --dry-run              only read the source and say what would be copied
  --verify               only compare the two sides
  --help

All brokers must be stopped: it is refused while one is registered or in office. The
target must be empty, or hold a part of the same state, as after a copy that broke off,
which then goes on. Neither side is changed but for what is added to the target.

Exit codes: 0 done and equal, 1 failure or a difference, 2 usage.
`

type migrateOptions struct {
	zookeeper, config, dir, etcdConfig string
	toEtcd                             bool
	dryRun, verify, help               bool
}

func parseMigrate(args []string) (migrateOptions, error) {
	var o migrateOptions
	words, err := options{
		command: "migrate",
		values:  map[string]*string{"--zookeeper": &o.zookeeper, "--config": &o.config, "--etcd-data-dir": &o.dir, "--etcd-config": &o.etcdConfig},
		flags:   map[string]*bool{"--dry-run": &o.dryRun, "--verify": &o.verify, "--help": &o.help, "-h": &o.help},
	}.parse(args)
	if err != nil || o.help {
		return o, err
	}
	switch {
	case len(words) != 1 || words[0] != "zookeeper-to-etcd" && words[0] != "etcd-to-zookeeper":
		return o, errors.New("want zookeeper-to-etcd or etcd-to-zookeeper; `klamm migrate --help` says more")
	case o.zookeeper == "" && o.config == "":
		return o, errors.New("name the ZooKeeper by --zookeeper or --config")
	case (o.dir == "") == (o.etcdConfig == ""):
		return o, errors.New("name the etcd by --etcd-data-dir or by --etcd-config")
	case o.dryRun && o.verify:
		return o, errors.New("--dry-run looks before the copy, --verify after it: want one of them")
	}
	o.toEtcd = words[0] == "zookeeper-to-etcd"
	return o, nil
}

// migrateMain runs `klamm migrate`. 0 fine, 1 failure, 2 usage.
func migrateMain(args []string, stdout, stderr io.Writer) int {
	o, err := parseMigrate(args)
	var z config.ZooKeeper
	var etcd *config.Broker
	if err == nil && !o.help {
		z, err = zooKeeperOptions(o.zookeeper, o.config)
	}
	if err == nil && o.etcdConfig != "" {
		etcd, err = etcdOptions(o.etcdConfig)
	}
	if err != nil {
		fmt.Fprintf(stderr, "klamm migrate: %v\n", err)
		return 2
	}
	if o.help {
		fmt.Fprint(stdout, migrateHelp)
		return 0
	}
	ctx, stop := stopOnSignal()
	defer stop()
	m := migration{options: o, zookeeper: z, etcd: etcd, stdout: stdout, stderr: stderr, log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	if err := m.run(ctx); err != nil {
		fmt.Fprintf(stderr, "klamm migrate: %v\n", err)
		return 1
	}
	return 0
}

// etcdOptions reads the broker's configuration that names the etcd.
func etcdOptions(file string) (*config.Broker, error) {
	c, _, err := config.Load(file, nil, os.Environ())
	if err != nil {
		return nil, err
	}
	if c.ZooKeeper.Connect != "" {
		return nil, fmt.Errorf("%s sets zookeeper.connect: want the file of a broker that uses etcd", file)
	}
	return c, nil
}

type migration struct {
	options        migrateOptions
	zookeeper      config.ZooKeeper
	etcd           *config.Broker // nil: options.dir
	stdout, stderr io.Writer
	log            *slog.Logger
}

func (m migration) run(ctx context.Context) (err error) {
	from, err := m.openSource(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	source, err := migrate.Read(ctx, from.Store, progress(m.stderr, "reading "+from.Name))
	if err != nil {
		return fmt.Errorf("%s: %w", from.Name, err)
	}
	m.describe(from.Name, source)
	if len(source.Nodes) == 0 {
		return fmt.Errorf("%s holds nothing: is it the right place?", from.Name)
	}
	if m.options.dryRun {
		return m.preview(ctx, source)
	}
	to, err := m.openTarget(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if !m.options.verify {
		written, err := migrate.Copy(ctx, source, to.Store, progress(m.stderr, "writing "+to.Name))
		if err != nil {
			return fmt.Errorf("%s: %w (%d nodes were written; once the cause is gone the same command goes on)", to.Name, err, written)
		}
		fmt.Fprintf(m.stdout, "%d nodes written\n", written)
	}
	return m.compare(ctx, from, to)
}

// compare reads both sides: the source too, which nobody may have changed meanwhile.
func (m migration) compare(ctx context.Context, from, to *node.Coordination) error {
	source, err := migrate.Read(ctx, from.Store, progress(m.stderr, "reading "+from.Name))
	if err != nil {
		return fmt.Errorf("%s: %w", from.Name, err)
	}
	target, err := migrate.Read(ctx, to.Store, progress(m.stderr, "reading "+to.Name))
	if err != nil {
		return fmt.Errorf("%s: %w", to.Name, err)
	}
	m.describe(to.Name, target)
	if err := migrate.Same(source, target); err != nil {
		return fmt.Errorf("the two sides differ: %w", err)
	}
	fmt.Fprintln(m.stdout, "The two sides are equal.")
	return nil
}

func (m migration) describe(name string, t migrate.Tree) {
	fmt.Fprintf(m.stdout, "%s: %d nodes, %d bytes of data, %d notifications and ephemeral nodes left out\n", name, len(t.Nodes), t.Bytes, t.Skipped)
	for _, c := range t.Counts() {
		if c.Nodes > 0 {
			fmt.Fprintf(m.stdout, "  %6d %s\n", c.Nodes, c.Kind)
		}
	}
	fmt.Fprintf(m.stdout, "  sha256 %s\n", t.Checksum())
}

// preview says what a copy would write, without making anything where there is nothing yet.
func (m migration) preview(ctx context.Context, source migrate.Tree) error {
	to, err := m.peekTarget(ctx)
	if err != nil {
		return err
	}
	if to == nil {
		fmt.Fprintf(m.stdout, "Dry run: all %d nodes would be written.\n", len(source.Nodes))
		return nil
	}
	target, err := migrate.Read(ctx, to.Store, nil)
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("%s: %w", to.Name, err)
	}
	missing, err := migrate.Missing(source, target)
	if err != nil {
		return fmt.Errorf("%s: %w", to.Name, err)
	}
	fmt.Fprintf(m.stdout, "Dry run: %d nodes would be written, %d are there already.\n", len(missing), len(target.Nodes))
	return nil
}

func (m migration) openSource(ctx context.Context) (*node.Coordination, error) {
	if m.options.toEtcd {
		return node.ExamineZooKeeper(ctx, m.zookeeper, m.log)
	}
	return m.openEtcd(ctx, true)
}

func (m migration) openTarget(ctx context.Context) (*node.Coordination, error) {
	if !m.options.toEtcd {
		return node.FillZooKeeper(ctx, m.zookeeper, m.log)
	}
	return m.openEtcd(ctx, m.options.verify)
}

// openEtcd opens the etcd that the options name; one in a directory is begun unless it must be there.
func (m migration) openEtcd(ctx context.Context, mustExist bool) (*node.Coordination, error) {
	dir := m.options.dir
	if m.etcd != nil {
		dir = m.etcd.EtcdDataDir
	}
	if mustExist && !m.remoteEtcd() && !holdsEtcd(dir) {
		return nil, fmt.Errorf("%s holds no etcd of klamm's", dir)
	}
	if m.etcd != nil {
		return node.OpenEtcd(ctx, m.etcd, etcdWait, m.log)
	}
	return node.OpenEtcdDir(ctx, dir, m.log)
}

// etcdWait is how long an etcd elsewhere may take to answer, as long as ZooKeeper may.
const etcdWait = 15 * time.Second

func (m migration) remoteEtcd() bool { return m.etcd != nil && len(m.etcd.Etcd.Endpoints) > 0 }

// peekTarget opens a target that exists; nil when there is none.
func (m migration) peekTarget(ctx context.Context) (*node.Coordination, error) {
	if m.options.toEtcd {
		dir := m.options.dir
		if m.etcd != nil {
			dir = m.etcd.EtcdDataDir
		}
		if !m.remoteEtcd() && !holdsEtcd(dir) {
			return nil, nil
		}
		return m.openEtcd(ctx, true)
	}
	c, err := node.ExamineZooKeeper(ctx, m.zookeeper, m.log)
	if node.NoChroot(err) {
		return nil, nil
	}
	return c, err
}

// holdsEtcd reports whether an etcd of klamm's was in the directory.
func holdsEtcd(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "member"))
	return err == nil
}
