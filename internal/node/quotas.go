package node

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
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
	accepts     *quota.Connections // by listener, and "" for all
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
		accepts:     quota.NewConnections(windows, now),
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
		q.setAcceptRates(now)
	})
	d.OnTopic(func(topic string, now *config.LogConfig) {
		q.leader.SetTopic(topic, quota.ParseReplicas(now.LeaderReplicationThrottledReplicas, int32(self)))
		q.follower.SetTopic(topic, quota.ParseReplicas(now.FollowerReplicationThrottledReplicas, int32(self)))
	})
}

const acceptRateKey = "max.connection.creation.rate"

// setAcceptRates takes over the connections per second that are accepted, in all and at each listener (KIP-612).
func (q quotas) setAcceptRates(c *config.Broker) {
	q.accepts.SetIP(quota.NamedPart(""), float64(c.MaxConnectionCreationRate), c.MaxConnectionCreationRate < math.MaxInt32)
	for _, l := range c.Listeners {
		n, ok := listenerNumber(c, l.Name, acceptRateKey)
		q.accepts.SetIP(quota.NamedPart(l.Name), float64(n), ok)
	}
}

// pace is how long a listener is to wait before it takes a connection. That of all listeners together does not hold for one
// that brokers have to themselves.
func (q quotas) pace(listener string, protected bool) time.Duration {
	now := time.Now()
	if !protected {
		if wait := q.accepts.Admit("", now); wait > 0 {
			return wait
		}
	}
	wait := q.accepts.Admit(listener, now)
	if wait > 0 && !protected {
		q.accepts.TakeBack("", now)
	}
	return wait
}

// listenerNumber is a number that is set for one listener.
func listenerNumber(c *config.Broker, listener, key string) (int, bool) {
	text, ok := c.Explicit()["listener.name."+strings.ToLower(listener)+"."+key]
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return n, err == nil
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
