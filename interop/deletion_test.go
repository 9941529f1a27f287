//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// dirs counts the topic's partition folders by kind.
func (b *broker) dirs(topic string) (live, deleted int) {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, "data"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		switch {
		case !strings.HasPrefix(e.Name(), topic+"-"):
		case strings.HasSuffix(e.Name(), "-delete"):
			deleted++
		default:
			live++
		}
	}
	return live, deleted
}

// load produces and consumes the topic with as many goroutines as asked until ctx ends, and collects the errors clients see.
func load(ctx context.Context, b *broker, topic string) (wait func() map[string]int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(err error) {
		if err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		seen[err.Error()]++
	}
	for range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DefaultProduceTopic(topic), kgo.UnknownTopicRetries(-1), kgo.RecordRetries(1))
			if err != nil {
				note(err)
				return
			}
			defer cl.Close()
			for ctx.Err() == nil {
				note(cl.ProduceSync(ctx, kgo.StringRecord("some value"), kgo.StringRecord("another")).FirstErr())
			}
		}()
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeTopics(topic), kgo.KeepRetryableFetchErrors())
		if err != nil {
			note(err)
			return
		}
		defer cl.Close()
		for ctx.Err() == nil {
			note(cl.PollFetches(ctx).Err())
		}
	}()
	return func() map[string]int { wg.Wait(); return seen }
}

func TestDeletionOfATopicUnderLoad(t *testing.T) {
	b := startBroker(t, "log.segment.delete.delay.ms=1500", "log.initial.task.delay.ms=100", "auto.create.topics.enable=false")
	p := speak(t, b.addr)
	const topic = "orders"
	b.topics("--create", "--topic", topic, "--partitions", "12").ok(t)
	first := p.topic(topic)
	if first.ErrorCode != 0 || first.TopicID == [16]byte{} {
		t.Fatalf("topic id %x, error %d", first.TopicID, first.ErrorCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := load(ctx, b, topic)
	eventually(t, 20*time.Second, "all 12 partitions hold data", func() (bool, string) {
		live, _ := b.dirs(topic)
		return live == 12, fmt.Sprint(live, " directories")
	})

	b.topics("--delete", "--topic", topic).ok(t)
	if got := p.topic(topic).ErrorCode; got != 3 {
		t.Errorf("right after the deletion Metadata says error %d", got)
	}
	eventually(t, 5*time.Second, "all directories are renamed", func() (bool, string) {
		live, deleted := b.dirs(topic)
		return live == 0 && deleted == 12, fmt.Sprintf("%d live, %d deleted", live, deleted)
	})

	b.topics("--create", "--topic", topic, "--partitions", "2").ok(t)
	second := p.topic(topic)
	if second.ErrorCode != 0 || len(second.Partitions) != 2 {
		t.Errorf("created again: error %d, %d partitions", second.ErrorCode, len(second.Partitions))
	}
	if second.TopicID == first.TopicID {
		t.Errorf("the new topic has the id of the old one, %x", first.TopicID)
	}
	cancel()
	for message, n := range wait() {
		if !strings.Contains(message, "UNKNOWN_TOPIC_OR_PARTITION") && !strings.Contains(message, "UNKNOWN_TOPIC_ID") &&
			!strings.Contains(message, "NOT_LEADER") && !strings.Contains(message, "LEADER_NOT_AVAILABLE") && !strings.Contains(message, "INCONSISTENT_TOPIC_ID") && !strings.Contains(message, "FENCED_LEADER_EPOCH") {
			t.Errorf("clients saw %d times: %s", n, message)
		}
	}
	eventually(t, 10*time.Second, "the deleted directories are removed after the delay", func() (bool, string) {
		_, deleted := b.dirs(topic)
		return deleted == 0, fmt.Sprint(deleted, " left")
	})
	if status, body := b.get("/api/v1/deletions"); status != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("after the deletion the web address shows %d %s", status, body)
	}
	if b.stderr.contains("level=ERROR") {
		t.Errorf("klamm logged an error:\n%s", b.stderr.tail(30))
	}
}

func TestATopicCreatedAgainStartsEmpty(t *testing.T) {
	b := startBroker(t)
	for round := range 20 {
		b.topics("--create", "--topic", "again", "--partitions", "1").ok(t)
		adm := kadm.NewClient(client(t, b))
		ends, err := adm.ListEndOffsets(t.Context(), "again")
		if err != nil || ends.Error() != nil {
			t.Fatal(err, ends.Error())
		}
		if o, _ := ends.Lookup("again", 0); o.Offset != 0 {
			t.Fatalf("round %d: the new topic ends at offset %d", round, o.Offset)
		}
		commandInput(t, "a\nb\n", "kcat", "-b", b.addr, "-P", "-t", "again").ok(t)
		b.topics("--delete", "--topic", "again").ok(t)
	}
}

// The broker is killed at many moments of a deletion; whatever was done, it ends by itself after the restart.
func TestDeletionEndsByItselfAfterKillNineAtAnyMoment(t *testing.T) {
	for _, after := range []time.Duration{0, 200 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond,
		3 * time.Millisecond, 5 * time.Millisecond, 8 * time.Millisecond, 15 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, "log.segment.delete.delay.ms=300", "log.initial.task.delay.ms=100", "auto.create.topics.enable=false")
			b.topics("--create", "--topic", "doomed", "--partitions", "30").ok(t)
			b.topics("--create", "--topic", "kept", "--partitions", "2").ok(t)
			commandInput(t, strings.Repeat("row\n", 2000), "kcat", "-b", b.addr, "-P", "-t", "doomed").ok(t)
			commandInput(t, "precious\n", "kcat", "-b", b.addr, "-P", "-t", "kept", "-p", "0").ok(t)
			deleter := speak(t, b.addr)
			answered := make(chan error, 1)
			go func() {
				_, err := deleter.try(deleteRequest(6, "doomed"))
				answered <- err
			}()
			<-time.After(after)
			b.kill()
			acknowledged := <-answered == nil
			b.start()

			p := speak(t, b.addr)
			if acknowledged {
				eventually(t, 10*time.Second, "an acknowledged deletion goes on after the restart", func() (bool, string) {
					code := p.topic("doomed").ErrorCode
					return code == 3, fmt.Sprint("error ", code)
				})
			}
			// A deletion that had not begun is asked for again; one that had is idempotent or already over.
			if code := p.do(deleteRequest(6, "doomed")).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != 0 && code != 3 {
				t.Fatalf("deleting again: error %d", code)
			}
			eventually(t, 20*time.Second, "the deletion ends", func() (bool, string) {
				live, deleted := b.dirs("doomed")
				return live == 0 && deleted == 0, fmt.Sprintf("%d live, %d deleted directories", live, deleted)
			})
			b.topics("--create", "--topic", "doomed", "--partitions", "3").ok(t)
			if got := command(t, "kcat", "-b", b.addr, "-C", "-t", "doomed", "-e", "-q", "-o", "beginning").ok(t); got != "" {
				t.Errorf("the new topic holds %q", got)
			}
			if got := command(t, "kcat", "-b", b.addr, "-C", "-t", "kept", "-e", "-q", "-o", "beginning").ok(t); got != "precious\n" {
				t.Errorf("the other topic holds %q", got)
			}
		})
	}
}
