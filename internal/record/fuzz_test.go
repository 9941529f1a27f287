package record

import (
	"runtime"
	"testing"
)

// FuzzBatches feeds foreign bytes to everything that reads them. With a right checksum put on, the fuzzer gets past the first door.
func FuzzBatches(f *testing.F) {
	for _, c := range codecs {
		f.Add(sample(f, c, 2), true)
	}
	f.Add(EndTxnMarker{ProducerID: 1, Type: Commit}.Batch(), false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if batch, _, err := NextBatch(b); err == nil && seal {
			reseal(batch.Raw)
		}
		o := options()
		o.MaxDecompressed = 1 << 20
		if info, err := ValidateProduce(b, o); err == nil {
			if next := Assign(b[:info.Bytes], 7, 1, -1); next != 7+int64(info.Records) {
				t.Fatalf("next offset %d after %d records", next, info.Records)
			}
			batch := first(t, b)
			if err := batch.Validate(); err != nil {
				t.Fatalf("accepted and then invalid: %v", err)
			}
			n := 0
			if err := batch.ForEach(1<<20, func(r *Record) error { n++; _, err := r.Headers(); return err }); err != nil || n != int(info.Records) {
				t.Fatalf("accepted and then unreadable: %v after %d records", err, n)
			}
			if _, err := Recompress(b[:info.Bytes], Compression{Codec: Snappy}); err != nil {
				t.Fatalf("accepted and then not recompressible: %v", err)
			}
		}
		for rest := b; len(rest) > 0; {
			batch, next, err := NextBatch(rest)
			if err != nil {
				break
			}
			_ = batch.ForEach(1<<20, func(*Record) error { return nil })
			_, _ = ParseEndTxnMarker(batch)
			rest = next
		}
	})
}

// FuzzDecompress holds every codec to its cap, whatever the bytes claim.
func FuzzDecompress(f *testing.F) {
	for _, c := range codecs {
		packed, err := Compress(nil, []byte("some words, some words, some words"), Compression{Codec: c})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed, int8(c))
	}
	f.Fuzz(func(t *testing.T, b []byte, c int8) {
		out, err := Decompress(nil, b, Codec(c), 100_000)
		if err == nil && len(out) > 100_000 {
			t.Fatalf("%d bytes over a cap of 100000", len(out))
		}
	})
}

func TestClaimedSizesAllocateNothing(t *testing.T) {
	zstdHuge := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x01, 0, 0} // frame of 1 GiB, single segment, one empty block
	zstdWindow := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x98, 0x01, 0, 0}                    // window of 512 MiB, one empty block
	snappyHuge := []byte{0xff, 0xff, 0xff, 0x7f, 0}
	xerialHuge := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff, 0)
	for _, c := range []struct {
		name  string
		codec Codec
		src   []byte
	}{{"zstd content size", Zstd, zstdHuge}, {"zstd window", Zstd, zstdWindow}, {"snappy length", Snappy, snappyHuge}, {"xerial length", Snappy, xerialHuge}} {
		_, _ = Decompress(nil, sample(t, None, 1), c.codec, 0) // start the codec
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Decompress(nil, c.src, c.codec, 0)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
			t.Errorf("%s: %d bytes allocated for %d bytes of input", c.name, n, len(c.src))
		}
	}
}
