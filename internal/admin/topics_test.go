package admin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// recorded is one run of Kafka 3.9.1's tool: testdata/kafka-topics-3.9.1.json holds what it printed, without times, stack traces and
// the text of its help.
type recorded struct {
	Desc   string
	Args   []string
	Exit   int
	Stdout string
	Stderr string
	Usage  bool // the help followed
}

func recordings(t *testing.T) []recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/kafka-topics-3.9.1.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []recorded
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func recording(t *testing.T, desc string) recorded {
	t.Helper()
	all := recordings(t)
	i := slices.IndexFunc(all, func(r recorded) bool { return r.Desc == desc })
	if i < 0 {
		t.Fatalf("nothing recorded as %q", desc)
	}
	return all[i]
}

// fakeCluster answers from what a test puts in.
type fakeCluster struct {
	topics   []kmsg.MetadataResponseTopic
	configs  map[string][]kmsg.DescribeConfigsResponseResourceConfig
	code     cluster.ErrorCode // of every create, delete or partition request
	message  *string
	moving   *kmsg.ListPartitionReassignmentsResponse // nil: the request is not known
	requests []kmsg.Request                           // those that change something
}

func (f *fakeCluster) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req := req.(type) {
	case *kmsg.MetadataRequest:
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, id := range []int32{0, 1, 2} {
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: id})
		}
		for _, m := range f.topics {
			asked := func(x kmsg.MetadataRequestTopic) bool { return *x.Topic == *m.Topic }
			if req.Topics == nil || slices.ContainsFunc(req.Topics, asked) {
				resp.Topics = append(resp.Topics, m)
			}
		}
		return resp, nil
	case *kmsg.DescribeConfigsRequest:
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		resp.Version = 4
		for _, r := range req.Resources {
			resp.Resources = append(resp.Resources, kmsg.DescribeConfigsResponseResource{ResourceName: r.ResourceName, Configs: f.configs[r.ResourceName]})
		}
		return resp, nil
	case *kmsg.ListPartitionReassignmentsRequest:
		if f.moving == nil {
			return nil, errors.New("broker is too old; the broker has already indicated it will not know how to handle the request")
		}
		return f.moving, nil
	}
	return f.change(req)
}

// change notes the request and answers its first topic with the code.
func (f *fakeCluster) change(req kmsg.Request) (kmsg.Response, error) {
	f.requests = append(f.requests, req)
	switch resp := req.ResponseKind().(type) {
	case *kmsg.CreateTopicsResponse:
		resp.Topics = []kmsg.CreateTopicsResponseTopic{{ErrorCode: int16(f.code), ErrorMessage: f.message}}
		return resp, nil
	case *kmsg.CreatePartitionsResponse:
		resp.Topics = []kmsg.CreatePartitionsResponseTopic{{ErrorCode: int16(f.code), ErrorMessage: f.message}}
		return resp, nil
	case *kmsg.DeleteTopicsResponse:
		resp.Topics = []kmsg.DeleteTopicsResponseTopic{{ErrorCode: int16(f.code), ErrorMessage: f.message}}
		return resp, nil
	}
	return nil, errors.New("request not known")
}

// outcome is what a run printed and returned.
type outcome struct {
	exit           int
	stdout, stderr string
}

// runOn parses the arguments and runs against the fake, as TopicsMain does against real brokers.
func runOn(t *testing.T, f *fakeCluster, args []string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	opts, err := parseTopicsOptions(args)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	tool := &topicsTool{stdout: &stdout, stderr: &stderr, opts: opts, brokers: f, now: func() time.Time { return time.Unix(0, 0).UTC() }}
	exit := tool.run(context.Background())
	return outcome{exit, stdout.String(), stderr.String()}
}

// want is the recorded outcome in our form: with the fixed quirk of 3.9, and the time of the test's clock.
func (r recorded) want() outcome {
	plain := func(s string) string {
		for {
			before, rest, found := strings.Cut(s, "Optional[")
			if !found {
				return s
			}
			name, after, _ := strings.Cut(rest, "]'")
			s = before + name + "'" + after
		}
	}
	o := outcome{r.Exit, plain(r.Stdout), plain(r.Stderr)}
	if r.Stderr != "" {
		o.stderr = "[1970-01-01 00:00:00,000] " + o.stderr + "\n (org.apache.kafka.tools.TopicCommand)\n"
	}
	return o
}

