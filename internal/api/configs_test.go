package api

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

const (
	topicResource  = kmsg.ConfigResourceTypeTopic
	brokerResource = kmsg.ConfigResourceTypeBroker
)

type configOp struct {
	key   string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

func set(key, value string) configOp {
	return configOp{key, kmsg.IncrementalAlterConfigOpSet, &value}
}
func unset(key string) configOp { return configOp{key, kmsg.IncrementalAlterConfigOpDelete, nil} }

func changes(kind kmsg.ConfigResourceType, name string, ops ...configOp) kmsg.IncrementalAlterConfigsRequestResource {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, o := range ops {
		r.Configs = append(r.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: o.key, Op: o.op, Value: o.value})
	}
	return r
}

// alter makes one IncrementalAlterConfigs request and gives "CODE message" per resource.
func (b *testBroker) alter(version int16, resources ...kmsg.IncrementalAlterConfigsRequestResource) (out []string) {
	b.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = resources
	for i, r := range b.do(version, req).(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if r.ResourceName != resources[i].ResourceName || r.ResourceType != resources[i].ResourceType {
			b.t.Errorf("answer %d is about %v %q", i, r.ResourceType, r.ResourceName)
		}
		out = append(out, verdict(r.ErrorCode, r.ErrorMessage))
	}
	return out
}

func verdict(code int16, message *string) string {
	if message == nil {
		return cluster.ErrorCode(code).String()
	}
	return cluster.ErrorCode(code).String() + " " + *message
}

func TestIncrementalAlterConfigsRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		req  []kmsg.IncrementalAlterConfigsRequestResource
		want []string
	}{
		{"a resource twice", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "t", set("retention.ms", "1")), changes(topicResource, "t", set("segment.ms", "1"))},
			[]string{"INVALID_REQUEST Each resource must appear at most once.", "INVALID_REQUEST Each resource must appear at most once."}},
		{"a key twice", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "t", set("retention.ms", "1"), unset("retention.ms"))},
			[]string{"INVALID_REQUEST Error due to duplicate config keys"}},
		{"null to set", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "t", configOp{"retention.ms", 0, nil}, configOp{"cleanup.policy", 2, nil})},
			[]string{"INVALID_REQUEST Null value not supported for : retention.ms, cleanup.policy"}},
		{"a topic without a name", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "", set("retention.ms", "1"))},
			[]string{"INVALID_REQUEST Default topic resources are not allowed."}},
		{"an unknown topic", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "nosuch", set("retention.ms", "1"))},
			[]string{"UNKNOWN_TOPIC_OR_PARTITION The topic 'nosuch' does not exist."}},
		{"a path as topic", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "../brokers/0", set("retention.ms", "1"))},
			[]string{"UNKNOWN_TOPIC_OR_PARTITION The topic '../brokers/0' does not exist."}},
		{"a bad value", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "t", set("segment.bytes", "1"))},
			[]string{"INVALID_CONFIG Invalid config value for resource ConfigResource(type=TOPIC, name='t'): Invalid value 1 for configuration segment.bytes: Value must be at least 14"}},
		{"an unknown key", []kmsg.IncrementalAlterConfigsRequestResource{changes(topicResource, "t", set("nope", "1"))},
			[]string{"INVALID_CONFIG Unknown topic config name: nope"}},
		{"another broker", []kmsg.IncrementalAlterConfigsRequestResource{changes(brokerResource, "2", set("log.cleaner.threads", "1"))},
			[]string{"INVALID_REQUEST Unexpected broker id, expected 0, but received 2"}},
		{"a broker that is no number", []kmsg.IncrementalAlterConfigsRequestResource{changes(brokerResource, "x", set("log.cleaner.threads", "1"))},
			[]string{"INVALID_REQUEST Node id must be an integer, but it is: x"}},
		{"a setting that needs a restart", []kmsg.IncrementalAlterConfigsRequestResource{changes(brokerResource, "0", set("zookeeper.connect", "x"))},
			[]string{"INVALID_REQUEST Cannot update these configs dynamically: Set(zookeeper.connect)"}},
		{"a kind that is not served", []kmsg.IncrementalAlterConfigsRequestResource{changes(kmsg.ConfigResourceTypeClientMetrics, "m", set("x", "1")), changes(99, "y")},
			[]string{"INVALID_REQUEST AlterConfigs is only supported for topics and brokers, but resource type is CLIENT_METRICS", "INVALID_REQUEST Unknown resource type 99"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				b.topic("t", []cluster.BrokerID{0})
				before := len(b.engine.Dump())
				same(t, c.want, b.alter(1, c.req...))
				if after := len(b.engine.Dump()); after != before {
					t.Errorf("the refusal made %d nodes of %d", after, before)
				}
			})
		})
	}
}

