package commitlog

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// osBroker is a broker on a real directory that logs nothing.
func osBroker(t testing.TB) *broker {
	t.Helper()
	o, err := vfs.OpenOS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := newBroker(t, o)
	b.opts.Log = slog.New(slog.DiscardHandler)
	return b
}

func TestAppendAndReadDoNotAllocatePerRecord(t *testing.T) {
	if raceEnabled {
		t.Log("allocation counts are meaningless under the race detector")
		return
	}
	b := osBroker(t).open()
	l := b.log("t", 0)
	for _, records := range []int{1, 500} {
		template := batchOf(records, 20, nowMs)
		scratch := make([]byte, len(template))
		allocs := testing.AllocsPerRun(200, func() {
			copy(scratch, template)
			mustAppend(t, l, scratch)
		})
		if allocs > 0.5 {
			t.Errorf("append of %d records: %.1f allocations", records, allocs)
		}
	}
	if _, err := l.SetHighWatermark(l.LogEndOffset()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	allocs := testing.AllocsPerRun(200, func() {
		r, err := l.Read(100, ReadOptions{MaxBytes: len(buf), Isolation: HighWatermark, MinOneMessage: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Records.ReadInto(buf); err != nil {
			t.Fatal(err)
		}
		r.Records.Release()
	})
	if allocs > 2 { // the slice, and the empty one it replaces
		t.Errorf("read of 64 KiB: %.1f allocations", allocs)
	}
	b.close()
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			br := osBroker(b).open()
			l := br.log("t", 0)
			template := batchOf(max(size>>10, 1), 1<<10, nowMs)
			scratch := make([]byte, len(template))
			b.SetBytes(int64(len(template)))
			b.ReportAllocs()
			for b.Loop() {
				copy(scratch, template)
				if _, err := l.AppendAsLeader(scratch, AppendOptions{}); err != nil {
					b.Fatal(err)
				}
				if l.Size() > 256<<20 { // keep the disk small
					if err := l.TruncateFullyAndStartAt(l.LogEndOffset()); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			br := osBroker(b).open()
			l := br.log("t", 0)
			batch := batchOf(16, 1<<10, nowMs)
			for range (64 << 20) / len(batch) {
				mustAppend(b, l, batch[:len(batch):len(batch)])
				record.SetBaseOffset(batch, 0)
			}
			if _, err := l.SetHighWatermark(l.LogEndOffset()); err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			offset := int64(0)
			for b.Loop() {
				r, err := l.Read(offset, ReadOptions{MaxBytes: size, Isolation: HighWatermark})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.Records.ReadInto(buf); err != nil {
					b.Fatal(err)
				}
				r.Records.Release()
				offset = (offset + int64(size>>10)) % (l.LogEndOffset() - 2048)
			}
		})
	}
}

// BenchmarkManyPartitions takes a first record in each of 2,000 partitions, and deletes and closes them.
func BenchmarkManyPartitions(b *testing.B) {
	const partitions = 2000
	batch := batchOf(1, 100, nowMs)
	fill := func(b *testing.B, br *broker) []cluster.TopicPartition {
		var tps []cluster.TopicPartition
		for p := range int32(partitions) {
			record.SetBaseOffset(batch, 0)
			mustAppend(b, br.log("t", p), batch)
			tps = append(tps, tp("t", p))
		}
		return tps
	}
	b.Run("first-record", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			br := osBroker(b).open()
			b.StartTimer()
			fill(b, br)
		}
	})
	b.Run("delete", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			br := osBroker(b).open()
			tps := fill(b, br)
			b.StartTimer()
			if failed := br.Delete(tps); len(failed) > 0 {
				b.Fatal(failed)
			}
		}
	})
	for _, later := range []bool{false, true} {
		b.Run(fmt.Sprintf("close/some time later=%v", later), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				br := osBroker(b).open()
				for _, tp := range fill(b, br) {
					if l, _ := br.Get(tp); later {
						if err := l.saveLater(); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.StartTimer()
				if err := br.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("clean-start", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			br := osBroker(b).open()
			fill(b, br)
			br.close()
			o, err := vfs.OpenOS(br.dirs[0].Path())
			if err != nil {
				b.Fatal(err)
			}
			br.dirs[0] = o
			b.StartTimer()
			br.open()
		}
	})
}
