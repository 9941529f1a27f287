package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checker parses settings into a Broker and collects every fault.
type checker struct {
	set     map[string]string // as given
	sources map[string]string
	values  map[string]any  // parsed, with defaults; null keys are absent
	bad     map[string]bool // keys whose value could not be parsed
	used    map[string]bool // keys that were looked up for a listener and have an effect
	faults  []Fault
}

// handledByChecks are keys that take effect outside Broker.fill.
var handledByChecks = map[string]bool{
	"listeners": true, "advertised.listeners": true, "listener.security.protocol.map": true, "inter.broker.listener.name": true,
	"security.inter.broker.protocol": true, "control.plane.listener.name": true, "log.dirs": true, "log.dir": true,
}

func (c *checker) fault(key, format string, args ...any) {
	v, set := c.set[key]
	if secret(key) && !slices.Contains(pluginKeys, key) {
		v = "[hidden]"
	}
	c.faults = append(c.faults, Fault{key, v, set, c.sources[key], fmt.Sprintf(format, args...)})
}

// text is the effective text of a String key, trimmed; "" when it is null or broken.
func (c *checker) text(key string) string {
	s, _ := c.values[key].(string)
	return s
}

func (c *checker) num(key string) int64 {
	n, _ := c.values[key].(int64)
	return n
}

func (c *checker) hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}

func (c *checker) run() *Broker {
	c.bad, c.used = map[string]bool{}, map[string]bool{}
	c.values = make(map[string]any, len(brokerDefinitions)+len(throttleKeys))
	for _, d := range brokerDefinitions {
		c.parse(d)
	}
	for _, d := range throttleKeys {
		c.parse(d)
	}
	b := &Broker{explicit: maps.Clone(c.set), values: c.values}
	c.refuse()
	c.checkIdentity()
	c.checkAuthorizer(b)
	c.checkListeners(b)
	c.checkListenerSecurity(b)
	c.checkLogDirs(b)
	c.checkEtcd(b)
	c.checkZooKeeper()
	c.checkRelations()
	b.topic = topicBase(c.values)
	return b
}

// parse sets the value of one key: what was given, else its default.
func (c *checker) parse(d *Definition) {
	text, set := c.set[d.Name]
	if !set {
		if d.HasDefault {
			c.values[d.Name] = d.mustParse(d.Default)
		}
		return
	}
	v, err := d.parse(text)
	if err != nil {
		c.fault(d.Name, "%s", err.Allowed)
		c.bad[d.Name] = true
		return
	}
	if d.check == nil && v == "" && !d.HasDefault {
		return // an empty text for a key without default reads as not set
	}
	c.values[d.Name] = v
}

// refuse names the settings that cannot be passed over in silence: they would change what the cluster is, or leave it open.
func (c *checker) refuse() {
	given := func(key string) bool { return strings.TrimSpace(c.set[key]) != "" }
	if given("process.roles") {
		c.fault("process.roles", "klamm's brokers are not KRaft's and have no roles: remove process.roles and the controller.* keys that go with it; every broker can become controller")
	}
	if c.values["remote.log.storage.system.enable"] == true {
		c.fault("remote.log.storage.system.enable", "remote storage is not supported: must be false")
	}
	if c.values["zookeeper.metadata.migration.enable"] == true {
		c.fault("zookeeper.metadata.migration.enable", "klamm takes no part in a migration to KRaft: must be false")
	}
	for _, key := range []string{"create.topic.policy.class.name", "alter.config.policy.class.name", "client.quota.callback.class"} {
		if given(key) {
			c.fault(key, "names a Java class that restricts what clients may do; klamm cannot load it and does not start without it: remove the key to run without")
		}
	}
	if given("config.providers") {
		c.fault("config.providers", "values from other places are not supported: write the values out")
	}
	for _, d := range throttleKeys {
		if _, set := c.set[d.Name]; set && c.sources != nil {
			c.fault(d.Name, "can be set while brokers run only, with kafka-configs --alter --entity-type brokers")
		}
	}
	if v, ok := parseProtocolVersion(c.text("inter.broker.protocol.version")); ok && v.Major > 3 {
		c.fault("inter.broker.protocol.version", "must not be above 3.9: later releases have no ZooKeeper-mode control plane")
	}
}