// configChanges lists the entities that notifications name, in order.
func (b *testBroker) configChanges() (out []string) {
	b.t.Helper()
	names, err := b.ctl.store.Children(b.ctx, coord.ConfigChangesPath)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, n := range names {
		node, err := b.ctl.store.Get(b.ctx, coord.ConfigChangesPath+"/"+n)
		if err != nil {
			b.t.Fatal(err)
		}
		path, err := coord.DecodeConfigChange(node.Data)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, path)
		if err := b.h.HandleConfigChange(b.ctx, node.Data); err != nil {
			b.t.Fatal(err)
		}
	}
	return out
}

func TestIncrementalAlterConfigsChangesTopicsAndBrokers(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		same(t, []string{"NONE"}, b.alter(0, changes(topicResource, "t", set("retention.ms", "1000"), set("max.message.bytes", "2000"))))
		same(t, []string{"NONE", "NONE", "NONE"}, b.alter(1,
			changes(topicResource, "t", unset("retention.ms"), configOp{"cleanup.policy", kmsg.IncrementalAlterConfigOpAppend, ptr("compact")}),
			changes(brokerResource, "0", set("log.cleaner.threads", "2")),
			changes(brokerResource, "", set("log.retention.ms", "5000"))))
		same(t, map[string]string{"max.message.bytes": "2000", "cleanup.policy": "delete,compact"}, b.storedConfig(coord.TopicConfigs, "t"))
		same(t, map[string]string{"log.cleaner.threads": "2"}, b.storedConfig(coord.BrokerConfigs, "0"))
		same(t, map[string]string{"log.retention.ms": "5000"}, b.storedConfig(coord.BrokerConfigs, coord.DefaultEntity))
		same(t, []string{"topics/t", "topics/t", "brokers/0", "brokers/<default>"}, b.configChanges())
		if c := b.config.LogConfig("t"); !c.Compact || !c.Delete || c.MaxMessageBytes != 2000 || c.RetentionMs != 5*second {
			t.Errorf("the notifications were not applied: %+v", c)
		}
	})
}

func TestAlterConfigsReplacesTheWholeSet(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.alter(1, changes(topicResource, "t", set("retention.ms", "1000")))
		for version := int16(0); version <= 2; version++ {
			req := kmsg.NewPtrAlterConfigsRequest()
			res := kmsg.NewAlterConfigsRequestResource()
			res.ResourceType, res.ResourceName = topicResource, "t"
			res.Configs = []kmsg.AlterConfigsRequestResourceConfig{{Name: "segment.ms", Value: ptr(fmt.Sprint(1000 + version))}}
			req.Resources = []kmsg.AlterConfigsRequestResource{res}
			want := kmsg.NewPtrAlterConfigsResponse()
			want.Version = version
			want.Resources = []kmsg.AlterConfigsResponseResource{{ResourceType: topicResource, ResourceName: "t"}}
			same(t, want, b.do(version, req).(*kmsg.AlterConfigsResponse))
			same(t, map[string]string{"segment.ms": fmt.Sprint(1000 + version)}, b.storedConfig(coord.TopicConfigs, "t"))
		}
		req := kmsg.NewPtrAlterConfigsRequest()
		req.ValidateOnly = true
		req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: topicResource, ResourceName: "t"}, {ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "0"}}
		got := b.do(2, req).(*kmsg.AlterConfigsResponse)
		same(t, []string{"NONE", "INVALID_REQUEST Unknown resource type 8"},
			[]string{verdict(got.Resources[0].ErrorCode, got.Resources[0].ErrorMessage), verdict(got.Resources[1].ErrorCode, got.Resources[1].ErrorMessage)})
		same(t, map[string]string{"segment.ms": "1002"}, b.storedConfig(coord.TopicConfigs, "t"))
	})
}

