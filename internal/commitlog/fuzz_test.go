package commitlog

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

func FuzzDecodeOffsets(f *testing.F) {
	f.Add([]byte("0\n1\nt_a 0 0\n"))
	f.Add([]byte("0\n2\na 1 5\nb.c 0 -1"))
	f.Add([]byte("1\n0\n"))
	f.Add([]byte("0\n99999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeOffsets(b)
		if err != nil {
			return
		}
		again, err := decodeOffsets(encodeOffsets(got))
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("%v, again %v, %v", got, again, err)
		}
	})
}

func FuzzDecodeEpochs(f *testing.F) {
	f.Add([]byte("0\n2\n0 0\n3 17\n"))
	f.Add([]byte("0\n1\n-1 0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeEpochs(b)
		if err != nil {
			return
		}
		again, err := decodeEpochs(encodeEpochs(got))
		if err != nil || len(again) != len(got) {
			t.Errorf("%v, again %v, %v", got, again, err)
		}
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	e := unknownProducer(7)
	e.setEpoch(3)
	e.addBatch(batchMeta{lastSequence: 4, offsetDelta: 2, lastOffset: 99, timestamp: 1000})
	f.Add(encodeSnapshot(map[int64]*producerEntry{7: &e}, time.Hour))
	f.Add(encodeSnapshot(nil, time.Hour))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decodeSnapshot(b)
		if err != nil {
			return
		}
		m := map[int64]*producerEntry{}
		for _, e := range entries {
			m[e.id] = &e
		}
		if again := encodeSnapshot(m, time.Hour); len(m) == len(entries) && len(again) != len(b) {
			t.Errorf("%d bytes, again %d", len(b), len(again))
		}
	})
}

func FuzzDecodeAborted(f *testing.F) {
	f.Add(abortedEntry{1, 2, 3, 4}.encode())
	f.Add(make([]byte, 33))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := decodeAborted(b)
		if err != nil {
			return
		}
		var again []byte
		for _, e := range entries {
			again = append(again, e.encode()...)
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x, again %x", b, again)
		}
	})
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add([]byte("#\n#date\nbroker.id=0\nversion=0\ncluster.id=x\n"))
	f.Add([]byte("version: 0\ntopic_id: iXSowKrDRC-SdTPijpkHgQ"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeMeta(b)
		if id, err := decodePartitionMeta(b); err == nil && !id.IsZero() {
			again, err := decodePartitionMeta(encodePartitionMeta(id))
			if err != nil || again != id {
				t.Errorf("%s, again %s, %v", id, again, err)
			}
		}
	})
}

// FuzzIndexAndSegmentFiles opens a partition's directory of foreign bytes: it must open or be refused, and never read beyond.
func FuzzIndexAndSegmentFiles(f *testing.F) {
	good := batchOf(3, 20, 1000)
	f.Add([]byte{}, []byte{}, good, true)
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 0}, []byte{0, 0, 0, 0, 0, 0, 3, 232, 0, 0, 0, 2}, good, true)
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 200}, []byte{}, append(good, good[:40]...), false)
	f.Fuzz(func(t *testing.T, index, timeIndex, log []byte, clean bool) {
		m := vfs.NewMem()
		if err := m.Mkdir("t-0", vfs.DirPerm); err != nil {
			t.Fatal(err)
		}
		files := map[string][]byte{indexSuffix: index, timeIndexSuffix: timeIndex, logSuffix: log}
		for suffix, data := range files {
			if err := vfs.WriteFile(m, "t-0/"+fileName(0, suffix), data); err != nil {
				t.Fatal(err)
			}
		}
		if clean {
			if err := vfs.WriteFile(m, cleanShutdownFile, []byte(cleanShutdownMark)); err != nil {
				t.Fatal(err)
			}
		}
		b := newBroker(t, m)
		b.opts.Log = quiet
		b.open()
		l := b.log("t", 0)
		end := l.LogEndOffset()
		for _, offset := range []int64{l.LogStartOffset(), end / 2, end} {
			r, err := l.Read(offset, ReadOptions{MaxBytes: 1 << 20, Isolation: LogEnd, MinOneMessage: true})
			if err != nil {
				if c := Code(err); c != cluster.OffsetOutOfRange && c != cluster.CorruptMessage && c != cluster.UnsupportedForMessageFormat {
					t.Errorf("read %d of %d: %v", offset, end, err)
				}
				continue
			}
			if r.Records.Len() > len(log) {
				t.Errorf("%d bytes of %d", r.Records.Len(), len(log))
			}
			r.Records.Release()
		}
	})
}

func TestFilesAreKafkasByteForByte(t *testing.T) {
	got := string(encodeOffsets(map[cluster.TopicPartition]int64{tp("t3", 2): 0, tp("t3", 0): 5, tp("a_b", 1): 1 << 40}))
	if want := "0\n3\na_b 1 1099511627776\nt3 0 5\nt3 2 0\n"; got != want {
		t.Errorf("checkpoint %q, want %q", got, want)
	}
	if got, want := string(encodeEpochs([]epochEntry{{0, 0}, {4, 17}})), "0\n2\n0 0\n4 17\n"; got != want {
		t.Errorf("epochs %q, want %q", got, want)
	}
	id, err := cluster.ParseTopicID("iXSowKrDRC-SdTPijpkHgQ")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(encodePartitionMeta(id)), "version: 0\ntopic_id: iXSowKrDRC-SdTPijpkHgQ"; got != want {
		t.Errorf("partition.metadata %q, want %q", got, want)
	}
	for in, want := range map[string]string{
		"x\n":               "line 1: unknown version \"x\"",
		"0\n":               "<nil>",
		"0\n2\na 0 1\n":     "expected 2 entries, found 1",
		"0\n1\na 0\n":       "line 3: \"a 0\" has 2 fields, not 3",
		"0\n1\na 0 x\n":     "line 3: \"x\" is not an offset",
		"0\n1\na 0 1\n\n":   "expected 1 entries, found 2",
		"0\nmany\na 0 1\n":  "line 2: \"many\" is not a number of entries",
		"0\n1\na\t0   17\n": "<nil>",
		"":                  "<nil>",
	} {
		_, err := decodeOffsets([]byte(in))
		if got := "<nil>"; err != nil {
			got = err.Error()
			if got != want {
				t.Errorf("%q: %s, want %s", in, got, want)
			}
		} else if want != got {
			t.Errorf("%q: no error, want %s", in, want)
		}
	}
}
