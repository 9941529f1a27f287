package config

import (
	"os"
	"strings"
	"testing"
)

// testdata/kafka-values.tsv is what Kafka 3.9.1's ConfigDef made of values: kind, key, value, ok or error, rendered value or message.
func TestValuesAreJudgedAsKafkaJudgesThem(t *testing.T) {
	text, err := os.ReadFile("testdata/kafka-values.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		kind, key, value, outcome, want := f[0], f[1], f[2], f[3], f[4]
		d, ok := LookupTopic(key)
		if kind == "broker" {
			d, ok = LookupBroker(key)
		}
		if !ok {
			t.Errorf("no %s key %s", kind, key)
			continue
		}
		v, verr := d.parse(value)
		switch {
		case outcome == "ok" && verr != nil:
			t.Errorf("%s=%q: %s; Kafka takes it as %q", key, value, verr, want)
		case outcome == "ok" && render(v) != want:
			t.Errorf("%s=%q: %q; Kafka says %q", key, value, render(v), want)
		case outcome == "error" && verr == nil:
			t.Errorf("%s=%q: accepted; Kafka says %q", key, value, want)
		case outcome == "error" && verr.Error() != want:
			t.Errorf("%s=%q: %q; Kafka says %q", key, value, verr, want)
		}
	}
}

func TestEveryDefaultFitsItsKey(t *testing.T) {
	for _, list := range [][]*Definition{TopicKeys(), BrokerKeys(), throttleKeys} {
		for _, d := range list {
			if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") {
				t.Errorf("%s has no description", d.Name)
			}
			if !d.HasDefault {
				continue
			}
			if v, err := d.parse(d.Default); err != nil {
				t.Error(err)
			} else if render(v) != d.Default {
				t.Errorf("%s: default %q is printed %q", d.Name, d.Default, render(v))
			}
		}
	}
}

func TestEverySynonymIsABrokerKeyOfTheTopicKeysKind(t *testing.T) {
	for name, list := range topicSynonyms {
		td, ok := LookupTopic(name)
		if !ok {
			t.Errorf("no topic key %s", name)
			continue
		}
		for _, s := range list {
			bd, ok := LookupBroker(s.Key)
			if !ok {
				t.Errorf("%s: no broker key %s", name, s.Key)
			} else if number := func(x Type) bool { return x == Int || x == Long }; bd.Type != td.Type && !(number(bd.Type) && number(td.Type)) {
				t.Errorf("%s is a %s, its synonym %s a %s", name, td.Type, s.Key, bd.Type)
			}
		}
	}
}

func TestProtocolVersionsAreReadInEveryForm(t *testing.T) {
	for text, want := range map[string]string{
		"3.9": "3.9-IV0", "3.9.1": "3.9-IV0", "3.9-IV0": "3.9-IV0", "2.7": "2.7-IV2", "2.7-IV1": "2.7-IV1", "2.8.2": "2.8-IV1",
		"0.10.2": "0.10-IV0", "0.11.0-IV1": "0.11-IV1", "0.8.2.0": "0.8-IV0", "1.0": "1.0-IV0",
		"3": "", "3.9-IV1": "", "3.10": "", "x": "", "": "", "0.8.3": "", "0.9.0-IV0": "", "3.9-IV-1": "", "-3.9": "",
	} {
		v, ok := parseProtocolVersion(text)
		if got := v.String(); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %v %v, want %q", text, got, ok, want)
		}
	}
	old, _ := parseProtocolVersion("2.7-IV2")
	recent, _ := parseProtocolVersion("3.0")
	if !recent.AtLeast(old) || old.AtLeast(recent) || !old.AtLeast(old) {
		t.Error("versions are in the wrong order")
	}
}

func TestDoublesPrintAsInJava(t *testing.T) {
	for f, want := range map[float64]string{0.5: "0.5", 1: "1.0", 1e7: "1.0E7", 123456.75: "123456.75", 0.001: "0.001", 0.0001: "1.0E-4", 1.7976931348623157e308: "1.7976931348623157E308", -2: "-2.0", 0: "0.0"} {
		if got := javaDouble(f); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
}
