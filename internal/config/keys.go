package config

import "slices"

// ownKeys are klamm's own. broker.session.timeout.ms is Kafka's name with klamm's default: the session of every broker, not of KRaft's only.
var ownKeys = []*Definition{
	own(def("etcd.data.dir", String, "", Medium, nil, "Folder of the embedded etcd; empty for a folder etcd beside the first log dir.")),
	own(def("web.listen", String, "127.0.0.1:8080", Medium, nil, "Address of health checks, metrics and API; empty turns them off.")),
	own(def("broker.session.timeout.ms", Int, "6000", Medium, nil, "How long the cluster waits for a silent broker before it counts as dead; 1000 or more, fractions of a second are rounded up.")),
	own(def("etcd.cluster", List, "", High, nil, "Brokers whose process runs a member of the etcd cluster: id@host:port for each, alike at all brokers. Empty for an etcd of this broker alone.")),
	own(def("etcd.listen", String, "", Medium, nil, "Address on which this broker's etcd member listens, host:port; empty for its address in etcd.cluster.")),
	own(def("etcd.endpoints", List, "", High, nil, "Addresses of an etcd that is run by others: host:port, or https://host:port for TLS.")),
	own(def("etcd.tls.ca", String, "", Medium, nil, "PEM file with the authorities that certificates of etcd members and of their clients must come from.")),
	own(def("etcd.tls.cert", String, "", Medium, nil, "PEM file with this broker's certificate towards etcd, good for server and client.")),
	own(def("etcd.tls.key", String, "", Medium, nil, "PEM file with the key of etcd.tls.cert.")),
	own(def("etcd.user", String, "", Medium, nil, "User at the etcd of etcd.endpoints.")),
	own(def("etcd.password", Password, "", Medium, nil, "Password of etcd.user.")),
	own(def("topic.deletion.offline.replicas", String, "auto", Medium, oneOf("auto", "complete", "wait"), "Whether a topic's deletion waits for a broker that is gone: complete ends it, the broker removes its replicas when it returns; wait waits, as Kafka does; auto completes where all replicas are on klamm brokers.")),
	own(def("topic.deletion.offline.replica.timeout.ms", Long, "-1", Medium, atLeast(-1), "How long a topic's deletion waits for offline replicas before it ends without them; -1 waits for ever.")),
}

// throttleKeys can only be set while brokers run, never in a file (Kafka: QuotaConfigs.brokerQuotaConfigs).
var throttleKeys = byName([]*Definition{
	clusterWide(def("leader.replication.throttled.rate", Long, "9223372036854775807", Medium, atLeast(0), "Bytes per second that throttled replicas led here may send to followers.")),
	clusterWide(def("follower.replication.throttled.rate", Long, "9223372036854775807", Medium, atLeast(0), "Bytes per second that throttled replicas here may fetch.")),
	clusterWide(def("replica.alter.log.dirs.io.max.bytes.per.second", Long, "9223372036854775807", Medium, atLeast(0), "Bytes per second that may move between log dirs.")),
})

var (
	brokerDefinitions = byName(slices.Concat(brokerKeys, logKeys, coordinatorKeys, securityKeys, zookeeperKeys, foreignKeys, ownKeys))
	brokerIndex       = indexByName(brokerDefinitions)
	throttleIndex     = indexByName(throttleKeys)
)

// BrokerKeys returns the broker keys sorted by name. The caller must not change them.
func BrokerKeys() []*Definition { return brokerDefinitions }

// LookupBroker finds a broker key.
func LookupBroker(name string) (*Definition, bool) {
	d, ok := brokerIndex[name]
	return d, ok
}

func null(name string, t Type, imp Importance, check validator, doc string) *Definition {
	return &Definition{Name: name, Type: t, Importance: imp, check: check, Doc: doc}
}

func perBroker(d *Definition) *Definition {
	d.Update = PerBroker
	return d
}

func clusterWide(d *Definition) *Definition {
	d.Update = ClusterWide
	return d
}

func internal(d *Definition) *Definition {
	d.Internal = true
	return d
}

func own(d *Definition) *Definition {
	d.Own = true
	return d
}
