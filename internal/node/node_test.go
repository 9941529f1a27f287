package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"klamm/internal/config"
	"klamm/internal/coord/memstore"
)

// running is a broker of this process, ready to serve.
type running struct {
	addr, web string
	listeners string // as the banner has them
	log       *syncBuffer
	stop      func() error
}

// syncBuffer is a bytes.Buffer that goroutines may share.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// bannerWaiter collects the banner and tells when it is whole.
type bannerWaiter struct {
	syncBuffer
	whole chan struct{}
	once  sync.Once
}

func (w *bannerWaiter) Write(p []byte) (int, error) {
	n, err := w.syncBuffer.Write(p)
	if strings.Contains(w.String(), "\n  web ") {
		w.once.Do(func() { close(w.whole) })
	}
	return n, err
}

// configure is a broker's configuration below dir, with free ports.
func configure(t *testing.T, dir string, more map[string]string) *config.Broker {
	t.Helper()
	properties := map[string]string{
		"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": filepath.Join(dir, "data"),
		"etcd.data.dir": filepath.Join(dir, "etcd"), "web.listen": "127.0.0.1:0", "offsets.topic.replication.factor": "1",
		"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0",
	}
	for k, v := range more {
		properties[k] = v
	}
	cfg, _, err := config.FromProperties(properties)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func start(t *testing.T, cfg *config.Broker) *running {
	t.Helper()
	return startWith(t, Options{Config: cfg})
}

// begin starts a broker without waiting until it serves. ended gets the reason if it ends.
func begin(t *testing.T, o Options) (r *running, banner *bannerWaiter, ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	banner = &bannerWaiter{whole: make(chan struct{})}
	r = &running{log: &syncBuffer{}}
	ended = make(chan error, 1)
	go func() {
		o.Log, o.Banner, o.Version = slog.New(slog.NewTextHandler(r.log, nil)), banner, "test"
		ended <- Run(ctx, o)
	}()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = r.stop() })
	return r, banner, ended
}

func startWith(t *testing.T, o Options) *running {
	t.Helper()
	r, banner, ended := begin(t, o)
	select {
	case <-banner.whole:
	case err := <-ended:
		ended <- err
		t.Fatalf("the broker did not start: %v\n%s", err, r.log)
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(banner.String())
		if m == nil {
			t.Fatalf("the banner lacks %s:\n%s", pattern, banner.String())
		}
		return m[1]
	}
	r.listeners = find(`listeners\s+(.*)`)
	r.addr, r.web = find(`listeners\s+[A-Z_]+://(\S+)`), find(`web\s+(http://\S+)`)
	return r
}

