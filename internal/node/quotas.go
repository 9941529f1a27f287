package node

import (
	"cmp"
	"slices"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/quota"
)

// quotas holds what this broker limits, and what is used of it.
type quotas struct {
	clients     *quota.Clients
	connections *quota.Connections
	// leader and follower throttle what throttled replicas here send and fetch.
	leader, follower *quota.Replication
}

func newQuotas(c *config.Broker) quotas {
	now := time.Now()
	windows := quota.Windows{Samples: c.QuotaWindowNum, Length: c.QuotaWindowSize}
	replication := quota.Windows{Samples: c.ReplicationQuotaWindowNum, Length: c.ReplicationQuotaWindowSize}
	return quotas{
		clients:     quota.NewClients(windows, quota.Windows{Samples: c.ControllerQuotaWindowNum, Length: c.ControllerQuotaWindowSize}, now),
		connections: quota.NewConnections(windows, now),
		leader:      quota.NewReplication(replication, now),
		follower:    quota.NewReplication(replication, now),
	}
}

// follow keeps the replication throttles in step with the configs of this broker and of topics. It is called before any is
// applied.
func (q quotas) follow(d *config.Dynamic, self cluster.BrokerID) {
	d.OnBroker(func(_ []string, now *config.Broker) {
		q.leader.SetRate(now.LeaderReplicationThrottledRate)
		q.follower.SetRate(now.FollowerReplicationThrottledRate)
	})
	d.OnTopic(func(topic string, now *config.LogConfig) {
		q.leader.SetTopic(topic, quota.ParseReplicas(now.LeaderReplicationThrottledReplicas, int32(self)))
		q.follower.SetTopic(topic, quota.ParseReplicas(now.FollowerReplicationThrottledReplicas, int32(self)))
	})
}

// clientsInMetrics bounds the clients that are shown: client ids are the clients' choice.
const clientsInMetrics = 200

// quotas shows what clients under a quota use, under the names that the JMX exporter's rules give Kafka's quota metrics. A
// part of the client that its quota does not look at has no label.
func (e emitter) quotas(q quotas) {
	usage := q.clients.Usage(time.Now())
	slices.SortFunc(usage, func(a, b quota.Usage) int {
		return cmp.Or(cmp.Compare(b.Throttle, a.Throttle), cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Who.User, b.Who.User), cmp.Compare(a.Who.ID, b.Who.ID))
	})
	e.gauge("kafka_server_leaderreplication_byte_rate", "bytes per second that throttled replicas led here send", q.leader.Rate(time.Now()))
	e.gauge("kafka_server_followerreplication_byte_rate", "bytes per second that throttled replicas here fetch", q.follower.Rate(time.Now()))
	const p = "kafka_server_quota_"
	for _, u := range usage[:min(len(usage), clientsInMetrics)] {
		labels := []string{"resource", u.Kind.String()}
		if u.Who.User != "" {
			labels = append(labels, "user", coord.SanitizeName(u.Who.User))
		}
		if u.Who.ID != "" {
			labels = append(labels, "clientId", u.Who.ID)
		}
		switch u.Kind {
		case quota.Request:
			e.gauge(p+"request_time", "percent of one processor that a client's requests take", u.Rate, labels...)
		case quota.Mutations:
			e.gauge(p+"mutation_rate", "partitions per second that a client creates and deletes", u.Rate, labels...)
			e.gauge(p+"tokens", "partitions that a client may create and delete now", u.Tokens, labels...)
		default:
			e.gauge(p+"byte_rate", "bytes per second of a client", u.Rate, labels...)
		}
		e.gauge(p+"throttle_time", "mean throttle of a client in milliseconds", float64(u.Throttle)/float64(time.Millisecond), labels...)
	}
}
