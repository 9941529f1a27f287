package commitlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// broker is a manager over in-memory dirs that tests open, crash and open again.
type broker struct {
	t    testing.TB
	dirs []vfs.FS
	cfg  *config.LogConfig
	opts Options
	*Manager
}

func newBroker(t testing.TB, dirs ...vfs.FS) *broker {
	if len(dirs) == 0 {
		dirs = []vfs.FS{vfs.NewMem()}
	}
	return &broker{t: t, dirs: dirs, cfg: config.DefaultLogConfig()}
}

func (b *broker) options() Options {
	o := b.opts
	o.BrokerID, o.ClusterID = 1, "test-cluster"
	o.LogConfig = func(string) *config.LogConfig { return b.cfg }
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(testWriter{b.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	o.Dirs = nil
	for i, d := range b.dirs {
		o.Dirs = append(o.Dirs, DirSpec{Path: fmt.Sprintf("%s/%d", d.Path(), i), FS: d})
	}
	return o
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}

func (b *broker) open() *broker {
	b.t.Helper()
	m, err := Open(context.Background(), b.options())
	if err != nil {
		b.t.Fatal(err)
	}
	b.Manager = m
	return b
}

// run starts the background work and ends it with the test.
func (b *broker) run() *broker {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *broker) close() {
	b.t.Helper()
	if err := b.Close(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// kill is kill -9: the locks go, what was written stays.
func (b *broker) kill() *broker {
	for _, d := range b.Manager.dirs {
		if d.lock != nil {
			_ = d.lock.Close()
		}
	}
	return b
}

// powerCut replaces the dirs by what a power cut leaves.
func (b *broker) powerCut(seed uint64) *broker {
	for i, d := range b.dirs {
		b.dirs[i] = d.(*vfs.Mem).CrashClone(seed)
	}
	return b
}

func tp(topic string, p int32) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: topic, Partition: p}
}

var testID = cluster.TopicID{6: 0x40, 15: 7}

func (b *broker) log(topic string, p int32) *Log {
	b.t.Helper()
	l, err := b.GetOrCreate(tp(topic, p), testID, true)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// batchOf builds a batch of n records of a size, the i-th with value byte i.
func batchOf(n, size int, ts int64, o ...func(*record.BuilderOptions)) []byte {
	var opts record.BuilderOptions
	for _, f := range o {
		f(&opts)
	}
	bld := record.NewBuilder(opts)
	for i := range n {
		bld.Append(ts, []byte("key"), bytes.Repeat([]byte{byte(i)}, size))
	}
	b, err := bld.Build()
	if err != nil {
		panic(err)
	}
	return b
}

func idempotent(pid int64, epoch int16, seq int32) func(*record.BuilderOptions) {
	return func(o *record.BuilderOptions) {
		o.Idempotent, o.ProducerID, o.ProducerEpoch, o.BaseSequence = true, pid, epoch, seq
	}
}

func transactional(pid int64, epoch int16, seq int32) func(*record.BuilderOptions) {
	return func(o *record.BuilderOptions) {
		idempotent(pid, epoch, seq)(o)
		o.Transactional = true
	}
}

func at(base int64, epoch int32) func(*record.BuilderOptions) {
	return func(o *record.BuilderOptions) { o.BaseOffset, o.LeaderEpoch = base, epoch }
}

func mustAppend(t testing.TB, l *Log, b []byte) AppendInfo {
	t.Helper()
	info, err := l.AppendAsLeader(b, AppendOptions{LeaderEpoch: 0})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// readAll returns the offsets of all records from an offset up to the log's end, before which there must be one.
func readAll(t fataler, l *Log, from int64) []int64 {
	t.Helper()
	out, upTo := readRecords(t, l, from)
	if upTo < l.LogEndOffset() {
		t.Fatalf("nothing at offset %d of %d", upTo, l.LogEndOffset())
	}
	return out
}

// readRecords returns the offsets of all records from an offset on, and the offset after the last one.
func readRecords(t fataler, l *Log, from int64) (out []int64, upTo int64) {
	t.Helper()
	for from < l.LogEndOffset() {
		r, err := l.Read(from, ReadOptions{MaxBytes: 1 << 20, Isolation: LogEnd, MinOneMessage: true})
		if err != nil {
			t.Fatalf("read %d: %v", from, err)
		}
		buf := make([]byte, r.Records.Len())
		if _, err := r.Records.ReadInto(buf); err != nil {
			t.Fatal(err)
		}
		r.Records.Release()
		if len(buf) == 0 {
			break
		}
		for len(buf) > 0 {
			b, rest, err := record.NextBatch(buf)
			if err == record.ErrShort {
				break
			}
			if err == nil {
				err = b.Validate()
			}
			if err != nil {
				t.Fatal(err)
			}
			err = b.ForEach(0, func(r *record.Record) error {
				if r.Offset >= from {
					out = append(out, r.Offset)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			buf, from = rest, b.NextOffset()
		}
	}
	return out, from
}

func offsets(from, to int64) []int64 {
	var out []int64
	for o := from; o < to; o++ {
		out = append(out, o)
	}
	return out
}

var nowMs = time.Now().UnixMilli()

var quiet = slog.New(slog.DiscardHandler)

// advance lets fake time pass until all is quiet again.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
