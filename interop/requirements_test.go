//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// R04: a flush or roll that races a deletion's rename must not fail the log dir.
func TestR04RollsRacingDeletionsDoNotFailTheLogDir(t *testing.T) {
	b := startBroker(t, "log.segment.delete.delay.ms=100", "auto.create.topics.enable=false", "log.flush.interval.messages=10")
	p := speak(t, b.addr)
	p.do(createRequest(7, newTopic("other", 1)))
	cl := client(t, b, kgo.DefaultProduceTopic("hot"), kgo.RecordRetries(0), kgo.ProducerLinger(0), kgo.DisableIdempotentWrite())
	other := client(t, b, kgo.DefaultProduceTopic("other"))
	value := strings.Repeat("x", 8000)
	for round := range 50 {
		if got := p.do(createRequest(7, newTopic("hot", 2, "segment.bytes", "65536"))).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; got != 0 {
			t.Fatalf("round %d: create answered with error %d", round, got)
		}
		if err := other.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(round))).FirstErr(); err != nil {
			t.Fatalf("round %d: the other topic failed: %v", round, err)
		}
		var producing sync.WaitGroup
		for range 100 {
			producing.Add(1)
			cl.Produce(t.Context(), kgo.StringRecord(value), func(*kgo.Record, error) { producing.Done() })
		}
		if got := p.do(deleteRequest(6, "hot")).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; got != 0 {
			t.Fatalf("round %d: delete answered with error %d", round, got)
		}
		producing.Wait()
	}
	dirs := p.do(at(kmsg.NewPtrDescribeLogDirsRequest(), 4)).(*kmsg.DescribeLogDirsResponse)
	if len(dirs.Dirs) != 1 || dirs.Dirs[0].ErrorCode != 0 {
		t.Errorf("log dirs: %+v", dirs.Dirs)
	}
	if got := strings.Count(command(t, "kcat", "-b", b.addr, "-C", "-t", "other", "-e", "-q", "-o", "beginning").ok(t), "\n"); got != 50 {
		t.Errorf("the other topic holds %d of 50 records", got)
	}
}

// R06: auto-creation only where asked for and allowed; who caused it is logged and counted.
func TestR06AutoCreationIsLoggedWithItsClientAndOnlyOnRequest(t *testing.T) {
	b := startBroker(t, "num.partitions=3")
	p := speak(t, b.addr)
	quiet := metadataRequest(12, "phoenix")
	if got := p.do(quiet).(*kmsg.MetadataResponse).Topics[0].ErrorCode; got != 3 {
		t.Errorf("without the flag the answer is error %d, want 3", got)
	}
	asked := metadataRequest(12, "phoenix")
	asked.AllowAutoTopicCreation = true
	p.do(asked)
	eventually(t, 10*time.Second, "the topic is there", func() (bool, string) {
		m := p.do(metadataRequest(12, "phoenix")).(*kmsg.MetadataResponse).Topics[0]
		return m.ErrorCode == 0 && len(m.Partitions) == 3, fmt.Sprint(m.ErrorCode)
	})
	if !b.stderr.contains("phoenix") || !b.stderr.contains("client=interop") {
		t.Errorf("the log does not name the topic and its client:\n%s", b.stderr.tail(10))
	}
	off := startBroker(t, "auto.create.topics.enable=false")
	p = speak(t, off.addr)
	for _, version := range []int16{0, 3, 12} {
		req := metadataRequest(version, "phoenix")
		req.AllowAutoTopicCreation = true
		if got := p.do(req).(*kmsg.MetadataResponse).Topics[0].ErrorCode; got != 3 {
			t.Errorf("v%d with auto-creation off: error %d, want 3", version, got)
		}
	}
}

// R07: configs given to CreateTopics are in DescribeConfigs as soon as the call has returned.
func TestR07ConfigsAreThereWhenCreateReturns(t *testing.T) {
	b := startBroker(t)
	p := speak(t, b.addr)
	for i := range 50 {
		name := fmt.Sprint("compacted-", i)
		p.do(createRequest(5, newTopic(name, 1, "cleanup.policy", "compact")))
		req := at(kmsg.NewPtrDescribeConfigsRequest(), 4)
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{"cleanup.policy"}
		req.Resources = append(req.Resources, r)
		got := p.do(req).(*kmsg.DescribeConfigsResponse).Resources[0]
		if got.ErrorCode != 0 || len(got.Configs) != 1 || *got.Configs[0].Value != "compact" || got.Configs[0].Source != kmsg.ConfigSourceDynamicTopicConfig {
			t.Fatalf("round %d: %+v", i, got)
		}
	}
}

