package coord

import (
	"bufio"
	"os"
	"reflect"
	"strings"
	"testing"

	"klamm/internal/cluster"
)

// recode decodes a recorded node and encodes it again; it returns nil for paths that no codec owns.
func recode(t *testing.T, path string, data []byte) []byte {
	t.Helper()
	again := func(encoded []byte, err error) []byte {
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return encoded
	}
	_, isTopic := ParseTopicPath(path)
	_, isState := ParsePartitionStatePath(path)
	_, isBroker := ParseBrokerPath(path)
	switch {
	case isTopic:
		v, err := DecodeTopic(data)
		return again(EncodeTopic(v), err)
	case isState:
		v, err := DecodePartitionState(data, 7)
		return again(EncodePartitionState(v), err)
	case isBroker:
		v, err := DecodeBroker(data)
		return again(EncodeBroker(v), err)
	case path == ControllerPath:
		v, err := DecodeController(data)
		return again(EncodeController(v), err)
	case path == ControllerEpochPath:
		v, err := DecodeControllerEpoch(data)
		return again(EncodeControllerEpoch(v), err)
	case path == ClusterIDPath:
		v, err := DecodeClusterID(data)
		return again(EncodeClusterID(v), err)
	case path == PreferredElectionPath:
		v, err := DecodePreferredElection(data)
		return again(EncodePreferredElection(v), err)
	case strings.HasPrefix(path, ISRChangePrefix):
		v, err := DecodeISRChange(data)
		return again(EncodeISRChange(v), err)
	case strings.HasPrefix(path, LogDirEventPrefix):
		v, err := DecodeLogDirEvent(data)
		return again(EncodeLogDirEvent(v), err)
	case strings.HasPrefix(path, DelegationTokensPath+"/"):
		v, err := DecodeDelegationToken(data)
		return again(EncodeDelegationToken(v), err)
	case path == FeaturePath:
		v, err := DecodeFeatures(data)
		return again(EncodeFeatures(v), err)
	case path == ProducerIDBlockPath:
		v, _, err := DecodeProducerIDBlock(data)
		return again(EncodeProducerIDBlock(v), err)
	case strings.HasPrefix(path, ConfigChangePrefix):
		v, err := DecodeConfigChange(data)
		return again(EncodeConfigChange(v), err)
	case strings.HasPrefix(path, ConfigPath+"/"):
		v, err := DecodeConfig(data)
		return again(EncodeConfig(v), err)
	case strings.HasPrefix(path, ACLChangePrefix):
		v, err := DecodeACLChange(data)
		return again(EncodeACLChange(v), err)
	case strings.HasPrefix(path, ACLPath+"/"):
		v, err := DecodeACLs(data)
		return again(EncodeACLs(v), err)
	}
	return nil
}

func TestKafkasNodesAreWrittenAgainByteForByte(t *testing.T) {
	for file, nodesMin := range map[string]int{"testdata/recorded.txt": 80, "testdata/encoded.txt": 9} {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		nodes := 0
		for s := bufio.NewScanner(f); s.Scan(); {
			path, data, ok := strings.Cut(s.Text(), " ")
			if !ok || path == "#" {
				continue
			}
			nodes++
			if got := string(recode(t, path, []byte(data))); got != data {
				t.Errorf("%s\n got %s\nwant %s", path, got, data)
			}
		}
		if nodes < nodesMin {
			t.Errorf("only %d nodes were read from %s", nodes, file)
		}
	}
}