// W9: Kafka overwrites it.
func TestAlterConfigsKeepsWhatAnotherWriterChanged(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Multi" {
				b.store.SetHook(nil)
				b.put(coord.Set(coord.ConfigEntityPath(coord.TopicConfigs, "t"), coord.EncodeConfig(map[string]string{"segment.ms": "7000"}), coord.AnyVersion))
			}
			return memstore.Fault{}
		})
		same(t, []string{"NONE"}, b.alter(1, changes(topicResource, "t", set("retention.ms", "1000"))))
		same(t, map[string]string{"segment.ms": "7000", "retention.ms": "1000"}, b.storedConfig(coord.TopicConfigs, "t"))
	})
}

func TestAlterConfigsOfATopicThatGoesMeanwhileLeavesNothing(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Multi" {
				b.store.SetHook(nil)
				b.put(coord.Delete(coord.TopicPath("t"), coord.AnyVersion), coord.Delete(coord.ConfigEntityPath(coord.TopicConfigs, "t"), coord.AnyVersion))
			}
			return memstore.Fault{}
		})
		same(t, []string{"UNKNOWN_TOPIC_OR_PARTITION The topic 't' does not exist."}, b.alter(1, changes(topicResource, "t", set("retention.ms", "1000"))))
		if names, _ := b.ctl.store.Children(b.ctx, coord.ConfigTypePath(coord.TopicConfigs)); len(names) != 0 {
			t.Errorf("configs of %v are left", names)
		}
	})
}

// describe asks for keys of one resource and gives the answer's resource.
func (b *testBroker) describe(version int16, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	b.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms, req.IncludeDocumentation = true, version >= 3
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, keys
	req.Resources = []kmsg.DescribeConfigsRequestResource{res}
	return b.do(version, req).(*kmsg.DescribeConfigsResponse).Resources[0]
}

func TestDescribeConfigsShowsATopicsSettingsOnceItsCreationWasAnswered(t *testing.T) { // R07
	inBubble(t, nil, func(b *testBroker) {
		for i := range 50 {
			name := fmt.Sprintf("t%d", i)
			// A timeout of 0 answers before any broker heard of the topic.
			b.do(7, createRequest(0, newTopic(name, 1, 1, withConfig("cleanup.policy", ptr("compact")))))
			got := b.describe(4, topicResource, name, "cleanup.policy")
			if got.ErrorCode != 0 || len(got.Configs) != 1 || *got.Configs[0].Value != "compact" || got.Configs[0].Source != kmsg.ConfigSourceDynamicTopicConfig {
				t.Fatalf("round %d: %+v", i, got)
			}
		}
	})
}

