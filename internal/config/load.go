package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	Key     string
	Value   string
	Set     bool   // false: the fault is about the default
	Source  string // where the value comes from, like "server.properties:12"; "" when it does not matter
	Problem string // what is wrong and what is allowed
}

// String gives key, value, source and problem on one line.
func (f Fault) String() string {
	s := f.Key
	if f.Set {
		s += fmt.Sprintf(" = %q", f.Value)
	}
	if f.Source != "" {
		s += " (" + f.Source + ")"
	}
	return s + ": " + f.Problem
}

// Faults is everything that is wrong with a configuration, in the order it was found.
type Faults struct{ List []Fault }

// Error lists all faults, one on a line.
func (f *Faults) Error() string {
	var b strings.Builder
	noun := "faults"
	if len(f.List) == 1 {
		noun = "fault"
	}
	fmt.Fprintf(&b, "%d %s in the configuration:", len(f.List), noun)
	for _, x := range f.List {
		b.WriteString("\n  " + x.String())
	}
	return b.String()
}

// Warning is something about a configuration that an operator should know and that does not stop the broker.
type Warning struct {
	Key     string // "" when it is about several
	Message string
}

// String gives the message.
func (w Warning) String() string { return w.Message }

// The defaults of a broker that was started without a file, where they are not Kafka's.
var noFileDefaults = map[string]string{
	"broker.id":                        "1",
	"listeners":                        "PLAINTEXT://127.0.0.1:9092",
	"log.dirs":                         "klamm-data/log",
	"etcd.data.dir":                    "klamm-data/etcd",
	"offsets.topic.replication.factor": "1",
	"transaction.state.log.replication.factor": "1",
	"transaction.state.log.min.isr":            "1",
	"group.initial.rebalance.delay.ms":         "0",
}

// Default is the configuration of `klamm serve` without a file: broker 1 on PLAINTEXT://127.0.0.1:9092, data in ./klamm-data, one
// replica of the internal topics, and groups that do not wait for more members.
func Default() *Broker {
	b, _, err := FromProperties(noFileDefaults)
	if err != nil {
		panic("config: defaults: " + err.Error())
	}
	return b
}

// FromProperties makes a configuration of the given settings over Kafka's defaults. The error is a *Faults.
func FromProperties(props map[string]string) (*Broker, []Warning, error) {
	s := settings{}
	for k, v := range props {
		s[k] = setting{value: v}
	}
	return s.build("")
}

// Load makes the configuration of a broker: Kafka's defaults, over them the file (path "": the settings of Default), over it the
// environment (entries "NAME=value", of which KAFKA_*, KLAMM_* and CLUSTER_ID count), over it the overrides ("key=value").
// The error is a *Faults that names everything that is wrong, or tells why the file cannot be read.
func Load(path string, overrides, env []string) (*Broker, []Warning, error) {
	s := settings{}
	var faults []Fault
	if path == "" {
		for k, v := range noFileDefaults {
			s[k] = setting{value: v}
		}
	} else if err := s.addFile(path); err != nil {
		return nil, nil, err
	}
	warnings, clusterID := s.addEnvironment(env)
	for _, o := range overrides {
		key, value, ok := strings.Cut(o, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			faults = append(faults, Fault{Key: o, Source: "--override", Problem: "must be of the form key=value"})
			continue
		}
		s[key] = setting{strings.TrimSpace(value), "--override"}
	}
	b, more, err := s.build(clusterID)
	if found, ok := err.(*Faults); ok {
		faults = append(faults, found.List...)
	}
	warnings = append(warnings, more...)
	if len(faults) > 0 {
		return nil, warnings, &Faults{faults}
	}
	return b, warnings, nil
}

// setting is what was set for a key, and where.
type setting struct{ value, source string }

type settings map[string]setting

func (s settings) addFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	props, err := parseProperties(string(text))
	if err != nil {
		return fmt.Errorf("read the configuration: %s: %w", path, err)
	}
	for _, p := range props {
		s[p.key] = setting{p.value, fmt.Sprintf("%s:%d", filepath.Base(path), p.line)}
	}
	return nil
}

// notSettings are variables of Kafka's scripts and images that are not about the broker's configuration.
var notSettings = regexp.MustCompile(`^KAFKA_(VERSION|HOME|OPTS|HEAP_OPTS|GC_LOG_OPTS|LOG4J_.*|TOOLS_LOG4J_.*|JMX_.*|JVM_PERFORMANCE_OPTS|CLUSTER_ID|DEBUG.*|MODE|GID|UID|USER|DATA|SCALA_VERSION)$`)

