package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"klamm/internal/cluster"
)

// Op is the operation of one change, by its number in IncrementalAlterConfigs.
type Op int8

// The operations.
const (
	Set      Op = 0
	Delete   Op = 1
	Append   Op = 2
	Subtract Op = 3
)

// Change is one change of IncrementalAlterConfigs.
type Change struct {
	Name  string
	Op    Op
	Value *string
}

// Error is a refusal with the protocol's code and Kafka's text.
type Error struct {
	Code    cluster.ErrorCode
	Message string
}

// Error gives the message.
func (e *Error) Error() string { return e.Message }

func refuse(code cluster.ErrorCode, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// ValidateTopic checks a whole set of topic settings, of a topic to create or to give new ones (AlterConfigs), and returns it. Errors are
// INVALID_CONFIG; Kafka puts "Invalid config value for resource ...: " before those that begin with "Invalid value" when it alters.
func (d *Dynamic) ValidateTopic(overrides map[string]*string) (map[string]string, *Error) {
	var null []string
	set := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(overrides)) {
		if overrides[k] == nil {
			null = append(null, k)
			continue
		}
		set[k] = *overrides[k]
	}
	if len(null) > 0 {
		return nil, refuse(cluster.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	if err := d.judgeTopic(set); err != nil {
		return nil, err
	}
	return set, nil
}

// AlterTopic applies changes to a topic's current settings and checks the result (IncrementalAlterConfigs). It changes nothing itself.
func (d *Dynamic) AlterTopic(current map[string]string, changes []Change) (map[string]string, *Error) {
	set, err := applyChanges(current, changes, LookupTopic)
	if err == nil {
		err = d.judgeTopic(set)
	}
	if err != nil {
		return nil, err
	}
	return set, nil
}

// judgeTopic follows Kafka's LogConfig.validate: names first, then values, then the values against each other.
func (d *Dynamic) judgeTopic(set map[string]string) *Error {
	names := slices.Sorted(maps.Keys(set))
	for _, k := range names {
		if topicIndex[k] == nil {
			return refuse(cluster.InvalidConfig, "Unknown topic config name: %s", k)
		}
	}
	values := maps.Clone(d.Broker().topic)
	for _, k := range names {
		v, err := topicIndex[k].parse(set[k])
		if err != nil {
			return refuse(cluster.InvalidConfig, "%s", err)
		}
		values[k] = v
	}
	if low, high := values["min.compaction.lag.ms"].(int64), values["max.compaction.lag.ms"].(int64); low > high {
		return refuse(cluster.InvalidConfig, "conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", low, high)
	}
	if values["remote.storage.enable"] == true {
		return refuse(cluster.InvalidConfig, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	return nil
}

// ValidateBroker checks a whole new set of dynamic settings of this broker, or of all when perBroker is false (AlterConfigs), and
// returns it as it is to be stored.
func (d *Dynamic) ValidateBroker(overrides map[string]*string, perBroker bool) (map[string]string, *Error) {
	set := withoutNulls(overrides)
	if err := d.judgeBroker(set, perBroker); err != nil {
		return nil, err
	}
	return d.encodePasswords(set, nil, nil)
}

// AlterBroker applies changes to the settings that are stored of this broker, or of all when perBroker is false, and checks the result,
// which it returns as it is to be stored. Settings that klamm cannot use, stored by a Kafka broker in this one's place, stay as they are.
func (d *Dynamic) AlterBroker(stored map[string]string, changes []Change, perBroker bool) (map[string]string, *Error) {
	current, undecoded := d.decodePasswords(stored)
	for _, w := range undecoded {
		current[w.Key] = stored[w.Key]
	}
	set, err := applyChanges(current, changes, func(name string) (*Definition, bool) {
		def := brokerDefinition(name)
		return def, def != nil
	})
	if err != nil {
		return nil, err
	}
	_, foreign := usable(current, perBroker)
	if err := d.judgeBroker(withoutForeign(set, append(foreign, undecoded...), changes), perBroker); err != nil {
		return nil, err
	}
	return d.encodePasswords(set, stored, current)
}

// withoutForeign leaves out what was stored before, is not changed now, and cannot be used.
func withoutForeign(set map[string]string, foreign []Warning, changes []Change) map[string]string {
	if len(foreign) == 0 {
		return set
	}
	set = maps.Clone(set)
	for _, w := range foreign {
		if !slices.ContainsFunc(changes, func(c Change) bool { return c.Name == w.Key }) {
			delete(set, w.Key)
		}
	}
	return set
}

// judgeBroker checks dynamic settings by themselves and together with everything else that is set. Errors are INVALID_REQUEST.
func (d *Dynamic) judgeBroker(set map[string]string, perBroker bool) *Error {
	if err := judgeDynamic(set, perBroker); err != nil {
		return err
	}
	next := *d.current.Load()
	if perBroker {
		next.mine = set
	} else {
		next.all = set
	}
	effective, faults := next.overlay()
	if faults != nil {
		f := faults.List[0]
		return refuse(cluster.InvalidRequest, "Invalid value %s for configuration %s: %s", f.Value, f.Key, f.Problem)
	}
	if err := judgeThreads(d.Broker(), effective); err != nil {
		return err
	}
	d.mu.Lock()
	checks := slices.Clone(d.mu.check)
	d.mu.Unlock()
	for _, check := range checks {
		if err := check(d.Broker(), effective); err != nil {
			return refuse(cluster.InvalidRequest, "%s", err)
		}
	}
	return nil
}

// judgeDynamic checks dynamic broker settings by themselves (Kafka: DynamicBrokerConfig.validateConfigs). Names that nobody
// knows pass, as in Kafka, whose plugins have keys of their own.
func judgeDynamic(set map[string]string, perBroker bool) *Error {
	var fixed, plain, single, unable []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		def := brokerDefinition(k)
		switch {
		case def == nil:
		case def.Update == ReadOnly && def.Name == k:
			fixed = append(fixed, k)
		case def.Name == k && listenerOnly[k]:
			plain = append(plain, k)
		case isFixed(k, def):
			unable = append(unable, k)
		case !perBroker && (def.Update == PerBroker || def.Name != k && !clusterLevelListenerKeys[def.Name]):
			single = append(single, k)
		}
	}
	scalaSet := func(list []string) string { return "Set(" + strings.Join(list, ", ") + ")" }
	if len(fixed) > 0 {
		return refuse(cluster.InvalidRequest, "Cannot update these configs dynamically: %s", scalaSet(fixed))
	}
	if len(plain) > 0 {
		return refuse(cluster.InvalidRequest, "These security configs can be dynamically updated only per-listener using the listener prefix: %s", scalaSet(plain))
	}
	if len(unable) > 0 {
		return refuse(cluster.InvalidRequest, "klamm cannot change these configs while it runs: %s. Set them in the file and restart", strings.Join(unable, ", "))
	}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if def := brokerDefinition(k); def != nil {
			if _, err := def.parse(set[k]); err != nil {
				return refuse(cluster.InvalidRequest, "%s", err)
			}
		}
	}
	if len(single) > 0 {
		return refuse(cluster.InvalidRequest, "Cannot update these configs at default cluster level, broker id must be specified: %s", scalaSet(single))
	}
	return nil
}

// listenerOnly are keys that Kafka changes for one listener only (Kafka: SslConfigs.RECONFIGURABLE_CONFIGS).
var listenerOnly = map[string]bool{
	"ssl.key.password": true, "ssl.keystore.certificate.chain": true, "ssl.keystore.key": true, "ssl.keystore.location": true, "ssl.keystore.password": true,
	"ssl.keystore.type": true, "ssl.truststore.certificates": true, "ssl.truststore.location": true, "ssl.truststore.password": true, "ssl.truststore.type": true,
}

var clusterLevelListenerKeys = map[string]bool{"max.connection.creation.rate": true, "max.connections": true, "num.network.threads": true}

// threadKeys may at most be halved or doubled at a time (Kafka: DynamicThreadPool.validateReconfiguration).
var threadKeys = []string{"num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads", "log.cleaner.threads"}

func judgeThreads(before, after *Broker) *Error {
	for _, k := range threadKeys {
		was, _ := before.values[k].(int64)
		is, _ := after.values[k].(int64)
		if was == is {
			continue
		}
		problem := ""
		switch {
		case is <= 0:
			problem = "value should be at least 1"
		case is < was/2:
			problem = fmt.Sprintf("value should be at least half the current value %d", was)
		case is > was*2:
			problem = fmt.Sprintf("value should not be greater than double the current value %d", was)
		default:
			continue
		}
		return refuse(cluster.InvalidRequest, "Dynamic thread count update validation failed for %s=%d, %s", k, is, problem)
	}
	return nil
}

func withoutNulls(overrides map[string]*string) map[string]string {
	set := map[string]string{}
	for k, v := range overrides {
		if v != nil {
			set[k] = *v
		}
	}
	return set
}

// applyChanges follows Kafka's ConfigAdminManager.prepareIncrementalConfigs: an addition to a key that is not set adds to its
// default, a value that is in the list already is not added again.
func applyChanges(current map[string]string, changes []Change, lookup func(string) (*Definition, bool)) (map[string]string, *Error) {
	set := maps.Clone(current)
	if set == nil {
		set = map[string]string{}
	}
	for _, c := range changes {
		if c.Value == nil && c.Op != Delete {
			return nil, refuse(cluster.InvalidRequest, "Null value not supported for : %s", c.Name)
		}
		switch c.Op {
		case Set:
			set[c.Name] = *c.Value
		case Delete:
			delete(set, c.Name)
		case Append, Subtract:
			list, err := listValue(set, c, lookup)
			if err != nil {
				return nil, err
			}
			set[c.Name] = strings.Join(list, ",")
		default:
			return nil, refuse(cluster.InvalidRequest, "Unknown operation %d for config key: %s", c.Op, c.Name)
		}
	}
	return set, nil
}

func listValue(set map[string]string, c Change, lookup func(string) (*Definition, bool)) ([]string, *Error) {
	def, known := lookup(c.Name)
	if !known {
		return nil, refuse(cluster.InvalidConfig, "Unknown config name: %s", c.Name)
	}
	verb := map[Op]string{Append: "append", Subtract: "subtract"}[c.Op]
	if def.Type != List {
		return nil, refuse(cluster.InvalidConfig, "Config value %s is not allowed for config key: %s", verb, c.Name)
	}
	text, isSet := set[c.Name]
	if !isSet {
		text = def.Default
	}
	list := splitList(text)
	for _, e := range splitList(*c.Value) {
		at := slices.Index(list, e)
		switch {
		case c.Op == Append && at < 0:
			list = append(list, e)
		case c.Op == Subtract && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return list, nil
}
