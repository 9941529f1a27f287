package node

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
)

// controllerMetrics are the MBeans of Kafka's controller in ZooKeeper mode, as the Prometheus JMX exporter's usual rules name
// them: all in small letters, meters as _total, histograms as summaries.
var controllerMetrics = []struct{ name, kind string }{
	{"kafka_controller_kafkacontroller_activecontrollercount", "gauge"},
	{"kafka_controller_kafkacontroller_controllerstate", "gauge"},
	{"kafka_controller_kafkacontroller_offlinepartitionscount", "gauge"},
	{"kafka_controller_kafkacontroller_preferredreplicaimbalancecount", "gauge"},
	{"kafka_controller_kafkacontroller_globaltopiccount", "gauge"},
	{"kafka_controller_kafkacontroller_globalpartitioncount", "gauge"},
	{"kafka_controller_kafkacontroller_topicstodeletecount", "gauge"},
	{"kafka_controller_kafkacontroller_replicastodeletecount", "gauge"},
	{"kafka_controller_kafkacontroller_topicsineligibletodeletecount", "gauge"},
	{"kafka_controller_kafkacontroller_replicasineligibletodeletecount", "gauge"},
	{"kafka_controller_kafkacontroller_activebrokercount", "gauge"},
	{"kafka_controller_kafkacontroller_fencedbrokercount", "gauge"},
	{"kafka_controller_kafkacontroller_zkmigrationstate", "gauge"},
	{"kafka_controller_controllereventmanager_eventqueuesize", "gauge"},
	{"kafka_controller_controllereventmanager_eventqueuetimems", "summary"},
	{"kafka_controller_controllerchannelmanager_totalqueuesize", "gauge"},
	{"kafka_controller_controllerchannelmanager_queuesize", "gauge"},
	{"kafka_controller_controllerchannelmanager_requestrateandqueuetimems", "summary"},
	{"kafka_controller_controllerstats_uncleanleaderelections_total", "counter"},
	{"kafka_controller_controllerstats_controllerchangerateandtimems", "summary"},
	{"kafka_controller_controllerstats_leaderelectionrateandtimems", "summary"},
	{"kafka_controller_controllerstats_topicchangerateandtimems", "summary"},
	{"kafka_controller_controllerstats_topicdeletionrateandtimems", "summary"},
	{"kafka_controller_controllerstats_partitionreassignmentrateandtimems", "summary"},
	{"kafka_controller_controllerstats_autoleaderbalancerateandtimems", "summary"},
	{"kafka_controller_controllerstats_manualleaderbalancerateandtimems", "summary"},
	{"kafka_controller_controllerstats_controlledshutdownrateandtimems", "summary"},
	{"kafka_controller_controllerstats_isrchangerateandtimems", "summary"},
	{"kafka_controller_controllerstats_leaderandisrresponsereceivedrateandtimems", "summary"},
	{"kafka_controller_controllerstats_logdirchangerateandtimems", "summary"},
	{"kafka_controller_controllerstats_controllershutdownrateandtimems", "summary"},
	{"kafka_controller_controllerstats_uncleanleaderelectionenablerateandtimems", "summary"},
	{"kafka_controller_controllerstats_topicuncleanleaderelectionenablerateandtimems", "summary"},
	{"kafka_controller_controllerstats_listpartitionreassignmentrateandtimems", "summary"},
	{"kafka_controller_controllerstats_updatefeaturesrateandtimems", "summary"},
}

