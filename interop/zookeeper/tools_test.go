//go:build interop

package zookeeper

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	core "klamm/internal/cluster"
)

// toolbox is one JVM in which Kafka's tools run.
type toolbox struct {
	c      *cluster
	asks   *json.Encoder
	says   *bufio.Reader
	output strings.Builder
}

func (c *cluster) toolbox() *toolbox {
	c.Helper()
	c.write("silent.properties", "log4j.rootLogger=OFF\n")
	cmd := exec.Command("java", java(c.T, kafka, "-Xmx400M", "-Dlog4j.configuration=file:"+filepath.Join(c.dir, "silent.properties"),
		filepath.Join("testdata", "Tools.java"))...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		c.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	return &toolbox{c: c, asks: json.NewEncoder(stdin), says: bufio.NewReader(stdout)}
}

// tools by their script's name.
var tools = map[string]string{
	"kafka-topics": "org.apache.kafka.tools.TopicCommand", "kafka-configs": "kafka.admin.ConfigCommand", "kafka-acls": "kafka.admin.AclCommand",
	"kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
	"kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
	"kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand", "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
	"kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand", "kafka-dump-log": "kafka.tools.DumpLogSegments",
	"kafka-console-producer": "kafka.tools.ConsoleProducer", "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-cluster": "org.apache.kafka.tools.ClusterTool", "kafka-features": "org.apache.kafka.tools.FeatureCommand",
}

// do runs a command line that must succeed, which says itself whom to ask.
func (b *toolbox) do(line string) {
	b.c.Helper()
	words := strings.Fields(line)
	if exit, out := b.call(words[0], words[1:], ""); exit != 0 {
		b.c.Fatalf("%s\nended with %d:\n%s", line, exit, out)
	}
}

// call runs a tool.
func (b *toolbox) call(name string, args []string, stdin string) (exit int, out string) {
	b.c.Helper()
	if err := b.asks.Encode(map[string]any{"class": tools[name], "args": args, "stdin": stdin}); err != nil {
		b.c.Fatal(err)
	}
	answer, err := b.says.ReadBytes('\n')
	if err != nil {
		b.c.Fatalf("%s %v: the tools ended: %v", name, args, err)
	}
	var said struct {
		Exit int
		Out  string
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		b.c.Fatalf("%s %v: %v in %s", name, args, err, answer)
	}
	return said.Exit, said.Out
}

// run runs a command line, whose words are parted by blanks, and adds what it said to the output.
func (b *toolbox) run(line string) {
	b.c.Helper()
	line, stdin, _ := strings.Cut(line, " <<< ")
	words := strings.Fields(line)
	args := words[1:]
	if words[0] != "kafka-dump-log" {
		i := 0
		if words[0] == "kafka-cluster" || words[0] == "kafka-features" { // their subcommand comes first or last
			i = 1
		}
		if words[0] == "kafka-features" {
			i = 0
		}
		args = slices.Insert(slices.Clone(args), i, "--bootstrap-server", b.c.brokers[0].addr)
	}
	exit, out := b.call(words[0], args, strings.ReplaceAll(stdin, ";", "\n"))
	fmt.Fprintf(&b.output, "$ %s\n", b.plain(line))
	lines := strings.Split(strings.TrimRight(b.plain(out), "\n"), "\n")
	if unordered.MatchString(line) {
		slices.Sort(lines)
	}
	if words[0] == "kafka-broker-api-versions" {
		lines = slices.Compact(lines) // all brokers say the same
	}
	fmt.Fprintf(&b.output, "%s\nexit %d\n\n", strings.Join(lines, "\n"), exit)
}

// unordered are the tools that print out of hash tables.
var unordered = regexp.MustCompile(`^kafka-(acls|consumer-groups|broker-api-versions|log-dirs|configs --describe --all)`)

// variable is what differs between any two clusters: addresses, ids, times, and what a tool says that has no place for it.
var variable = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST:PORT"},
	{regexp.MustCompile(`TopicId: [\w-]{22}`), "TopicId: ID"},
	{regexp.MustCompile(`Cluster ID: [\w-]{22}`), "Cluster ID: ID"},
	{regexp.MustCompile(`\b1[5-9]\d{11}\b`), "TIME"},
	{regexp.MustCompile(`\[20\d\d-[^\]]*\]`), "[TIME]"},
	{regexp.MustCompile(`\(kafka\.[\w.$]+\)|\(org\.apache[\w.$]+\)`), ""},
	{regexp.MustCompile(`(?m)^\s+at .*\n?`), ""},
	{regexp.MustCompile(`baseOffset: (\d+) .* isvalid: true`), "baseOffset: $1 isvalid: true"},
	{regexp.MustCompile(`(OffsetCommit\(8\)|OffsetFetch\(9\)): [01] to 9`), "$1: to 9"}, // version 0 keeps offsets in ZooKeeper
	{regexp.MustCompile(`[ \t]+\n`), "\n"},
	{regexp.MustCompile(`[ \t]{2,}`), " "},
}