func TestMistakesInTheOptionsReadAsInKafka(t *testing.T) {
	for _, r := range recordings(t) {
		if !r.Usage && !strings.HasPrefix(r.Desc, "--") && !strings.HasPrefix(r.Desc, "no ") && r.Desc != "unknown option" {
			continue
		}
		if r.Desc == "--help" || r.Desc == "command-config missing file" {
			continue // our help is our own, and asking for it is no failure
		}
		var stdout, stderr strings.Builder
		exit := TopicsMain(context.Background(), r.Args, &stdout, &stderr)
		firstLine, rest, _ := strings.Cut(stderr.String(), "\n")
		if exit != r.Exit || stdout.String() != r.Stdout || firstLine != r.Stderr || strings.Contains(rest, "Where:") != r.Usage {
			t.Errorf("%s: %d %q %q, Kafka has %d %q %q", r.Desc, exit, stdout.String(), stderr.String(), r.Exit, r.Stdout, r.Stderr)
		}
	}
}

func TestOptionsAreReadAsKafkasParserReadsThem(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // error, or "" with the topic and partitions below
	}{
		{"--list --bootstrap-server a:1 --topic", "Option topic requires an argument"},
		{"--list --bootstrap-server a:1 --topic a --topic b", "Found multiple arguments for option topic, but you asked for only one"},
		{"--alter --bootstrap-server a:1 --topic a --partitions x", "Cannot parse argument 'x' of option partitions"},
		{"--list --bootstrap-server a:1 --top x", "top is not a recognized option\n'klamm topics --help' lists the options"},
		{"--list --bootstrap-server a:1 --topic=a=b", ""},
		{"-list -bootstrap-server a:1 stray -topic a=b", ""},
		{"--list --bootstrap-server a:1 --topic a=b -- --nonsense", ""},
	} {
		o, err := parseTopicsOptions(strings.Fields(c.args))
		switch {
		case c.want == "" && (err != nil || o.value("topic") != "a=b" || o.action != "list"):
			t.Errorf("%s: %v", c.args, err)
		case c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%s: %v", c.args, err)
		}
	}
}

// Failures that the tool finds by itself, and those that a broker's answer causes, with the answer's code.
func TestCreationsEndAsInKafka(t *testing.T) {
	ptr := kmsg.StringPtr
	for desc, answer := range map[string]struct {
		code    cluster.ErrorCode
		message *string
	}{
		"create": {}, "create defaults (no partitions, no rf)": {}, "create with config": {}, "create with assignment": {}, "create name with dot and underscore": {},
		"create empty name": {}, "create unknown config": {}, "create bad config value": {}, "create malformed config": {}, "create 0 partitions": {},
		"create -1 partitions": {}, "create rf 0": {}, "create rf 99999": {}, "create with assignment, duplicate replica": {},
		"create existing":                        {cluster.TopicAlreadyExists, ptr("Topic 'c1' already exists.")},
		"create existing with --if-not-exists":   {cluster.TopicAlreadyExists, ptr("Topic 'c1' already exists.")},
		"create bad name (..)":                   {cluster.InvalidTopicException, ptr("Topic name is invalid: '..' is not allowed")},
		"create name colliding with it (a_b_c)":  {cluster.InvalidTopicException, ptr("Topic 'a_b_c' collides with existing topics: a.b_c")},
		"create rf 9":                            {cluster.InvalidReplicationFactor, ptr("Replication factor: 9 larger than available brokers: 3.")},
		"create with assignment, unknown broker": {cluster.RequestTimedOut, nil},
	} {
		r := recording(t, desc)
		got := runOn(t, &fakeCluster{code: answer.code, message: answer.message}, r.Args)
		if d := cmp.Diff(r.want(), got, cmp.AllowUnexported(outcome{})); d != "" {
			t.Errorf("%s: %s", desc, d)
		}
	}
}

