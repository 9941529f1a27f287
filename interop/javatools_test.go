//go:build interop

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"klamm/interop/jvm"
)

// kafkaTools runs the command line tools of one Kafka release.
type kafkaTools struct {
	t    *testing.T
	jars string
	b    *broker
	v4   bool
}

// releases are the Kafka releases whose tools klamm is held against.
var releases = []struct {
	name, variable string
	v4             bool
}{
	{"3.9.1", "KAFKA_JARS_3_9_1", false},
	{"4.1.0", "KAFKA_JARS_4_1_0", true},
}

func eachRelease(t *testing.T, f func(t *testing.T, k kafkaTools)) {
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			f(t, kafkaTools{t, env(t, r.variable), startBroker(t), r.v4})
		})
	}
}

func (k kafkaTools) run(stdin, class string, args ...string) result {
	k.t.Helper()
	return commandInput(k.t, stdin, "java", append(append(jvm.Options(k.jars), "-Xmx256M", "-XX:+UseSerialGC", class), args...)...)
}

func (k kafkaTools) topics(args ...string) result {
	k.t.Helper()
	return k.run("", "org.apache.kafka.tools.TopicCommand", append([]string{"--bootstrap-server", k.b.addr}, args...)...)
}

func (k kafkaTools) configs(args ...string) result {
	k.t.Helper()
	return k.run("", "kafka.admin.ConfigCommand", append([]string{"--bootstrap-server", k.b.addr}, args...)...)
}

func (k kafkaTools) produce(in string, args ...string) result {
	k.t.Helper()
	class := "kafka.tools.ConsoleProducer"
	if k.v4 {
		class = "org.apache.kafka.tools.ConsoleProducer"
	}
	return k.run(in, class, append([]string{"--bootstrap-server", k.b.addr}, args...)...)
}

func (k kafkaTools) consume(args ...string) result {
	k.t.Helper()
	return k.run("", "org.apache.kafka.tools.consumer.ConsoleConsumer",
		append([]string{"--bootstrap-server", k.b.addr, "--from-beginning"}, args...)...)
}

func TestKafkaConsoleToolsProduceAndConsumeWithEveryCodec(t *testing.T) {
	eachRelease(t, func(t *testing.T, k kafkaTools) {
		k.topics("--create", "--topic", "console", "--partitions", "2").ok(t)
		want := map[string]bool{}
		for _, codec := range codecs {
			var in strings.Builder
			for i := range 100 {
				line := fmt.Sprintf("%s-key%d:%s-value%d", codec, i, codec, i)
				want[strings.Replace(line, ":", "\t", 1)] = true
				in.WriteString(line + "\n")
			}
			k.produce(in.String(), "--topic", "console", "--compression-codec", codec,
				"--property", "parse.key=true", "--property", "key.separator=:").ok(t)
		}
		ends, err := kadm.NewClient(client(t, k.b)).ListEndOffsets(t.Context(), "console")
		if err != nil || ends.Error() != nil {
			t.Fatal(err, ends.Error())
		}
		got := 0
		for partition := range int32(2) {
			end, _ := ends.Lookup("console", partition)
			out := k.consume("--topic", "console", "--partition", fmt.Sprint(partition), "--property", "print.key=true",
				"--max-messages", fmt.Sprint(end.Offset), "--timeout-ms", "60000").stdout
			for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
				if !want[line] {
					t.Errorf("partition %d gave the unexpected line %q", partition, line)
				}
				got++
			}
		}
		if got != len(want) {
			t.Errorf("consumed %d of %d records", got, len(want))
		}
	})
}

func TestKafkaTopicsToolManagesTopics(t *testing.T) {
	eachRelease(t, func(t *testing.T, k kafkaTools) {
		if out := k.topics("--create", "--topic", "a", "--partitions", "3", "--config", "retention.ms=3600000").ok(t); !strings.Contains(out, "Created topic a.") {
			t.Errorf("create printed %q", out)
		}
		if r := k.topics("--create", "--topic", "a"); r.exit != 1 || !strings.Contains(r.stdout, "Topic 'a' already exists.") {
			t.Errorf("second create: exit %d, %q", r.exit, r.stdout)
		}
		k.topics("--alter", "--topic", "a", "--partitions", "5").ok(t)
		out := k.topics("--describe", "--topic", "a").ok(t)
		for _, w := range []string{"PartitionCount: 5", "ReplicationFactor: 1", "retention.ms=3600000", "Partition: 4\tLeader: 1\tReplicas: 1\tIsr: 1"} {
			if !strings.Contains(out, w) {
				t.Errorf("describe lacks %q:\n%s", w, out)
			}
		}
		if out := k.topics("--list").ok(t); out != "a\n" {
			t.Errorf("list printed %q", out)
		}
		k.topics("--delete", "--topic", "a").ok(t)
		if out := k.topics("--list").ok(t); strings.TrimSpace(out) != "" {
			t.Errorf("list after delete printed %q", out)
		}
	})
}

