package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// spoilt are nodes that hold what no broker writes, or a layout of the future. What is told of them names the path.
var spoilt = map[string]string{
	"/brokers/ids/7":                           `{"version":5`,
	"/brokers/topics/nonsense":                 `nonsense`,
	"/brokers/topics/list":                     `[1,2]`,
	"/brokers/topics/state/partitions/0/state": `{"leader":"x"}`,
	"/config/topics/nonsense2":                 `{`,
	"/config/brokers/1":                        `[]`,
	"/config/users/someone":                    `"`,
	"/config/clients/someone":                  `{"version":1,"config":7}`,
	"/config/changes/config_change_0000000000": `?`,
	"/admin/reassign_partitions":               `{"version":1,"partitions":[{"topic":1}]}`,
	"/admin/preferred_replica_election":        `]`,
	"/latest_producer_id_block":                `{"version":1}`,
}

// denied are nodes that the broker may not read.
var denied = []string{
	"/brokers/ids/8", "/brokers/topics/secret", "/brokers/topics/secretstate/partitions/0/state", "/config/topics/secretconfig",
	"/admin/delete_topics/secretmarker",
}

// A broker starts, and is a controller, on a store where any node is malformed, from the future, or not to be read: it tells
// each by its path and goes on with the rest. What becomes right later is taken up.
func TestABrokerLivesWithNodesThatItCannotRead(t *testing.T) {
	engine := memstore.New()
	client := engine.Client()
	for _, path := range coord.PersistentPaths() {
		put(t, client, path, "")
	}
	for _, path := range denied {
		put(t, client, path, `{"version":1}`)
	}
	for _, topic := range []string{"state", "secretstate"} {
		put(t, client, "/brokers/topics/"+topic, `{"version":1,"partitions":{"0":[1]}}`)
	}
	for path, data := range spoilt {
		put(t, client, path, data)
	}
	put(t, client, coord.FeaturePath, `{"version":99}`)
	cfg := configure(t, t.TempDir(), nil)
	broker := engine.Client()
	broker.Deny(denied...)
	r := startOn(t, cfg, broker)
	told := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			if !within(20*time.Second, func() bool { return strings.Contains(r.log.String(), path) }) {
				t.Errorf("nothing is told of %s", path)
			}
		}
	}
	var paths []string
	for path := range spoilt {
		if path != coord.ProducerIDBlockPath {
			paths = append(paths, path)
		}
	}
	told(append(paths, denied...)...)
	works := func(topic string, opts ...kgo.Opt) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cl := r.client(t, append(opts, kgo.DefaultProduceTopic(topic))...)
		if created, err := kadm.NewClient(cl).CreateTopic(ctx, 2, 1, nil, topic); err != nil || created.Err != nil {
			return errors.Join(err, created.Err)
		}
		return cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr()
	}
	if err := works("good", kgo.DisableIdempotentWrite()); err != nil {
		t.Fatalf("a new topic: %v\n%s", err, r.log)
	}

	// The same comes while it is in office.
	put(t, client, "/brokers/ids/9", `{"version":0}`)
	put(t, client, "/brokers/topics/later", `{"version":3,"partitions":{"x":[1]}}`)
	put(t, client, "/config/changes/config_change_0000000001", `{"version":3}`)
	put(t, client, "/isr_change_notification/isr_change_0000000002", `{"version":1,"partitions":{}}`)
	put(t, client, "/log_dir_event_notification/log_dir_event_0000000002", `{"version":1}`)
	put(t, client, "/admin/reassign_partitions", `{}`)
	told("/brokers/ids/9", "/brokers/topics/later", "config_change_0000000001", "isr_change_0000000002", "log_dir_event_0000000002")
	if err := works("better", kgo.DisableIdempotentWrite()); err != nil {
		t.Fatalf("a new topic: %v\n%s", err, r.log)
	}
	deleted, err := kadm.NewClient(r.client(t)).DeleteTopic(t.Context(), "good")
	if err != nil || deleted.Err != nil {
		t.Errorf("delete: %v, %v", err, deleted.Err)
	}

	// Ids that were given once must not be given again, so there are none until the last block can be read.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := r.client(t, kgo.DefaultProduceTopic("better")).ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err == nil {
		t.Error("a producer got an id")
	}
	told(coord.ProducerIDBlockPath)
	put(t, client, coord.ProducerIDBlockPath, `{"version":1,"broker":1,"block_start":"0","block_end":"999"}`)
	if err := works("idempotent"); err != nil {
		t.Errorf("with producer ids: %v", err)
	}
	put(t, client, "/brokers/topics/state/partitions/0/state", `{"controller_epoch":0,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}`)
	put(t, client, "/brokers/topics/later", `{"version":1,"partitions":{"0":[1]}}`)
	for _, topic := range []string{"state", "later"} {
		if !within(40*time.Second, func() bool {
			topics, err := kadm.NewClient(r.client(t)).ListTopics(t.Context(), topic)
			return err == nil && len(topics[topic].Partitions) == 1 && topics[topic].Partitions[0].Leader == 1
		}) {
			t.Errorf("topic %s was not taken up when its node was mended\n%s", topic, r.log)
		}
	}
	if n := strings.Count(r.log.String(), "\n"); n > 400 {
		t.Errorf("%d lines were told: something goes round\n%.4000s", n, r.log)
	}
}

