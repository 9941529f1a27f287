package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
)

func dynamic(t *testing.T, props map[string]string) *Dynamic {
	t.Helper()
	b, _, err := FromProperties(props)
	if err != nil {
		t.Fatal(err)
	}
	return NewDynamic(b)
}

var sourceNames = map[Source]string{DynamicTopic: "DYNAMIC_TOPIC_CONFIG", DynamicBroker: "DYNAMIC_BROKER_CONFIG", DynamicDefaultBroker: "DYNAMIC_DEFAULT_BROKER_CONFIG", StaticBroker: "STATIC_BROKER_CONFIG", DefaultConfig: "DEFAULT_CONFIG"}

// line prints an entry as kafka-configs.sh does.
func line(e Entry) string {
	show := func(v *string) string {
		if v == nil {
			return "null"
		}
		return *v
	}
	var syn []string
	for _, s := range e.Synonyms {
		syn = append(syn, fmt.Sprintf("%s:%s=%s", sourceNames[s.Source], s.Name, show(s.Value)))
	}
	return fmt.Sprintf("%s=%s sensitive=%v synonyms={%s}", e.Name, show(e.Value), e.Sensitive, strings.Join(syn, ", "))
}

func lines(entries []Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, line(e))
	}
	return strings.Join(out, "\n")
}

// The text is what kafka-configs.sh 3.9.1 printed of a topic with two settings of its own.
func TestATopicIsDescribedWithKafkasSynonyms(t *testing.T) {
	d := dynamic(t, nil)
	d.ApplyTopic("T-a", map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "3600000"})
	want := `cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}
compression.gzip.level=-1 sensitive=false synonyms={DEFAULT_CONFIG:compression.gzip.level=-1}
compression.type=producer sensitive=false synonyms={DEFAULT_CONFIG:compression.type=producer}
compression.zstd.level=3 sensitive=false synonyms={DEFAULT_CONFIG:compression.zstd.level=3}
delete.retention.ms=86400000 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.delete.retention.ms=86400000}
file.delete.delay.ms=60000 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.delete.delay.ms=60000}
flush.messages=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.flush.interval.messages=9223372036854775807}
flush.ms=9223372036854775807 sensitive=false synonyms={}
follower.replication.throttled.replicas= sensitive=false synonyms={}
index.interval.bytes=4096 sensitive=false synonyms={DEFAULT_CONFIG:log.index.interval.bytes=4096}
leader.replication.throttled.replicas= sensitive=false synonyms={}
local.retention.bytes=-2 sensitive=false synonyms={DEFAULT_CONFIG:log.local.retention.bytes=-2}
local.retention.ms=-2 sensitive=false synonyms={DEFAULT_CONFIG:log.local.retention.ms=-2}
max.compaction.lag.ms=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.max.compaction.lag.ms=9223372036854775807}
max.message.bytes=1048588 sensitive=false synonyms={DEFAULT_CONFIG:message.max.bytes=1048588}
message.downconversion.enable=true sensitive=false synonyms={DEFAULT_CONFIG:log.message.downconversion.enable=true}
message.format.version=3.0-IV1 sensitive=false synonyms={DEFAULT_CONFIG:log.message.format.version=3.0-IV1}
message.timestamp.after.max.ms=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.after.max.ms=9223372036854775807}
message.timestamp.before.max.ms=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.before.max.ms=9223372036854775807}
message.timestamp.difference.max.ms=9223372036854775807 sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.difference.max.ms=9223372036854775807}
message.timestamp.type=CreateTime sensitive=false synonyms={DEFAULT_CONFIG:log.message.timestamp.type=CreateTime}
min.cleanable.dirty.ratio=0.5 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.min.cleanable.ratio=0.5}
min.compaction.lag.ms=0 sensitive=false synonyms={DEFAULT_CONFIG:log.cleaner.min.compaction.lag.ms=0}
min.insync.replicas=1 sensitive=false synonyms={DEFAULT_CONFIG:min.insync.replicas=1}
preallocate=false sensitive=false synonyms={DEFAULT_CONFIG:log.preallocate=false}
remote.log.copy.disable=false sensitive=false synonyms={}
remote.log.delete.on.disable=false sensitive=false synonyms={}
remote.storage.enable=false sensitive=false synonyms={}
retention.bytes=-1 sensitive=false synonyms={DEFAULT_CONFIG:log.retention.bytes=-1}
retention.ms=3600000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=3600000}
segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}
segment.index.bytes=10485760 sensitive=false synonyms={DEFAULT_CONFIG:log.index.size.max.bytes=10485760}
segment.jitter.ms=0 sensitive=false synonyms={}
segment.ms=604800000 sensitive=false synonyms={}
unclean.leader.election.enable=false sensitive=false synonyms={DEFAULT_CONFIG:unclean.leader.election.enable=false}`
	entries := slices.DeleteFunc(d.DescribeTopic("T-a", nil), func(e Entry) bool { return e.Name == "compression.lz4.level" })
	if diff := cmp.Diff(want, lines(entries)); diff != "" {
		t.Error(diff)
	}
	if e := d.DescribeTopic("T-a", []string{"flush.ms"}); len(e) != 1 || e[0].Source != DefaultConfig || !e[0].IsDefault() || e[0].ReadOnly || e[0].Type != Long {
		t.Errorf("%+v", e)
	}
}