func TestACreationAsksForWhatWasGiven(t *testing.T) {
	f := &fakeCluster{}
	runOn(t, f, strings.Fields("--bootstrap-server a:1 --create --topic t --replica-assignment 0:1,1:2 --config retention.ms=5 --config cleanup.policy=compact --config retention.ms=6"))
	runOn(t, f, strings.Fields("--bootstrap-server a:1 --create --topic t --partitions 3 --replication-factor 2"))
	first, second := f.requests[0].(*kmsg.CreateTopicsRequest).Topics[0], f.requests[1].(*kmsg.CreateTopicsRequest).Topics[0]
	if d := cmp.Diff([][]int32{{0, 1}, {1, 2}}, [][]int32{first.ReplicaAssignment[0].Replicas, first.ReplicaAssignment[1].Replicas}); d != "" || first.ReplicaAssignment[1].Partition != 1 {
		t.Error(d)
	}
	if first.NumPartitions != -1 || first.ReplicationFactor != -1 || len(first.Configs) != 2 || *first.Configs[0].Value != "6" || first.Configs[1].Name != "cleanup.policy" {
		t.Errorf("%+v", first)
	}
	if second.NumPartitions != 3 || second.ReplicationFactor != 2 || len(second.ReplicaAssignment) != 0 {
		t.Errorf("%+v", second)
	}
	if f.requests[0].(*kmsg.CreateTopicsRequest).TimeoutMillis != 30_000 {
		t.Error("timeout is not request.timeout.ms")
	}
}

func TestBadAssignmentsAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"0:0:1:1":   "Partition replica lists may not contain duplicate entries: 0,1",
		"0:1,2":     "Partition 1 has different replication factor: [2]",
		"0:1,2:3:4": "Partition 1 has different replication factor: [2, 3, 4]",
		"0:x":       `For input string: "x"`,
	} {
		got := runOn(t, &fakeCluster{}, []string{"--bootstrap-server", "a:1", "--create", "--topic", "t", "--replica-assignment", text})
		if got.exit != 1 || got.stdout != "Error while executing topic command : "+want+"\n" {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// clusterOf reads the recorded description of a cluster back into what its brokers answered.
func clusterOf(t *testing.T, text string) *fakeCluster {
	t.Helper()
	f := &fakeCluster{configs: map[string][]kmsg.DescribeConfigsResponseResourceConfig{}}
	for line := range strings.Lines(text) {
		fields := map[string]string{}
		for _, part := range strings.Split(strings.TrimSpace(line), "\t") {
			k, v, _ := strings.Cut(part, ":")
			fields[k] = strings.TrimSpace(v)
		}
		name := fields["Topic"]
		if !strings.HasPrefix(line, "\t") {
			id, err := cluster.ParseTopicID(fields["TopicId"])
			if err != nil {
				t.Fatal(err)
			}
			f.topics = append(f.topics, kmsg.MetadataResponseTopic{Topic: &name, TopicID: id})
			f.configs[name] = configsOf(fields["Configs"])
			continue
		}
		m := &f.topics[len(f.topics)-1]
		m.Partitions = append(m.Partitions, kmsg.MetadataResponseTopicPartition{
			Partition: ids(fields["Partition"])[0], Leader: ids(fields["Leader"])[0], Replicas: ids(fields["Replicas"]), ISR: ids(fields["Isr"]),
		})
	}
	return f
}

func configsOf(text string) []kmsg.DescribeConfigsResponseResourceConfig {
	one := "1"
	out := []kmsg.DescribeConfigsResponseResourceConfig{{Name: "min.insync.replicas", Value: &one, Source: kmsg.ConfigSourceDefaultConfig}}
	for _, part := range strings.Split(text, ",") {
		if k, v, ok := strings.Cut(part, "="); ok {
			out = append(out, kmsg.DescribeConfigsResponseResourceConfig{Name: k, Value: &v, Source: kmsg.ConfigSourceDynamicTopicConfig})
		}
	}
	return out
}

func ids(text string) []int32 {
	var out []int32
	for _, s := range strings.Split(text, ",") {
		n, _ := strconv.ParseInt(s, 10, 32)
		out = append(out, int32(n))
	}
	return out
}

// sortedTopics puts the blocks of a description in the order of names, which Kafka's tool leaves to chance.
func sortedTopics(text string) string {
	var blocks []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "\t") && len(blocks) > 0 {
			blocks[len(blocks)-1] += line
		} else {
			blocks = append(blocks, line)
		}
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "")
}

