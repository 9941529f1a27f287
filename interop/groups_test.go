//go:build interop

package interop

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startGroupBroker starts a broker alone that can hold groups.
func startGroupBroker(t *testing.T, properties ...string) *broker {
	t.Helper()
	return startBroker(t, append([]string{"offsets.topic.replication.factor=1", "group.initial.rebalance.delay.ms=200"}, properties...)...)
}

// numbers is n lines from a first number on.
func numbers(first, n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintln(&out, first+i)
	}
	return out.String()
}

// sorted are the lines of a text in order.
func sorted(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(fmt.Sprintf("%8s", a), fmt.Sprintf("%8s", b)) })
	return strings.Join(lines, "\n") + "\n"
}

func TestKcatConsumesInAGroup(t *testing.T) {
	b := startGroupBroker(t)
	b.topics("--create", "--topic", "kg", "--partitions", "3").ok(t)
	for _, first := range []int{0, 300} {
		commandInput(t, numbers(first, 300), "kcat", "-b", b.addr, "-P", "-t", "kg", "-X", "sticky.partitioning.linger.ms=0").ok(t)
		got := command(t, "kcat", "-b", b.addr, "-G", "kcat-group", "-q", "-c", "300", "-X", "auto.offset.reset=earliest", "kg").ok(t)
		if want := numbers(first, 300); sorted(got) != want {
			t.Fatalf("from %d: consumed %d lines that are not those produced since the last time", first, strings.Count(got, "\n"))
		}
	}
}

func TestConfluentKafkaGroups(t *testing.T) { runGroupScript(t, "groups_confluent.py") }

func TestKafkaPythonGroups(t *testing.T) { runGroupScript(t, "groups_kafkapython.py") }

func TestAiokafkaGroups(t *testing.T) { runGroupScript(t, "groups_aiokafka.py") }

func TestKafkaJS(t *testing.T) { runNodeScript(t, "kafkajs.mjs") }

func TestPlatformaticKafka(t *testing.T) { runNodeScript(t, "platformatic.mjs") }

func runNodeScript(t *testing.T, script string) {
	t.Helper()
	b := startGroupBroker(t)
	r := command(t, "node", filepath.Join("testdata", script), env(t, "INTEROP_NODE_MODULES"), b.addr)
	if out := r.ok(t); !strings.HasSuffix(out, "all equal\n") {
		t.Errorf("stdout: %s\nstderr: %s", out, r.stderr)
	}
}

func runGroupScript(t *testing.T, script string) {
	t.Helper()
	b := startGroupBroker(t)
	r := command(t, env(t, "INTEROP_PYTHON"), filepath.Join("testdata", script), b.addr)
	if out := r.ok(t); !strings.HasSuffix(out, "all equal\n") {
		t.Errorf("stdout: %s\nstderr: %s", out, r.stderr)
	}
}

// crew is a group of franz-go members that note what each has read, and commit it before they give partitions away.
type crew struct {
	t     *testing.T
	b     *broker
	group string
	topic string
	opts  []kgo.Opt

	mu   sync.Mutex
	seen map[string]int // by value: how often it was read
}

// crewMember is one member, and where it runs.
type crewMember struct {
	cl     *kgo.Client
	cancel context.CancelFunc
	ended  chan struct{}
}

func (c *crew) join() *crewMember {
	c.t.Helper()
	cl := client(c.t, c.b, append([]kgo.Opt{kgo.ConsumerGroup(c.group), kgo.ConsumeTopics(c.topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200 * time.Millisecond), kgo.SessionTimeout(6 * time.Second)}, c.opts...)...)
	ctx, cancel := context.WithCancel(c.t.Context())
	m := &crewMember{cl: cl, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				c.mu.Lock()
				c.seen[string(r.Value)]++
				c.mu.Unlock()
			})
			commit, done := context.WithTimeout(context.Background(), 10*time.Second)
			if err := cl.CommitUncommittedOffsets(commit); err != nil {
				c.t.Errorf("commit: %v", err)
			}
			done()
			cl.AllowRebalance()
		}
	}()
	return m
}

// leave ends a member with a LeaveGroup.
func (m *crewMember) leave() {
	m.cancel()
	<-m.ended
	m.cl.CloseAllowingRebalance()
}