// environmentKeys finds the key by the name that its variable has: without prefix, lower case, every separator a dot.
var environmentKeys = func() map[string]string {
	m := map[string]string{}
	for _, d := range brokerDefinitions {
		m[strings.ToLower(d.Name)] = d.Name
	}
	for _, k := range pluginKeys {
		m[strings.ToLower(k)] = k
	}
	return m
}()

// addEnvironment takes KAFKA_* (the official image's mapping: _ is a dot, __ an underscore, ___ a dash) and KLAMM_* for klamm's own keys.
func (s settings) addEnvironment(env []string) (warnings []Warning, clusterID string) {
	for _, e := range slices.Sorted(slices.Values(env)) {
		name, value, _ := strings.Cut(e, "=")
		if name == "CLUSTER_ID" {
			clusterID = value
			continue
		}
		rest, kafka := strings.CutPrefix(name, "KAFKA_")
		if !kafka {
			var ours bool
			if rest, ours = strings.CutPrefix(name, "KLAMM_"); !ours {
				continue
			}
		}
		key := keyOfVariable(rest)
		if known, ok := environmentKeys[key]; ok {
			s[known] = setting{value, "environment " + name}
		} else if kafka && listenerKey.MatchString(key) {
			s[key] = setting{value, "environment " + name}
		} else if !notSettings.MatchString(name) {
			warnings = append(warnings, Warning{key, fmt.Sprintf("environment variable %s is ignored: there is no key %s%s", name, key, hint(key))})
		}
	}
	return warnings, clusterID
}

func keyOfVariable(name string) string {
	return strings.ToLower(strings.NewReplacer("___", "-", "__", "_", "_", ".").Replace(name))
}

// listenerKey is a key of one listener only, like listener.name.internal.ssl.keystore.location.
var listenerKey = regexp.MustCompile(`^listener\.name\.[^.]+\.(.+)$`)

// pluginKeys belong to Kafka's own plugins, not to its table of keys.
var pluginKeys = []string{superUsersKey, allowEveryoneIfNoACLKey, "zookeeper.client.cnxn.socket"}

// build parses and checks everything and reports all faults at once.
func (s settings) build(clusterID string) (*Broker, []Warning, error) {
	c := &checker{set: map[string]string{}, sources: map[string]string{}}
	for k, v := range s {
		c.set[k], c.sources[k] = v.value, v.source
	}
	b := c.run()
	if len(c.faults) > 0 {
		return nil, c.warnings(nil), &Faults{c.faults}
	}
	used := b.fill()
	b.ClusterID = clusterID
	return b, c.warnings(used), nil
}

// newBroker builds from plain settings without warnings; used for settings that change while the broker runs.
func newBroker(set map[string]string) (*Broker, *Faults) {
	c := &checker{set: set}
	b := c.run()
	if len(c.faults) > 0 {
		return nil, &Faults{c.faults}
	}
	b.fill()
	return b, nil
}

// warnings names unknown keys with what was probably meant, and known ones without effect on one line.
func (c *checker) warnings(used map[string]bool) []Warning {
	var out []Warning
	var idle []string
	for _, k := range slices.Sorted(maps.Keys(c.set)) {
		base := k
		if m := listenerKey.FindStringSubmatch(k); m != nil {
			base = m[1]
		}
		_, known := brokerIndex[base]
		switch {
		case used[k] || c.used[k] || handledByChecks[k]:
		case known || slices.Contains(pluginKeys, k) || base != k:
			idle = append(idle, k)
		default:
			out = append(out, Warning{k, fmt.Sprintf("unknown key %s is ignored%s", k, hint(k))})
		}
	}
	if used != nil && len(idle) > 0 {
		out = append(out, Warning{"", "accepted, has no effect in klamm: " + strings.Join(idle, ", ")})
	}
	return out
}

// hint proposes the nearest known key, if one is near.
func hint(key string) string {
	best, bestDistance := "", len(key)/3+1
	for _, d := range brokerDefinitions {
		if n := distance(strings.ToLower(key), strings.ToLower(d.Name), bestDistance); n < bestDistance {
			best, bestDistance = d.Name, n
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance counts the single-character edits between a and b; it gives up at limit.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
