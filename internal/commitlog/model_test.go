package commitlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// model is a log as plain values: the epoch of every offset from start to end.
type model struct {
	start, end, hw int64
	batches        []modelBatch
	promised       int64 // flushed up to here
}

type modelBatch struct {
	base  int64
	n     int64
	epoch cluster.LeaderEpoch
	ts    int64
}

func (m *model) offsets() []int64 {
	var out []int64
	for _, b := range m.batches {
		for o := max(b.base, m.start); o < b.base+b.n; o++ {
			out = append(out, o)
		}
	}
	return out
}

func (m *model) truncate(to int64) {
	for n := len(m.batches); n > 0 && m.batches[n-1].base+m.batches[n-1].n > to; n-- {
		m.batches = m.batches[:n-1]
	}
	m.end, m.hw, m.start, m.promised = to, min(m.hw, to), min(m.start, to), min(m.promised, to)
}

func (m *model) firstAt(ts int64) (int64, bool) {
	for _, b := range m.batches {
		if b.ts >= ts && b.base+b.n > m.start {
			return max(b.base, m.start), true
		}
	}
	return 0, false
}

// TestALogBehavesLikeItsModel runs random operations, restarts, kills and power cuts against the model.
func TestALogBehavesLikeItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBroker(t)
		b.opts.Log = quiet
		b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes, b.cfg.RetentionMs = 1200, 150, -1
		b.open()
		l := b.log("t", 0)
		m := &model{}
		epoch, clock := cluster.LeaderEpoch(0), nowMs
		reopen := func() {
			b.open()
			l = b.log("t", 0)
			m.start = l.LogStartOffset() // moves up durably only with the checkpoint, or with segments
			hw, err := l.SetHighWatermark(m.hw)
			if err != nil {
				rt.Fatal(err)
			}
			m.hw = hw
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(rt, "records")
				clock += int64(rapid.IntRange(0, 5).Draw(rt, "ms"))
				info, err := l.AppendAsLeader(batchOf(n, rapid.IntRange(0, 120).Draw(rt, "size"), clock), AppendOptions{LeaderEpoch: epoch})
				if err != nil {
					rt.Fatal(err)
				}
				if info.FirstOffset != m.end || info.LastOffset != m.end+int64(n)-1 {
					rt.Fatalf("appended at %d-%d, want %d", info.FirstOffset, info.LastOffset, m.end)
				}
				m.batches = append(m.batches, modelBatch{m.end, int64(n), epoch, clock})
				m.end += int64(n)
			},
			"new epoch": func(*rapid.T) { epoch++ },
			"follow": func(rt *rapid.T) {
				batch := batchOf(2, 50, clock, at(m.end, int32(epoch)))
				if _, err := l.AppendAsFollower(append(batch, batch[:30]...)); err != nil {
					rt.Fatal(err)
				}
				m.batches = append(m.batches, modelBatch{m.end, 2, epoch, clock})
				m.end += 2
			},
			"high watermark": func(rt *rapid.T) {
				hw := rapid.Int64Range(m.hw, m.end).Draw(rt, "hw")
				l.MaybeIncrementHighWatermark(hw)
				m.hw = max(m.hw, hw)
			},
			"start": func(rt *rapid.T) {
				to := rapid.Int64Range(0, m.hw).Draw(rt, "start")
				if err := l.MaybeIncrementLogStartOffset(to, "test"); err != nil {
					rt.Fatal(err)
				}
				m.start = max(m.start, to)
			},
			"retention": func(rt *rapid.T) {
				if _, err := l.applyRetention(clock); err != nil {
					rt.Fatal(err)
				}
			},
			"flush": func(rt *rapid.T) {
				if err := l.Flush(); err != nil {
					rt.Fatal(err)
				}
				m.promised = m.end
			},
			"truncate": func(rt *rapid.T) {
				if len(m.batches) == 0 {
					rt.Skip() // rapid draws another action: this one has nothing to do here
				}
				to := m.batches[rapid.IntRange(0, len(m.batches)-1).Draw(rt, "batch")].base
				if to < m.start {
					rt.Skip() // rapid draws another action: this one has nothing to do here
				}
				if _, err := l.TruncateTo(to); err != nil {
					rt.Fatal(err)
				}
				m.truncate(to)
			},
			"start over": func(rt *rapid.T) {
				if m.end == 0 || rapid.IntRange(0, 5).Draw(rt, "rarely") > 0 {
					rt.Skip() // rapid draws another action: this one has nothing to do here
				}
				to := m.end + 3
				if err := l.TruncateFullyAndStartAt(to); err != nil {
					rt.Fatal(err)
				}
				*m = model{start: to, end: to, hw: to}
				if err := l.Flush(); err != nil { // the new start is only told by a name
					rt.Fatal(err)
				}
			},
			"restart": func(rt *rapid.T) {
				b.close()
				m.promised = m.end
				reopen()
			},
			"kill": func(rt *rapid.T) {
				b.kill()
				reopen()
			},
			"": func(rt *rapid.T) { checkModel(rt, l, m) },
		})
		// In the end the power goes.
		b.dirs[0] = b.dirs[0].(*vfs.Mem).CrashClone(rapid.Uint64().Draw(rt, "power cut"))
		b.open()
		l = b.log("t", 0)
		if l.LogEndOffset() < m.promised {
			rt.Fatalf("end %d after the power cut, flushed up to %d", l.LogEndOffset(), m.promised)
		}
		readAll(rt, l, l.LogStartOffset())
	})
}

func checkModel(rt *rapid.T, l *Log, m *model) {
	if l.LogStartOffset() != m.start || l.LogEndOffset() != m.end || l.HighWatermark() != max(m.hw, m.start) {
		rt.Fatalf("start %d end %d hw %d, want %d %d %d", l.LogStartOffset(), l.LogEndOffset(), l.HighWatermark(), m.start, m.end, m.hw)
	}
	if d := cmp.Diff(m.offsets(), readAll(rt, l, m.start)); d != "" {
		rt.Fatal(d)
	}
	if len(m.batches) == 0 {
		return
	}
	last := m.batches[len(m.batches)-1]
	for _, ts := range []int64{m.batches[0].ts, last.ts, last.ts + 1} {
		want, ok := m.firstAt(ts)
		got, found, err := l.OffsetForTimestamp(ts)
		if err != nil || found != ok || ok && got.Offset != want {
			rt.Fatalf("offset for %d: %+v %v %v, want %d %v", ts, got, found, err, want, ok)
		}
	}
	if e, end := l.OffsetForLeaderEpoch(last.epoch); last.base >= m.start && (e != last.epoch || end != m.end) {
		if latest, _ := l.LatestEpoch(); latest == last.epoch {
			rt.Fatalf("epoch %d ends at %d %d, want %d", last.epoch, e, end, m.end)
		}
	}
}
