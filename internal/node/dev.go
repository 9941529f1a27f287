package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"klamm/internal/config"
	"klamm/internal/coord/etcdstore"
	"klamm/internal/loglevel"
)

// DevOptions describes a cluster for development and tests: several brokers in this process.
type DevOptions struct {
	Brokers  int               // 1 or more
	Dir      string            // holds everything; it may hold a dev cluster of the same number of brokers
	Port     int               // of the first broker, the others follow; 0 for free ones
	Web      string            // address of the first broker's web, the others take free ports; "" for none
	Settings map[string]string // over those of a dev cluster, for every broker
	Log      *slog.Logger
	LogLevel slog.Level // of each broker's loggers at first; it can be changed, down to what Log lets pass
	Version  string
	// Ready is called once all brokers know each other.
	Ready func(DevCluster)
}

// DevCluster is where a running dev cluster is reached.
type DevCluster struct {
	Bootstrap []string // host:port of each broker
	Web       string   // URL; "" when it is off
}

// RunDev runs the cluster until ctx ends or a broker fails. The brokers share one etcd member in this process but talk
// to each other as brokers on different machines do.
func RunDev(ctx context.Context, o DevOptions) error {
	all := o.Log
	o.Log = loglevel.New(all.Handler(), o.LogLevel).Logger(loglevel.Root)
	configs, err := o.configs()
	if err != nil {
		return err
	}
	engine, err := etcdstore.Embedded(ctx, etcdstore.EmbeddedConfig{Dir: filepath.Join(o.Dir, "etcd"), Log: o.Log})
	if err != nil {
		return fmt.Errorf("start embedded etcd: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	d := &devRun{o: o, log: all, engine: engine, endpoints: make([]Endpoint, o.Brokers)}
	d.ready.Add(o.Brokers)
	var brokers sync.WaitGroup
	errs := make([]error, o.Brokers)
	for i, c := range configs {
		brokers.Go(func() {
			if errs[i] = d.run(ctx, i, c); errs[i] != nil {
				errs[i] = fmt.Errorf("broker %d: %w", i+1, errs[i])
				stop(errs[i])
			}
		})
	}
	brokers.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, engine.Close()) // the first one; what came after may be its consequence
	}
	return errors.Join(append(errs, engine.Close())...)
}

type devRun struct {
	o         DevOptions
	log       *slog.Logger // lets everything pass that brokers' levels may
	engine    *etcdstore.Engine
	ready     sync.WaitGroup // brokers that do not serve yet
	endpoints []Endpoint     // of brokers that serve
	once      sync.Once
}

func (d *devRun) run(ctx context.Context, i int, c *config.Broker) error {
	err := Run(ctx, Options{
		Config: c, LogLevels: loglevel.New(d.log.With("self", c.ID).Handler(), d.o.LogLevel), Version: d.o.Version, Together: d.o.Brokers,
		Coordination: func(ctx context.Context) (*Coordination, error) {
			s, err := d.engine.Connect(ctx)
			if err != nil {
				return nil, err
			}
			return &Coordination{Store: s, Name: "etcd in this process", Close: s.Close, Stopped: d.engine.Stopped(), Reason: d.engine.Err}, nil
		},
		Ready: func(e Endpoint) {
			d.endpoints[i] = e
			d.ready.Done()
			d.once.Do(func() { go d.announce() })
		},
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// announce waits for the brokers that are not ready yet. It ends with the process when one never is.
func (d *devRun) announce() {
	d.ready.Wait()
	if d.o.Ready == nil {
		return
	}
	c := DevCluster{Web: d.endpoints[0].Web}
	for _, e := range d.endpoints {
		c.Bootstrap = append(c.Bootstrap, e.Bootstrap)
	}
	d.o.Ready(c)
}

// configs makes the configuration of every broker and reports what is wrong with it.
func (o DevOptions) configs() ([]*config.Broker, error) {
	if o.Brokers < 1 {
		return nil, errors.New("a cluster has one broker or more")
	}
	copies := strconv.Itoa(min(3, o.Brokers))
	settings := map[string]string{
		"default.replication.factor":               copies,
		"offsets.topic.replication.factor":         copies,
		"transaction.state.log.replication.factor": copies,
		"transaction.state.log.min.isr":            strconv.Itoa(min(2, o.Brokers)),
		"group.initial.rebalance.delay.ms":         "0",
		"controlled.shutdown.enable":               "false", // all stop together
	}
	maps.Copy(settings, o.Settings)
	var out []*config.Broker
	for i := range o.Brokers {
		s := maps.Clone(settings)
		port := 0
		if o.Port != 0 {
			port = o.Port + i
		}
		s["broker.id"] = strconv.Itoa(i + 1)
		s["listeners"] = "PLAINTEXT://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s["log.dirs"] = filepath.Join(o.Dir, "broker-"+s["broker.id"])
		s["etcd.data.dir"] = filepath.Join(o.Dir, "etcd")
		s["web.listen"] = o.Web
		if i > 0 && o.Web != "" {
			s["web.listen"] = "127.0.0.1:0" // the first one asks the controller, whichever that is
		}
		c, warnings, err := config.FromProperties(s)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			for _, w := range warnings {
				o.Log.Warn("configuration", "warning", w.String())
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// BootstrapServers is the value of the clients' setting of that name.
func (c DevCluster) BootstrapServers() string { return strings.Join(c.Bootstrap, ",") }