// refused runs klamm on the broker's folder with other properties and returns what it says when it ends.
func (b *broker) refused(t *testing.T, properties ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(file, []byte(strings.Join(append(append([]string{}, b.conf...), properties...), "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	r := command(t, klammBinary, "serve", file)
	if r.exit == 0 {
		t.Errorf("exit code 0; stdout: %s", r.stdout)
	}
	return r.stderr
}

func wantAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("lacks %q:\n%s", p, text)
		}
	}
}

// R14: start-up refusals name both values and the file.
func TestR14StartIsRefusedOnForeignData(t *testing.T) {
	b := startBroker(t)
	b.topics("--create", "--topic", "x").ok(t)
	t.Run("while the first one runs on the same dirs", func(t *testing.T) {
		said := b.refused(t, "listeners=PLAINTEXT://127.0.0.1:0")
		if !strings.Contains(said, "in use") && !strings.Contains(said, "lock") {
			t.Errorf("does not say that the data is in use:\n%s", said)
		}
	})
	t.Run("on a port in use", func(t *testing.T) {
		other := t.TempDir()
		wantAll(t, b.refused(t, "listeners=PLAINTEXT://"+b.addr, "log.dirs="+other, "etcd.data.dir="+filepath.Join(other, "etcd")), "address already in use", b.addr)
	})
	b.stop()
	t.Run("with another broker id", func(t *testing.T) {
		wantAll(t, b.refused(t, "broker.id=2"), "meta.properties", "broker.id=1", "broker.id=2")
	})
	t.Run("with the coordination data of another cluster", func(t *testing.T) {
		said := b.refused(t, "etcd.data.dir="+filepath.Join(t.TempDir(), "etcd"))
		wantAll(t, said, "meta.properties", "cluster.id=", "of cluster ")
	})
	t.Run("with a bad configuration, all faults at once", func(t *testing.T) {
		wantAll(t, b.refused(t, "num.partitions=none", "log.retention.hours=x", "listeners=PLAINTEXT://127.0.0.1:99999"),
			"num.partitions", "none", "log.retention.hours", "listeners", "99999")
	})
	t.Run("on a read-only log dir", func(t *testing.T) {
		said := b.refused(t, "log.dirs=/proc/klamm-cannot-write-here", "broker.id=1")
		wantAll(t, said, "/proc/klamm-cannot-write-here")
	})
	b.start()
	if out := b.topics("--list").ok(t); out != "x\n" {
		t.Errorf("after all refusals the broker lists %q", out)
	}
}

// R15: repeated and concurrent deletions of one name end in success or UNKNOWN_TOPIC_OR_PARTITION, and success means gone.
func TestR15DeletionsAreIdempotent(t *testing.T) {
	b := startBroker(t, "auto.create.topics.enable=false")
	for round := range 20 {
		p := speak(t, b.addr)
		p.do(createRequest(7, newTopic("twice", 3)))
		var wg sync.WaitGroup
		codes := make([]int16, 8)
		for i := range codes {
			wg.Add(1)
			go func() {
				defer wg.Done()
				q := speak(t, b.addr)
				resp, err := q.try(deleteRequest(6, "twice"))
				if err != nil {
					t.Error(err)
					return
				}
				codes[i] = resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode
				if m, err := q.try(metadataRequest(12, "twice")); err != nil || codes[i] == 0 && m.(*kmsg.MetadataResponse).Topics[0].ErrorCode != 3 {
					t.Errorf("round %d: success, but the topic is still in the metadata (%v)", round, err)
				}
			}()
		}
		wg.Wait()
		succeeded := 0
		for _, c := range codes {
			if c != 0 && c != 3 {
				t.Errorf("round %d: error %d", round, c)
			}
			if c == 0 {
				succeeded++
			}
		}
		if succeeded == 0 {
			t.Errorf("round %d: nobody succeeded: %v", round, codes)
		}
		if got := p.do(createRequest(7, newTopic("twice", 1))).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; got != 0 {
			t.Fatalf("round %d: the name is not free after its deletion: error %d", round, got)
		}
		p.do(deleteRequest(6, "twice"))
	}
}