func TestNodesThatWereNotRecordedHaveKafkasForm(t *testing.T) {
	tps := []cluster.TopicPartition{{Topic: "a", Partition: 0}, {Topic: "b\"\n\x01é", Partition: 12}}
	cases := map[string]struct{ got, want string }{
		"controller before 3.4": {
			string(EncodeController(ControllerNode{Version: 1, BrokerID: 1, TimestampMs: 5})), `{"version":1,"brokerid":1,"timestamp":"5"}`,
		},
		"isr change": {string(EncodeISRChange(tps)), `{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b\"\n\u0001é","partition":12}]}`},
		"reassignment": {
			string(EncodeReassignment(map[cluster.TopicPartition][]cluster.BrokerID{tps[0]: {1, 2}})),
			`{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2]}]}`,
		},
		"features 1": {
			string(EncodeFeatures(Features{Version: 1, Enabled: true, Levels: map[string]VersionRange{"f": {Min: 1, Max: 3}}})),
			`{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":1}`,
		},
		"extended acl change": {
			string(EncodeExtendedACLChange(ACLChange{"TOPIC", "pre", "PREFIXED"})),
			`{"version":1,"resourceType":"TOPIC","name":"pre","patternType":"PREFIXED"}`,
		},
	}
	for name, c := range cases {
		if c.got != c.want {
			t.Errorf("%s\n got %s\nwant %s", name, c.got, c.want)
		}
	}
}

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	token := DelegationToken{TokenID: "id", Owner: "User:o", Requester: "User:r", Renewers: []string{"User:x*y"}, IssueTimestampMs: 1, MaxTimestampMs: 3, ExpiryTimestampMs: 2}
	gotToken, err := DecodeDelegationToken(EncodeDelegationToken(token))
	check(t, "token", gotToken, token, err)

	tps := []cluster.TopicPartition{{Topic: "a", Partition: 0}, {Topic: "b\"\n\x01é", Partition: 12}}
	gotTPs, err := DecodeISRChange(EncodeISRChange(tps))
	check(t, "isr change", gotTPs, tps, err)
	gotTPs, err = DecodePreferredElection(EncodePreferredElection(tps))
	check(t, "preferred election", gotTPs, tps, err)

	targets := map[cluster.TopicPartition][]cluster.BrokerID{tps[0]: {1, 2}, tps[1]: {3}}
	gotTargets, err := DecodeReassignment(EncodeReassignment(targets))
	check(t, "reassignment", gotTargets, targets, err)

	broker, err := DecodeLogDirEvent(EncodeLogDirEvent(2))
	check(t, "log dir event", broker, 2, err)

	change := ACLChange{"TOPIC", "pre", "PREFIXED"}
	gotChange, err := DecodeExtendedACLChange(EncodeExtendedACLChange(change))
	check(t, "acl change", gotChange, change, err)

	configs := map[string]string{"retention.ms": "1", "cleanup.policy": "compact", "ü": "\\"}
	gotConfigs, err := DecodeConfig(EncodeConfig(configs))
	check(t, "config", gotConfigs, configs, err)
}

func check[T any](t *testing.T, what string, got, want T, err error) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, %v; want %v", what, got, err, want)
	}
}

func TestDecodersTakeOldVersionsAndUnknownKeys(t *testing.T) {
	topic, err := DecodeTopic([]byte(`{"version":1,"partitions":{"0":[1,2]},"new":{}}`))
	check(t, "topic 1", topic, Topic{Partitions: map[int32]cluster.ReplicaAssignment{0: {Replicas: []cluster.BrokerID{1, 2}}}}, err)

	state, err := DecodePartitionState([]byte(`{"isr":[1],"leader":1,"leader_epoch":2,"controller_epoch":3,"version":9}`), 5)
	check(t, "state", state, cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 2, ISR: []cluster.BrokerID{1}, PartitionEpoch: 5, ControllerEpoch: 3}, err)

	controller, err := DecodeController([]byte(`{"brokerid":4,"timestamp":12}`))
	check(t, "controller", controller, ControllerNode{BrokerID: 4, TimestampMs: 12, KRaftEpoch: NoKRaftEpoch}, err)

	b1, err := DecodeBroker([]byte(`{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"7"}`))
	plain := cluster.Endpoint{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: "h", Port: 9092}
	check(t, "broker 1", b1, BrokerNode{Version: 1, Endpoints: []cluster.Endpoint{plain}, JMXPort: -1, TimestampMs: 7}, err)

	b2, err := DecodeBroker([]byte(`{"version":2,"endpoints":["SSL://h:1"],"jmx_port":9,"timestamp":"7","host":null,"port":-1}`))
	ssl := cluster.Endpoint{Listener: "SSL", SecurityProtocol: "SSL", Host: "h", Port: 1}
	check(t, "broker 2", b2, BrokerNode{Version: 2, Endpoints: []cluster.Endpoint{ssl}, JMXPort: 9, TimestampMs: 7}, err)

	change, err := DecodeConfigChange([]byte(`{"version":1,"entity_type":"topics","entity_name":"t"}`))
	check(t, "config change 1", change, "topics/t", err)

	_, given, err := DecodeProducerIDBlock(nil)
	check(t, "no producer id block", given, false, err)
}