func (r *running) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (r *running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(r.web + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestABrokerKeepsItsDataIdentityAndConfigsOverARestart(t *testing.T) {
	dir := t.TempDir()
	r := start(t, configure(t, dir, nil))
	cl := r.client(t, kgo.DefaultProduceTopic("orders"))
	adm := kadm.NewClient(cl)
	retention := "3600000"
	if _, err := adm.CreateTopic(t.Context(), 3, 1, map[string]*string{"retention.ms": &retention}, "orders"); err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for i := range 100 {
		records = append(records, kgo.StringRecord(fmt.Sprint("value ", i)))
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	before, err := adm.Metadata(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	cl.Close()
	if err := r.stop(); err != nil {
		t.Fatalf("clean stop: %v", err)
	}

	r = start(t, configure(t, dir, nil))
	if !strings.Contains(r.log.String(), "clean=true") {
		t.Errorf("the stop left no clean-shutdown mark:\n%s", r.log)
	}
	cl = r.client(t, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	adm = kadm.NewClient(cl)
	after, err := adm.Metadata(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if before.Cluster != after.Cluster || before.Topics["orders"].ID != after.Topics["orders"].ID {
		t.Errorf("cluster %s, topic %v became %s, %v", before.Cluster, before.Topics["orders"].ID, after.Cluster, after.Topics["orders"].ID)
	}
	configs, err := adm.DescribeTopicConfigs(t.Context(), "orders")
	if err != nil || configs[0].Err != nil {
		t.Fatal(err, configs)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() != retention {
			t.Errorf("retention.ms is %s", c.MaybeValue())
		}
	}
	for got := 0; got < len(records); {
		fs := cl.PollFetches(t.Context())
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		got += fs.NumRecords()
	}
}

func TestTheWebAddressShowsWhatTheBrokerDoes(t *testing.T) {
	r := start(t, configure(t, t.TempDir(), nil))
	adm := kadm.NewClient(r.client(t))
	if _, err := adm.CreateTopic(t.Context(), 2, 1, nil, "shown"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path   string
		status int
		parts  []string
	}{
		{"/healthz", 200, []string{"ok"}},
		{"/readyz", 200, []string{"ready"}},
		{"/", 200, []string{"klamm broker 1", "/api/v1/deletions"}},
		{"/metrics", 200, []string{"kafka_controller_kafkacontroller_activecontrollercount 1", "kafka_server_replicamanager_leadercount 2",
			"kafka_controller_kafkacontroller_globaltopiccount 1", "klamm_log_deleted_topics_to_remove 0", `kafka_network_requestmetrics_requests_total{request="CreateTopics"} 1`,
			`kafka_network_requestmetrics_requests_total{request="InitProducerId"} 0`, `kafka_network_requestmetrics_requests_total{request="LeaderAndIsr"} 1`,
			"kafka_server_brokertopicmetrics_messagesin_total 0", `kafka_server_brokertopicmetrics_messagesin_total{topic="shown"} 0`}},
		{"/api/v1/broker", 200, []string{`"id": 1`, `"name": "CreateTopics"`, r.addr}},
		{"/api/v1/controller", 200, []string{`"active": true`, `"epoch": 1`, `"name": "TopicChange"`}},
		{"/api/v1/topics", 200, []string{`"name": "shown"`}},
		{"/api/v1/topics/shown", 200, []string{`"leader": 1`}},
		{"/api/v1/topics/absent", 404, []string{"does not exist"}},
		{"/api/v1/deletions", 200, []string{"[]"}},
		{"/api/v1/topics/shown/deletion", 404, []string{"is not being deleted"}},
		{"/nowhere", 404, nil},
	} {
		status, body := r.get(t, c.path)
		if status != c.status {
			t.Errorf("GET %s: status %d, want %d", c.path, status, c.status)
		}
		for _, p := range c.parts {
			if !strings.Contains(body, p) {
				t.Errorf("GET %s lacks %q:\n%s", c.path, p, body)
			}
		}
		if strings.HasPrefix(c.path, "/api/") && !json.Valid([]byte(body)) {
			t.Errorf("GET %s is not JSON: %s", c.path, body)
		}
	}
	resp, err := http.Post(r.web+"/api/v1/topics", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST is answered with %d", resp.StatusCode)
	}
}

func TestTheBrokerPageNamesTheCoordinationEngineInUse(t *testing.T) {
	engine := memstore.New()
	r := startOn(t, configure(t, t.TempDir(), nil), engine.Client())
	if _, body := r.get(t, "/api/v1/broker"); !strings.Contains(body, `"coordination": "memory"`) {
		t.Errorf("on a store of the test's:\n%s", body)
	}
	cfg := configure(t, t.TempDir(), nil)
	if _, body := start(t, cfg).get(t, "/api/v1/broker"); !strings.Contains(body, `"coordination": "embedded etcd in `+cfg.EtcdDataDir) {
		t.Errorf("by default:\n%s", body)
	}
}

func TestABrokerWithoutAnIdGetsOneAndKeepsIt(t *testing.T) {
	dir := t.TempDir()
	generated := map[string]string{"broker.id": "-1"}
	var ids []string
	for range 2 {
		r := start(t, configure(t, dir, generated))
		_, body := r.get(t, "/api/v1/broker")
		ids = append(ids, regexp.MustCompile(`"id": (\d+)`).FindStringSubmatch(body)[1])
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if ids[0] != "1001" || ids[1] != ids[0] {
		t.Errorf("ids %v, want 1001 twice", ids)
	}
}

func TestForeignDataIsRefusedByNameOfFileAndValues(t *testing.T) {
	dir := t.TempDir()
	if err := start(t, configure(t, dir, nil)).stop(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		more  map[string]string
		parts []string
	}{
		{"another broker id", map[string]string{"broker.id": "7"}, []string{"meta.properties", "broker.id=1", "broker.id=7"}},
		{"coordination data of another cluster", map[string]string{"etcd.data.dir": filepath.Join(dir, "other")}, []string{"meta.properties", "cluster.id="}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Run(t.Context(), Options{Config: configure(t, dir, c.more), Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				t.Fatal("the broker started")
			}
			for _, p := range c.parts {
				if !strings.Contains(err.Error(), p) {
					t.Errorf("the error lacks %q: %v", p, err)
				}
			}
		})
	}
}

func TestConnectionLimitsFollowTheDynamicConfig(t *testing.T) {
	r := start(t, configure(t, t.TempDir(), nil))
	adm := kadm.NewClient(r.client(t))
	set := func(value string) {
		t.Helper()
		changed, err := adm.AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.connections.per.ip", Value: &value}}, 1)
		if err != nil || changed[0].Err != nil {
			t.Fatal(err, changed)
		}
	}
	served := func() bool {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// ApiVersions v0, correlation id 1, no client id.
		if _, err := c.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
			return false
		}
		_, err = c.Read(make([]byte, 1))
		return err == nil
	}
	if !served() {
		t.Fatal("a connection is refused without a limit")
	}
	set("1") // which the client has already
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for served() { // the change reaches the broker by a notification
		if ctx.Err() != nil {
			t.Fatal("connections are still served")
		}
	}
}