func TestDescribeConfigsOfEachVersion(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.alter(1, changes(topicResource, "t", set("max.message.bytes", "2000")))
		for version := int16(0); version <= 4; version++ {
			got := b.describe(version, topicResource, "t", "max.message.bytes", "retention.ms")
			if len(got.Configs) != 2 || got.ErrorCode != 0 {
				t.Fatalf("version %d: %+v", version, got)
			}
			own, other := got.Configs[0], got.Configs[1]
			if own.Name != "max.message.bytes" || *own.Value != "2000" || *other.Value != "604800000" {
				t.Errorf("version %d: %+v, %+v", version, own, other)
			}
			if version == 0 && (own.IsDefault || !other.IsDefault) {
				t.Errorf("version 0 tells defaults wrong: %+v, %+v", own, other)
			}
			if version >= 1 {
				same(t, []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{
					{Name: "max.message.bytes", Value: ptr("2000"), Source: kmsg.ConfigSourceDynamicTopicConfig},
					{Name: "message.max.bytes", Value: ptr("1048588"), Source: kmsg.ConfigSourceDefaultConfig}}, own.ConfigSynonyms)
			}
			if version >= 3 && (own.ConfigType != kmsg.ConfigTypeInt || own.Documentation == nil || *own.Documentation == "") {
				t.Errorf("version %d: type %v, documentation %v", version, own.ConfigType, own.Documentation)
			}
		}
		if all := b.describe(4, topicResource, "t"); len(all.Configs) < 30 {
			t.Errorf("no keys asked for: %d configs", len(all.Configs))
		}
	})
}

func TestDescribeConfigsRefusals(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false)
		b.topic("stuck", []cluster.BrokerID{0})
		b.put(coord.Create(coord.DeleteTopicPath("stuck"), nil))
		for _, c := range []struct {
			kind       kmsg.ConfigResourceType
			name, want string
		}{
			{topicResource, "nosuch", "UNKNOWN_TOPIC_OR_PARTITION "}, // an empty text, not null: clients print it
			{topicResource, "stuck", "UNKNOWN_TOPIC_OR_PARTITION "},
			{topicResource, "bad name", "INVALID_TOPIC_EXCEPTION Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
			{brokerResource, "5", "INVALID_REQUEST Unexpected broker id, expected 0 or empty string, but received 5"},
			{brokerResource, "x", "INVALID_REQUEST Broker id must be an integer, but it is: x"},
			{kmsg.ConfigResourceTypeBrokerLogger, "", "INVALID_REQUEST Broker id must not be empty"},
			{kmsg.ConfigResourceTypeBrokerLogger, "x", "INVALID_REQUEST Broker id must be an integer, but it is: x"},
			{kmsg.ConfigResourceTypeBrokerLogger, "5", "INVALID_REQUEST Unexpected broker id, expected 0 but received 5"},
			{kmsg.ConfigResourceTypeClientMetrics, "m", "INVALID_REQUEST Unsupported resource type: CLIENT_METRICS"},
		} {
			got := b.describe(4, c.kind, c.name)
			if v := verdict(got.ErrorCode, got.ErrorMessage); v != c.want || len(got.Configs) != 0 {
				t.Errorf("%v %q: %s with %d configs", c.kind, c.name, v, len(got.Configs))
			}
		}
	})
}

func TestDescribeConfigsOfBrokers(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		same(t, []string{"NONE"}, b.alter(1, changes(brokerResource, "", set("log.cleaner.threads", "2"))))
		b.configChanges()
		same(t, []string{"log.cleaner.threads"}, configNames(b.describe(4, brokerResource, "")))
		if all := configNames(b.describe(4, brokerResource, "0")); len(all) < 100 || !slices.Contains(all, "broker.id") {
			t.Errorf("%d configs", len(all))
		}
	})
}

func configNames(r kmsg.DescribeConfigsResponseResource) (out []string) {
	for _, c := range r.Configs {
		out = append(out, c.Name)
	}
	return out
}

func TestConfigsAreLoadedAtStart(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.put(coord.Set(coord.ConfigEntityPath(coord.TopicConfigs, "t"), coord.EncodeConfig(map[string]string{"retention.ms": "1000"}), coord.AnyVersion),
			coord.Create(coord.ConfigEntityPath(coord.BrokerConfigs, "0"), coord.EncodeConfig(map[string]string{"log.segment.bytes": "1048576"})))
		if err := b.h.LoadAllConfigs(b.ctx); err != nil {
			t.Fatal(err)
		}
		if c := b.config.LogConfig("t"); c.RetentionMs != second || c.SegmentBytes != 1048576 {
			t.Errorf("got %v, %d", c.RetentionMs, c.SegmentBytes)
		}
	})
}

