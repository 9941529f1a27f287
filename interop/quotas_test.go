//go:build interop

package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// R24, seen by Kafka's own tool and by a producer that keeps KIP-219.
func TestKafkaConfigsToolSetsQuotasThatHold(t *testing.T) {
	k := kafkaTools{t, env(t, "KAFKA_JARS_3_9_1"), startBroker(t), false}
	alter := func(entity string, config ...string) {
		t.Helper()
		out := k.configs(append(append([]string{"--alter"}, strings.Fields(entity)...), config...)...).ok(t)
		if !strings.Contains(out, "Completed updating config for ") {
			t.Errorf("alter %s printed %q", entity, out)
		}
	}
	describe := func(entity, want string) {
		t.Helper()
		if out := k.configs(append([]string{"--describe"}, strings.Fields(entity)...)...).ok(t); strings.TrimSpace(out) != want {
			t.Errorf("describe %s printed\n%s\nwant\n%s", entity, out, want)
		}
	}
	alter("--entity-type clients --entity-name slow", "--add-config", "producer_byte_rate=100000,request_percentage=150")
	alter("--entity-type users --entity-name CN=me,O=x --entity-type clients --entity-default", "--add-config", "controller_mutation_rate=2.5")
	describe("--entity-type clients", "Quota configs for client-id 'slow' are producer_byte_rate=100000.0, request_percentage=150.0")
	describe("--entity-type users --entity-type clients", "Quota configs for user-principal 'CN=me,O=x', the default client-id are controller_mutation_rate=2.5")
	k.b.topics("--create", "--topic", "q").ok(t)
	if took, throttled := produceBytes(t, k.b.addr, "slow", 1_300_000); took < 2*time.Second || took > 8*time.Second || throttled == 0 {
		t.Errorf("1.3 MB at 100 kB/s after a second's burst of ten took %v, the client was asked to wait %v", took, throttled)
	}
	if took, throttled := produceBytes(t, k.b.addr, "fast", 1_300_000); throttled > 0 {
		t.Errorf("a client without a quota was throttled for %v of %v", throttled, took)
	}
	if _, page := k.b.get("/metrics"); !strings.Contains(page, `kafka_server_quota_throttle_time{clientId="slow",resource="Produce"}`) {
		t.Error("/metrics lacks the client's throttle")
	}
	alter("--entity-type clients --entity-name slow", "--delete-config", "producer_byte_rate,request_percentage")
	if took, throttled := produceBytes(t, k.b.addr, "slow", 1_300_000); throttled > 0 {
		t.Errorf("1.3 MB without the quota were throttled for %v of %v", throttled, took)
	}
}

// throttleTimes adds up what a broker asked a client to wait. Safe for concurrent use.
type throttleTimes struct{ sum atomic.Int64 }

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (s *throttleTimes) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	s.sum.Add(int64(wait))
}

// produceBytes produces that many bytes in batches of 50 kB, one after the other. It gives how long that takes, and for how long
// the broker asked the client to wait, in all.
func produceBytes(t *testing.T, addr, clientID string, bytes int) (took, throttled time.Duration) {
	t.Helper()
	var times throttleTimes
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID(clientID), kgo.WithHooks(&times), kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(60_000))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	value := make([]byte, 50_000)
	began := time.Now()
	for sent := 0; sent < bytes; sent += len(value) {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "q", Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(began), time.Duration(times.sum.Load())
}

// startDev runs `klamm dev` and returns its bootstrap addresses. It ends with the test.
func startDev(t *testing.T, options ...string) (bootstrap string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	args := append([]string{"dev", "--port", "0", "--web", ""}, options...)
	cmd := exec.CommandContext(ctx, klammBinary, append(args, "--", "sh", "-c", `echo "at=$BOOTSTRAP"; exec cat`)...)
	cmd.Env = neutralEnv()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // cat ends, and the cluster with it
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			t.Errorf("klamm dev: %v\n%s", err, errs.String())
		}
		cancel()
	})
	for s := bufio.NewScanner(stdout); s.Scan(); {
		if at, ok := strings.CutPrefix(s.Text(), "at="); ok {
			return at
		}
	}
	t.Fatalf("klamm dev does not say where it is\n%s", errs.String())
	return ""
}

