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

	"github.com/google/go-cmp/cmp"
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
	cmd := exec.Command("java", "-XX:TieredStopAtLevel=1", "-Xmx400M", "-Dlog4j.configuration=file:"+filepath.Join(c.dir, "silent.properties"),
		"-cp", jars(c.T, kafka), filepath.Join("testdata", "Tools.java"))
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
	"kafka-acls --add --allow-principal User:u --operation Read --topic t --force",
	"kafka-acls --list --topic t",
	"kafka-acls --remove --topic t --force",
	"kafka-console-producer --topic t.x_y --property parse.key=true --property key.separator=: <<< a:1;b:2;c:3;d:4;e:5;f:6",
	"kafka-get-offsets --topic t.x_y",
	"kafka-consumer-groups --group g --topic t.x_y --reset-offsets --to-earliest --execute",
	"kafka-consumer-groups --describe --group g",
	"kafka-consumer-groups --list --state",
	"kafka-consumer-groups --delete --group g",
	"kafka-delete-records --offset-json-file DIR/delete.json",
	"kafka-get-offsets --topic t.x_y --time -2",
	"kafka-log-dirs --describe --topic-list t.x_y --broker-list 2",
	"kafka-reassign-partitions --topics-to-move-json-file DIR/topics.json --broker-list 0 --generate",
	"kafka-reassign-partitions --reassignment-json-file DIR/unknown.json --execute",
	"kafka-reassign-partitions --reassignment-json-file DIR/move.json --cancel",
	"kafka-leader-election --election-type PREFERRED --topic t.x_y --partition 1",
	"kafka-leader-election --election-type PREFERRED --topic absent --partition 0",
	"kafka-dump-log --files DIR/b0/data/t.x_y-0/00000000000000000000.log --print-data-log",
	"kafka-topics --delete --topic t.x_y",
	"kafka-topics --delete --topic absent",
}

// notServed are the APIs of Kafka 3.9.1 in ZooKeeper mode that klamm need not serve: transactions, what is for brokers and controllers of KRaft, the
// preview of KIP-848, and what depends on a listener with SASL.
var notServed = []string{
	"AddPartitionsToTxn(24)", "AddOffsetsToTxn(25)", "EndTxn(26)", "WriteTxnMarkers(27)", "TxnOffsetCommit(28)", "DescribeTransactions(65)",
	"ListTransactions(66)", "Envelope(58)", "ConsumerGroupHeartbeat(68)", "ConsumerGroupDescribe(69)",
	"SaslHandshake(17)", "SaslAuthenticate(36)", "CreateDelegationToken(38)", "RenewDelegationToken(39)", "ExpireDelegationToken(40)",
	"DescribeDelegationToken(41)", "DescribeUserScramCredentials(50)", "AlterUserScramCredentials(51)",
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
	c.write("topics.json", `{"version":1,"topics":[{"topic":"t.x_y"}]}`)
	c.write("unknown.json", `{"version":1,"partitions":[{"topic":"t.x_y","partition":0,"replicas":[99]}]}`)
	c.write("move.json", `{"version":1,"partitions":[{"topic":"t.x_y","partition":0,"replicas":[1,2]}]}`)
	c.step("three brokers serve")
	b := c.toolbox()
	for _, line := range toolSteps {
		b.run(strings.ReplaceAll(line, "DIR", c.dir))
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
		if strings.Contains(got, api+": UNSUPPORTED") {
			line := regexp.MustCompile(`\t` + regexp.QuoteMeta(api) + `: .*\n`)
			got, want = line.ReplaceAllString(got, ""), line.ReplaceAll(want, nil)
		}
	}
	if d := cmp.Diff(strings.Split(string(want), "\n\n"), strings.Split(got, "\n\n")); d != "" {
		t.Errorf("of Kafka - and of klamm +\n%s", d)
	}
}
