package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"klamm/internal/cluster"
)

// Dynamic holds the configuration as it is now: the broker's file, over it what is set for all brokers, over it what is set for this
// one, and each topic's own settings. Reads take no lock and may run anywhere. The Apply methods are safe for concurrent use, but
// listeners see changes in the order of the calls only when one goroutine makes them, as the reader of change notifications does.
type Dynamic struct {
	id      cluster.BrokerID
	current atomic.Pointer[brokerState]
	topics  sync.Map // topic to *LogConfig, of topics with settings of their own

	mu struct {
		sync.Mutex
		onTopic  []func(topic string, now *LogConfig)
		onBroker []func(changed []string, now *Broker)
		check    []func(now, next *Broker) error
	}
}

// brokerState is an immutable picture of the settings of brokers.
type brokerState struct {
	static    *Broker
	all       map[string]string // cluster-wide
	mine      map[string]string // of this broker
	effective *Broker
}

// NewDynamic starts with the file's settings alone.
func NewDynamic(static *Broker) *Dynamic {
	d := &Dynamic{id: static.ID}
	d.current.Store(&brokerState{static: static, effective: static})
	return d
}

// Broker is the effective configuration of this broker. Keys that cannot change at run time are as in the file.
func (d *Dynamic) Broker() *Broker { return d.current.Load().effective }

// LogConfig is the effective configuration of a topic.
func (d *Dynamic) LogConfig(topic string) *LogConfig {
	if c, ok := d.topics.Load(topic); ok {
		return c.(*LogConfig)
	}
	return d.Broker().LogDefaults
}

// TopicOverrides are the topic's own settings; nil when it has none. The caller must not change them.
func (d *Dynamic) TopicOverrides(topic string) map[string]string { return d.LogConfig(topic).Overrides }

// OnTopic adds a function that is called after a topic's settings changed, by the goroutine that applied them and without locks.
func (d *Dynamic) OnTopic(fn func(topic string, now *LogConfig)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.onTopic = append(d.mu.onTopic, fn)
}

// OnBroker adds a function that is called after broker settings changed, with the names of the keys whose effective value is another
// now, sorted. Topics' effective configurations may have changed with them; OnTopic does not tell so.
func (d *Dynamic) OnBroker(fn func(changed []string, now *Broker)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.onBroker = append(d.mu.onBroker, fn)
}

// CheckBroker adds a function that judges changes of broker settings before they are stored: what it returns refuses them.
func (d *Dynamic) CheckBroker(fn func(now, next *Broker) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.check = append(d.mu.check, fn)
}

// ApplyTopic replaces a topic's own settings; none are left when overrides is empty, as after its deletion.
func (d *Dynamic) ApplyTopic(topic string, overrides map[string]string) {
	d.mu.Lock()
	var now *LogConfig
	if len(overrides) == 0 {
		d.topics.Delete(topic)
		now = d.Broker().LogDefaults
	} else {
		now = d.Broker().LogConfig(maps.Clone(overrides))
		d.topics.Store(topic, now)
	}
	listeners := slices.Clone(d.mu.onTopic)
	d.mu.Unlock()
	for _, fn := range listeners {
		fn(topic, now)
	}
}

// ApplyBroker replaces what is set for this broker, as it is stored. Settings that do not fit are left out and named in the
// warnings: other brokers' versions may have stored them.
func (d *Dynamic) ApplyBroker(stored map[string]string) []Warning {
	overrides, warnings := d.decodePasswords(stored)
	return append(warnings, d.applyBroker(func(s *brokerState) { s.mine = overrides })...)
}

// ApplyClusterDefault replaces what is set for all brokers, like ApplyBroker.
func (d *Dynamic) ApplyClusterDefault(overrides map[string]string) []Warning {
	return d.applyBroker(func(s *brokerState) { s.all = overrides })
}