func TestConfigsReadEarlierNeverReplaceThoseReadLater(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		path := coord.ConfigEntityPath(coord.TopicConfigs, "t")
		b.put(coord.Set(path, coord.EncodeConfig(map[string]string{"retention.ms": "1000"}), coord.AnyVersion))
		old, err := b.ctl.store.GetMany(b.ctx, []string{path})
		if err != nil {
			t.Fatal(err)
		}
		b.put(coord.Set(path, coord.EncodeConfig(map[string]string{"retention.ms": "2000"}), coord.AnyVersion))
		if err := b.h.configs.follow(b.ctx, "topics/t"); err != nil {
			t.Fatal(err)
		}
		b.h.configs.applyMu.Lock()
		b.h.configs.applyLocked(coord.TopicConfigs, "t", path, old[0]) // a slow reader comes late
		b.h.configs.applyMu.Unlock()
		if c := b.config.LogConfig("t"); c.RetentionMs != 2*second {
			t.Errorf("got %v", c.RetentionMs)
		}
	})
}

func TestConfigNotificationsThatAreNotForUs(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		synctest.Wait() // what the broker reads at its start is read
		calls := b.calls.Load()
		for path, isError := range map[string]bool{"users/x/y": true, "users/u/clients/c/d": true, "clients/..": true, "ips/%zz": true, "groups/x": false, "brokers/7": false, "topics": true, "topics/../x": true} {
			if err := b.h.HandleConfigChange(b.ctx, coord.EncodeConfigChange(path)); (err != nil) != isError {
				t.Errorf("%s: %v", path, err)
			}
		}
		if err := b.h.HandleConfigChange(b.ctx, []byte("{")); err == nil {
			t.Error("a malformed notification gave no error")
		}
		if b.calls.Load() != calls {
			t.Error("the store was asked")
		}
	})
}

func TestConfigsOfNewTopicsAreReadUntilTheStoreAnswers(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.put(coord.Set(coord.ConfigEntityPath(coord.TopicConfigs, "t"), coord.EncodeConfig(map[string]string{"retention.ms": "1000"}), coord.AnyVersion))
		b.store.Disconnect()
		done := make(chan error, 1)
		go func() { done <- b.h.configs.readTopics(b.ctx, []string{"t"}) }()
		synctest.Wait()
		b.store.Reconnect()
		if err := <-done; err != nil || b.config.LogConfig("t").RetentionMs != second {
			t.Errorf("%v, retention %v", err, b.config.LogConfig("t").RetentionMs)
		}
		ended, cancel := context.WithCancel(b.ctx)
		cancel()
		b.store.Disconnect()
		if err := b.h.configs.readTopics(ended, []string{"t"}); err == nil {
			t.Error("no error although the broker stops")
		}
		b.store.Reconnect()
	})
}

// logLevels gives "logger LEVEL" of what DescribeConfigs shows.
func (b *testBroker) logLevels(keys ...string) (out []string) {
	b.t.Helper()
	got := b.describe(4, kmsg.ConfigResourceTypeBrokerLogger, "0", keys...)
	if got.ErrorCode != 0 {
		b.t.Fatalf("describe the loggers: %s", verdict(got.ErrorCode, got.ErrorMessage))
	}
	for _, c := range got.Configs {
		if c.Source != kmsg.ConfigSourceDynamicBrokerLoggerConfig || c.ReadOnly || c.IsSensitive || c.IsDefault || len(c.ConfigSynonyms) != 0 {
			b.t.Errorf("logger %+v", c)
		}
		out = append(out, c.Name+" "+*c.Value)
	}
	return out
}