// owners tells how many partitions each member of the stable group has; nil while it is not stable.
func (c *crew) owners(adm *kadm.Client) []int {
	groups, err := adm.DescribeGroups(c.t.Context(), c.group)
	if err != nil || groups[c.group].State != "Stable" {
		return nil
	}
	taken := map[int32]bool{}
	var out []int
	for _, m := range groups[c.group].Members {
		n := 0
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range a.Topics {
				for _, p := range topic.Partitions {
					if taken[p] {
						c.t.Errorf("partition %d is assigned twice", p)
					}
					taken[p] = true
					n++
				}
			}
		}
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func TestFranzGoGroupsRebalance(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{"range": kgo.RangeBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer()} {
		t.Run(name, func(t *testing.T) {
			b := startGroupBroker(t)
			b.topics("--create", "--topic", "jobs", "--partitions", "6").ok(t)
			c := &crew{t: t, b: b, group: "workers", topic: "jobs", opts: []kgo.Opt{kgo.Balancers(balancer)}, seen: map[string]int{}}
			producer := client(t, b, kgo.DefaultProduceTopic("jobs"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
			adm := kadm.NewClient(producer)
			total := 0
			produce := func() {
				for range 600 {
					producer.Produce(t.Context(), kgo.StringRecord(fmt.Sprint(total)), nil)
					total++
				}
				if err := producer.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			balanced := func(want ...int) {
				t.Helper()
				eventually(t, 30*time.Second, fmt.Sprint("partitions per member ", want), func() (bool, string) {
					got := c.owners(adm)
					return slices.Equal(got, want), fmt.Sprint(got)
				})
			}
			produce()
			members := []*crewMember{c.join()}
			balanced(6)
			produce()
			members = append(members, c.join(), c.join())
			produce()
			balanced(2, 2, 2)
			members[0].leave()
			produce()
			balanced(3, 3)
			eventually(t, 30*time.Second, "all records read", func() (bool, string) {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.seen) == total, fmt.Sprint(len(c.seen), " of ", total)
			})
			members[1].leave()
			members[2].leave()
			for v, n := range c.seen {
				if n != 1 {
					t.Errorf("record %s was read %d times", v, n)
				}
			}
			lag, err := adm.Lag(t.Context(), c.group)
			if err != nil || lag[c.group].Lag.Total() != 0 {
				t.Errorf("lag at the end: %v, %v", lag[c.group].Lag, err)
			}
		})
	}
}

func TestGroupsAndOffsetsSurviveKill(t *testing.T) {
	b := startGroupBroker(t)
	b.topics("--create", "--topic", "jobs", "--partitions", "4").ok(t)
	c := &crew{t: t, b: b, group: "workers", topic: "jobs", seen: map[string]int{}}
	producer := client(t, b, kgo.DefaultProduceTopic("jobs"))
	adm := kadm.NewClient(producer)
	want := map[int32]int64{}
	for i := range int32(4) {
		want[i] = int64(100 + i)
	}
	offsets := kadm.Offsets{}
	for p, at := range want {
		offsets.AddOffset("jobs", p, at, -1)
	}
	if err := adm.CommitAllOffsets(t.Context(), "by-hand", offsets); err != nil {
		t.Fatal(err)
	}
	m := c.join()
	total := 0
	round := func() {
		t.Helper()
		for range 200 {
			producer.Produce(t.Context(), kgo.StringRecord(fmt.Sprint(total)), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
			total++
		}
		eventually(t, 60*time.Second, "records read by the member", func() (bool, string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.seen) == total, fmt.Sprint(len(c.seen), " of ", total)
		})
	}
	round()
	for range 3 {
		b.kill()
		b.start()
		got, err := adm.FetchOffsets(t.Context(), "by-hand")
		if err != nil {
			t.Fatal(err)
		}
		at := map[int32]int64{}
		got.Each(func(o kadm.OffsetResponse) { at[o.Partition] = o.At })
		if !maps.Equal(at, want) {
			t.Fatalf("committed offsets after the kill: %v, want %v", at, want)
		}
		round()
	}
	m.leave()
	groups, err := adm.ListGroups(t.Context())
	if err != nil || !slices.Equal(groups.Groups(), []string{"by-hand", "workers"}) {
		t.Errorf("groups: %v, %v", groups.Groups(), err)
	}
}

func (k kafkaTools) groups(args ...string) result {
	k.t.Helper()
	return k.run("", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", append([]string{"--bootstrap-server", k.b.addr}, args...)...)
}

// wantText looks for words in an output, with one blank between them: Kafka 3.9 prints some tables without line breaks.
func wantText(t *testing.T, out, want string) {
	t.Helper()
	if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("no %q in:\n%s", want, out)
	}
}

func TestKafkaConsoleConsumerGoesOnWhereItsGroupWas(t *testing.T) {
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			k := kafkaTools{t, env(t, r.variable), startGroupBroker(t), r.v4}
			k.topics("--create", "--topic", "cg", "--partitions", "2").ok(t)
			for _, first := range []int{0, 200} {
				k.produce(numbers(first, 200), "--topic", "cg").ok(t)
				got := k.consume("--topic", "cg", "--group", "console", "--max-messages", "200", "--timeout-ms", "30000").ok(t)
				if sorted(got) != numbers(first, 200) {
					t.Fatalf("from %d: consumed\n%s", first, got)
				}
			}
		})
	}
}

