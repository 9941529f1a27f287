package node

import (
	"cmp"
	"slices"
	"time"

	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/quota"
)

// quotas holds what this broker limits, and what is used of it.
type quotas struct {
	clients     *quota.Clients
	connections *quota.Connections
}

func newQuotas(c *config.Broker) quotas {
	now := time.Now()
	windows := quota.Windows{Samples: c.QuotaWindowNum, Length: c.QuotaWindowSize}
	return quotas{
		clients:     quota.NewClients(windows, quota.Windows{Samples: c.ControllerQuotaWindowNum, Length: c.ControllerQuotaWindowSize}, now),
		connections: quota.NewConnections(windows, now),
	}
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
