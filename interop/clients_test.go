//go:build interop

package interop

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func TestKcatProducesAndConsumesWithEveryCodec(t *testing.T) {
	b := startBroker(t)
	for _, codec := range codecs {
		t.Run(codec, func(t *testing.T) {
			topic := "kcat-" + codec
			var in strings.Builder
			for i := range 500 {
				fmt.Fprintf(&in, "key%d:value %d %s\n", i, i, strings.Repeat("x", i%100))
			}
			commandInput(t, in.String(), "kcat", "-b", b.addr, "-P", "-t", topic, "-K:", "-z", codec).ok(t)
			got := command(t, "kcat", "-b", b.addr, "-C", "-t", topic, "-K:", "-e", "-q", "-o", "beginning").ok(t)
			if got != in.String() {
				t.Errorf("consumed %d bytes that differ from the %d produced", len(got), in.Len())
			}
		})
	}
}

func TestKcatListsBrokerAndTopics(t *testing.T) {
	b := startBroker(t)
	b.topics("--create", "--topic", "orders", "--partitions", "3").ok(t)
	out := command(t, "kcat", "-b", b.addr, "-L").ok(t)
	for _, want := range []string{"broker 1 at " + b.addr + " (controller)", `topic "orders" with 3 partitions:`, "partition 2, leader 1, replicas: 1, isrs: 1"} {
		if !strings.Contains(out, want) {
			t.Errorf("kcat -L lacks %q:\n%s", want, out)
		}
	}
}

// Clients that were told to speak as to an old broker: message sets of magic 0 (0.8) and 1 (0.10), ways in and out.
func TestKcatOfOldVersionsReadsWhatNewOnesWriteAndTheOtherWayRound(t *testing.T) {
	b := startGroupBroker(t)
	in := numbers(0, 500)
	for _, version := range []string{"0.8.2.2", "0.10.2.1"} {
		old := []string{"-X", "api.version.request=false", "-X", "broker.version.fallback=" + version}
		for _, codec := range []string{"none", "gzip", "snappy", "lz4"} {
			t.Run(version+" "+codec, func(t *testing.T) {
				kcat := func(stdin string, with []string, args ...string) string {
					t.Helper()
					return commandInput(t, stdin, "kcat", append(append([]string{"-b", b.addr}, args...), with...)...).ok(t)
				}
				topic := version + "-" + codec
				kcat(in, old, "-P", "-t", topic+"-old", "-z", codec)
				kcat(in, nil, "-P", "-t", topic+"-new", "-z", codec)
				for _, from := range []string{"-old", "-new"} {
					for name, with := range map[string][]string{"old": old, "new": nil} {
						if got := kcat("", with, "-C", "-t", topic+from, "-o", "beginning", "-e", "-q", "-X", "fetch.wait.max.ms=10"); got != in {
							t.Errorf("%s reads %d bytes of what%s wrote, which differ from its %d", name, len(got), from, len(in))
						}
						if got := kcat("", with, "-C", "-t", topic+from, "-o", "497", "-e", "-q", "-X", "fetch.wait.max.ms=10"); got != numbers(497, 3) {
							t.Errorf("%s reads from an offset of what%s wrote: %q", name, from, got)
						}
					}
				}
			})
		}
	}
}

func TestJavaClientsOfOldReleases(t *testing.T) {
	classes := t.TempDir()
	oldest := env(t, "KAFKA_CLIENTS_0_10")
	command(t, "javac", "-nowarn", "-cp", oldest+"/*", "-d", classes, filepath.Join("testdata", "OldClient.java")).ok(t)
	b := startGroupBroker(t)
	for release, jars := range map[string]string{"0.10.2": oldest, "1.1": env(t, "KAFKA_CLIENTS_1_1"), "2.4": env(t, "KAFKA_CLIENTS_2_4")} {
		t.Run(release, func(t *testing.T) {
			r := command(t, "java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes+":"+jars+"/*", "OldClient", b.addr, "java-"+release)
			if out := r.ok(t); !strings.HasSuffix(out, "all equal\n") {
				t.Errorf("stdout: %s\nstderr: %s", out, r.stderr)
			}
		})
	}
}

func TestConfluentKafkaProducesAndConsumesWithEveryCodec(t *testing.T) {
	runPython(t, "confluent.py")
}

func TestKafkaPythonProducesAndConsumesWithEveryCodec(t *testing.T) {
	runPython(t, "kafkapython.py")
}

func runPython(t *testing.T, script string) {
	t.Helper()
	b := startBroker(t)
	r := command(t, env(t, "INTEROP_PYTHON"), filepath.Join("testdata", script), b.addr)
	if out := r.ok(t); !strings.HasSuffix(out, "all equal\n") {
		t.Errorf("stdout: %s\nstderr: %s", out, r.stderr)
	}
}

func TestFranzGoProducesAndConsumesWithEveryCodec(t *testing.T) {
	b := startBroker(t)
	byName := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for _, codec := range codecs {
		t.Run(codec, func(t *testing.T) {
			topic := "franz-" + codec
			b.topics("--create", "--topic", topic, "--partitions", "3").ok(t)
			cl := client(t, b, kgo.ProducerBatchCompression(byName[codec]), kgo.ConsumeTopics(topic),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			want := map[string]string{}
			var records []*kgo.Record
			for i := range 1000 {
				k, v := fmt.Sprint("k", i), fmt.Sprint("v", i, strings.Repeat("y", i%50))
				want[k] = v
				records = append(records, &kgo.Record{Topic: topic, Key: []byte(k), Value: []byte(v),
					Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}})
			}
			if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			for got := 0; got < len(want); {
				fs := cl.PollFetches(t.Context())
				if err := fs.Err(); err != nil {
					t.Fatal(err)
				}
				fs.EachRecord(func(r *kgo.Record) {
					got++
					if want[string(r.Key)] != string(r.Value) {
						t.Fatalf("record %s has value %q", r.Key, r.Value)
					}
				})
			}
		})
	}
}

// client is a franz-go client of the broker that is closed with the test.
func client(t *testing.T, b *broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.addr), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	return cl
}