func TestListingsAndDescriptionsReadAsInKafka(t *testing.T) {
	all := recording(t, "describe all").Stdout
	for _, desc := range []string{
		"list", "list --exclude-internal", "list --topic regex", "describe one", "describe with config", "describe all", "describe regex", "describe missing",
		"describe missing --if-exists", "describe --under-replicated-partitions", "describe --topics-with-overrides", "describe --at-min-isr-partitions",
		"describe --topic-id missing",
	} {
		r := recording(t, desc)
		got, want := runOn(t, clusterOf(t, all), r.Args), r.want()
		want.stdout = sortedTopics(want.stdout)
		if d := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); d != "" {
			t.Errorf("%s: %s", desc, d)
		}
	}
	if got := runOn(t, &fakeCluster{}, recording(t, "list after that").Args); got.stdout != "\n" {
		t.Errorf("list of nothing: %q", got.stdout)
	}
}

func TestReportsShowWhatTheySay(t *testing.T) {
	two, name := "2", "t"
	f := &fakeCluster{
		topics: []kmsg.MetadataResponseTopic{{Topic: &name, Partitions: []kmsg.MetadataResponseTopicPartition{
			{Partition: 0, Leader: 0, Replicas: []int32{0, 1, 2}, ISR: []int32{0, 1, 2}},
			{Partition: 1, Leader: 0, Replicas: []int32{0, 1, 2}, ISR: []int32{0, 1}},
			{Partition: 2, Leader: 1, Replicas: []int32{0, 1, 2}, ISR: []int32{1}},
			{Partition: 3, Leader: -1, Replicas: []int32{0, 1, 2}, ISR: []int32{0, 1, 2}},
			{Partition: 4, Leader: 7, Replicas: []int32{7}, ISR: []int32{7}},
			{Partition: 5, Leader: 0, Replicas: []int32{0, 1, 2, 3}, ISR: []int32{0, 1, 2}},
		}}},
		configs: map[string][]kmsg.DescribeConfigsResponseResourceConfig{name: {{Name: "min.insync.replicas", Value: &two}}},
		moving: &kmsg.ListPartitionReassignmentsResponse{Topics: []kmsg.ListPartitionReassignmentsResponseTopic{{Topic: name,
			Partitions: []kmsg.ListPartitionReassignmentsResponseTopicPartition{{Partition: 5, Replicas: []int32{0, 1, 2, 3}, AddingReplicas: []int32{3}}}}}},
	}
	for args, want := range map[string]string{
		"--under-replicated-partitions":                          "1 2",
		"--unavailable-partitions":                               "3 4",
		"--under-min-isr-partitions":                             "2 3 4",
		"--at-min-isr-partitions":                                "1",
		"--unavailable-partitions --at-min-isr-partitions":       "1 3 4",
		"--under-replicated-partitions --unavailable-partitions": "1 2 3 4",
	} {
		got := runOn(t, f, strings.Fields("--bootstrap-server a:1 --describe "+args))
		var shown []string
		for line := range strings.Lines(got.stdout) {
			_, rest, _ := strings.Cut(line, "Partition: ")
			n, _, _ := strings.Cut(rest, "\t")
			shown = append(shown, n)
		}
		if s := strings.Join(shown, " "); s != want {
			t.Errorf("%s: %s, want %s", args, s, want)
		}
	}
	got := runOn(t, f, strings.Fields("--bootstrap-server a:1 --describe"))
	for _, want := range []string{
		"Topic: t\tPartitionCount: 6\tReplicationFactor: 3\tConfigs: min.insync.replicas=2\n",
		"\tPartition: 3\tLeader: none\tReplicas: 0,1,2\t",
		"\tPartition: 5\tLeader: 0\tReplicas: 0,1,2,3\tIsr: 0,1,2\tAdding Replicas: 3\tRemoving Replicas: \tElr: N/A\tLastKnownElr: N/A\n",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%q lacks %q", got.stdout, want)
		}
	}
}