// R16: answers carry name and id as asked; fetches of a deleted topic end at once, not with their long poll.
func TestR16DeletionByNameAndIdAndConsumersOfTheDeletedTopic(t *testing.T) {
	b := startBroker(t, "auto.create.topics.enable=false")
	p := speak(t, b.addr)
	created := p.do(createRequest(7, newTopic("byname", 1), newTopic("byid", 1))).(*kmsg.CreateTopicsResponse)
	ids := map[string][16]byte{}
	for _, c := range created.Topics {
		ids[c.Topic] = c.TopicID
	}
	fetch := at(kmsg.NewPtrFetchRequest(), 13)
	fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes = 30_000, 1, 1<<20
	ft := kmsg.NewFetchRequestTopic()
	ft.TopicID = ids["byid"]
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes, fp.CurrentLeaderEpoch = 1<<20, -1
	ft.Partitions = append(ft.Partitions, fp)
	fetch.Topics = append(fetch.Topics, ft)
	polled := make(chan int16, 1)
	started := time.Now()
	go func() {
		resp, err := speak(t, b.addr).try(fetch)
		if err != nil {
			polled <- -100
			return
		}
		f := resp.(*kmsg.FetchResponse)
		code := f.ErrorCode
		for _, t := range f.Topics {
			code = max(code, t.Partitions[0].ErrorCode)
		}
		polled <- code
	}()
	req := at(kmsg.NewPtrDeleteTopicsRequest(), 6)
	req.TimeoutMillis = 20_000
	byID := kmsg.NewDeleteTopicsRequestTopic()
	byID.TopicID = ids["byid"]
	byName := kmsg.NewDeleteTopicsRequestTopic()
	byName.Topic = kmsg.StringPtr("byname")
	unknown := kmsg.NewDeleteTopicsRequestTopic()
	unknown.TopicID = [16]byte{1, 2, 3}
	req.Topics = []kmsg.DeleteTopicsRequestTopic{byID, byName, unknown}
	for _, got := range p.do(req).(*kmsg.DeleteTopicsResponse).Topics {
		switch {
		case got.TopicID == unknown.TopicID:
			if got.ErrorCode != 100 || got.Topic != nil {
				t.Errorf("unknown id: error %d, name %v", got.ErrorCode, got.Topic)
			}
		case got.Topic == nil || got.ErrorCode != 0:
			t.Errorf("answer %+v", got)
		case got.TopicID != ids[*got.Topic] && *got.Topic == "byid":
			t.Errorf("%s has id %x, want %x", *got.Topic, got.TopicID, ids[*got.Topic])
		}
	}
	select {
	case code := <-polled:
		if code != 100 && code != 3 && code != 6 && code != 103 {
			t.Errorf("the waiting fetch ended with error %d", code)
		}
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("the waiting fetch took %v", took)
		}
	case <-time.After(25 * time.Second):
		t.Error("the fetch still waits 25 s after the deletion")
	}
}

