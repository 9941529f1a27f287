//go:build interop

// Package wirecheck compares klamm's codec with the classes Kafka generates from its message definitions: random
// messages of every key and version are encoded by klamm, parsed and written again by Kafka, and must come out as the
// same bytes, headers included.
package wirecheck

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/wire"
	"klamm/internal/wire/wiretest"
)

// rounds is how many requests and responses of every key and version are compared.
const rounds = 40

// message is one frame for Kafka to judge.
type message struct {
	response     bool
	key, version int16
	frame        []byte // without its length
}

func (m message) String() string {
	kind := "request"
	if m.response {
		kind = "response"
	}
	return fmt.Sprintf("%s v%d %s (key %d)", kmsg.NameForKey(m.key), m.version, kind, m.key)
}

// verdict is Kafka's judgement, as WireCheck.java writes it.
type verdict struct {
	code byte
	text string
}

const (
	same      = 0
	different = 1
	unknown   = 2
)

func TestKafkasGeneratedClassesReadAndWriteTheSameBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	messages := randomMessages(rand.New(rand.NewPCG(seed, 0)))
	judged := make([]bool, len(messages))
	for _, release := range []string{"3.9.1", "4.1.0", "4.4.0"} {
		verdicts := askKafka(t, release, messages)
		judge(t, release, messages, verdicts)
		for i, v := range verdicts {
			judged[i] = judged[i] || v.code == same
		}
	}
	for i, m := range messages {
		if !judged[i] && (i == 0 || messages[i-1].key != m.key || messages[i-1].version != m.version) {
			t.Errorf("no release confirms %s", m)
		}
	}
}

func randomMessages(rng *rand.Rand) []message {
	var out []message
	clientID := "wirecheck"
	wiretest.EveryVersion(func(key, version int16) {
		for round := range int32(rounds) {
			id := &clientID
			if round == 0 {
				id = nil
			}
			out = append(out,
				message{false, key, version, wire.AppendRequest(nil, wiretest.RandomRequest(rng, key, version), round, id)[4:]},
				message{true, key, version, wire.AppendResponse(nil, wiretest.RandomResponse(rng, key, version), round)[4:]})
		}
	})
	return out
}

// judge reports what is neither the same nor excused.
func judge(t *testing.T, release string, messages []message, verdicts []verdict) {
	t.Helper()
	counts := map[byte]int{}
	excuses := exceptions[release]
	used := make([]bool, len(excuses))
	reported := map[string]bool{}
	for i, m := range messages {
		v := verdicts[i]
		counts[v.code]++
		if v.code == same {
			continue
		}
		excused := false
		for e, x := range excuses {
			if x.key == m.key && x.from <= m.version && m.version <= x.to && x.differs == (v.code == different) {
				used[e], excused = true, true
			}
		}
		if !excused && !reported[m.String()] {
			reported[m.String()] = true
			t.Errorf("%s: %s: verdict %d, %s\nklamm wrote: %x", release, m, v.code, v.text, m.frame)
		}
	}
	for e, x := range excuses {
		if !used[e] {
			t.Errorf("%s: the exception for key %d v%d-%d excuses nothing", release, x.key, x.from, x.to)
		}
	}
	t.Logf("Kafka %s: %d messages compared, %d identical, %d excused as different, %d of keys or versions it lacks",
		release, len(messages), counts[same], counts[different], counts[unknown])
}

// askKafka compiles WireCheck against a release's jars and lets it judge the messages.
func askKafka(t *testing.T, release string, messages []message) []verdict {
	t.Helper()
	classpath := filepath.Join(jars(t, release), "*")
	classes := t.TempDir()
	if out, err := exec.Command("javac", "-cp", classpath, "-d", classes, "WireCheck.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	var in, out, errs bytes.Buffer
	for _, m := range messages {
		kind := byte(0)
		if m.response {
			kind = 1
		}
		in.WriteByte(kind)
		in.Write(binary.BigEndian.AppendUint16(nil, uint16(m.key)))
		in.Write(binary.BigEndian.AppendUint16(nil, uint16(m.version)))
		in.Write(binary.BigEndian.AppendUint32(nil, uint32(len(m.frame))))
		in.Write(m.frame)
	}
	java := exec.Command("java", "-Xmx512m", "-cp", classes+string(os.PathListSeparator)+classpath, "WireCheck")
	java.Stdin, java.Stdout, java.Stderr = &in, &out, &errs
	if err := java.Run(); err != nil {
		t.Fatalf("java: %v\n%s", err, errs.String())
	}
	verdicts := make([]verdict, len(messages))
	r := bufio.NewReader(&out)
	for i := range verdicts {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			t.Fatalf("verdict %d of %d: %v", i, len(verdicts), err)
		}
		text := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(r, text); err != nil {
			t.Fatalf("verdict %d of %d: %v", i, len(verdicts), err)
		}
		verdicts[i] = verdict{head[0], string(text)}
	}
	return verdicts
}

// jars returns the folder with a release's jars: KAFKA_JARS_3_9_1 and its like, or the cache that jars.sh fills.
func jars(t *testing.T, release string) string {
	t.Helper()
	name := "KAFKA_JARS_" + strings.ReplaceAll(release, ".", "_")
	if dir := os.Getenv(name); dir != "" {
		return dir
	}
	cache := os.Getenv("KLAMM_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, ".cache", "klamm")
	}
	dir := filepath.Join(cache, "kafka-"+release)
	if _, err := os.Stat(filepath.Join(dir, "ok")); err == nil {
		return filepath.Join(dir, "lib")
	}
	script := filepath.Join("..", "..", "..", "shared", "kafka", "jars.sh")
	out, err := exec.Command("bash", script, release).Output()
	if err != nil {
		t.Fatalf("jars of Kafka %s: set %s, or have %s fetch them: %v", release, name, script, err)
	}
	return strings.TrimSpace(string(out))
}