// The levels of loggers are seen and changed at once, in the broker alone (KIP-412).
func TestLogLevelsAreChangedWhileTheBrokerRuns(t *testing.T) {
	const loggers = kmsg.ConfigResourceTypeBrokerLogger
	inBubble(t, nil, func(b *testBroker) {
		before := len(b.engine.Dump())
		for _, step := range []struct {
			req  []configOp
			want []string
		}{
			{nil, []string{"kafka.authorizer.logger INFO", "kafka.controller INFO", "root INFO", "state.change.logger INFO"}},
			{[]configOp{set("state.change.logger", "DEBUG"), set("root", "WARN")}, []string{"kafka.authorizer.logger WARN", "kafka.controller WARN", "root WARN", "state.change.logger DEBUG"}},
			{[]configOp{unset("state.change.logger"), set("kafka.controller", "FATAL")}, []string{"kafka.authorizer.logger WARN", "kafka.controller FATAL", "root WARN", "state.change.logger WARN"}},
		} {
			if step.req != nil {
				same(t, []string{"NONE"}, b.alter(1, changes(loggers, "0", step.req...)))
			}
			same(t, step.want, b.logLevels())
		}
		same(t, []string{"root WARN"}, b.logLevels("root", "nope"))
		if after := len(b.engine.Dump()); after != before {
			t.Errorf("%d nodes, before there were %d", after, before)
		}
	})
}

func TestLogLevelsThatCannotBeChanged(t *testing.T) {
	const loggers = kmsg.ConfigResourceTypeBrokerLogger
	all := "kafka.authorizer.logger, kafka.controller, root, state.change.logger"
	for _, c := range []struct {
		name, node string
		ops        []configOp
		want       string
	}{
		{"of another broker", "2", []configOp{set("root", "DEBUG")}, "INVALID_REQUEST Unexpected broker id, expected 0, but received 2"},
		{"of no broker", "", []configOp{set("root", "DEBUG")}, "INVALID_REQUEST Node id must be an integer, but it is: "},
		{"twice", "0", []configOp{set("root", "DEBUG"), set("root", "INFO")}, "INVALID_REQUEST Error due to duplicate config keys"},
		{"to null", "0", []configOp{{"root", kmsg.IncrementalAlterConfigOpSet, nil}}, "INVALID_REQUEST Null value not supported for : root"},
		{"by appending", "0", []configOp{{"root", kmsg.IncrementalAlterConfigOpAppend, ptr("DEBUG")}}, "INVALID_REQUEST The level of logger root can be set and deleted, nothing else."},
		{"by subtracting", "0", []configOp{{"nope", kmsg.IncrementalAlterConfigOpSubtract, ptr("DEBUG")}}, "INVALID_REQUEST The level of logger nope can be set and deleted, nothing else."},
		{"of a logger that does not exist", "0", []configOp{set("nope", "DEBUG")}, "INVALID_CONFIG Logger nope does not exist. There are: " + all + "."},
		{"of one that does not exist, taken away", "0", []configOp{unset("nope")}, "INVALID_CONFIG Logger nope does not exist. There are: " + all + "."},
		{"to a level that is none", "0", []configOp{set("kafka.controller", "INFO"), set("root", "debug")},
			`INVALID_CONFIG Logger root: "debug" is no log level: want one of TRACE, DEBUG, INFO, WARN, ERROR, FATAL.`},
		{"of the root, taken away", "0", []configOp{set("kafka.controller", "ERROR"), unset("root")}, "INVALID_REQUEST The level of the root logger cannot be deleted."},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				before := b.logLevels()
				same(t, []string{c.want}, b.alter(1, changes(loggers, c.node, c.ops...)))
				same(t, before, b.logLevels())
			})
		})
	}
	t.Run("where nothing is to be changed", func(t *testing.T) {
		inBubble(t, nil, func(b *testBroker) {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.ValidateOnly = true
			req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{changes(loggers, "0", set("root", "DEBUG"))}
			if got := b.do(1, req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
				t.Errorf("validate only: %s", verdict(got.ErrorCode, got.ErrorMessage))
			}
			same(t, []string{"root INFO"}, b.logLevels("root"))
		})
	})
}