func TestAlterationsEndAsInKafka(t *testing.T) {
	ptr := kmsg.StringPtr
	all := recording(t, "describe all").Stdout
	for desc, answer := range map[string]struct {
		code    cluster.ErrorCode
		message *string
	}{
		"alter more partitions": {}, "alter missing": {}, "alter missing --if-exists": {}, "alter internal": {},
		"alter fewer partitions": {cluster.InvalidPartitions, ptr("Topic currently has 4 partitions, which is higher than the requested 1.")},
		"alter same partitions":  {cluster.InvalidPartitions, ptr("Topic already has 4 partitions.")},
		"delete":                 {}, "delete with regex matching some": {}, "delete with regex c[23]": {}, "delete comma list": {},
		"delete with regex matching none": {}, "delete internal __consumer_offsets": {},
	} {
		r, f := recording(t, desc), clusterOf(t, all)
		f.code, f.message = answer.code, answer.message
		if d := cmp.Diff(r.want(), runOn(t, f, r.Args), cmp.AllowUnexported(outcome{})); d != "" {
			t.Errorf("%s: %s", desc, d)
		}
	}
	f := clusterOf(t, all)
	runOn(t, f, strings.Fields("--bootstrap-server a:1 --alter --topic c1 --partitions 4 --replica-assignment 0,1,2,0"))
	topic := f.requests[0].(*kmsg.CreatePartitionsRequest).Topics[0]
	if topic.Count != 4 || len(topic.Assignment) != 2 || topic.Assignment[0].Replicas[0] != 2 {
		t.Errorf("%+v", topic)
	}
}

func TestADeletionNamesEveryMatchInOneRequest(t *testing.T) {
	f := clusterOf(t, recording(t, "describe all").Stdout)
	runOn(t, f, strings.Fields("--bootstrap-server a:1 --delete --topic c[12]|c5,nosuch"))
	req := f.requests[0].(*kmsg.DeleteTopicsRequest)
	if d := cmp.Diff([]string{"c1", "c2", "c5"}, req.TopicNames); d != "" || len(req.Topics) != 3 || *req.Topics[2].Topic != "c5" || len(f.requests) != 1 {
		t.Error(d, f.requests)
	}
	f.code = cluster.TopicDeletionDisabled
	got := runOn(t, f, strings.Fields("--bootstrap-server a:1 --delete --topic c1"))
	if got.stdout != "Error while executing topic command : Topic deletion is disabled.\n" || !strings.Contains(got.stderr, "ERROR org.apache.kafka.common.errors.TopicDeletionDisabledException: Topic deletion is disabled.") {
		t.Errorf("%+v", got)
	}
}

// W29: Kafka deletes what the pattern matches.
func TestAPersonIsAskedBeforeSeveralTopicsGo(t *testing.T) {
	for _, c := range []struct {
		name, args, answer string
		interactive        bool
		asked, deleted     bool
	}{
		{"yes", "--topic c.*", "y\n", true, true, true},
		{"no", "--topic c.*", "\n", true, true, false},
		{"nothing", "--topic c.*", "", true, true, false},
		{"one match", "--topic c1", "", true, false, true},
		{"force", "--topic c.* --force", "", true, false, true},
		{"script", "--topic c.*", "", false, false, true},
	} {
		var stdout, stderr strings.Builder
		opts, err := parseTopicsOptions(strings.Fields("--bootstrap-server a:1 --delete " + c.args))
		if err != nil {
			t.Fatal(err)
		}
		f := clusterOf(t, recording(t, "describe all").Stdout)
		tool := &topicsTool{stdin: strings.NewReader(c.answer), stdout: &stdout, stderr: &stderr, interactive: c.interactive, opts: opts, brokers: f, now: time.Now}
		exit := tool.run(context.Background())
		asked := strings.Contains(stderr.String(), "'c.*' matches 4 topics:\n  c1\n  c2\n  c3\n  c5\nDelete all of them? [y/N] ")
		if asked != c.asked || (len(f.requests) == 1) != c.deleted || (exit == 0) != c.deleted {
			t.Errorf("%s: exit %d, %d requests, %q", c.name, exit, len(f.requests), stderr.String())
		}
	}
}