// What the controller's office hangs on is not passed over: the broker waits, says which node keeps it from the office, and takes it when the
// node is right.
func TestABrokerWaitsForTheNodesOfTheOfficeToBeReadable(t *testing.T) {
	for path, mend := range map[string]coord.Op{
		coord.ControllerPath:      coord.Delete(coord.ControllerPath, coord.AnyVersion),
		coord.ControllerEpochPath: coord.Set(coord.ControllerEpochPath, []byte("4"), coord.AnyVersion),
	} {
		t.Run(path[1:], func(t *testing.T) {
			t.Parallel()
			client := memstore.New().Client()
			put(t, client, path, "nonsense")
			r, _, _ := begin(t, Options{Config: configure(t, t.TempDir(), nil), Coordination: coordinationOn(client)})
			if !within(20*time.Second, func() bool { return strings.Contains(r.log.String(), "decode "+path+": ") }) {
				t.Fatalf("nothing is told of %s:\n%s", path, r.log)
			}
			if _, err := client.Multi(t.Context(), mend); err != nil {
				t.Fatal(err)
			}
			if !within(40*time.Second, func() bool {
				id, err := coord.ActiveController(t.Context(), client)
				return err == nil && id == 1
			}) {
				t.Errorf("the office was not taken:\n%s", r.log)
			}
			if n := strings.Count(r.log.String(), "\n"); n > 100 {
				t.Errorf("%d lines were told: something goes round\n%.4000s", n, r.log)
			}
		})
	}
}

// A broker ends at its start where it cannot tell whether the cluster is its own.
func TestABrokerDoesNotStartWithoutAClusterIDThatCanBeRead(t *testing.T) {
	client := memstore.New().Client()
	put(t, client, coord.ClusterIDPath, `{"version":"1"}`)
	err := Run(t.Context(), Options{Config: configure(t, t.TempDir(), nil), Log: quietLog(), Coordination: coordinationOn(client)})
	if err == nil || !strings.Contains(err.Error(), `decode /cluster/id: id is missing in "{\"version\":\"1\"}"`) {
		t.Errorf("the broker ended with %v", err)
	}
}

// A cluster that begins to migrate to KRaft elects no broker of klamm's any more, and the broker says why.
func TestABrokerIsNotElectedWhileTheClusterMigratesToKRaft(t *testing.T) {
	client := memstore.New().Client()
	r := startOn(t, configure(t, t.TempDir(), nil), client)
	put(t, client, coord.MigrationPath, `{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":5,"kraft_metadata_offset":1,"kraft_metadata_epoch":1}`)
	if _, err := client.Multi(t.Context(), coord.Delete(coord.ControllerPath, coord.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	if !within(20*time.Second, func() bool {
		return strings.Contains(r.log.String(), "/migration says that the cluster migrates to KRaft (controller 3000, epoch 5)")
	}) {
		t.Errorf("the reason is not told:\n%s", r.log)
	}
	if n, err := client.Get(t.Context(), coord.ControllerPath); !errors.Is(err, coord.ErrNoNode) {
		t.Errorf("the office is taken: %s, %v", n.Data, err)
	}
}

// put writes a node whatever is there, with its parents.
func put(t *testing.T, s coord.Store, path, data string) {
	t.Helper()
	err := coord.EnsurePath(t.Context(), s, path, nil)
	if err == nil {
		_, err = s.Multi(t.Context(), coord.Set(path, []byte(data), coord.AnyVersion))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// startOn starts a broker on a store of the test's.
func startOn(t *testing.T, cfg *config.Broker, s coord.Store) *running {
	t.Helper()
	return startWith(t, Options{Config: cfg, Coordination: coordinationOn(s)})
}

func coordinationOn(s coord.Store) func(context.Context) (*Coordination, error) {
	return func(context.Context) (*Coordination, error) {
		return &Coordination{Store: s, Name: "memory", Close: func() error { return nil }}, nil
	}
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// within polls what gives no signal.
func within(limit time.Duration, cond func() bool) bool {
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		}
	}
	return true
}