func TestMalformedNodesAreRefused(t *testing.T) {
	cases := map[string]func([]byte) error{
		`{"partitions":{"x":[1]}}`:                       func(b []byte) error { _, err := DecodeTopic(b); return err },
		`{"topic_id":"short"}`:                           func(b []byte) error { _, err := DecodeTopic(b); return err },
		`{"leader":1,"leader_epoch":0,"isr":[1]}`:        func(b []byte) error { _, err := DecodePartitionState(b, 0); return err },
		`{"version":0,"jmx_port":-1}`:                    func(b []byte) error { _, err := DecodeBroker(b); return err },
		`{"version":5,"endpoints":["x"],"jmx_port":-1}`:  func(b []byte) error { _, err := DecodeBroker(b); return err },
		`{"version":5,"endpoints":["A://h:1"]}`:          func(b []byte) error { _, err := DecodeBroker(b); return err },
		`{"version":2}`:                                  func(b []byte) error { _, err := DecodeController(b); return err },
		`one`:                                            func(b []byte) error { _, err := DecodeControllerEpoch(b); return err },
		`{"version":3,"status":1,"features":{}}`:         func(b []byte) error { _, err := DecodeFeatures(b); return err },
		`{"version":2,"features":{}}`:                    func(b []byte) error { _, err := DecodeFeatures(b); return err },
		`{"version":2,"entity_type":"topics"}`:           func(b []byte) error { _, err := DecodeConfigChange(b); return err },
		`{"version":1,"broker":1,"event":2}`:             func(b []byte) error { _, err := DecodeLogDirEvent(b); return err },
		`{"broker":1,"block_start":"5","block_end":"4"}`: func(b []byte) error { _, _, err := DecodeProducerIDBlock(b); return err },
		"{\"id\":\"\xff\"}":                              func(b []byte) error { _, err := DecodeClusterID(b); return err },
	}
	for data, decode := range cases {
		if err := decode([]byte(data)); err == nil {
			t.Errorf("%s was accepted", data)
		}
	}
}

func TestPathsAndTheirInverses(t *testing.T) {
	tp := cluster.TopicPartition{Topic: "a.b", Partition: 12}
	if got, ok := ParsePartitionStatePath(PartitionStatePath(tp)); !ok || got != tp {
		t.Errorf("state path %s gave %v, %v", PartitionStatePath(tp), got, ok)
	}
	if got, ok := ParseTopicPath(TopicPath("a.b")); !ok || got != "a.b" {
		t.Errorf("topic path gave %v, %v", got, ok)
	}
	if got, ok := ParseBrokerPath(BrokerPath(1001)); !ok || got != 1001 {
		t.Errorf("broker path gave %v, %v", got, ok)
	}
	for _, path := range []string{"/brokers/topics", "/brokers/topics/t/partitions/0", "/brokers/topics/t/partitions/01/state", "/brokers/ids/x"} {
		_, state := ParsePartitionStatePath(path)
		_, broker := ParseBrokerPath(path)
		if state || broker {
			t.Errorf("%s was parsed", path)
		}
	}
	if got := SequentialPath(ConfigChangePrefix, 42); got != "/config/changes/config_change_0000000042" {
		t.Errorf("sequential path is %s", got)
	}
	if n, ok := SequenceNumber("config_change_0000000042"); !ok || n != 42 {
		t.Errorf("sequence number is %d, %v", n, ok)
	}
	if _, ok := SequenceNumber("config_change_42"); ok {
		t.Error("a name without ten digits has a sequence number")
	}
	seen := map[string]bool{"/": true}
	for _, p := range PersistentPaths() {
		if !seen[ParentPath(p)] || !ValidPath(p) {
			t.Errorf("%s comes before its parent", p)
		}
		seen[p] = true
	}
}

func TestEntityNamesSurviveSanitizing(t *testing.T) {
	for name, want := range map[string]string{"a b+c*d~/ü": "a%20b%2Bc%2Ad%7E%2F%C3%BC", DefaultEntity: DefaultEntity} {
		got := SanitizeEntity(name)
		back, err := DesanitizeEntity(got)
		if got != want || back != name || err != nil {
			t.Errorf("%q: got %q and back %q, %v", name, got, back, err)
		}
	}
}

func FuzzDecoders(f *testing.F) {
	f.Add([]byte(`{"partitions":{"0":[0,2,1]},"topic_id":"iXSowKrDRC-SdTPijpkHgQ","adding_replicas":{},"removing_replicas":{},"version":3}`))
	f.Add([]byte(`{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0,2,1]}`))
	f.Add([]byte(`{"features":{},"listener_security_protocol_map":{"P":"SSL"},"endpoints":["P://h:1"],"jmx_port":-1,"port":1,"host":"h","version":5,"timestamp":"1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, err := DecodeTopic(data); err == nil {
			w, err := DecodeTopic(EncodeTopic(v))
			check(t, "topic", w.ID, v.ID, err)
		}
		if v, err := DecodePartitionState(data, 1); err == nil {
			w, err := DecodePartitionState(EncodePartitionState(v), 1)
			check(t, "state", w, v, err)
		}
		if v, err := DecodeBroker(data); err == nil && v.Version >= 5 {
			w, err := DecodeBroker(EncodeBroker(v))
			check(t, "broker", w.Rack, v.Rack, err)
		}
	})
}