func (d *Dynamic) applyBroker(set func(*brokerState)) []Warning {
	d.mu.Lock()
	next := *d.current.Load()
	before := next.effective
	set(&next)
	var warnings, more []Warning
	next.all, warnings = usable(next.all, false)
	next.mine, more = usable(next.mine, true)
	effective, faults := next.overlay()
	if faults != nil {
		d.mu.Unlock()
		return append(warnings, append(more, Warning{"", "dynamic broker settings are not applied: " + faults.Error()})...)
	}
	next.effective = effective
	d.current.Store(&next)
	d.topics.Range(func(topic, c any) bool {
		d.topics.Store(topic, effective.LogConfig(c.(*LogConfig).Overrides))
		return true
	})
	listeners := slices.Clone(d.mu.onBroker)
	d.mu.Unlock()
	if changed := differences(before, effective); len(changed) > 0 {
		for _, fn := range listeners {
			fn(changed, effective)
		}
	}
	return append(warnings, more...)
}

// usable keeps the settings that can be applied at run time.
func usable(overrides map[string]string, perBroker bool) (map[string]string, []Warning) {
	out := map[string]string{}
	var warnings []Warning
	for _, k := range slices.Sorted(maps.Keys(overrides)) {
		if err := judgeDynamic(map[string]string{k: overrides[k]}, perBroker); err != nil {
			warnings = append(warnings, Warning{k, fmt.Sprintf("dynamic broker setting %s is not applied: %s", k, err.Message)})
			continue
		}
		out[k] = overrides[k]
	}
	return out, warnings
}

// overlay computes the effective configuration: a key set dynamically also hides its synonyms in the layers below.
func (s *brokerState) overlay() (*Broker, *Faults) {
	set := s.static.Explicit()
	for _, layer := range []map[string]string{s.all, s.mine} {
		for k, v := range layer {
			for _, other := range brokerSynonyms(k) {
				delete(set, other)
			}
			set[k] = v
		}
	}
	b, faults := newBroker(set)
	if faults != nil {
		return nil, faults
	}
	b.ClusterID, b.ID = s.static.ClusterID, s.static.ID
	b.AdvertisedListeners = s.static.AdvertisedListeners
	b.explicit = set
	return b, nil
}

// differences lists the keys whose effective values differ.
func differences(a, b *Broker) []string {
	var out []string
	for _, list := range [][]*Definition{brokerDefinitions, throttleKeys} {
		for _, d := range list {
			va, okA := a.Get(d.Name)
			vb, okB := b.Get(d.Name)
			if va != vb || okA != okB {
				out = append(out, d.Name)
			}
		}
	}
	for k := range a.explicit {
		if listenerKey.MatchString(k) && a.explicit[k] != b.explicit[k] {
			out = append(out, k)
		}
	}
	for k := range b.explicit {
		if _, known := a.explicit[k]; !known && listenerKey.MatchString(k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// synonymGroups are broker keys that say the same, by precedence (Kafka: DynamicBrokerConfig.brokerConfigSynonyms).
var synonymGroups = [][]string{
	{"log.roll.ms", "log.roll.hours"},
	{"log.roll.jitter.ms", "log.roll.jitter.hours"},
	{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
}

// brokerSynonyms lists the keys that give the named one its value, by precedence, itself included.
func brokerSynonyms(name string) []string {
	if name == "log.flush.interval.ms" {
		return []string{name, "log.flush.scheduler.interval.ms"}
	}
	for _, g := range synonymGroups {
		if slices.Contains(g, name) {
			return g
		}
	}
	if m := listenerKey.FindStringSubmatch(name); m != nil {
		return []string{name, m[1]}
	}
	return []string{name}
}

// fixedAtStart are keys that Kafka can change while it runs and klamm cannot: they are described as read-only and cannot be altered.
var fixedAtStart = regexp.MustCompile(`^(listeners|advertised\.listeners|listener\.security\.protocol\.map|principal\.builder\.class|metric\.reporters|sasl\..*|ssl\..*)$`)

// ofOtherMechanisms are keys of GSSAPI and OAUTHBEARER, which klamm does not have: in the file they have no effect either, so they may
// be set while it runs, for a Kafka broker that takes this one's place.
var ofOtherMechanisms = regexp.MustCompile(`^sasl\.(kerberos|login\.refresh)\.`)

// isFixed reports whether a key, one listener's or the general one, is fixed at start. Key and trust stores of a listener are not.
func isFixed(name string, def *Definition) bool {
	return fixedAtStart.MatchString(def.Name) && !ofOtherMechanisms.MatchString(def.Name) && !(def.Name != name && listenerOnly[def.Name])
}