// KIP-73: 8 MB move at 1 MB/s and no faster, and the tool takes the throttle away once the move is over.
func TestKafkaReassignToolThrottlesTheMove(t *testing.T) {
	const records, size, rate = 16, 500_000, 1_000_000
	bootstrap := startDev(t)
	k := kafkaTools{t, env(t, "KAFKA_JARS_3_9_1"), &broker{t: t, addr: bootstrap}, false}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	ctx := t.Context()
	if _, err := admin.CreateTopic(ctx, 1, 1, nil, "moved"); err != nil {
		t.Fatal(err)
	}
	for range records {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "moved", Value: make([]byte, size)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	leader, target := movedFrom(t, admin)
	plan := filepath.Join(t.TempDir(), "plan.json")
	text := fmt.Sprintf(`{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[%d]}]}`, target)
	if err := os.WriteFile(plan, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	reassign := func(args ...string) string {
		t.Helper()
		return k.run("", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", append([]string{"--bootstrap-server", bootstrap, "--reassignment-json-file", plan}, args...)...).ok(t)
	}
	began := time.Now()
	if out := reassign("--execute", "--throttle", fmt.Sprint(rate)); !strings.Contains(out, "The inter-broker throttle limit was set to 1000000 B/s") {
		t.Errorf("execute printed %q", out)
	}
	if got := throttles(t, admin, leader, target); got != "1000000 0:"+fmt.Sprint(leader)+" 1000000 0:"+fmt.Sprint(target) {
		t.Errorf("throttles are %q", got)
	}
	moved := kadm.TopicsSet{}
	moved.Add("moved", 0)
	eventually(t, 60*time.Second, "the move ends", func() (bool, string) {
		under, err := admin.ListPartitionReassignments(ctx, moved)
		return err == nil && len(under) == 0, fmt.Sprint(under, err)
	})
	// A first answer of a megabyte is free; the tool's own start is in the time.
	if took := time.Since(began); took < (records*size/rate-2)*time.Second || took > 30*time.Second {
		t.Errorf("8 MB at 1 MB/s took %v", took)
	}
	if out := reassign("--verify"); !strings.Contains(out, "Clearing broker-level throttles") || !strings.Contains(out, "is completed") {
		t.Errorf("verify printed %q", out)
	}
	if got := throttles(t, admin, leader, target); strings.TrimSpace(got) != "" {
		t.Errorf("throttles are left: %q", got)
	}
}

// movedFrom gives the leader of the topic's partition, and a broker that is not.
func movedFrom(t *testing.T, admin *kadm.Client) (leader, target int32) {
	t.Helper()
	m, err := admin.Metadata(t.Context(), "moved")
	if err != nil {
		t.Fatal(err)
	}
	leader = m.Topics["moved"].Partitions[0].Leader
	for _, id := range m.Brokers.NodeIDs() {
		if id != leader {
			target = id
		}
	}
	return leader, target
}

// throttles gives the rates of the leader and the target and the topic's throttled replicas, as far as they are set.
func throttles(t *testing.T, admin *kadm.Client, leader, target int32) string {
	t.Helper()
	value := func(rs kadm.ResourceConfigs, err error, key string) string {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range rs[0].Configs {
			if c.Key == key && c.Value != nil && c.Source != 5 { // 5: the default
				return *c.Value
			}
		}
		return ""
	}
	topic, errTopic := admin.DescribeTopicConfigs(t.Context(), "moved")
	from, errFrom := admin.DescribeBrokerConfigs(t.Context(), leader)
	to, errTo := admin.DescribeBrokerConfigs(t.Context(), target)
	return strings.Join([]string{
		value(from, errFrom, "leader.replication.throttled.rate"), value(topic, errTopic, "leader.replication.throttled.replicas"),
		value(to, errTo, "follower.replication.throttled.rate"), value(topic, errTopic, "follower.replication.throttled.replicas"),
	}, " ")
}
