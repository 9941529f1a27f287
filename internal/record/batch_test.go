package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// sample builds a batch of n records of some repetitive text.
func sample(t testing.TB, c Codec, n int) []byte {
	t.Helper()
	b := NewBuilder(BuilderOptions{LeaderEpoch: -1, Compression: Compression{Codec: c}})
	for i := range n {
		b.Append(1000+int64(i), fmt.Appendf(nil, "key-%d", i), bytes.Repeat([]byte("value "), 20), Header{"h", []byte{byte(i)}}, Header{Key: "null"})
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

type plainRecord struct {
	Offset, Timestamp int64
	Key, Value        string
	Headers           []Header
}

func records(t testing.TB, b Batch) []plainRecord {
	t.Helper()
	var out []plainRecord
	err := b.ForEach(0, func(r *Record) error {
		hs, err := r.Headers()
		out = append(out, plainRecord{r.Offset, r.Timestamp, string(r.Key), string(r.Value), hs})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestABuiltBatchReadsBackTheSameWithEveryCodec(t *testing.T) {
	want := records(t, first(t, sample(t, None, 100)))
	for _, c := range codecs {
		raw := sample(t, c, 100)
		b := first(t, raw)
		if err := b.Validate(); err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if b.Codec() != c || b.NumRecords != 100 || b.LastOffset() != 99 || b.BaseTimestamp != 1000 || b.MaxTimestamp != 1099 || b.Size() != len(raw) {
			t.Errorf("%s: header %+v", c, b.BatchHeader)
		}
		if d := cmp.Diff(want, records(t, b)); d != "" {
			t.Errorf("%s: %s", c, d)
		}
	}
}

func first(t testing.TB, raw []byte) Batch {
	t.Helper()
	b, _, err := NextBatch(raw)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNullAndEmptyKeysAndValuesStayApart(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	b.Append(1, nil, []byte{})
	b.Append(2, []byte{}, nil)
	raw, _ := b.Build()
	var got []string
	_ = first(t, raw).ForEach(0, func(r *Record) error {
		got = append(got, fmt.Sprint(r.Key == nil, r.Value == nil))
		return nil
	})
	if d := cmp.Diff([]string{"true false", "false true"}, got); d != "" {
		t.Error(d)
	}
}

func TestEveryPrefixOfABatchIsShortNotCorrupt(t *testing.T) {
	raw := sample(t, None, 3)
	if _, _, err := NextBatch(nil); err != io.EOF {
		t.Errorf("empty buffer: %v", err)
	}
	for n := 1; n < len(raw); n++ {
		if _, _, err := NextBatch(raw[:n]); err != ErrShort {
			t.Fatalf("%d of %d bytes: %v", n, len(raw), err)
		}
	}
	b, rest, err := NextBatch(append(bytes.Clone(raw), raw[:40]...))
	if err != nil || len(rest) != 40 || len(b.Raw) != len(raw) {
		t.Errorf("batch and a half: %v, %d bytes left", err, len(rest))
	}
}

func TestImpossibleLengthAndMagicAreCorrupt(t *testing.T) {
	for _, c := range []struct {
		name   string
		length int32
		magic  byte
		want   cluster.ErrorCode
	}{
		{"negative length", -1, 2, cluster.CorruptMessage},
		{"length below every format", 13, 2, cluster.CorruptMessage},
		{"length below a header", 48, 2, cluster.CorruptMessage},
		{"format 3", 100, 3, cluster.CorruptMessage},
		{"format -1", 100, 255, cluster.CorruptMessage},
		{"format 0", 100, 0, cluster.UnsupportedForMessageFormat},
		{"format 1", 100, 1, cluster.UnsupportedForMessageFormat},
	} {
		raw := sample(t, None, 3)
		raw[8], raw[9], raw[10], raw[11] = byte(c.length>>24), byte(c.length>>16), byte(c.length>>8), byte(c.length)
		raw[16] = c.magic
		if _, err := ParseHeader(raw); Code(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAnyFlippedByteUnderTheChecksumIsFound(t *testing.T) {
	raw := sample(t, None, 2)
	for i := offAttributes; i < len(raw); i++ {
		raw[i] ^= 0x20
		if ChecksumOK(raw) {
			t.Errorf("byte %d changed and the checksum still holds", i)
		}
		raw[i] ^= 0x20
	}
	if !ChecksumOK(raw) {
		t.Error("untouched batch fails its checksum")
	}
}

func TestAssignNumbersBatchesOneAfterAnother(t *testing.T) {
	buf := append(sample(t, None, 3), sample(t, Zstd, 5)...)
	if next := Assign(buf, 70, 4, -1); next != 78 {
		t.Errorf("next offset %d", next)
	}
	var got []string
	for rest := buf; len(rest) > 0; {
		b, r, err := NextBatch(rest)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Validate(); err != nil {
			t.Error(err)
		}
		got = append(got, fmt.Sprint(b.BaseOffset, b.LastOffset(), b.PartitionLeaderEpoch, b.TimestampType()))
		rest = r
	}
	if d := cmp.Diff([]string{"70 72 4 CreateTime", "73 77 4 CreateTime"}, got); d != "" {
		t.Error(d)
	}
}

func TestAppendTimeReplacesEveryTimestampAndRenewsTheChecksum(t *testing.T) {
	raw := sample(t, LZ4, 3)
	Assign(raw, 10, 0, 5555)
	b := first(t, raw)
	if err := b.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, r := range records(t, b) {
		if r.Timestamp != 5555 {
			t.Errorf("offset %d has timestamp %d", r.Offset, r.Timestamp)
		}
	}
}

func TestSequencesWrapToZero(t *testing.T) {
	h := BatchHeader{BaseSequence: math.MaxInt32 - 1, LastOffsetDelta: 3}
	if got := h.LastSequence(); got != 1 {
		t.Errorf("last sequence %d", got)
	}
	if got := (&BatchHeader{BaseSequence: NoSequence, LastOffsetDelta: 3}).LastSequence(); got != NoSequence {
		t.Errorf("last sequence %d of a batch without any", got)
	}
}

func TestRecompressKeepsRecordsAndHeader(t *testing.T) {
	for _, from := range codecs {
		for _, to := range codecs {
			raw := append(sample(t, from, 20), sample(t, None, 4)...)
			Assign(raw, 33, 7, -1)
			out, err := Recompress(raw, Compression{Codec: to})
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			same := from == to && to == None
			if same != (&out[0] == &raw[0]) {
				t.Errorf("%s to %s: copied without need, or not copied", from, to)
			}
			a, restA, _ := NextBatch(raw)
			b, restB, err := NextBatch(out)
			if err != nil || b.Validate() != nil || b.Codec() != to {
				t.Fatalf("%s to %s: %v %v", from, to, err, b.Validate())
			}
			if d := cmp.Diff(records(t, a), records(t, b)); d != "" {
				t.Errorf("%s to %s: %s", from, to, d)
			}
			if d := cmp.Diff(records(t, first(t, restA)), records(t, first(t, restB))); d != "" {
				t.Errorf("%s to %s, second batch: %s", from, to, d)
			}
			b.Length, b.CRC, b.Attributes = a.Length, a.CRC, a.Attributes
			if d := cmp.Diff(a.BatchHeader, b.BatchHeader); d != "" {
				t.Errorf("%s to %s: %s", from, to, d)
			}
		}
	}
}

func TestMarkersReadBack(t *testing.T) {
	want := EndTxnMarker{ProducerID: 42, ProducerEpoch: 3, Type: Commit, CoordinatorEpoch: 9, TimestampMs: 77}
	b := first(t, want.Batch())
	if !b.IsControl() || !b.IsTransactional() || b.BaseSequence != NoSequence {
		t.Errorf("header %+v", b.BatchHeader)
	}
	got, err := ParseEndTxnMarker(b)
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseEndTxnMarker(first(t, sample(t, None, 1))); Code(err) != cluster.InvalidRecord {
		t.Errorf("data batch read as marker: %v", err)
	}
}

func TestForEachStopsAtTheCallersError(t *testing.T) {
	stop := errors.New("enough")
	n := 0
	err := first(t, sample(t, Gzip, 10)).ForEach(0, func(*Record) error {
		n++
		if n == 3 {
			return stop
		}
		return nil
	})
	if err != stop || n != 3 {
		t.Errorf("%v after %d records", err, n)
	}
}

func TestDecompressionStopsAtTheCap(t *testing.T) {
	plain := []byte(strings.Repeat("0123456789", 100_000))
	for _, c := range codecs {
		packed, err := Compress(nil, plain, Compression{Codec: c})
		if err != nil {
			t.Fatal(err)
		}
		if out, err := Decompress(nil, packed, c, len(plain)); err != nil || !bytes.Equal(out, plain) {
			t.Errorf("%s: exactly at the cap: %v, %d bytes", c, err, len(out))
		}
		if _, err := Decompress(nil, packed, c, len(plain)-1); Code(err) != cluster.CorruptMessage {
			t.Errorf("%s: one byte over the cap: %v", c, err)
		}
		if out, err := Decompress([]byte("head"), packed, c, 0); err != nil || !bytes.Equal(out, append([]byte("head"), plain...)) {
			t.Errorf("%s: appended to a head: %v", c, err)
		}
	}
}

func TestCompressionLevelsAreAccepted(t *testing.T) {
	plain := bytes.Repeat([]byte("some text to pack "), 1000)
	for _, c := range []Compression{{Gzip, 1}, {Gzip, 9}, {Gzip, -1}, {LZ4, 1}, {LZ4, 9}, {LZ4, 17}, {Zstd, -5}, {Zstd, 22}} {
		packed, err := Compress(nil, plain, c)
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if out, err := Decompress(nil, packed, c.Codec, 0); err != nil || !bytes.Equal(out, plain) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestABareSnappyBlockIsUnderstood(t *testing.T) {
	block := []byte{5, 4 << 2, 'h', 'e', 'l', 'l', 'o'} // length 5, one literal
	if out, err := Decompress(nil, block, Snappy, 0); err != nil || string(out) != "hello" {
		t.Errorf("%q, %v", out, err)
	}
	lying := []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}
	if _, err := Decompress(nil, lying, Snappy, 0); Code(err) != cluster.CorruptMessage {
		t.Errorf("block that claims 4 GiB: %v", err)
	}
}