func TestKafkaConsumerGroupsToolManagesGroups(t *testing.T) {
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			b := startGroupBroker(t)
			k := kafkaTools{t, env(t, r.variable), b, r.v4}
			b.topics("--create", "--topic", "managed", "--partitions", "2").ok(t)
			cl := client(t, b, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for i := range 20 {
				cl.Produce(t.Context(), &kgo.Record{Topic: "managed", Partition: int32(i % 2), Value: []byte("v")}, nil)
			}
			if err := cl.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := &crew{t: t, b: b, group: "shift", topic: "managed", seen: map[string]int{}, opts: []kgo.Opt{kgo.ClientID("worker")}}
			m := c.join()
			adm := kadm.NewClient(cl)
			eventually(t, 30*time.Second, "offsets committed", func() (bool, string) {
				lag, err := adm.Lag(t.Context(), "shift")
				return err == nil && slices.Equal(c.owners(adm), []int{2}) && lag["shift"].Lag.Total() == 0, fmt.Sprint(lag["shift"].Lag, err)
			})

			if got := k.groups("--list").ok(t); got != "shift\n" {
				t.Errorf("--list: %q", got)
			}
			wantText(t, k.groups("--list", "--state").ok(t), "shift Stable")
			describe := k.groups("--describe", "--group", "shift").ok(t)
			wantText(t, describe, "shift managed 0 10 10 0 worker-")
			wantText(t, describe, "shift managed 1 10 10 0 worker-")
			wantText(t, k.groups("--describe", "--group", "shift", "--members", "--verbose").ok(t), "shift worker-")
			wantText(t, k.groups("--describe", "--group", "shift", "--state").ok(t), "shift "+b.addr+" (1) cooperative-sticky Stable 1")
			if out := k.groups("--delete", "--group", "shift"); !strings.Contains(out.stdout+out.stderr, "GroupNotEmptyException") {
				t.Errorf("deletion of a group with members: %+v", out)
			}
			wantText(t, k.groups("--delete-offsets", "--group", "shift", "--topic", "managed").stdout, "GroupSubscribedToTopicException")
			m.leave()

			wantText(t, k.groups("--reset-offsets", "--group", "shift", "--topic", "managed", "--to-earliest", "--dry-run").ok(t), "shift managed 0 0")
			wantText(t, k.groups("--reset-offsets", "--group", "shift", "--topic", "managed:1", "--shift-by", "-3", "--execute").ok(t), "shift managed 1 7")
			describe = k.groups("--describe", "--group", "shift").ok(t)
			wantText(t, describe, "shift managed 0 10 10 0 - - -")
			wantText(t, describe, "shift managed 1 7 10 3 - - -")
			wantText(t, k.groups("--delete-offsets", "--group", "shift", "--topic", "managed:0").ok(t), "managed 0 Successful")
			if out := k.groups("--describe", "--group", "shift").ok(t); strings.Contains(out, "managed         0") {
				t.Errorf("the deleted offset is described:\n%s", out)
			}
			if out := k.groups("--describe", "--group", "nosuch"); !strings.Contains(out.stdout+out.stderr, "Consumer group 'nosuch' does not exist.") {
				t.Errorf("an unknown group: %+v", out)
			}
			if out := k.groups("--delete", "--group", "shift").ok(t); !strings.Contains(out, "Deletion of requested consumer groups ('shift') was successful.") {
				t.Errorf("--delete: %s", out)
			}
			if got := strings.TrimSpace(k.groups("--list").ok(t)); got != "" {
				t.Errorf("--list after the deletion: %q", got)
			}
		})
	}
}

