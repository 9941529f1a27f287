package node

import (
	"slices"
	"strings"
	"time"

	"klamm/internal/config"
	"klamm/internal/wire"
)

// followConfigs carries changes of dynamic configs to the parts that keep a value of their own; the others ask
// config.Dynamic each time. Logs follow from the moment they are open (openLogs).
func (b *broker) followConfigs() {
	b.dynamic.OnBroker(func(changed []string, now *config.Broker) {
		has := func(key string) bool { return slices.Contains(changed, key) }
		if has("num.replica.fetchers") {
			b.replicas.SetNumFetchers(now.NumReplicaFetchers)
		}
		if has("unclean.leader.election.enable") {
			b.driver.SetUncleanLeaderElection(now.UncleanLeaderElectionEnable)
		}
		if has("delete.topic.enable") {
			b.driver.SetTopicDeletion(now.DeleteTopicEnable)
		}
		if slices.ContainsFunc(changed, func(key string) bool { return strings.Contains(key, "max.connections") }) {
			b.server.SetLimits(limits(now))
		}
	})
	b.dynamic.OnTopic(func(topic string, now *config.LogConfig) {
		if now.Overrides["unclean.leader.election.enable"] == "true" {
			b.driver.TopicUncleanLeaderElectionEnabled(topic)
		}
	})
}

// drainTimeout bounds how long a stopping broker waits for answers that are under way: its leaderships have moved by then,
// and a client that does not read, or waits for something that will not happen any more, is not to hold it up.
const drainTimeout = time.Second

func limits(c *config.Broker) wire.Limits {
	perIP := c.MaxConnectionsPerIP
	if perIP == 0 {
		perIP = -1 // Kafka's 0 lets only the overrides in; wire's 0 sets no limit
	}
	receive := 0
	if _, set := c.Explicit()["socket.receive.buffer.bytes"]; set { // Kafka's default, taken literally, costs a third of produce's speed
		receive = c.SocketReceiveBufferBytes
	}
	perListener := map[string]int{}
	for _, l := range c.Listeners {
		if n, ok := listenerNumber(c, l.Name, "max.connections"); ok {
			perListener[l.Name] = n
		}
	}
	return wire.Limits{
		ListenerMaxConnections: perListener,
		ReceiveBufferBytes:     receive,
		DrainTimeout:           drainTimeout, SendBufferBytes: c.SocketSendBufferBytes, RequestMaxBytes: c.SocketRequestMaxBytes, ConnectionsMaxIdle: c.ConnectionsMaxIdle,
		MaxConnections: c.MaxConnections, MaxConnectionsPerIP: perIP, MaxConnectionsPerIPOverrides: c.MaxConnectionsPerIPOverrides,
	}
}
