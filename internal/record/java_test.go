package record

import (
	"bytes"
	"encoding/base64"
	"os"
	"strings"
	"testing"
)

// javaBatches are 20 idempotent records, and a commit marker, as Kafka 3.9.1's own classes write them: name and base64 on a line.
func javaBatches(t *testing.T) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/java-3.9.1.txt")
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

func TestBatchesOfKafkasOwnClassesAreReadAndAccepted(t *testing.T) {
	batches := javaBatches(t)
	for _, c := range codecs {
		raw := batches[c.String()]
		b := first(t, raw)
		h := b.BatchHeader
		if b.Validate() != nil || h.Codec() != c || h.ProducerID != 4711 || h.ProducerEpoch != 3 || h.BaseSequence != 42 || h.LastSequence() != 61 || h.PartitionLeaderEpoch != 7 {
			t.Errorf("%s: %+v %v", c, h, b.Validate())
		}
		rs := records(t, b)
		if len(rs) != 20 || rs[6].Key != "key-6" || rs[6].Offset != 6 || rs[6].Timestamp != 1700000000006 || rs[6].Headers[0].Value[0] != 6 || rs[6].Headers[1].Value != nil {
			t.Errorf("%s: %+v", c, rs)
		}
		o := options()
		o.NowMs = 1700000000000
		before := bytes.Clone(raw)
		if _, err := ValidateProduce(raw, o); err != nil || !bytes.Equal(raw, before) {
			t.Errorf("%s: %v", c, err)
		}
	}
}

func TestOurBatchesAreByteForByteKafkas(t *testing.T) {
	batches := javaBatches(t)
	src := first(t, batches["none"])
	b := NewBuilder(BuilderOptions{LeaderEpoch: 7, Idempotent: true, ProducerID: 4711, ProducerEpoch: 3, BaseSequence: 42})
	if err := src.ForEach(0, func(r *Record) error {
		hs, err := r.Headers()
		b.Append(r.Timestamp, r.Key, r.Value, hs...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if raw, err := b.Build(); err != nil || !bytes.Equal(raw, src.Raw) {
		t.Errorf("%x\n%x %v", raw, src.Raw, err)
	}
	marker := EndTxnMarker{ProducerID: 4711, ProducerEpoch: 3, Type: Commit, CoordinatorEpoch: 9, TimestampMs: 1700000000000}.Batch()
	SetLeaderEpoch(marker, 5)
	if !bytes.Equal(marker, batches["marker"]) {
		t.Errorf("%x\n%x", marker, batches["marker"])
	}
}
