package driver

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the driver's metrics for a Prometheus registry, under the names that the JMX exporter's usual rules
// give Kafka's controller MBeans (kafka_controller_kafkacontroller_offlinepartitionscount ...), and klamm's own as
// klamm_controller_*. Histograms and timers become summaries in milliseconds; Kafka's exporter has no sum, this one does.
func (d *Driver) Collector() prometheus.Collector { return collector{d} }

type collector struct{ d *Driver }

// gauge is a value without labels.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Metrics) float64
}

func gaugeOf(name, help string, value func(*Metrics) int) gauge {
	return gauge{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, func(m *Metrics) float64 { return float64(value(m)) }}
}

func counterOf(name, help string, value func(*Metrics) int64) gauge {
	return gauge{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, func(m *Metrics) float64 { return float64(value(m)) }}
}

const kafkaController = "kafka_controller_kafkacontroller_"

var gauges = []gauge{
	gaugeOf(kafkaController+"activecontrollercount", "1 on the active controller.", func(m *Metrics) int { return m.ActiveControllerCount }),
	gaugeOf(kafkaController+"controllerstate", "State of the event in hand, 0 when idle.", func(m *Metrics) int { return m.ControllerState }),
	gaugeOf(kafkaController+"offlinepartitionscount", "Partitions without a leader.", func(m *Metrics) int { return m.Core.OfflinePartitionsCount }),
	gaugeOf(kafkaController+"preferredreplicaimbalancecount", "Partitions not led by their first replica.", func(m *Metrics) int { return m.Core.PreferredReplicaImbalanceCount }),
	gaugeOf(kafkaController+"globaltopiccount", "Topics, those queued for deletion included.", func(m *Metrics) int { return m.Core.GlobalTopicCount }),
	gaugeOf(kafkaController+"globalpartitioncount", "Partitions that have leadership.", func(m *Metrics) int { return m.Core.GlobalPartitionCount }),
	gaugeOf(kafkaController+"topicstodeletecount", "Topics queued for deletion.", func(m *Metrics) int { return m.Core.TopicsToDeleteCount }),
	gaugeOf(kafkaController+"replicastodeletecount", "Replicas of queued topics that are not deleted yet.", func(m *Metrics) int { return m.Core.ReplicasToDeleteCount }),
	gaugeOf(kafkaController+"topicsineligibletodeletecount", "Queued topics whose deletion is blocked.", func(m *Metrics) int { return m.Core.TopicsIneligibleToDeleteCount }),
	gaugeOf(kafkaController+"replicasineligibletodeletecount", "Replicas of queued topics whose deletion failed.", func(m *Metrics) int { return m.Core.ReplicasIneligibleToDeleteCount }),
	gaugeOf(kafkaController+"activebrokercount", "Live and shutting-down brokers.", func(m *Metrics) int { return m.Core.ActiveBrokerCount }),
	gaugeOf(kafkaController+"fencedbrokercount", "Always 0 with this kind of controller.", func(*Metrics) int { return 0 }),
	gaugeOf(kafkaController+"zkmigrationstate", "4 (ZK): no migration to KRaft.", func(*Metrics) int { return zkMigrationState }),
	gaugeOf("kafka_controller_controllereventmanager_eventqueuesize", "Events waiting for the controller.", func(m *Metrics) int { return m.EventQueueSize }),
	gaugeOf("kafka_controller_controllerchannelmanager_totalqueuesize", "Requests waiting for all brokers.", func(m *Metrics) int { return m.TotalQueueSize }),
	counterOf("kafka_controller_controllerstats_uncleanleaderelections_total", "Unclean leader elections.", func(m *Metrics) int64 { return m.Core.UncleanLeaderElections }),
	counterOf("klamm_controller_core_panics_total", "Broken invariants of the controller core.", func(m *Metrics) int64 { return m.CorePanics }),
	counterOf("klamm_controller_broker_queue_overflows_total", "Terms given up because a broker was too far behind.", func(m *Metrics) int64 { return m.QueueOverflows }),
	counterOf("klamm_controller_requests_refused_total", "Requests refused because the event queue was full.", func(m *Metrics) int64 { return m.EventsRefused }),
}

// zkMigrationState is Kafka's value for a cluster that only knows ZooKeeper (ZkMigrationState.ZK).
const zkMigrationState = 4

var (
	eventQueueTime = prometheus.NewDesc("kafka_controller_controllereventmanager_eventqueuetimems", "Time that events waited, ms.", nil, nil)
	storeTime      = prometheus.NewDesc("klamm_controller_store_operation_time_ms", "Time of the controller's store operations, ms.", nil, nil)
	brokerQueue    = prometheus.NewDesc("kafka_controller_controllerchannelmanager_queuesize", "Requests waiting for a broker.", []string{"broker_id"}, nil)
	brokerTime     = prometheus.NewDesc("kafka_controller_controllerchannelmanager_requestrateandqueuetimems", "Time that requests to a broker waited, ms.", []string{"broker_id"}, nil)
	brokerResends  = prometheus.NewDesc("klamm_controller_broker_resends_total", "Requests to a broker that had to be sent again.", []string{"broker_id"}, nil)
	stateTimes     = stateTimeDescs()
)

func stateTimeDescs() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for _, s := range allStates {
		if s.timer != "" {
			name := "kafka_controller_controllerstats_" + strings.ToLower(s.timer) + "rateandtimems"
			out[s.timer] = prometheus.NewDesc(name, "Time of the controller's events of this kind, ms.", nil, nil)
		}
	}
	return out
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range gauges {
		ch <- g.desc
	}
	for _, desc := range stateTimes {
		ch <- desc
	}
	for _, desc := range []*prometheus.Desc{eventQueueTime, storeTime, brokerQueue, brokerTime, brokerResends} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	m := c.d.Metrics()
	for _, g := range gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(&m))
	}
	for name, t := range m.StateTimes {
		ch <- summary(stateTimes[name], t)
	}
	ch <- summary(eventQueueTime, m.EventQueueTime)
	ch <- summary(storeTime, m.StoreTime)
	for _, b := range m.Brokers {
		id := strconv.Itoa(int(b.Broker))
		ch <- prometheus.MustNewConstMetric(brokerQueue, prometheus.GaugeValue, float64(b.QueueSize), id)
		ch <- summary(brokerTime, b.RequestRateAndQueueTime, id)
		ch <- prometheus.MustNewConstMetric(brokerResends, prometheus.CounterValue, float64(b.Resends), id)
	}
}

// summary gives durations in milliseconds with the quantiles of Kafka's histograms.
func summary(desc *prometheus.Desc, t Timings, labels ...string) prometheus.Metric {
	quantiles := map[float64]float64{}
	for _, q := range []float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999} {
		quantiles[q] = t.Quantile(q).Seconds() * 1000
	}
	return prometheus.MustNewConstSummary(desc, t.Count, t.Sum.Seconds()*1000, quantiles, labels...)
}
