package record

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
)

// oldMessage makes one message of magic 0 or 1.
func oldMessage(magic byte, codec Codec, timestamp int64, key, value []byte) []byte {
	body := []byte{magic, byte(codec)}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
	}
	for _, field := range [][]byte{key, value} {
		if field == nil {
			body = binary.BigEndian.AppendUint32(body, 0xffffffff)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(field)))
		body = append(body, field...)
	}
	out := make([]byte, 8)
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

func packed(t *testing.T, magic byte, codec Codec, set []byte) []byte {
	t.Helper()
	value, err := Compress(nil, set, Compression{Codec: codec})
	if err != nil {
		t.Fatal(err)
	}
	return oldMessage(magic, codec, 77, nil, value)
}

func nullable(v []byte) string {
	if v == nil {
		return "null"
	}
	return string(v)
}

// printed lists what a batch holds as offset@timestamp key=value.
func printed(t *testing.T, batch []byte) (out []string) {
	t.Helper()
	b, rest, err := NextBatch(batch)
	if err != nil || len(rest) > 0 || b.Validate() != nil {
		t.Fatalf("not one valid batch: %v, %d bytes left, %v", err, len(rest), b.Validate())
	}
	out = append(out, b.Codec().String())
	if err := b.ForEach(0, func(r *Record) error {
		out = append(out, fmt.Sprintf("%d@%d %s=%s", r.Offset, r.Timestamp, nullable(r.Key), nullable(r.Value)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func sameLines(t *testing.T, want, got []string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestMessageSetsBecomeBatches(t *testing.T) {
	set := func(magic byte) []byte {
		return append(oldMessage(magic, None, 5, []byte("k"), []byte("v")), oldMessage(magic, None, 4, nil, []byte(""))...)
	}
	sameLines(t, []string{"none", "0@-1 k=v", "1@-1 null="}, mustConvert(t, set(0)))
	sameLines(t, []string{"none", "0@5 k=v", "1@4 null="}, mustConvert(t, set(1)))
	sameLines(t, []string{"none", "0@5 k=null"}, mustConvert(t, oldMessage(1, None, 5, []byte("k"), nil)))
	for _, codec := range []Codec{Gzip, Snappy, LZ4} {
		sameLines(t, []string{codec.String(), "0@5 k=v", "1@4 null="}, mustConvert(t, packed(t, 1, codec, set(1))))
	}
	both := append(packed(t, 1, Gzip, set(1)), packed(t, 1, Gzip, set(1))...)
	sameLines(t, []string{"gzip", "0@5 k=v", "1@4 null=", "2@5 k=v", "3@4 null="}, mustConvert(t, both))
}

func mustConvert(t *testing.T, set []byte) []string {
	t.Helper()
	batch, _, err := FromMessageSet(set)
	if err != nil {
		t.Fatal(err)
	}
	return printed(t, batch)
}

func TestMessageSetsThatAreRefused(t *testing.T) {
	good := oldMessage(1, None, 5, []byte("k"), []byte("v"))
	changed := func(at int, v byte) []byte {
		b := append([]byte{}, good...)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		set  []byte
		want cluster.ErrorCode
	}{
		"nothing":                         {nil, cluster.InvalidRecord},
		"a checksum that is off":          {changed(12, good[12]+1), cluster.CorruptMessage},
		"a size beyond the set":           {changed(11, 200), cluster.CorruptMessage},
		"a negative size":                 {changed(8, 0xff), cluster.CorruptMessage},
		"half a message":                  {good[:20], cluster.CorruptMessage},
		"magic 2":                         {oldMessage(2, None, 0, nil, make([]byte, 20)), cluster.InvalidRecord},
		"zstd":                            {oldMessage(1, Zstd, 5, nil, []byte("x")), cluster.CorruptMessage},
		"garbage as gzip":                 {oldMessage(1, Gzip, 5, nil, []byte("x")), cluster.CorruptMessage},
		"a set within a set within a set": {packed(t, 1, Gzip, packed(t, 1, Gzip, good)), cluster.CorruptMessage},
	} {
		if _, _, err := FromMessageSet(c.set); Code(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// messages lists what a set holds, compressed ones unpacked, as offset@timestamp key=value.
func messages(t *testing.T, set []byte) (out []string) {
	t.Helper()
	walkSet(t, set, func(m oldRecord) {
		if m.codec == None {
			out = append(out, m.String())
			return
		}
		inner := unpacked(t, m)
		last := int64(-1)
		walkSet(t, inner, func(m oldRecord) { last = m.offset })
		walkSet(t, inner, func(i oldRecord) {
			if m.magic > 0 {
				i.offset += m.offset - last
			}
			out = append(out, m.codec.String()+" "+i.String())
		})
	})
	return out
}

// oldRecord is one message of a set as it was found.
type oldRecord struct {
	offset     int64
	magic      byte
	codec      Codec
	stamped    bool // with the append time
	timestamp  int64
	key, value []byte
}

func (m oldRecord) String() string {
	by := ""
	if m.stamped {
		by = "!"
	}
	return fmt.Sprintf("%d@%d%s %s=%s", m.offset, m.timestamp, by, nullable(m.key), nullable(m.value))
}

func unpacked(t *testing.T, m oldRecord) []byte {
	t.Helper()
	value := m.value
	if m.codec == LZ4 && m.magic == 0 {
		value = bytes.Clone(value)
		setLZ4HeaderChecksum(value, true)
		if !bytes.Equal(value, m.value) {
			t.Errorf("the LZ4 checksum of a message of magic 0 is not the one that its readers compute")
		}
		setLZ4HeaderChecksum(value, false)
	}
	inner, err := Decompress(nil, value, m.codec, 0)
	if err != nil {
		t.Fatal(err)
	}
	return inner
}

// walkSet checks the sizes and checksums of a set and gives its messages.
func walkSet(t *testing.T, set []byte, fn func(oldRecord)) {
	t.Helper()
	for len(set) > 0 {
		offset, size := int64(binary.BigEndian.Uint64(set)), int(binary.BigEndian.Uint32(set[8:]))
		m := set[12 : 12+size]
		set = set[12+size:]
		if crc32.ChecksumIEEE(m[4:]) != binary.BigEndian.Uint32(m) {
			t.Fatal("checksum of a message is off")
		}
		r := oldRecord{offset: offset, magic: m[4], codec: Codec(m[5] & 7), stamped: m[5]&8 != 0, timestamp: -1}
		body := m[6:]
		if r.magic == 1 {
			r.timestamp, body = int64(binary.BigEndian.Uint64(body)), body[8:]
		}
		var ok bool
		if r.key, body, ok = nullableField(body); !ok {
			t.Fatal("key")
		}
		if r.value, body, ok = nullableField(body); !ok || len(body) > 0 {
			t.Fatal("value")
		}
		fn(r)
	}
}

func mustSet(t *testing.T, batches []byte, magic int8, from int64) []byte {
	t.Helper()
	set, n, err := ToMessageSet(batches, magic, from)
	if err != nil {
		t.Fatal(err)
	}
	if string(set) != TruncatedMessage && n != len(messages(t, set)) {
		t.Errorf("%d messages, it says, of %d", n, len(messages(t, set)))
	}
	return set
}

// javaSets are the batches of javaBatches converted down by Kafka 3.9.1's classes for a reader at offset 5: codec-magic and base64.
func javaSets(t *testing.T) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/java-3.9.1-sets.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, b64, _ := strings.Cut(strings.TrimSpace(line), " ")
		if out[name], err = base64.StdEncoding.DecodeString(b64); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestSetsAreThoseOfKafkasOwnClasses(t *testing.T) {
	sets := javaSets(t)
	for codec, raw := range javaBatches(t) {
		for magic := range int8(2) {
			theirs, ok := sets[fmt.Sprintf("%s-%d", codec, magic)]
			if !ok {
				continue // zstd and the marker
			}
			// Small batches grow: the first message is taken whole, and room for all is what more bytes behind give.
			ours := mustSet(t, roomFor(t, raw, len(theirs)), magic, 5)
			if codec == "none" && !bytes.Equal(ours, theirs) {
				t.Errorf("magic %d: %x\nKafka's %x", magic, ours, theirs)
			}
			sameLines(t, messages(t, theirs), messages(t, ours))
			if _, n, err := FromMessageSet(theirs); err != nil || n != len(messages(t, theirs)) {
				t.Errorf("%s, magic %d: %v", codec, magic, err)
			}
		}
		delete(sets, codec+"-0")
		delete(sets, codec+"-1")
	}
	if len(sets) > 0 {
		t.Errorf("%d sets were not compared", len(sets))
	}
}

// roomFor puts the start of a batch behind raw, as a fetch ends, so that there are n bytes.
func roomFor(t *testing.T, raw []byte, n int) []byte {
	t.Helper()
	b := NewBuilder(BuilderOptions{BaseOffset: 1000})
	b.Append(1, nil, make([]byte, 2*n))
	next, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(raw), next[:max(n, HeaderSize)]...)
}

func TestBatchesBecomeMessageSets(t *testing.T) {
	build := func(c Codec, base int64) []byte {
		b := NewBuilder(BuilderOptions{BaseOffset: base, Compression: Compression{Codec: c}})
		b.AppendAt(base, 50, []byte("k"), []byte("v"), Header{"h", []byte("lost")})
		b.AppendAt(base+3, 40, nil, []byte("")) // compaction took two in between
		raw, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	stamped := func(raw []byte) []byte { SetAppendTime(raw, 99); return raw }
	tail := make([]byte, 4096)
	tail[11], tail[10], tail[16] = 0xff, 0xff, 2 // a cut off batch: room for all
	set := func(magic int8, from int64, batches ...[]byte) []string {
		return messages(t, mustSet(t, append(bytes.Join(batches, nil), tail...), magic, from))
	}
	sameLines(t, []string{"7@50 k=v", "10@40 null="}, set(1, 0, build(None, 7)))
	sameLines(t, []string{"7@-1 k=v", "10@-1 null="}, set(0, 0, build(None, 7)))
	sameLines(t, []string{"10@40 null="}, set(1, 8, build(None, 7)))
	sameLines(t, []string{"7@99! k=v", "10@99! null="}, set(1, 0, stamped(build(None, 7))))
	sameLines(t, []string{"7@-1 k=v", "10@-1 null="}, set(0, 0, stamped(build(None, 7))))
	for _, c := range []Codec{Gzip, Snappy, LZ4} {
		n := c.String() + " "
		sameLines(t, []string{n + "7@50 k=v", n + "10@40 null=", "11@50 k=v", "14@40 null="}, set(1, 8, build(c, 7), build(None, 11)))
		sameLines(t, []string{n + "7@-1 k=v", n + "10@-1 null="}, set(0, 8, build(c, 7)))
		sameLines(t, []string{n + "7@99! k=v", n + "10@99! null="}, set(1, 8, stamped(build(c, 7))))
	}
	marker := EndTxnMarker{ProducerID: 1, Type: Commit}.Batch()
	sameLines(t, []string{"7@50 k=v", "10@40 null="}, set(1, 0, marker, build(None, 7), marker))
	sameLines(t, nil, set(1, 0, marker))
	sameLines(t, nil, set(1, 11, build(None, 7)))
	sameLines(t, []string{"7@50 k=v", "10@40 null="}, set(1, 0, build(None, 7), build(Zstd, 11)))
	if _, _, err := ToMessageSet(append(build(Zstd, 7), build(None, 11)...), 1, 7); Code(err) != cluster.UnsupportedCompressionType {
		t.Errorf("zstd first: %v", err)
	}
}

func TestASetIsNotLongerThanItsBatchesUnlessItsFirstMessageIs(t *testing.T) {
	for _, c := range []Codec{None, Gzip} {
		var all []byte
		for i := range int64(100) {
			b := NewBuilder(BuilderOptions{BaseOffset: 20 * i, Compression: Compression{Codec: c}})
			for range 20 {
				b.Append(1, nil, []byte("v"))
			}
			raw, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, raw...)
		}
		set := mustSet(t, all, 1, 0)
		if got := messages(t, set); len(set) > len(all) || c == None && (len(set) < len(all)-100 || len(got) == 2000) {
			t.Errorf("%s: %d bytes with %d messages of %d bytes", c, len(set), len(got), len(all))
		}
	}
	big := NewBuilder(BuilderOptions{})
	big.Append(1, nil, nil)
	raw, _ := big.Build()
	for range 3 {
		big.Append(1, nil, nil)
	}
	sameLines(t, []string{"0@1 null=null"}, messages(t, mustSet(t, raw, 1, 0)))
}

func TestBytesWithoutAWholeBatchBecomeATruncatedMessage(t *testing.T) {
	raw := sample(t, None, 3)
	for _, n := range []int{1, HeaderSize, len(raw) - 1} {
		if set := mustSet(t, raw[:n], 1, 0); string(set) != TruncatedMessage {
			t.Errorf("%d bytes: %x", n, set)
		}
	}
	if set := mustSet(t, nil, 1, 0); len(set) != 0 {
		t.Errorf("of nothing: %x", set)
	}
}

func TestXXHash32IsThatOfItsAuthors(t *testing.T) {
	for text, want := range map[string]uint32{"": 0x02cc5d05, "Nobody inspects the spammish repetition": 0xe2293b2f} {
		if got := xxHash32([]byte(text)); got != want {
			t.Errorf("%q: %08x, want %08x", text, got, want)
		}
	}
}

func FuzzToMessageSet(f *testing.F) {
	for _, c := range codecs {
		f.Add(sample(f, c, 2), int8(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, magic int8) {
		set, _, err := ToMessageSet(b, magic&1, 1)
		if err != nil || string(set) == TruncatedMessage {
			return
		}
		messages(t, set)
	})
}

func FuzzMessageSets(f *testing.F) {
	f.Add(oldMessage(0, None, 0, []byte("k"), []byte("v")))
	f.Add(oldMessage(1, None, 5, nil, []byte("v")))
	f.Fuzz(func(t *testing.T, set []byte) {
		if batch, _, err := FromMessageSet(set); err == nil {
			printed(t, batch)
		}
	})
}