func TestBrokersAreDescribedLayerByLayer(t *testing.T) {
	d := dynamic(t, map[string]string{"log.retention.hours": "24", "num.io.threads": "4", "delegation.token.secret.key": "geheim", "my.plugin": "x"})
	d.ApplyClusterDefault(map[string]string{"log.cleaner.threads": "2", "num.io.threads": "5"})
	d.ApplyBroker(map[string]string{"log.retention.ms": "7200000", "num.io.threads": "6"})
	for _, c := range []struct{ key, want string }{
		{"log.retention.ms", "log.retention.ms=7200000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=7200000, STATIC_BROKER_CONFIG:log.retention.hours=24, DEFAULT_CONFIG:log.retention.hours=168}"},
		{"log.retention.hours", "log.retention.hours=168 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.retention.hours=24, DEFAULT_CONFIG:log.retention.hours=168}"},
		{"log.retention.minutes", "log.retention.minutes=null sensitive=false synonyms={}"},
		{"num.io.threads", "num.io.threads=6 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:num.io.threads=6, DYNAMIC_DEFAULT_BROKER_CONFIG:num.io.threads=5, STATIC_BROKER_CONFIG:num.io.threads=4, DEFAULT_CONFIG:num.io.threads=8}"},
		{"delegation.token.secret.key", "delegation.token.secret.key=null sensitive=true synonyms={STATIC_BROKER_CONFIG:delegation.token.secret.key=null}"},
		{"my.plugin", "my.plugin=null sensitive=true synonyms={STATIC_BROKER_CONFIG:my.plugin=null}"},
	} {
		if got := lines(d.DescribeBroker([]string{c.key})); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	want := "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2}\nnum.io.threads=5 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:num.io.threads=5}"
	if got := lines(d.DescribeClusterDefault(nil)); got != want {
		t.Errorf("cluster default:\n%s", got)
	}
	all := d.DescribeBroker(nil)
	if n := len(BrokerKeys()); len(all) < n-15 || slices.ContainsFunc(all, func(e Entry) bool { return e.Name == "unstable.api.versions.enable" }) {
		t.Errorf("%d keys of %d described, or an internal one", len(all), n)
	}
	for _, c := range []struct {
		key      string
		readOnly bool
	}{{"broker.id", true}, {"log.retention.ms", false}, {"listeners", true}, {"log.retention.hours", true}, {"sasl.jaas.config", true}, {"sasl.kerberos.service.name", false}} {
		if e := d.DescribeBroker([]string{c.key})[0]; e.ReadOnly != c.readOnly {
			t.Errorf("%s: read-only %v", c.key, e.ReadOnly)
		}
	}
}

func TestDynamicSettingsReachTopicsAndListeners(t *testing.T) {
	d := dynamic(t, map[string]string{"log.retention.hours": "24"})
	var events []string
	d.OnTopic(func(topic string, now *LogConfig) { events = append(events, fmt.Sprint(topic, " ", now.RetentionMs)) })
	d.OnBroker(func(changed []string, now *Broker) {
		events = append(events, fmt.Sprint(changed, " ", now.LogDefaults.RetentionMs, " ", d.LogConfig("b").RetentionMs, " ", d.LogConfig("b").SegmentBytes))
	})
	d.ApplyTopic("a", map[string]string{"retention.ms": "5"})
	d.ApplyTopic("b", map[string]string{"segment.bytes": "1000"})
	d.ApplyBroker(map[string]string{"log.retention.ms": "60000"})
	d.ApplyClusterDefault(map[string]string{"log.retention.ms": "1"})
	d.ApplyBroker(nil)
	d.ApplyTopic("a", nil)
	want := []string{
		"a 5ms", "b 24h0m0s",
		"[log.retention.hours log.retention.ms] 1m0s 1m0s 1000",
		"[log.retention.ms] 1ms 1ms 1000",
		"a 1ms",
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
	if d.TopicOverrides("a") != nil || d.TopicOverrides("b")["segment.bytes"] != "1000" {
		t.Error("overrides are not as applied")
	}
}

func TestWhatAnotherVersionStoredIsSkippedAndNamed(t *testing.T) {
	d := dynamic(t, nil)
	w := d.ApplyBroker(map[string]string{"broker.id": "9", "log.segment.bytes": "x", "log.segment.delete.delay.ms": "1", "plugin": "y"})
	var got []string
	for _, x := range w {
		got = append(got, x.Key)
	}
	if diff := cmp.Diff([]string{"broker.id", "log.segment.bytes"}, got); diff != "" {
		t.Error(diff, w)
	}
	if d.LogConfig("t").FileDeleteDelay != time.Millisecond {
		t.Error("the good setting was dropped too")
	}
}

func ptr(s string) *string { return &s }

// R25: an unknown key is INVALID_CONFIG, never ignored.
func TestTopicSettingsAreRefusedWithKafkasText(t *testing.T) {
	d := dynamic(t, nil)
	for _, c := range []struct {
		name string
		set  map[string]*string
		want string
	}{
		{"good", map[string]*string{"retention.ms": ptr("1"), "cleanup.policy": ptr("compact")}, ""},
		{"unknown name", map[string]*string{"nope": ptr("1")}, "Unknown topic config name: nope"},
		{"bad value", map[string]*string{"retention.ms": ptr("abc")}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{"null", map[string]*string{"retention.ms": nil}, "Null value not supported for topic configs: retention.ms"},
		{"lags crossed", map[string]*string{"min.compaction.lag.ms": ptr("5"), "max.compaction.lag.ms": ptr("4")}, "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"},
		{"tiered", map[string]*string{"remote.storage.enable": ptr("true")}, "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."},
	} {
		_, err := d.ValidateTopic(c.set)
		got := ""
		if err != nil {
			got = err.Message
			if err.Code != cluster.InvalidConfig {
				t.Errorf("%s: code %s", c.name, err.Code)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestIncrementalChangesFollowKafka(t *testing.T) {
	d := dynamic(t, nil)
	current := map[string]string{"retention.ms": "5", "cleanup.policy": "compact"}
	for _, c := range []struct {
		name   string
		change Change
		want   string
	}{
		{"set", Change{"segment.bytes", Set, ptr("100")}, "cleanup.policy=compact retention.ms=5 segment.bytes=100"},
		{"delete", Change{"retention.ms", Delete, nil}, "cleanup.policy=compact"},
		{"delete what is not there", Change{"segment.ms", Delete, nil}, "cleanup.policy=compact retention.ms=5"},
		{"append", Change{"cleanup.policy", Append, ptr("delete,compact")}, "cleanup.policy=compact,delete retention.ms=5"},
		{"subtract", Change{"cleanup.policy", Subtract, ptr("compact")}, "cleanup.policy= retention.ms=5"},
		{"append to a default", Change{"leader.replication.throttled.replicas", Append, ptr("0:1")}, "cleanup.policy=compact leader.replication.throttled.replicas=0:1 retention.ms=5"},
		{"append to a number", Change{"retention.ms", Append, ptr("1")}, "INVALID_CONFIG Config value append is not allowed for config key: retention.ms"},
		{"subtract from the unknown", Change{"nope", Subtract, ptr("1")}, "INVALID_CONFIG Unknown config name: nope"},
		{"null", Change{"retention.ms", Set, nil}, "INVALID_REQUEST Null value not supported for : retention.ms"},
		{"no such operation", Change{"retention.ms", 9, ptr("1")}, "INVALID_REQUEST Unknown operation 9 for config key: retention.ms"},
		{"bad value", Change{"segment.bytes", Set, ptr("1")}, "INVALID_CONFIG Invalid value 1 for configuration segment.bytes: Value must be at least 14"},
	} {
		set, err := d.AlterTopic(current, []Change{c.change})
		var got []string
		for _, def := range TopicKeys() {
			if v, ok := set[def.Name]; ok {
				got = append(got, def.Name+"="+v)
			}
		}
		if err != nil {
			got = []string{err.Code.String(), err.Message}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", c.name, s, c.want)
		}
	}
	if len(current) != 2 {
		t.Error("the current settings were changed")
	}
}

func TestBrokerChangesAreRefusedWithKafkasText(t *testing.T) {
	d := dynamic(t, map[string]string{"num.io.threads": "8"})
	for _, c := range []struct {
		name, key, value string
		perBroker        bool
		want             string
	}{
		{"for one", "log.retention.ms", "5", true, ""},
		{"for all", "log.retention.ms", "5", false, ""},
		{"throttle", "leader.replication.throttled.rate", "5", true, ""},
		{"plugin's own", "my.key", "5", false, ""},
		{"read-only", "zookeeper.connect", "x", true, "Cannot update these configs dynamically: Set(zookeeper.connect)"},
		{"bad value", "log.segment.bytes", "1", true, "Invalid value 1 for configuration log.segment.bytes: Value must be at least 14"},
		{"keystore without listener", "ssl.keystore.location", "/k", true, "These security configs can be dynamically updated only per-listener using the listener prefix: Set(ssl.keystore.location)"},
		{"keystore with listener", "listener.name.x.ssl.keystore.location", "/k", true, ""},
		{"keystore with listener, for all", "listener.name.x.ssl.keystore.location", "/k", false, "Cannot update these configs at default cluster level, broker id must be specified: Set(listener.name.x.ssl.keystore.location)"},
		{"other security of a listener", "listener.name.x.ssl.client.auth", "required", true, "klamm cannot change these configs while it runs: listener.name.x.ssl.client.auth. Set them in the file and restart"},
		{"Kerberos", "sasl.kerberos.min.time.before.relogin", "58000", true, ""},
		{"Kerberos of a listener", "listener.name.x.sasl.kerberos.service.name", "kafka", true, ""},
		{"Kerberos, not a number", "sasl.kerberos.min.time.before.relogin", "x", true, "Invalid value x for configuration sasl.kerberos.min.time.before.relogin: Not a number of type LONG"},
		{"Kerberos, for all", "sasl.kerberos.min.time.before.relogin", "58000", false, "Cannot update these configs at default cluster level, broker id must be specified: Set(sasl.kerberos.min.time.before.relogin)"},
		{"renewal of tokens", "sasl.login.refresh.window.factor", "0.5", true, ""},
		{"mechanisms", "sasl.enabled.mechanisms", "PLAIN", true, "klamm cannot change these configs while it runs: sasl.enabled.mechanisms. Set them in the file and restart"},
		{"password without a secret", "listener.name.x.ssl.keystore.password", "p", true, "listener.name.x.ssl.keystore.password cannot be stored: password encoder secret not configured. Set password.encoder.secret in the file and restart"},
		{"listeners", "listeners", "PLAINTEXT://:1", true, "klamm cannot change these configs while it runs: listeners. Set them in the file and restart"},
		{"one listener's limit for all", "listener.name.x.max.connections", "5", false, ""},
		{"threads more than doubled", "num.io.threads", "17", true, "Dynamic thread count update validation failed for num.io.threads=17, value should not be greater than double the current value 8"},
		{"threads less than halved", "num.io.threads", "3", false, "Dynamic thread count update validation failed for num.io.threads=3, value should be at least half the current value 8"},
		{"retention of zero", "log.retention.ms", "0", true, "Invalid value 0 for configuration log.retention.ms: must be -1 for no limit, or 1 or more"},
	} {
		_, err := d.AlterBroker(nil, []Change{{c.key, Set, ptr(c.value)}}, c.perBroker)
		got := ""
		if err != nil {
			got = err.Message
			if err.Code != cluster.InvalidRequest {
				t.Errorf("%s: code %s", c.name, err.Code)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A broker that takes a Kafka broker's place finds what was set there, passwords in Kafka's encoding among it.
func TestSettingsOfAKafkaBrokerThatCannotBeUsedStayWhenOthersAreChanged(t *testing.T) {
	d := dynamic(t, nil) // without the secret
	const key, mechanism = "listener.name.tls.ssl.keystore.password", "listener.name.tls.sasl.jaas.config"
	current := map[string]string{key: encodedByKafka[0].stored, mechanism: encodedByKafka[1].stored, "log.retention.ms": "5"}
	set, err := d.AlterBroker(current, []Change{{"log.retention.ms", Set, ptr("6")}}, true)
	if err != nil || len(set) != 3 || set[key] != current[key] || set[mechanism] != current[mechanism] || set["log.retention.ms"] != "6" {
		t.Errorf("got %v, %v", set, err)
	}
	if set, err := d.AlterBroker(current, []Change{{mechanism, Delete, nil}}, true); err != nil || len(set) != 2 {
		t.Errorf("deletion: %v, %v", set, err)
	}
	if _, err := d.AlterBroker(current, []Change{{mechanism, Set, ptr("secret")}}, true); err == nil {
		t.Error("a new value was accepted")
	}
	if w := d.ApplyBroker(current); len(w) != 2 || d.Broker().LogDefaults.RetentionMs != 5*time.Millisecond {
		t.Errorf("warnings %v, retention %v", w, d.Broker().LogDefaults.RetentionMs)
	}
}

func TestDynamicPasswordsAreStoredEncodedAndUsedDecoded(t *testing.T) {
	const key = "listener.name.tls.ssl.keystore.password"
	d := dynamic(t, map[string]string{"password.encoder.secret": "the secret"})
	set, err := d.AlterBroker(nil, []Change{{key, Set, ptr("p")}, {"log.retention.ms", Set, ptr("5")}}, true)
	if err != nil || !strings.Contains(set[key], "encryptedPassword:") || set["log.retention.ms"] != "5" {
		t.Fatalf("stored %v, %v", set, err)
	}
	if w := d.ApplyBroker(set); len(w) != 0 || d.Broker().Explicit()[key] != "p" {
		t.Errorf("warnings %v, used as %q", w, d.Broker().Explicit()[key])
	}
	for _, e := range d.DescribeBroker([]string{key}) {
		if e.Value != nil || !e.Sensitive || e.ReadOnly {
			t.Errorf("described as %+v", e)
		}
	}
	again, err := d.AlterBroker(set, []Change{{"log.retention.ms", Set, ptr("6")}}, true)
	if err != nil || again[key] != set[key] {
		t.Errorf("another change stores the password anew: %v, %v", again, err)
	}
	whole, err := d.ValidateBroker(map[string]*string{key: ptr("q")}, true)
	if err != nil || !strings.Contains(whole[key], "encryptedPassword:") {
		t.Errorf("a whole set is stored as %v, %v", whole, err)
	}
	// The secret is changed: the file has both for a while.
	d = dynamic(t, map[string]string{"password.encoder.secret": "a new one", "password.encoder.old.secret": "the secret"})
	if w := d.ApplyBroker(map[string]string{key: encodedByKafka[0].stored}); len(w) != 0 || d.Broker().Explicit()[key] != encodedByKafka[0].password {
		t.Errorf("warnings %v, used as %q", w, d.Broker().Explicit()[key])
	}
}

func TestChangesThatACheckRefusesAreNotStored(t *testing.T) {
	d := dynamic(t, nil)
	d.CheckBroker(func(now, next *Broker) error {
		if now.LogDefaults.SegmentBytes == next.LogDefaults.SegmentBytes {
			return nil
		}
		return errors.New("no room")
	})
	if _, err := d.AlterBroker(nil, []Change{{"log.segment.bytes", Set, ptr("1000")}}, true); err == nil || err.Message != "no room" {
		t.Errorf("got %v", err)
	}
	if _, err := d.AlterBroker(nil, []Change{{"log.retention.ms", Set, ptr("5")}}, true); err != nil {
		t.Errorf("got %v", err)
	}
}