func TestBrokersOutOfReachEndWithKafkasText(t *testing.T) {
	var stdout, stderr strings.Builder
	file := t.TempDir() + "/client.properties"
	if err := os.WriteFile(file, []byte("default.api.timeout.ms=300\nclient.id=me"), 0o600); err != nil {
		t.Fatal(err)
	}
	exit := TopicsMain(context.Background(), []string{"--bootstrap-server", "127.0.0.1:1", "--list", "--command-config", file}, &stdout, &stderr)
	if exit != 1 || stdout.String() != "Error while executing topic command : Timed out waiting for a node assignment. Call: listTopics\n" || !strings.Contains(stderr.String(), "cause: ") {
		t.Errorf("%d %q %q", exit, stdout.String(), stderr.String())
	}
}

func TestClientPropertiesThatCannotBeFollowedAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"security.protocol=TLS":                                                            "security.protocol=TLS: want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
		"security.protocol=SASL_PLAINTEXT":                                                 "sasl.mechanism=: want PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
		"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN":                           `sasl.jaas.config must be one entry: org.apache.kafka.common.security.plain.PlainLoginModule required username="name" password="secret";`,
		"security.protocol=SSL\nssl.truststore.location=/absent":                           "ssl.truststore.location: open /absent: no such file or directory",
		"security.protocol=SSL\nssl.truststore.location=/x\nssl.truststore.certificates=y": "only one of ssl.truststore.location and ssl.truststore.certificates may be set",
		"security.protocol=sasl_plaintext\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=u password=p;": "",
		"security.protocol=SSL":         "",
		"request.timeout.ms=soon":       "Invalid value soon for configuration request.timeout.ms: Not a number of type INT",
		"default.api.timeout.ms=-1":     "Invalid value -1 for configuration default.api.timeout.ms: Value must be at least 0",
		"security.protocol = plaintext": "",
	} {
		file := t.TempDir() + "/client.properties"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := parseTopicsOptions([]string{"--bootstrap-server", "a:1", "--list", "--command-config", file})
		if err != nil {
			t.Fatal(err)
		}
		client, _, err := connect(o, func(string, error) {})
		if want == "" && err == nil {
			client.Close()
			continue
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	var stdout, stderr strings.Builder
	if exit := TopicsMain(context.Background(), recording(t, "command-config missing file").Args, &stdout, &stderr); exit != 1 || !strings.Contains(stderr.String(), "/nonexistent") {
		t.Errorf("%d %q", exit, stderr.String())
	}
}

func TestHelpFitsAndNamesEveryOption(t *testing.T) {
	var stdout, stderr strings.Builder
	if exit := TopicsMain(context.Background(), []string{"--help"}, &stdout, &stderr); exit != 0 || stderr.String() != "" {
		t.Errorf("exit %d %q", exit, stderr.String())
	}
	for _, o := range topicsOptionTable {
		if !strings.Contains(stdout.String(), "--"+o.name) {
			t.Errorf("--%s is not in the help", o.name)
		}
	}
	for line := range strings.Lines(stdout.String()) {
		if len(line) > helpWidth+1 {
			t.Errorf("too wide: %q", line)
		}
	}
}

func TestRefusedAuthenticationIsNotCalledATimeout(t *testing.T) {
	for name, c := range map[string]struct {
		err            error
		class, message string
	}{
		"wrong password": {fmt.Errorf("%w: %s", kerr.SaslAuthenticationFailed, "Authentication failed: Invalid username or password"),
			"SaslAuthenticationException", "Authentication failed: Invalid username or password"},
		"wrong password, broker says nothing": {fmt.Errorf("unable to open: %w", kerr.SaslAuthenticationFailed), "SaslAuthenticationException", "SASL Authentication failed."},
		"mechanism that is not enabled":       {kerr.UnsupportedSaslMechanism, "UnsupportedSaslMechanismException", "The broker does not support the requested SASL mechanism."},
		"SASL on a listener without":          {kerr.IllegalSaslState, "IllegalSaslStateException", "Request is not valid given the current SASL state."},
		"certificate of an unknown authority": {fmt.Errorf("unable to dial: %w", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}),
			"SslAuthenticationException", "SSL handshake failed"},
		"nobody there": {errors.New("connection refused"), "TimeoutException", "Timed out waiting for a node assignment. Call: listTopics"},
	} {
		f := unanswered("listTopics", c.err)
		if f.class != "org.apache.kafka.common.errors."+c.class || f.message != c.message {
			t.Errorf("%s: %s: %s, want %s: %s", name, f.class, f.message, c.class, c.message)
		}
	}
}
