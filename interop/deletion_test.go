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
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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
	b := startBroker(t, "log.segment.delete.delay.ms=1500", "auto.create.topics.enable=false")
	adm := kadm.NewClient(client(t, b))
	const topic = "orders"
	b.topics("--create", "--topic", topic, "--partitions", "12").ok(t)
	first, err := adm.ListTopics(t.Context(), topic)
	if err != nil || first[topic].ID == (kadm.TopicID{}) {
		t.Fatalf("topic id %v, %v", first[topic].ID, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wait := load(ctx, b, topic)
	eventually(t, 20*time.Second, "all 12 partitions hold data", func() (bool, string) {
		live, _ := b.dirs(topic)
		return live == 12, fmt.Sprint(live, " directories")
	})

	b.topics("--delete", "--topic", topic).ok(t)
	listed, err := adm.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if got := listed[topic].Err; !errors.Is(got, kerr.UnknownTopicOrPartition) {
		t.Errorf("right after the deletion Metadata says %v", got)
	}
	eventually(t, 5*time.Second, "all directories are renamed", func() (bool, string) {
		live, deleted := b.dirs(topic)
		return live == 0 && deleted == 12, fmt.Sprintf("%d live, %d deleted", live, deleted)
	})

	b.topics("--create", "--topic", topic, "--partitions", "2").ok(t)
	second, err := adm.ListTopics(t.Context(), topic)
	if err != nil || second[topic].Err != nil {
		t.Fatal(err, second[topic].Err)
	}
	if second[topic].ID == first[topic].ID {
		t.Errorf("the new topic has the id of the old one, %v", first[topic].ID)
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
			b := startBroker(t, "log.segment.delete.delay.ms=300", "auto.create.topics.enable=false")
			b.topics("--create", "--topic", "doomed", "--partitions", "30").ok(t)
			b.topics("--create", "--topic", "kept", "--partitions", "2").ok(t)
			commandInput(t, strings.Repeat("row\n", 2000), "kcat", "-b", b.addr, "-P", "-t", "doomed").ok(t)
			commandInput(t, "precious\n", "kcat", "-b", b.addr, "-P", "-t", "kept", "-p", "0").ok(t)
			adm := kadm.NewClient(client(t, b))
			answered := make(chan error, 1)
			go func() {
				_, err := adm.DeleteTopics(t.Context(), "doomed")
				answered <- err
			}()
			<-time.After(after)
			b.kill()
			acknowledged := <-answered == nil
			b.start()

			adm = kadm.NewClient(client(t, b))
			listed, err := adm.ListTopics(t.Context(), "doomed")
			if err != nil {
				t.Fatal(err)
			}
			if started := listed[`doomed`].Err != nil; acknowledged && !started {
				eventually(t, 10*time.Second, "an acknowledged deletion goes on after the restart", func() (bool, string) {
					l, err := adm.ListTopics(t.Context(), "doomed")
					return err == nil && l["doomed"].Err != nil, fmt.Sprint(err)
				})
			}
			// A deletion that had not begun is asked for again; one that had is idempotent or already over.
			if resp, err := adm.DeleteTopics(t.Context(), "doomed"); err != nil || resp["doomed"].Err != nil && !errors.Is(resp["doomed"].Err, kerr.UnknownTopicOrPartition) {
				t.Fatal(err, resp["doomed"].Err)
			}
			eventually(t, 20*time.Second, "the deletion ends", func() (bool, string) {
				live, deleted := b.dirs("doomed")
				return live == 0 && deleted == 0, fmt.Sprintf("%d live, %d deleted directories", live, deleted)
			})
			eventually(t, 10*time.Second, "the name is free", func() (bool, string) {
				r := b.topics("--create", "--topic", "doomed", "--partitions", "3")
				return r.exit == 0, r.stdout
			})
			if got := command(t, "kcat", "-b", b.addr, "-C", "-t", "doomed", "-e", "-q", "-o", "beginning").ok(t); got != "" {
				t.Errorf("the new topic holds %q", got)
			}
			if got := command(t, "kcat", "-b", b.addr, "-C", "-t", "kept", "-e", "-q", "-o", "beginning").ok(t); got != "precious\n" {
				t.Errorf("the other topic holds %q", got)
			}
		})
	}
}