func (b *toolbox) plain(s string) string {
	s = strings.ReplaceAll(s, b.c.dir, "DIR")
	for _, v := range variable {
		s = v.pattern.ReplaceAllString(s, v.instead)
	}
	return s
}

// moveStep moves a partition; what follows waits for its end.
const moveStep = "kafka-reassign-partitions --reassignment-json-file DIR/move.json --execute"

// toolSteps are the command lines, in order. "<<<" gives standard input, ";" a new line in it.
var toolSteps = []string{
	"kafka-broker-api-versions",
	"kafka-cluster cluster-id",
	"kafka-topics --create --topic t --partitions 2 --replication-factor 2 --config retention.ms=3600000",
	"kafka-topics --create --topic t",
	"kafka-topics --create --topic t.x_y --replica-assignment 0:1,1:2",
	"kafka-topics --create --topic bad --config nope=1",
	"kafka-topics --describe --topic t.x_y",
	"kafka-topics --list",
	"kafka-topics --alter --topic t --partitions 3",
	"kafka-topics --describe --topic absent",
	"kafka-configs --alter --entity-type topics --entity-name t --add-config max.message.bytes=2000,cleanup.policy=[compact,delete]",
	"kafka-configs --describe --entity-type topics --entity-name t",
	"kafka-configs --alter --entity-type topics --entity-name t --add-config segment.bytes=1",
	"kafka-configs --alter --entity-type brokers --entity-default --add-config log.cleaner.threads=1",
	"kafka-configs --describe --entity-type brokers --entity-default",
	"kafka-configs --alter --entity-type users --entity-name u --entity-type clients --entity-name c --add-config producer_byte_rate=1048576",
	"kafka-configs --describe --entity-type users --entity-name u --entity-type clients --entity-name c",
	"kafka-configs --alter --entity-type users --entity-name u --add-config SCRAM-SHA-256=[iterations=4096,password=one]",
	"kafka-configs --alter --entity-type users --entity-name u --add-config SCRAM-SHA-256=[iterations=1,password=one]",
	"kafka-configs --describe --entity-type users --entity-name u",
	"kafka-configs --alter --entity-type users --entity-name u --delete-config SCRAM-SHA-256",
	"kafka-configs --alter --entity-type users --entity-name u --delete-config SCRAM-SHA-256",
	"kafka-configs --alter --entity-type ips --entity-name 127.0.0.9 --add-config connection_creation_rate=20",
	"kafka-configs --describe --entity-type ips --entity-name 127.0.0.9",
	"kafka-acls --add --allow-principal User:u --operation Read --topic t --force",
	"kafka-acls --list --topic t",
	"kafka-acls --add --deny-principal User:v --deny-host 10.0.0.1 --operation Write --topic pre --resource-pattern-type prefixed --force",
	"kafka-acls --list --topic prefix --resource-pattern-type match",
	"kafka-acls --remove --topic t --force",
	"kafka-acls --remove --topic pre --resource-pattern-type prefixed --force",
	"kafka-acls --list",
	"kafka-console-producer --topic t.x_y --property parse.key=true --property key.separator=: <<< a:1;b:2;c:3;d:4;e:5;f:6",
	"kafka-get-offsets --topic t.x_y",
	"kafka-get-offsets --topic-partitions t.*:1-2,t.x_y:0 --time earliest",
	"kafka-get-offsets --topic absent",
	"kafka-consumer-groups --group g --topic t.x_y --reset-offsets --to-earliest --execute",
	"kafka-consumer-groups --describe --group g",
	"kafka-consumer-groups --list --state",
	"kafka-consumer-groups --describe --group g --members --verbose",
	"kafka-consumer-groups --group g --topic t.x_y:0 --reset-offsets --shift-by 2 --dry-run",
	"kafka-consumer-groups --group g --topic t.x_y:0 --delete-offsets",
	"kafka-consumer-groups --describe --group absent",
	"kafka-consumer-groups --delete --group g",
	"kafka-delete-records --offset-json-file DIR/delete.json",
	"kafka-delete-records --offset-json-file DIR/beyond.json",
	"kafka-get-offsets --topic t.x_y --time -2",
	"kafka-log-dirs --describe --topic-list t.x_y --broker-list 2",
	"kafka-log-dirs --describe --topic-list absent --broker-list 0",
	"kafka-log-dirs --describe --broker-list 9",
	"kafka-reassign-partitions --topics-to-move-json-file DIR/topics.json --broker-list 0 --generate",
	"kafka-reassign-partitions --reassignment-json-file DIR/unknown.json --execute",
	"kafka-reassign-partitions --reassignment-json-file DIR/move.json --cancel",
	"kafka-leader-election --election-type PREFERRED --topic t.x_y --partition 1",
	"kafka-leader-election --election-type PREFERRED --topic absent --partition 0",
	"kafka-leader-election --election-type UNCLEAN --topic t.x_y --partition 0",
	"kafka-dump-log --files DIR/b0/data/t.x_y-0/00000000000000000000.log --print-data-log",
	moveStep,
	"kafka-reassign-partitions --reassignment-json-file DIR/move.json --verify",
	"kafka-reassign-partitions --list",
	"kafka-topics --describe --topic t.x_y",
	"kafka-topics --describe --under-replicated-partitions",
	"kafka-topics --describe --topics-with-overrides",
	"kafka-topics --delete --topic t.x_y",
	"kafka-topics --delete --topic absent",
}