// checkIdentity makes broker.id and node.id the same.
func (c *checker) checkIdentity() {
	_, byBroker := c.set["broker.id"]
	_, byNode := c.set["node.id"]
	switch {
	case byBroker && byNode && c.num("broker.id") != c.num("node.id"):
		c.fault("node.id", "is another name of broker.id and must have the same value")
	case byNode && !byBroker:
		c.values["broker.id"] = c.values["node.id"]
	default:
		c.values["node.id"] = c.values["broker.id"]
	}
	key := "broker.id"
	if byNode && !byBroker {
		key = "node.id"
	}
	if c.bad[key] {
		return
	}
	id, top := c.num("broker.id"), c.num("reserved.broker.max.id")
	switch generates := c.values["broker.id.generation.enable"] == true; {
	case !generates && id < 0:
		c.fault(key, "must be 0 or more, since broker.id.generation.enable is false")
	case generates && id < -1:
		c.fault(key, "must be -1, to have one generated, or from 0 to reserved.broker.max.id, %d", top)
	case generates && id > top:
		c.fault(key, "must not be above reserved.broker.max.id, %d: larger ids are for generation", top)
	}
}

func (c *checker) checkLogDirs(b *Broker) {
	key := "log.dirs"
	if c.text(key) == "" {
		key = "log.dir"
	}
	dirs := splitList(c.text(key))
	if len(dirs) == 0 {
		c.fault(key, "at least one folder is needed")
		return
	}
	for i, d := range dirs {
		if d == "" {
			c.fault(key, "folders must not be empty between commas")
			return
		}
		for _, o := range dirs[:i] {
			if filepath.Clean(o) == filepath.Clean(d) {
				c.fault(key, "names %s twice", d)
			}
		}
	}
	b.LogDirs = dirs
	if c.text("etcd.data.dir") == "" {
		// Beside the log dir and not in it, where Kafka would take it for a partition's folder; and not in a folder of one name for
		// all, since the parent may hold several brokers' log dirs.
		c.values["etcd.data.dir"] = filepath.Clean(dirs[0]) + "-etcd"
	}
	if slices.ContainsFunc(dirs, func(d string) bool { return filepath.Clean(d) == filepath.Clean(c.text("etcd.data.dir")) }) {
		c.fault("etcd.data.dir", "must not be one of log.dirs")
	}
}

// checkRelations judges keys against each other, as Kafka's KafkaConfig.validateValues does.
func (c *checker) checkRelations() {
	c.notAbove("group.min.session.timeout.ms", "group.max.session.timeout.ms")
	c.notAbove("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms")
	c.notAbove("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms")
	c.notAbove("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms")
	c.notAbove("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms")
	c.notAbove("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms")
	c.notAbove("replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
	c.notAbove("replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
	c.notAbove("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms")
	for _, key := range []string{"log.retention.hours", "log.retention.minutes", "log.retention.ms"} {
		if v, set := c.values[key]; set && v != int64(Unlimited) && v.(int64) < 1 {
			c.fault(key, "must be -1 for no limit, or 1 or more")
		}
	}
	for _, key := range []string{"log.roll.ms", "replica.lag.time.max.ms", "num.replica.fetchers", "replica.high.watermark.checkpoint.interval.ms", "request.timeout.ms"} {
		if v, set := c.values[key]; set && v.(int64) < 1 {
			c.fault(key, "must be 1 or more")
		}
	}
	if n := c.num("queued.max.request.bytes"); n > 0 && n < c.num("socket.request.max.bytes") {
		c.fault("queued.max.request.bytes", "must be -1 for no limit, or at least socket.request.max.bytes, %d", c.num("socket.request.max.bytes"))
	}
	for _, key := range []string{"socket.send.buffer.bytes", "socket.receive.buffer.bytes"} {
		if n := c.num(key); !c.bad[key] && (n == 0 || n < -1) {
			c.fault(key, "must be -1 for the system's choice, or 1 or more")
		}
	}
	if n := c.num("offsets.topic.compression.codec"); n < 0 || n > 4 {
		c.fault("offsets.topic.compression.codec", "must be the number of a codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd")
	}
	if n := c.num("offsets.commit.required.acks"); n < -1 || n > 1 {
		c.fault("offsets.commit.required.acks", "must be -1, 0 or 1")
	}
	if n := c.num("default.replication.factor"); !c.bad["default.replication.factor"] && (n < 1 || n > 1<<15-1) {
		c.fault("default.replication.factor", "must be between 1 and 32767")
	}
	if _, err := parsePerIP(c.text("max.connections.per.ip.overrides")); err != nil {
		c.fault("max.connections.per.ip.overrides", "%s", err)
	}
}

// notAbove wants low to be no larger than high; it blames the one that was set, low rather than high.
func (c *checker) notAbove(low, high string) {
	if c.bad[low] || c.bad[high] || c.num(low) <= c.num(high) {
		return
	}
	if _, set := c.set[low]; set {
		c.fault(low, "must not be larger than %s, %d", high, c.num(high))
		return
	}
	c.fault(high, "must not be smaller than %s, %d", low, c.num(low))
}