func TestKafkaConfigsToolReadsAndChangesConfigs(t *testing.T) {
	eachRelease(t, func(t *testing.T, k kafkaTools) {
		k.topics("--create", "--topic", "c", "--partitions", "1").ok(t)
		k.configs("--alter", "--entity-type", "topics", "--entity-name", "c", "--add-config", "retention.ms=1000000,cleanup.policy=[compact,delete]").ok(t)
		out := k.configs("--describe", "--entity-type", "topics", "--entity-name", "c").ok(t)
		for _, w := range []string{"retention.ms=1000000 sensitive=false", "cleanup.policy=compact,delete", "DYNAMIC_TOPIC_CONFIG:retention.ms=1000000"} {
			if !strings.Contains(out, w) {
				t.Errorf("describe lacks %q:\n%s", w, out)
			}
		}
		k.configs("--alter", "--entity-type", "topics", "--entity-name", "c", "--delete-config", "retention.ms").ok(t)
		if out := k.configs("--describe", "--entity-type", "topics", "--entity-name", "c").ok(t); strings.Contains(out, "retention.ms=") {
			t.Errorf("retention.ms is still there:\n%s", out)
		}
		if r := k.configs("--alter", "--entity-type", "topics", "--entity-name", "c", "--add-config", "no.such.key=1"); r.exit == 0 {
			t.Errorf("an unknown key was accepted: %q", r.stdout)
		}
		k.configs("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "log.cleaner.threads=2").ok(t)
		eventually(t, 10*time.Second, "the broker shows its dynamic config", func() (bool, string) {
			out := k.configs("--describe", "--entity-type", "brokers", "--entity-name", "1").ok(t)
			return strings.Contains(out, "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2"), out
		})
		if out := k.configs("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all").ok(t); !strings.Contains(out, "num.partitions=1") {
			t.Errorf("describe --all lacks num.partitions:\n%s", out)
		}
	})
}

func TestKafkaOffsetsRecordsAndLogDirTools(t *testing.T) {
	eachRelease(t, func(t *testing.T, k kafkaTools) {
		k.topics("--create", "--topic", "d", "--partitions", "1").ok(t)
		k.produce(strings.Repeat("line\n", 50), "--topic", "d").ok(t)
		offsets := func(time string) string {
			return strings.TrimSpace(k.run("", "org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", k.b.addr, "--topic", "d", "--time", time).ok(t))
		}
		if got := offsets("-1"); got != "d:0:50" {
			t.Errorf("latest offset: %q", got)
		}
		file := filepath.Join(t.TempDir(), "delete.json")
		if err := os.WriteFile(file, []byte(`{"partitions":[{"topic":"d","partition":0,"offset":20}],"version":1}`), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := k.run("", "org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server", k.b.addr, "--offset-json-file", file).ok(t); !strings.Contains(out, "partition: d-0\tlow_watermark: 20") {
			t.Errorf("delete records printed %q", out)
		}
		if got := offsets("-2"); got != "d:0:20" {
			t.Errorf("earliest offset: %q", got)
		}
		if out := k.run("", "org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server", k.b.addr, "--describe").ok(t); !strings.Contains(out, `"partition":"d-0"`) {
			t.Errorf("log dirs printed %q", out)
		}
	})
}

// The segments hold every codec, several batches, control of sizes that force index entries, and a roll.
func TestKafkaDumpLogReadsSegmentsAndIndexes(t *testing.T) {
	b := startBroker(t)
	b.topics("--create", "--topic", "dump", "--partitions", "1", "--config", "segment.bytes=65536", "--config", "index.interval.bytes=1024").ok(t)
	for _, codec := range codecs {
		var in strings.Builder
		for i := range 400 {
			fmt.Fprintf(&in, "k%d:%s\n", i, strings.Repeat("v", 100+i%200))
		}
		commandInput(t, in.String(), "kcat", "-b", b.addr, "-P", "-t", "dump", "-p", "0", "-K:", "-z", codec, "-X", "batch.num.messages=20", "-X", "enable.idempotence=true").ok(t)
	}
	if code := b.stop(); code != 0 {
		t.Fatalf("clean stop gave exit code %d", code)
	}
	dir := filepath.Join(b.dir, "data", "dump-0")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	kinds := map[string]int{}
	for _, e := range entries {
		kind := filepath.Ext(e.Name())
		kinds[kind]++
		switch kind {
		case ".log", ".index", ".timeindex", ".snapshot":
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if kinds[".log"] < 2 || kinds[".index"] < 2 || kinds[".snapshot"] == 0 {
		t.Fatalf("too few files to be worth checking: %v", kinds)
	}
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			k := kafkaTools{t, env(t, r.variable), b, r.v4}
			out := k.run("", "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", strings.Join(files, ","))
			if out.exit != 0 || strings.Contains(out.stdout, "Found timestamp mismatch") || strings.Contains(out.stdout, "Index offset mismatch") ||
				strings.Contains(out.stdout, "Mismatches in") || strings.Contains(out.stdout, "isvalid: false") || strings.Contains(out.stderr, "Exception") {
				t.Fatalf("exit %d\n%s\n%s", out.exit, out.stdout, out.stderr)
			}
			if n := strings.Count(out.stdout, "| offset: "); n != 2000 {
				t.Errorf("kafka-dump-log saw %d of 2000 records", n)
			}
		})
	}
}

// A replica is moved to the other log dir of its broker as Kafka's own tool asks for it and sees it end; nothing is lost, and Kafka reads
// the files in their new place.
func TestKafkaReassignPartitionsMovesReplicasBetweenLogDirs(t *testing.T) {
	dirs := []string{filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two")}
	b := startBroker(t, "log.dirs="+strings.Join(dirs, ","))
	k := kafkaTools{t, env(t, releases[0].variable), b, false}
	b.topics("--create", "--topic", "m", "--partitions", "1", "--config", "segment.bytes=65536").ok(t)
	in := numbers(0, 20000)
	commandInput(t, in, "kcat", "-b", b.addr, "-P", "-t", "m", "-X", "batch.num.messages=100").ok(t)
	from, to := dirs[0], dirs[1]
	if _, err := os.Stat(filepath.Join(from, "m-0")); err != nil {
		from, to = to, from
	}
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, fmt.Appendf(nil, `{"version":1,"partitions":[{"topic":"m","partition":0,"replicas":[1],"log_dirs":[%q]}]}`, to), 0o644); err != nil {
		t.Fatal(err)
	}
	reassign := func(action string) string {
		return k.run("", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--bootstrap-server", b.addr, "--reassignment-json-file", plan, action).ok(t)
	}
	if out := reassign("--execute"); !strings.Contains(out, "Successfully started moving log directory to "+to+" for replica m-0 with broker 1") {
		t.Errorf("execute printed %q", out)
	}
	eventually(t, 20*time.Second, "the tool sees the move end", func() (bool, string) {
		out := reassign("--verify")
		return strings.Contains(out, "Reassignment of replica m-0-1 completed successfully."), out
	})
	if got := command(t, "kcat", "-b", b.addr, "-C", "-t", "m", "-o", "beginning", "-e", "-q").ok(t); got != in {
		t.Errorf("%d bytes, not the %d that were produced", len(got), len(in))
	}
	if code := b.stop(); code != 0 {
		t.Errorf("clean stop gave exit code %d", code)
	}
	if left, err := filepath.Glob(filepath.Join(from, "m-0*")); err != nil || len(left) != 1 || !strings.HasSuffix(left[0], "-delete") {
		t.Errorf("the old dir has %v, %v", left, err)
	}
	files, err := filepath.Glob(filepath.Join(to, "m-0", "*.*g"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	out := k.run("", "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", strings.Join(files, ",")).ok(t)
	if n := strings.Count(out, "| offset: "); n != 20000 {
		t.Errorf("kafka-dump-log saw %d of 20000 records", n)
	}
}