// rulesListed says before which steps every broker must have so many access rules: a tool asks whichever broker it likes, and brokers learn of
// rules by notification.
var rulesListed = map[string]int{
	"kafka-acls --list --topic t":                                    1,
	"kafka-acls --list --topic prefix --resource-pattern-type match": 2,
	"kafka-acls --list":                                              0,
}

func (c *cluster) awaitRules(n int) {
	c.Helper()
	const anything = 1
	for _, b := range c.brokers {
		asked := c.through(b.id).SeedBrokers()[0]
		c.eventually(30*time.Second, fmt.Sprintf("broker %d has %d access rules", b.id, n), func() (bool, string) {
			req := kmsg.NewPtrDescribeACLsRequest()
			req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = anything, anything, anything, anything
			resp, err := asked.RetriableRequest(c.Context(), req)
			if err != nil {
				return false, err.Error()
			}
			rules := 0
			for _, r := range resp.(*kmsg.DescribeACLsResponse).Resources {
				rules += len(r.ACLs)
			}
			return rules == n, fmt.Sprint(rules)
		})
	}
}

// notServed are the APIs of Kafka 3.9.1 in ZooKeeper mode that klamm need not serve: transactions, what is for brokers and controllers of KRaft, and the
// preview of KIP-848.
var notServed = []string{
	"AddPartitionsToTxn(24)", "AddOffsetsToTxn(25)", "EndTxn(26)", "WriteTxnMarkers(27)", "TxnOffsetCommit(28)", "DescribeTransactions(65)",
	"ListTransactions(66)", "Envelope(58)", "ConsumerGroupHeartbeat(68)", "ConsumerGroupDescribe(69)",
}

// TestKafkasToolsSayTheSameOfKlammOnZooKeeper compares what Kafka 3.9.1's tools print of three klamm brokers with what they printed of three Kafka
// brokers. With INTEROP_RECORD=tools it writes that down anew.
func TestKafkasToolsSayTheSameOfKlammOnZooKeeper(t *testing.T) {
	record := os.Getenv("INTEROP_RECORD") == "tools"
	kinds := []kind{klamm, klamm, klamm}
	if record {
		kinds = []kind{kafka, kafka, kafka}
	}
	c := newClusterOf(t, setup{brokers: kinds, properties: "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nallow.everyone.if.no.acl.found=true\nsuper.users=User:admin\nauto.create.topics.enable=false"})
	c.start(0, 1, 2)
	c.write("delete.json", `{"partitions":[{"topic":"t.x_y","partition":0,"offset":1}],"version":1}`)
	c.write("beyond.json", `{"partitions":[{"topic":"t.x_y","partition":0,"offset":99},{"topic":"t.x_y","partition":1,"offset":-1}],"version":1}`)
	c.write("topics.json", `{"version":1,"topics":[{"topic":"t.x_y"}]}`)
	c.write("unknown.json", `{"version":1,"partitions":[{"topic":"t.x_y","partition":0,"replicas":[99]}]}`)
	c.write("move.json", `{"version":1,"partitions":[{"topic":"t.x_y","partition":0,"replicas":[1,2]}]}`)
	c.step("three brokers serve")
	b := c.toolbox()
	for _, line := range toolSteps {
		if rules, lists := rulesListed[line]; lists {
			c.awaitRules(rules)
		}
		b.run(strings.ReplaceAll(line, "DIR", c.dir))
		if line == moveStep {
			c.awaitPlaced(core.TopicPartition{Topic: "t.x_y"}, []int32{1, 2})
		}
	}
	c.step("%d tools have run", len(toolSteps))
	file := filepath.Join("testdata", "tools.txt")
	if record {
		if err := os.WriteFile(file, []byte(b.output.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := b.output.String()
	for _, api := range notServed {
		if !strings.Contains(got, api+": UNSUPPORTED") {
			t.Errorf("klamm serves %s: it should be compared", api)
		}
		line := regexp.MustCompile(`\t` + regexp.QuoteMeta(api) + `: .*\n`)
		got, want = line.ReplaceAllString(got, ""), line.ReplaceAll(want, nil)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n\n"), strings.Split(got, "\n\n")); d != "" {
		t.Errorf("of Kafka - and of klamm +\n%s", d)
	}
}
