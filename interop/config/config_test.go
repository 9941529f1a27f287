//go:build interop

// Package config compares klamm's table of configuration keys with that of Apache Kafka's own classes.
package config

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"klamm/internal/config"
)

// jars finds the folder with Kafka 3.9.1's jars: KAFKA_JARS_3_9_1, or what the shared script fetches.
func jars(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("KAFKA_JARS_3_9_1"); dir != "" {
		return dir
	}
	out, err := exec.Command("bash", "../../../shared/kafka/jars.sh", "3.9.1").Output()
	if err != nil {
		t.Fatalf("no Kafka jars: set KAFKA_JARS_3_9_1 to a folder with those of 3.9.1 (%v)", err)
	}
	return strings.TrimSpace(string(out))
}

// facts runs the printer and returns its lines by kind.
func facts(t *testing.T) map[string][][]string {
	t.Helper()
	dir, classPath := t.TempDir(), filepath.Join(jars(t), "*")
	if out, err := exec.Command("javac", "-nowarn", "-cp", classPath, "-d", dir, "ConfigPrinter.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	out, err := exec.Command("java", "-cp", classPath+":"+dir, "ConfigPrinter").Output()
	if err != nil {
		t.Fatalf("java: %v", err)
	}
	byKind := map[string][][]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		byKind[f[0]] = append(byKind[f[0]], f[1:])
	}
	return byKind
}

func TestKeysHaveKafkasTypesAndDefaults(t *testing.T) {
	byKind := facts(t)
	compareKeys(t, "broker", byKind["broker"], config.BrokerKeys())
	compareKeys(t, "topic", byKind["topic"], config.TopicKeys())
	compareModes(t, byKind)
	compareSynonyms(t, byKind["synonyms"])
}

func compareKeys(t *testing.T, kind string, want [][]string, ours []*config.Definition) {
	t.Helper()
	byName := map[string]*config.Definition{}
	for _, d := range ours {
		byName[d.Name] = d
	}
	if len(want) == 0 {
		t.Fatalf("Kafka printed no %s keys", kind)
	}
	for _, w := range want {
		name := w[0]
		d := byName[name]
		delete(byName, name)
		if d == nil {
			t.Errorf("%s key %s is missing", kind, name)
			continue
		}
		def := `\N`
		if d.HasDefault {
			def = d.Default
		}
		got := []string{name, d.Type.String(), def, d.Importance.String(), strconv.FormatBool(d.Internal)}
		if d.Own {
			got[2] = w[2] // klamm's own default
		}
		if !slices.Equal(got, w) {
			t.Errorf("%s key: got %q, Kafka has %q", kind, got, w)
		}
	}
	for name, d := range byName {
		if !d.Own {
			t.Errorf("%s key %s is not Kafka's", kind, name)
		}
	}
}

func compareModes(t *testing.T, byKind map[string][][]string) {
	t.Helper()
	has := func(kind, name string) bool {
		return slices.ContainsFunc(byKind[kind], func(f []string) bool { return f[0] == name })
	}
	for _, d := range config.BrokerKeys() {
		want := config.ReadOnly
		switch {
		case has("per-broker", d.Name):
			want = config.PerBroker
		case has("dynamic", d.Name), d.Name == "delete.topic.enable": // KIP-688 asks for the latter; Kafka never did it
			want = config.ClusterWide
		}
		if d.Update != want {
			t.Errorf("%s is %s, in Kafka %s", d.Name, d.Update, want)
		}
	}
}

func compareSynonyms(t *testing.T, want [][]string) {
	t.Helper()
	for _, w := range want {
		var got []string
		for _, s := range config.TopicSynonyms(w[0]) {
			got = append(got, s.Key+"*"+strconv.FormatInt(max(s.Factor, 1), 10))
		}
		if strings.Join(got, ",") != w[1] {
			t.Errorf("synonyms of %s: %v, in Kafka %s", w[0], got, w[1])
		}
	}
	for _, d := range config.TopicKeys() {
		listed := slices.ContainsFunc(want, func(w []string) bool { return w[0] == d.Name })
		if !listed && len(config.TopicSynonyms(d.Name)) > 0 {
			t.Errorf("%s has synonyms, in Kafka none", d.Name)
		}
	}
}