func TestKafkaReadsTheRecordsOfTheOffsetsTopic(t *testing.T) {
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			b := startGroupBroker(t)
			k := kafkaTools{t, env(t, r.variable), b, r.v4}
			b.topics("--create", "--topic", "jobs", "--partitions", "1").ok(t)
			cl := client(t, b, kgo.DefaultProduceTopic("jobs"))
			for range 5 {
				cl.Produce(t.Context(), kgo.StringRecord("v"), nil)
			}
			if err := cl.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := &crew{t: t, b: b, group: "workers", topic: "jobs", seen: map[string]int{}, opts: []kgo.Opt{kgo.InstanceID("first")}}
			m := c.join()
			adm := kadm.NewClient(cl)
			eventually(t, 30*time.Second, "offsets committed", func() (bool, string) {
				// Not by the lag, which is none as well before anything was committed.
				committed, err := adm.FetchOffsets(t.Context(), "workers")
				o, there := committed.Lookup("jobs", 0)
				return err == nil && slices.Equal(c.owners(adm), []int{1}) && there && o.At == 5, fmt.Sprint(committed, err)
			})
			m.leave()
			ends, err := adm.ListEndOffsets(t.Context(), "__consumer_offsets")
			if err != nil || ends.Error() != nil {
				t.Fatal(err, ends.Error())
			}
			var written []kadm.ListedOffset // only the group's partition: it is alone
			ends.Each(func(end kadm.ListedOffset) {
				if end.Offset > 0 {
					written = append(written, end)
				}
			})
			if len(written) != 1 {
				t.Fatalf("records in %v", written)
			}
			read := func(formatter string) string { // without a group, which would write there too
				t.Helper()
				return k.consume("--topic", "__consumer_offsets", "--partition", fmt.Sprint(written[0].Partition), "--formatter", "org.apache.kafka.tools.consumer."+formatter,
					"--max-messages", fmt.Sprint(written[0].Offset), "--timeout-ms", "60000").ok(t)
			}
			offsets := read("OffsetsMessageFormatter")
			for _, want := range []string{`"group":"workers"`, `"topic":"jobs"`, `"partition":0`, `"offset":5`} {
				if !strings.Contains(offsets, want) {
					t.Errorf("no %s among the offsets that Kafka reads:\n%s", want, offsets)
				}
			}
			groups := read("GroupMetadataMessageFormatter")
			for _, want := range []string{`"group":"workers"`, `"protocolType":"consumer"`, `"generation":1`, `"protocol":"cooperative-sticky"`, `"groupInstanceId":"first"`} {
				if !strings.Contains(groups, want) {
					t.Errorf("no %s among the groups that Kafka reads:\n%s", want, groups)
				}
			}
		})
	}
}

func TestAStopDoesNotWaitForJoins(t *testing.T) {
	b := startGroupBroker(t, "group.initial.rebalance.delay.ms=600000")
	b.topics("--create", "--topic", "jobs").ok(t)
	c := &crew{t: t, b: b, group: "workers", topic: "jobs", seen: map[string]int{}}
	m := c.join() // its join waits for ten minutes
	adm := kadm.NewClient(client(t, b))
	eventually(t, 20*time.Second, "the group waits for more members", func() (bool, string) {
		groups, err := adm.DescribeGroups(t.Context(), "workers")
		return err == nil && groups["workers"].State == "PreparingRebalance", fmt.Sprint(groups, err)
	})
	start := time.Now()
	if code := b.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the stop took %v", took)
	}
	m.cancel()
	m.cl.CloseAllowingRebalance()
	<-m.ended
}