// R17: ApiVersions of every version, KIP-511's answer to a newer one, and every advertised version really answers.
func TestR17EveryAdvertisedVersionAnswers(t *testing.T) {
	b := startBroker(t)
	p := speak(t, b.addr)
	versions := p.do(at(kmsg.NewPtrApiVersionsRequest(), 0)).(*kmsg.ApiVersionsResponse)
	if versions.ErrorCode != 0 || len(versions.ApiKeys) < 20 {
		t.Fatalf("ApiVersions v0: error %d, %d keys", versions.ErrorCode, len(versions.ApiKeys))
	}
	newer := at(kmsg.NewPtrApiVersionsRequest(), 5)
	newer.ClientSoftwareName, newer.ClientSoftwareVersion = "interop", "1"
	p.correlation++
	if _, err := p.conn.Write(p.formatter.AppendRequest(nil, newer, p.correlation)); err != nil {
		t.Fatal(err)
	}
	body, err := p.answer()
	if err != nil {
		t.Fatal(err)
	}
	old := at(kmsg.NewPtrApiVersionsResponse(), 0)
	if err := old.ReadFrom(body); err != nil || old.ErrorCode != 35 || len(old.ApiKeys) == 0 {
		t.Fatalf("a too new ApiVersions: %v, error %d, %d keys", err, old.ErrorCode, len(old.ApiKeys))
	}
	for _, k := range versions.ApiKeys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			t.Run(fmt.Sprintf("%s v%d", kmsg.NameForKey(k.ApiKey), v), func(t *testing.T) {
				req := kmsg.RequestForKey(k.ApiKey)
				req.SetVersion(v)
				switch r := req.(type) {
				case *kmsg.ApiVersionsRequest:
					r.ClientSoftwareName, r.ClientSoftwareVersion = "interop", "1"
				case *kmsg.ProduceRequest:
					r.Acks = -1
				}
				if _, err := speak(t, b.addr).try(req); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// R18: Metadata v0 with an empty list means all topics; from v1 null means all and empty none; bad names spoil nothing.
func TestR18MetadataListsAndErrors(t *testing.T) {
	b := startBroker(t, "auto.create.topics.enable=false")
	p := speak(t, b.addr)
	p.do(createRequest(7, newTopic("a", 2), newTopic("b", 1)))
	names := func(m kmsg.Response) string {
		var out []string
		for _, t := range m.(*kmsg.MetadataResponse).Topics {
			out = append(out, fmt.Sprintf("%s:%d", *t.Topic, t.ErrorCode))
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	null := at(kmsg.NewPtrMetadataRequest(), 12)
	null.Topics = nil
	for what, c := range map[string]struct {
		req  kmsg.Request
		want string
	}{
		"v0, empty":      {metadataRequest(0), "a:0 b:0"},
		"v1, empty":      {metadataRequest(1), ""},
		"v12, null":      {null, "a:0 b:0"},
		"v12, one bad":   {metadataRequest(12, "a", "no such", "b", "nope"), "a:0 b:0 no such:17 nope:3"},
		"v4, one absent": {metadataRequest(4, "nope", "a"), "a:0 nope:3"},
	} {
		if got := names(p.do(c.req)); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// R19: each listener answers with its own advertised address; wildcard addresses are not advertised; [::1] works everywhere.
func TestR19ListenersAdvertiseTheirOwnAddresses(t *testing.T) {
	one, two := reserveAddress(t), net.JoinHostPort("::1", strconv.Itoa(reservePort(t)))
	b := startBroker(t, "listeners=PLAINTEXT://"+one+",SIX://"+two,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT", "advertised.listeners=PLAINTEXT://"+one+",SIX://"+two)
	for _, addr := range []string{one, two} {
		m := speak(t, addr).do(metadataRequest(12)).(*kmsg.MetadataResponse)
		got := net.JoinHostPort(m.Brokers[0].Host, fmt.Sprint(m.Brokers[0].Port))
		if len(m.Brokers) != 1 || got != addr {
			t.Errorf("by %s the broker is at %s", addr, got)
		}
	}
	b.klamm("topics", "--bootstrap-server", two, "--create", "--topic", "six").ok(t)
	b.stop()
	wantAll(t, b.refused(t, "advertised.listeners=PLAINTEXT://0.0.0.0:9092,SIX://"+two), "0.0.0.0", "advertised.listeners")

	local := startBroker(t, "listeners=PLAINTEXT://localhost:0")
	_, port, _ := net.SplitHostPort(local.addr)
	for _, host := range []string{"127.0.0.1", "::1"} {
		speak(t, net.JoinHostPort(host, port)).do(metadataRequest(12))
	}
}

// R20: after CreateTopics has returned, produce, fetch and ListOffsets work without a retry.
func TestR20ANewTopicWorksAtOnce(t *testing.T) {
	b := startBroker(t)
	batch := recordBatch(t)
	p := speak(t, b.addr)
	for i := range 30 {
		name := fmt.Sprint("fresh-", i)
		if got := p.do(createRequest(7, newTopic(name, 4))).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; got != 0 {
			t.Fatalf("create: error %d", got)
		}
		if got := p.fetchOne(name); got.ErrorCode != 0 || len(got.RecordBatches) != 0 || got.HighWatermark != 0 {
			t.Fatalf("%s: fetch of nothing: error %d, %d bytes, high watermark %d", name, got.ErrorCode, len(got.RecordBatches), got.HighWatermark)
		}
		if got := produceRaw(t, b, name, append([]byte(nil), batch...)); got != 0 {
			t.Fatalf("%s: produce answered with error %d", name, got)
		}
		if got := p.fetchOne(name); got.ErrorCode != 0 || len(got.RecordBatches) != len(batch) || got.HighWatermark != 1 {
			t.Fatalf("%s: fetch: error %d, %d bytes of %d, high watermark %d", name, got.ErrorCode, len(got.RecordBatches), len(batch), got.HighWatermark)
		}
		list := at(kmsg.NewPtrListOffsetsRequest(), 7)
		lt := kmsg.NewListOffsetsRequestTopic()
		lt.Topic = name
		lp := kmsg.NewListOffsetsRequestTopicPartition()
		lp.Timestamp, lp.CurrentLeaderEpoch = -1, -1
		lt.Partitions = append(lt.Partitions, lp)
		list.ReplicaID, list.Topics = -1, append(list.Topics, lt)
		if got := p.do(list).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != 1 {
			t.Fatalf("%s: ListOffsets: error %d, offset %d", name, got.ErrorCode, got.Offset)
		}
	}
}

// fetchOne reads partition 0 of a topic from its start, without waiting.
func (p *protocol) fetchOne(topic string) kmsg.FetchResponseTopicPartition {
	p.t.Helper()
	req := at(kmsg.NewPtrFetchRequest(), 11)
	req.MaxBytes = 1 << 20
	rt, rp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rt.Topic, rp.PartitionMaxBytes = topic, 1<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return p.do(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
}

// R20: producing to a topic that is not there makes it, with what sarama and kafka-go do by themselves, on three brokers.
func TestR20ProducingMakesATopicThatWorksAtOnce(t *testing.T) {
	clients := filepath.Join(t.TempDir(), "goclients")
	build := exec.Command("go", "build", "-o", clients, ".")
	build.Dir = filepath.Join("testdata", "goclients")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the clients: %v\n%s", err, out)
	}
	r := command(t, klammBinary, "dev", "--port", "0", "--", "sh", "-c", clients+` "$BOOTSTRAP"`)
	if out := r.ok(t); !strings.HasSuffix(out, "all equal\n") {
		t.Errorf("stdout: %s\nstderr: %s", out, r.stderr)
	}
}

// R22: an idempotent producer of librdkafka that was idle until the broker has forgotten it goes on with its next sequence.
func TestR22AnIdleIdempotentProducerGoesOn(t *testing.T) {
	b := startBroker(t, "producer.id.expiration.ms=2000", "producer.id.expiration.check.interval.ms=50", "log.initial.task.delay.ms=50")
	b.topics("--create", "--topic", "idle").ok(t)
	adm := kadm.NewClient(client(t, b))
	producers := func(want string, is func([]kadm.DescribedProducer) bool) []kadm.DescribedProducer {
		t.Helper()
		var got []kadm.DescribedProducer
		eventually(t, 20*time.Second, want, func() (bool, string) {
			all, err := adm.DescribeProducers(t.Context(), kadm.TopicsSet{"idle": {0: {}}})
			if err == nil {
				got = all["idle"].Partitions[0].ActiveProducers.Sorted()
			}
			return err == nil && is(got), fmt.Sprint(got, err)
		})
		return got
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	producer := exec.CommandContext(ctx, env(t, "INTEROP_PYTHON"), filepath.Join("testdata", "idle_confluent.py"), b.addr, "idle")
	var complaints bytes.Buffer
	producer.Stderr = &complaints
	lines, err := producer.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := producer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := producer.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(answers)
	id := int64(-1)
	for i := range int32(3) {
		if _, err := fmt.Fprintln(lines, "line", i); err != nil {
			t.Fatal(err)
		}
		if answer, err := said.ReadString('\n'); err != nil || answer != fmt.Sprintln(i) {
			t.Fatalf("record %d was answered with %q, %v", i, answer, err)
		}
		got := producers("the producer is known", func(p []kadm.DescribedProducer) bool { return len(p) == 1 })[0]
		if got.LastSequence != i || i > 0 && got.ProducerID != id {
			t.Errorf("record %d came from producer %d with sequence %d; the one before was %d", i, got.ProducerID, got.LastSequence, id)
		}
		id = got.ProducerID
		producers("the producer is forgotten", func(p []kadm.DescribedProducer) bool { return len(p) == 0 })
	}
	_ = lines.Close()
	if err := producer.Wait(); err != nil || complaints.Len() > 0 {
		t.Errorf("the producer ended with %v and complained:\n%s", err, complaints.String())
	}
}

// R25: the verdicts of CreateTopics that users look at.
func TestR25CreateVerdicts(t *testing.T) {
	b := startBroker(t, "num.partitions=3", "default.replication.factor=1")
	p := speak(t, b.addr)
	two := newTopic("two", 1)
	two.ReplicationFactor = 2
	defaults := newTopic("defaults", -1)
	defaults.ReplicationFactor = -1
	for what, c := range map[string]struct {
		topic kmsg.CreateTopicsRequestTopic
		code  int16
	}{
		"RF 2 on one broker": {two, 38},
		"unknown config key": {newTopic("unknown", 1, "no.such.key", "1"), 40},
		"bad config value":   {newTopic("bad", 1, "retention.ms", "soon"), 40},
		"no partition":       {newTopic("none", 0), 37},
		"a bad name":         {newTopic("a b", 1), 17},
		"broker's defaults":  {defaults, 0},
	} {
		got := p.do(createRequest(7, c.topic)).(*kmsg.CreateTopicsResponse).Topics[0]
		if got.ErrorCode != c.code {
			t.Errorf("%s: error %d, want %d", what, got.ErrorCode, c.code)
		}
		if c.code == 0 && (got.NumPartitions != 3 || got.ReplicationFactor != 1 || len(got.Configs) < 20) {
			t.Errorf("%s: %d partitions, RF %d, %d configs", what, got.NumPartitions, got.ReplicationFactor, len(got.Configs))
		}
		if c.code != 0 && (got.ErrorMessage == nil || *got.ErrorMessage == "") {
			t.Errorf("%s: no message", what)
		}
	}
}

// A broker that was killed serves again at once when started, without waiting for its old session to expire.
func TestABrokerKilledAndStartedAtOnceServesAgain(t *testing.T) {
	b := startBroker(t, "broker.session.timeout.ms=18000")
	b.topics("--create", "--topic", "t").ok(t)
	for range 3 {
		b.kill()
		started := time.Now()
		b.start()
		commandInput(t, "x\n", "kcat", "-b", b.addr, "-P", "-t", "t", "-X", "message.timeout.ms=5000").ok(t)
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("back after %v", took)
		}
	}
}

// Two brokers that share a full disk's symptoms: a quota-sized file system refuses further appends with a storage error,
// nothing acknowledged is lost and the broker says which dir failed.
func TestAFullDiskFailsTheLogDirAndLosesNothing(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=6m", "klamm-full", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	b := startBroker(t, "log.dirs="+filepath.Join(dir, "small"))
	b.topics("--create", "--topic", "big").ok(t)
	cl := client(t, b, kgo.DefaultProduceTopic("big"), kgo.RecordRetries(0), kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(3*time.Second),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	acked := 0
	for range 2000 {
		if cl.ProduceSync(t.Context(), kgo.StringRecord(strings.Repeat("z", 10_000))).FirstErr() != nil {
			break
		}
		acked++
	}
	if acked == 0 || acked == 2000 {
		t.Fatalf("%d records acknowledged on a disk of 6 MiB", acked)
	}
	eventually(t, 20*time.Second, "the log names the failed dir", func() (bool, string) {
		return b.stderr.contains("no space left on device"), b.stderr.tail(5)
	})
	if b.running() {
		b.stop()
	}
	if out, err := exec.Command("mount", "-o", "remount,size=32m", dir).CombinedOutput(); err != nil {
		t.Fatalf("grow the file system: %v: %s", err, out)
	}
	b.start()
	got := strings.Count(command(t, "kcat", "-b", b.addr, "-C", "-t", "big", "-e", "-q", "-o", "beginning").ok(t), "\n")
	if got < acked {
		t.Errorf("%d of %d acknowledged records are there after the disk grew", got, acked)
	}
}