func TestTheControllersMetricsHaveKafkasNamesAndMeanings(t *testing.T) {
	r := start(t, configure(t, t.TempDir(), nil))
	adm := kadm.NewClient(r.client(t))
	if _, err := adm.CreateTopic(t.Context(), 3, 1, nil, "measured"); err != nil {
		t.Fatal(err)
	}
	_, body := r.get(t, "/metrics")
	for _, m := range controllerMetrics {
		if !strings.Contains(body, fmt.Sprintf("# TYPE %s %s\n", m.name, m.kind)) {
			t.Errorf("%s is no %s", m.name, m.kind)
		}
	}
	// And no name of these families that Kafka does not have.
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (kafka_controller_\S+)`).FindAllStringSubmatch(body, -1) {
		known := false
		for _, want := range controllerMetrics {
			known = known || want.name == m[1]
		}
		if !known {
			t.Errorf("%s is not Kafka's", m[1])
		}
	}
	for name, want := range map[string]int{
		"activecontrollercount": 1, "globaltopiccount": 1, "globalpartitioncount": 3, "offlinepartitionscount": 0, "activebrokercount": 1,
		"topicstodeletecount": 0, "replicastodeletecount": 0, "topicsineligibletodeletecount": 0, "replicasineligibletodeletecount": 0,
		"preferredreplicaimbalancecount": 0, "fencedbrokercount": 0, "zkmigrationstate": 4,
	} {
		if line := fmt.Sprintf("\nkafka_controller_kafkacontroller_%s %d\n", name, want); !strings.Contains(body, line) {
			t.Errorf("lacks %q", line)
		}
	}
	if line := `kafka_controller_controllerchannelmanager_queuesize{broker_id="1"} 0`; !strings.Contains(body, line) {
		t.Errorf("lacks %q", line)
	}
}

func TestAClientOfZooKeeperIsMeasuredUnderKafkasNames(t *testing.T) {
	z := &ZooKeeperStats{}
	z.Connects.Add(3)
	z.Disconnects.Add(2)
	z.Expires.Add(1)
	z.latency.Observe(4 * time.Millisecond)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(zooKeeperOnly{z})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			got[f.GetName()] = m.GetCounter().GetValue()
			if s := m.GetSummary(); s != nil {
				got[f.GetName()] = s.GetSampleSum()
			}
		}
	}
	for name, want := range map[string]float64{
		"kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms":         4,
		"kafka_server_sessionexpirelistener_zookeepersyncconnects_total":        3,
		"kafka_server_sessionexpirelistener_zookeeperdisconnects_total":         2,
		"kafka_server_sessionexpirelistener_zookeeperexpires_total":             1,
		"kafka_server_sessionexpirelistener_zookeeperauthfailures_total":        0,
		"kafka_server_sessionexpirelistener_zookeepersaslauthentications_total": 0,
		"kafka_server_sessionexpirelistener_zookeeperreadonlyconnects_total":    0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, want)
		}
	}
}

type zooKeeperOnly struct{ z *ZooKeeperStats }

func (zooKeeperOnly) Describe(chan<- *prometheus.Desc)      {}
func (o zooKeeperOnly) Collect(ch chan<- prometheus.Metric) { emitter{ch}.zooKeeper(o.z) }

func TestTheControllerPageShowsTheLastHundredEvents(t *testing.T) {
	r := start(t, configure(t, t.TempDir(), nil))
	adm := kadm.NewClient(r.client(t))
	for i := range 40 {
		if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, fmt.Sprint("t", i)); err != nil {
			t.Fatal(err)
		}
	}
	_, body := r.get(t, "/api/v1/controller")
	var page struct {
		Broker, Controller, Epoch int
		Active                    bool
		State                     string
		EventQueueSize            *int
		Brokers                   []struct {
			Broker    int
			Connected bool
		}
		Events []struct {
			Name, State             string
			Enqueued                time.Time
			QueueTimeNs, DurationNs *int64
			StoreOperations         int
		}
	}
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatal(err)
	}
	if page.Broker != 1 || page.Controller != 1 || page.Epoch != 1 || !page.Active || page.State == "" || page.EventQueueSize == nil ||
		len(page.Brokers) != 1 || !page.Brokers[0].Connected || len(page.Events) != 100 {
		t.Errorf("page %.400s", body)
	}
	operations := 0
	for i, e := range page.Events {
		operations += e.StoreOperations
		if e.Name == "" || e.State == "" || e.QueueTimeNs == nil || e.DurationNs == nil || i > 0 && e.Enqueued.After(page.Events[i-1].Enqueued.Add(time.Second)) {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if operations == 0 {
		t.Error("no event used the store")
	}
}
