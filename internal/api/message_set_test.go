package api

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// oldMessage makes one message of magic 0 or 1.
func oldMessage(magic byte, codec record.Codec, timestamp int64, key, value []byte) []byte {
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

func packed(t *testing.T, magic byte, codec record.Codec, set []byte) []byte {
	t.Helper()
	value, err := record.Compress(nil, set, record.Compression{Codec: codec})
	if err != nil {
		t.Fatal(err)
	}
	return oldMessage(magic, codec, 77, nil, value)
}

// printed lists what a batch holds as offset@timestamp key=value.
func printed(t *testing.T, batch []byte) (out []string) {
	t.Helper()
	b, rest, err := record.NextBatch(batch)
	if err != nil || len(rest) > 0 || b.Validate() != nil {
		t.Fatalf("not one valid batch: %v, %d bytes left, %v", err, len(rest), b.Validate())
	}
	out = append(out, b.Codec().String())
	if err := b.ForEach(0, func(r *record.Record) error {
		text := func(v []byte) string {
			if v == nil {
				return "null"
			}
			return string(v)
		}
		out = append(out, fmt.Sprintf("%d@%d %s=%s", r.Offset, r.Timestamp, text(r.Key), text(r.Value)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMessageSetsBecomeBatches(t *testing.T) {
	set := func(magic byte) []byte {
		return append(oldMessage(magic, record.None, 5, []byte("k"), []byte("v")), oldMessage(magic, record.None, 4, nil, []byte(""))...)
	}
	same(t, []string{"none", "0@-1 k=v", "1@-1 null="}, mustConvert(t, set(0)))
	same(t, []string{"none", "0@5 k=v", "1@4 null="}, mustConvert(t, set(1)))
	same(t, []string{"none", "0@5 k=null"}, mustConvert(t, oldMessage(1, record.None, 5, []byte("k"), nil)))
	for _, codec := range []record.Codec{record.Gzip, record.Snappy, record.LZ4} {
		same(t, []string{codec.String(), "0@5 k=v", "1@4 null="}, mustConvert(t, packed(t, 1, codec, set(1))))
	}
	both := append(packed(t, 1, record.Gzip, set(1)), packed(t, 1, record.Gzip, set(1))...)
	same(t, []string{"gzip", "0@5 k=v", "1@4 null=", "2@5 k=v", "3@4 null="}, mustConvert(t, both))
}

func mustConvert(t *testing.T, set []byte) []string {
	t.Helper()
	batch, code := upconvert(set)
	if code != cluster.None {
		t.Fatal(code)
	}
	return printed(t, batch)
}

func TestMessageSetsThatAreRefused(t *testing.T) {
	good := oldMessage(1, record.None, 5, []byte("k"), []byte("v"))
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
		"magic 2":                         {oldMessage(2, record.None, 0, nil, make([]byte, 20)), cluster.InvalidRecord},
		"zstd":                            {oldMessage(1, record.Zstd, 5, nil, []byte("x")), cluster.CorruptMessage},
		"garbage as gzip":                 {oldMessage(1, record.Gzip, 5, nil, []byte("x")), cluster.CorruptMessage},
		"a set within a set within a set": {packed(t, 1, record.Gzip, packed(t, 1, record.Gzip, good)), cluster.CorruptMessage},
	} {
		if _, code := upconvert(c.set); code != c.want {
			t.Errorf("%s: %v, want %v", name, code, c.want)
		}
	}
}

func FuzzUpconvert(f *testing.F) {
	f.Add(oldMessage(0, record.None, 0, []byte("k"), []byte("v")))
	f.Add(oldMessage(1, record.None, 5, nil, []byte("v")))
	f.Fuzz(func(t *testing.T, set []byte) {
		if batch, code := upconvert(set); code == cluster.None {
			printed(t, batch)
		}
	})
}
