package node

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"klamm/internal/controller/driver"
	"klamm/internal/replica"
	"klamm/internal/wire"
)

// topicsInMetrics bounds the topics that get metrics of their own; the rest is counted together under an empty topic.
const topicsInMetrics = 200

// kafkaCollector gives klamm's figures the names that Prometheus' JMX exporter gives Kafka's MBeans, so that dashboards
// made for Kafka work unchanged. Descriptions are made at collection: the set of topics and brokers changes.
type kafkaCollector struct{ b *broker }

func newRegistry(b *broker) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(kafkaCollector{b}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Describe implements prometheus.Collector; it sends nothing, which makes the collector an unchecked one.
func (kafkaCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (k kafkaCollector) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	e.controller(k.b.driver.Metrics())
	if k.b.coordination.ZooKeeper != nil {
		e.zooKeeper(k.b.coordination.ZooKeeper)
	}
	replicas := k.b.replicas.Metrics()
	e.replicas(replicas)
	e.traffic(replicas)
	e.topics(k.b.replicas.TopicMetrics(topicsInMetrics))
	e.groups(k.b.groups)
	e.conversions(k.b.handlers.Conversions())
	e.network(k.b)
	e.quotas(k.b.quotas)
	pending, failing := 0, 0
	for _, p := range k.b.logs.PendingDeletes() {
		pending++
		if p.Err != nil {
			failing++
		}
	}
	offline := 0
	for _, d := range k.b.logs.Dirs() {
		if !d.Online {
			offline++
		}
	}
	e.gauge("kafka_log_logmanager_offlinelogdirectorycount", "log dirs that failed", float64(offline))
	e.gauge("klamm_log_directories_to_remove", "renamed -delete directories that wait for their removal", float64(pending))
	e.gauge("klamm_log_directories_failing_to_remove", "-delete directories whose last removal failed", float64(failing))
	e.gauge("klamm_log_deleted_topics_to_remove", "deleted topics of which this broker has still to remove replicas, because it or a log dir was away", float64(k.b.leftovers.open.Load()))
	e.counter("klamm_topics_auto_created_total", "topics created because a client asked for their metadata", float64(k.b.handlers.AutoCreatedTotal()))
}

type emitter struct{ ch chan<- prometheus.Metric }

func (e emitter) send(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	e.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

func (e emitter) gauge(name, help string, v float64, labels ...string) {
	e.send(prometheus.GaugeValue, name, help, v, labels...)
}

func (e emitter) counter(name, help string, v float64, labels ...string) {
	e.send(prometheus.CounterValue, name, help, v, labels...)
}

// summary shows durations as the JMX exporter shows Kafka's histograms: quantiles in milliseconds, and a count.
func (e emitter) summary(name, help string, t driver.Timings, labels ...string) {
	ms := map[float64]float64{}
	for _, q := range []float64{0.5, 0.75, 0.95, 0.98, 0.99, 0.999} {
		ms[q] = t.Quantile(q).Seconds() * 1000
	}
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	e.ch <- prometheus.MustNewConstSummary(prometheus.NewDesc(name, help, names, nil), t.Count, t.Sum.Seconds()*1000, ms, values...)
}

func (e emitter) controller(m driver.Metrics) {
	const p = "kafka_controller_kafkacontroller_"
	c := m.Core
	e.gauge(p+"activecontrollercount", "1 on the active controller", float64(m.ActiveControllerCount))
	e.gauge(p+"controllerstate", "kind of the event in hand, 0 when idle", float64(m.ControllerState))
	e.gauge(p+"offlinepartitionscount", "partitions without a leader", float64(c.OfflinePartitionsCount))
	e.gauge(p+"preferredreplicaimbalancecount", "partitions not led by their first replica", float64(c.PreferredReplicaImbalanceCount))
	e.gauge(p+"globaltopiccount", "topics", float64(c.GlobalTopicCount))
	e.gauge(p+"globalpartitioncount", "partitions that have been led", float64(c.GlobalPartitionCount))
	e.gauge(p+"topicstodeletecount", "topics queued for deletion", float64(c.TopicsToDeleteCount))
	e.gauge(p+"replicastodeletecount", "replicas of queued topics that are not deleted yet", float64(c.ReplicasToDeleteCount))
	e.gauge(p+"topicsineligibletodeletecount", "queued topics that wait for something", float64(c.TopicsIneligibleToDeleteCount))
	e.gauge(p+"replicasineligibletodeletecount", "replicas whose deletion has to wait", float64(c.ReplicasIneligibleToDeleteCount))
	e.gauge(p+"activebrokercount", "registered brokers", float64(c.ActiveBrokerCount))
	e.gauge(p+"fencedbrokercount", "always 0: brokers are not fenced in this mode", 0)
	e.gauge(p+"zkmigrationstate", "always 4 (ZK): no migration to KRaft", 4)
	const em = "kafka_controller_controllereventmanager_"
	e.gauge(em+"eventqueuesize", "events waiting", float64(m.EventQueueSize))
	e.summary(em+"eventqueuetimems", "time that events waited", m.EventQueueTime)
	for name, t := range m.StateTimes {
		e.summary("kafka_controller_controllerstats_"+strings.ToLower(name)+"rateandtimems", "time to handle events of this kind", t)
	}
	e.counter("kafka_controller_controllerstats_uncleanleaderelections_total", "leaders elected outside the ISR", float64(c.UncleanLeaderElections))
	const cm = "kafka_controller_controllerchannelmanager_"
	e.gauge(cm+"totalqueuesize", "requests waiting for all brokers", float64(m.TotalQueueSize))
	for _, b := range m.Brokers {
		id := strconv.Itoa(int(b.Broker))
		e.gauge(cm+"queuesize", "requests waiting for a broker", float64(b.QueueSize), "broker_id", id)
		e.summary(cm+"requestrateandqueuetimems", "time that requests waited", b.RequestRateAndQueueTime, "broker_id", id)
		e.counter("klamm_controller_broker_resends_total", "requests to a broker that had to be sent again", float64(b.Resends), "broker_id", id)
	}
	e.counter("klamm_controller_core_panics_total", "broken invariants that made the controller resign", float64(m.CorePanics))
	e.counter("klamm_controller_broker_queue_overflows_total", "terms given up because a broker was too far behind", float64(m.QueueOverflows))
	e.counter("klamm_controller_requests_refused_total", "requests refused because the event queue was full", float64(m.EventsRefused))
	e.summary("klamm_controller_store_operation_time_ms", "time of the controller's store operations", m.StoreTime)
}

// zooKeeper has no SessionState: Kafka's is a text, which the JMX exporter leaves out.
func (e emitter) zooKeeper(z *ZooKeeperStats) {
	e.summary("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", "time from the sending of a request to its answer", z.latency.Snapshot())
	const p = "kafka_server_sessionexpirelistener_zookeeper"
	e.counter(p+"syncconnects_total", "connections made to ZooKeeper", float64(z.Connects.Load()))
	e.counter(p+"disconnects_total", "connections to ZooKeeper lost", float64(z.Disconnects.Load()))
	e.counter(p+"expires_total", "sessions expired", float64(z.Expires.Load()))
	e.counter(p+"authfailures_total", "connections that failed for their authentication", float64(z.AuthFailures.Load()))
	e.counter(p+"saslauthentications_total", "log-ins by SASL", float64(z.Logins.Load()))
	e.counter(p+"readonlyconnects_total", "always 0: klamm connects to no read-only server", 0)
}

func (e emitter) replicas(m replica.Metrics) {
	const p = "kafka_server_replicamanager_"
	e.gauge(p+"partitioncount", "partitions here", float64(m.PartitionCount))
	e.gauge(p+"leadercount", "partitions led here", float64(m.LeaderCount))
	e.gauge(p+"offlinereplicacount", "partitions on failed log dirs", float64(m.OfflineReplicaCount))
	e.gauge(p+"underreplicatedpartitions", "led partitions with a replica out of sync", float64(m.UnderReplicated))
	e.gauge(p+"underminisrpartitioncount", "led partitions below min.insync.replicas", float64(m.UnderMinISR))
	e.gauge(p+"atminisrpartitioncount", "led partitions just at min.insync.replicas", float64(m.AtMinISR))
	e.counter(p+"isrshrinks_total", "", float64(m.ISRShrinks))
	e.counter(p+"isrexpands_total", "", float64(m.ISRExpands))
	e.counter(p+"failedisrupdates_total", "", float64(m.FailedISRUpdates))
	const d = "kafka_server_delayedoperationpurgatory_purgatorysize"
	e.gauge(d, "requests waiting", float64(m.DelayedProduce), "delayedoperation", "Produce")
	e.gauge(d, "requests waiting", float64(m.DelayedFetch), "delayedoperation", "Fetch")
	e.gauge(d, "requests waiting", float64(m.DelayedDeleteRecords), "delayedoperation", "DeleteRecords")
	e.gauge("kafka_server_replicafetchermanager_maxlag", "messages the slowest follower partition is behind", float64(m.MaxLag), "clientid", "Replica")
	const a = "kafka_server_replicaalterlogdirsmanager_"
	e.gauge(a+"maxlag", "messages that the copy of a replica on its way to another log dir is short of, at most", float64(m.LogDirMovesMaxLag), "clientid", "ReplicaAlterLogDirs")
	e.gauge(a+"failedpartitionscount", "replicas whose move between log dirs failed and is tried again", float64(m.LogDirMovesFailed), "clientid", "ReplicaAlterLogDirs")
	e.gauge("klamm_log_dir_moves", "replicas on their way to another log dir", float64(m.LogDirMoves))
}

// traffic is the broker's, without a label, as Kafka's MBeans without a topic.
func (e emitter) traffic(m replica.Metrics) {
	const p = "kafka_server_brokertopicmetrics_"
	e.counter(p+"bytesin_total", "bytes produced by clients", float64(m.BytesIn))
	e.counter(p+"bytesout_total", "bytes fetched by clients", float64(m.BytesOut))
	e.counter(p+"messagesin_total", "records produced by clients", float64(m.MessagesIn))
	e.counter(p+"replicationbytesin_total", "bytes fetched from leaders", float64(m.ReplicationBytesIn))
	e.counter(p+"replicationbytesout_total", "bytes fetched by followers", float64(m.ReplicationBytesOut))
	e.counter(p+"totalproducerequests_total", "partitions of produce requests", float64(m.ProduceRequests))
	e.counter(p+"totalfetchrequests_total", "partitions of fetch requests", float64(m.FetchRequests))
	e.counter(p+"failedproducerequests_total", "", float64(m.FailedProduce))
	e.counter(p+"failedfetchrequests_total", "", float64(m.FailedFetch))
}

func (e emitter) topics(ts []replica.TopicMetrics) {
	const p = "kafka_server_brokertopicmetrics_"
	for _, t := range ts {
		if t.Topic == "" {
			continue // the topics beyond the limit count in the broker's traffic only: Prometheus takes an empty label for none
		}
		e.counter(p+"bytesin_total", "bytes produced by clients", float64(t.BytesIn), "topic", t.Topic)
		e.counter(p+"bytesout_total", "bytes fetched by clients", float64(t.BytesOut), "topic", t.Topic)
		e.counter(p+"messagesin_total", "records produced by clients", float64(t.MessagesIn), "topic", t.Topic)
		e.counter(p+"failedproducerequests_total", "", float64(t.FailedProduce), "topic", t.Topic)
		e.counter(p+"failedfetchrequests_total", "", float64(t.FailedFetch), "topic", t.Topic)
	}
}

func (e emitter) conversions(produced, fetched int64) {
	const p = "kafka_server_brokertopicmetrics_"
	e.counter(p+"producemessageconversions_total", "records converted from the format of an old producer", float64(produced))
	e.counter(p+"fetchmessageconversions_total", "records converted to the format of an old consumer", float64(fetched))
}

func (e emitter) network(b *broker) {
	s := b.server.Stats()
	for _, a := range b.table.APIs(true) {
		k := s.Key(a.Key)
		e.counter("kafka_network_requestmetrics_requests_total", "requests", float64(k.Requests.Load()), "request", wire.APIName(a.Key))
	}
	e.gauge("kafka_server_socketservermetrics_connection_count", "open connections", float64(s.ConnectionsOpen.Load()))
	e.counter("kafka_server_socketservermetrics_successful_authentication_total", "clients that authenticated, by SASL or a certificate", float64(s.Authenticated.Load()))
	e.counter("kafka_server_socketservermetrics_failed_authentication_total", "connections closed because their authentication failed", float64(s.AuthenticationFailed.Load()))
	e.counter("klamm_network_connections_refused_total", "connections refused by a limit", float64(s.ConnectionsRefused.Load()))
	e.counter("klamm_network_connections_throttled_total", "connections closed because their address made too many", float64(s.ConnectionsThrottled.Load()))
	e.counter("klamm_network_throttle_milliseconds_total", "time for which connections were muted by quotas", float64(s.ThrottledTimeMs.Load()))
	e.counter("klamm_network_protocol_errors_total", "connections closed because of what they sent", float64(s.ProtocolErrors.Load()))
	e.counter("klamm_network_handler_panics_total", "panics contained at a connection", float64(s.HandlerPanics.Load()))
}
