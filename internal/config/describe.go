package config

import (
	"maps"
	"slices"
)

// Source says where a value comes from, by its number in DescribeConfigs.
type Source int8

// The sources of values.
const (
	DynamicTopic         Source = 1
	DynamicBroker        Source = 2
	DynamicDefaultBroker Source = 3
	StaticBroker         Source = 4
	DefaultConfig        Source = 5
	DynamicBrokerLogger  Source = 6
)

// Synonym is one layer in which a value, or one that says the same, is set.
type Synonym struct {
	Name   string
	Value  *string // nil when it is null or secret
	Source Source
}

// Entry is one key with its effective value, as DescribeConfigs shows it.
type Entry struct {
	Name      string
	Value     *string // nil when it is null or secret
	Source    Source
	ReadOnly  bool
	Sensitive bool
	Type      Type
	Doc       string
	Synonyms  []Synonym // the layers that set it, the one that counts first
}

// IsDefault reports whether nothing sets the value: the only thing version 0 tells.
func (e *Entry) IsDefault() bool { return e.Source == DefaultConfig }

// DescribeTopic describes the named keys of a topic, or all when keys is empty, sorted by name.
func (d *Dynamic) DescribeTopic(topic string, keys []string) []Entry {
	return d.DescribeTopicWith(d.TopicOverrides(topic), keys)
}

// DescribeTopicWith describes a topic that has the given settings, as the answer to its creation does.
func (d *Dynamic) DescribeTopicWith(overrides map[string]string, keys []string) []Entry {
	s := d.current.Load()
	values := effectiveTopic(s.effective.topic, overrides)
	var out []Entry
	for _, def := range topicDefinitions {
		if !wanted(keys, def.Name) {
			continue
		}
		value := render(values[def.Name])
		e := Entry{Name: def.Name, Value: &value, Type: def.Type, Doc: def.Doc, Source: DefaultConfig}
		if _, set := overrides[def.Name]; set {
			e.Synonyms = append(e.Synonyms, Synonym{def.Name, &value, DynamicTopic})
		}
		if syn := topicSynonyms[def.Name]; len(syn) > 0 {
			e.Synonyms = append(e.Synonyms, s.layers(syn[0].Key, false)...)
		}
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		out = append(out, e)
	}
	return append(out, unknownOverrides(overrides, keys)...)
}

// unknownOverrides describes settings that another version stored. Their type is not known, so they count as secret, as in Kafka.
func unknownOverrides(overrides map[string]string, keys []string) []Entry {
	var out []Entry
	for _, k := range slices.Sorted(maps.Keys(overrides)) {
		if topicIndex[k] == nil && wanted(keys, k) {
			out = append(out, Entry{Name: k, Sensitive: true, Source: DynamicTopic, Synonyms: []Synonym{{k, nil, DynamicTopic}}})
		}
	}
	return out
}

// DescribeBroker describes the named keys of this broker, or all when keys is empty, sorted by name.
func (d *Dynamic) DescribeBroker(keys []string) []Entry {
	s := d.current.Load()
	names := map[string]bool{}
	for _, def := range brokerDefinitions {
		if !def.Internal {
			names[def.Name] = true
		}
	}
	for _, layer := range []map[string]string{s.static.explicit, s.all, s.mine} {
		for k := range layer {
			names[k] = true
		}
	}
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if wanted(keys, name) {
			out = append(out, s.describe(name, s.layers(name, secret(name))))
		}
	}
	return out
}

// DescribeClusterDefault describes what is set for all brokers, or the named keys of it.
func (d *Dynamic) DescribeClusterDefault(keys []string) []Entry {
	s := d.current.Load()
	var out []Entry
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		if !wanted(keys, name) {
			continue
		}
		layers := slices.DeleteFunc(s.layers(name, secret(name)), func(x Synonym) bool { return x.Source != DynamicDefaultBroker })
		e := s.describe(name, layers)
		if !e.Sensitive {
			value := s.all[name]
			e.Value = &value
		}
		out = append(out, e)
	}
	return out
}

// describe makes the entry of a broker key from the layers that set it.
func (s *brokerState) describe(name string, layers []Synonym) Entry {
	e := Entry{Name: name, Source: DefaultConfig, Synonyms: layers, Sensitive: secret(name), ReadOnly: true}
	if def := brokerDefinition(name); def != nil {
		e.Type, e.Doc = def.Type, def.Doc
		e.ReadOnly = def.Update == ReadOnly || isFixed(name, def)
	}
	if len(layers) > 0 {
		e.Source = layers[0].Source
	}
	if v, ok := s.effective.Get(name); ok && !e.Sensitive {
		e.Value = &v
	}
	return e
}

// layers lists where the named key or a synonym is set, in Kafka's order: by source, and within one by precedence. What stands before
// the key itself is left out (Kafka: ConfigHelper.configSynonyms).
func (s *brokerState) layers(name string, hidden bool) []Synonym {
	names := brokerSynonyms(name)
	var out []Synonym
	add := func(key, value string, source Source) {
		x := Synonym{Name: key, Source: source}
		if !hidden {
			x.Value = &value
		}
		out = append(out, x)
	}
	for _, l := range []struct {
		set    map[string]string
		source Source
	}{{s.mine, DynamicBroker}, {s.all, DynamicDefaultBroker}, {s.static.explicit, StaticBroker}} {
		for _, k := range names {
			if v, ok := l.set[k]; ok {
				add(k, v, l.source)
			}
		}
	}
	for _, k := range names {
		if def := brokerDefinition(k); def != nil && def.Name == k && def.HasDefault {
			add(k, render(def.mustParse(def.Default)), DefaultConfig)
		}
	}
	for i, x := range out {
		if x.Name == name {
			return out[i:]
		}
	}
	return nil
}

// brokerDefinition finds the definition of a key, of one listener's key that of the general one.
func brokerDefinition(name string) *Definition {
	if m := listenerKey.FindStringSubmatch(name); m != nil {
		name = m[1]
	}
	if d, ok := brokerIndex[name]; ok {
		return d
	}
	return throttleIndex[name]
}

// secret reports whether a value must not be shown: passwords, and keys of which nothing is known.
func secret(name string) bool {
	d := brokerDefinition(name)
	return d == nil || d.Type == Password
}

func wanted(keys []string, name string) bool { return len(keys) == 0 || slices.Contains(keys, name) }
