//go:build interop

package interop

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stream is what one producer writes to one partition: the numbers 0, 1, 2 ...
type stream struct {
	sent  atomic.Int64 // given to the client
	acked atomic.Int64 // acknowledged: all below
	read  atomic.Int64 // seen by the consumer: all below
	last  atomic.Int64 // of the last acknowledgement, in nanoseconds since 1970
	pause atomic.Int64 // longest time between two acknowledgements since resetPauses
}

// traffic is idempotent producers with acks=all at work on a topic, and a consumer that checks every record.
type traffic struct {
	c       *trio
	topic   string
	streams [loadProducers][trioPartitions]stream

	// starved is for how long this process, in all, was not given a processor that it wanted, in nanoseconds. On a machine
	// that is busy with other things the brokers are kept waiting just so, and bounds on what they do grow by it.
	starved atomic.Int64

	clients []*kgo.Client
	stop    context.CancelFunc
	halted  chan struct{}
	work    sync.WaitGroup
}

// A record to each partition every loadEvery, from each producer: enough to see pauses and to have requests under way all the
// time, too little to make the brokers' work a test of the machine.
const (
	loadProducers = 2
	loadEvery     = 2 * time.Millisecond
	loadBytes     = 200
)

// startLoad begins, and waits until every stream flows.
func (c *trio) startLoad(topic string) *traffic {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	l := &traffic{c: c, topic: topic, stop: cancel, halted: make(chan struct{})}
	for producer := range loadProducers {
		cl := c.client(kgo.MaxBufferedRecords(50_000), kgo.ProducerLinger(0))
		l.clients = append(l.clients, cl)
		l.work.Go(func() { l.produce(ctx, cl, producer) })
	}
	l.work.Go(func() { l.watchProcessor(ctx) })
	consumer := c.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	l.clients = append(l.clients, consumer)
	go func() { defer close(l.halted); l.consume(consumer) }()
	l.awaitProgress(30 * time.Second)
	return l
}

// watchProcessor measures by how much a ticker is late; a quiet machine has it on time to a few milliseconds.
func (l *traffic) watchProcessor(ctx context.Context) {
	const every, usual = 5 * time.Millisecond, 15 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if late := now.Sub(last) - every; late > usual {
			l.starved.Add(int64(late))
		}
		last = now
	}
}

func (l *traffic) produce(ctx context.Context, cl *kgo.Client, producer int) {
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for n := int64(0); ; n++ {
		for p := range trioPartitions {
			value := make([]byte, loadBytes)
			binary.BigEndian.PutUint64(value, uint64(n))
			binary.BigEndian.PutUint64(value[8:], uint64(producer))
			s := &l.streams[producer][p]
			s.sent.Store(n + 1)
			cl.Produce(context.Background(), &kgo.Record{Topic: l.topic, Partition: int32(p), Value: value},
				func(_ *kgo.Record, err error) { l.acknowledged(producer, p, n, err) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			if err := cl.Flush(flush); err != nil {
				l.c.t.Errorf("producer %d cannot deliver its last records: %v", producer, err)
			}
			return
		}
	}
}

func (l *traffic) acknowledged(producer, partition int, n int64, err error) {
	s := &l.streams[producer][partition]
	switch {
	case err != nil:
		l.c.t.Errorf("producer %d partition %d number %d: %v", producer, partition, n, err)
	case s.acked.Load() != n:
		l.c.t.Errorf("producer %d partition %d: number %d acknowledged after %d", producer, partition, n, s.acked.Load()-1)
	}
	s.acked.Store(n + 1)
	now := time.Now().UnixNano()
	s.pause.Store(max(s.pause.Load(), now-s.last.Swap(now)))
}

// consume checks until its client is closed: each stream has its numbers from 0 on, none missing, none twice.
func (l *traffic) consume(cl *kgo.Client) {
	for {
		fs := cl.PollFetches(context.Background())
		if fs.IsClientClosed() {
			return
		}
		fs.EachError(func(_ string, p int32, err error) { l.c.t.Errorf("consumer, partition %d: %v", p, err) })
		fs.EachRecord(func(r *kgo.Record) {
			n, producer := int64(binary.BigEndian.Uint64(r.Value)), binary.BigEndian.Uint64(r.Value[8:])
			s := &l.streams[producer][r.Partition]
			if want := s.read.Load(); n != want {
				l.c.t.Errorf("partition %d offset %d has number %d of producer %d, want %d", r.Partition, r.Offset, n, producer, want)
			}
			s.read.Store(n + 1)
		})
	}
}

func (l *traffic) each(do func(producer, partition int, s *stream)) {
	for producer := range l.streams {
		for p := range l.streams[producer] {
			do(producer, p, &l.streams[producer][p])
		}
	}
}

// awaitProgress waits until records that are produced from now on are acknowledged in every stream.
func (l *traffic) awaitProgress(within time.Duration) {
	l.c.t.Helper()
	var from [loadProducers][trioPartitions]int64
	l.each(func(producer, p int, s *stream) { from[producer][p] = s.sent.Load() })
	eventually(l.c.t, within, "the producers go on", func() (bool, string) {
		waits := ""
		l.each(func(producer, p int, s *stream) {
			if s.acked.Load() <= from[producer][p] {
				waits = fmt.Sprintf("producer %d partition %d: %d acknowledged of %d", producer, p, s.acked.Load(), s.sent.Load())
			}
		})
		return waits == "", waits
	})
}

func (l *traffic) resetPauses() {
	l.each(func(_, _ int, s *stream) { s.pause.Store(0) })
}

// paused is the longest that a stream got no acknowledgement since resetPauses, and which.
func (l *traffic) paused() (longest time.Duration, which string) {
	l.each(func(producer, p int, s *stream) {
		last := s.last.Load()
		if d := time.Duration(max(s.pause.Load(), time.Now().UnixNano()-last)); d > longest {
			longest = d
			which = fmt.Sprintf("producer %d partition %d until %s", producer, p, time.Unix(0, s.last.Load()).UTC().Format("15:04:05.000"))
		}
	})
	return longest, which
}

// finish ends the producers, which get every record acknowledged, waits until the consumer has read them all, and compares
// the replicas.
func (l *traffic) finish() {
	l.c.t.Helper()
	l.stop()
	l.work.Wait()
	total := int64(0)
	eventually(l.c.t, 30*time.Second, "the consumer has read everything", func() (bool, string) {
		waits := ""
		total = 0
		l.each(func(producer, p int, s *stream) {
			total += s.read.Load()
			if s.read.Load() < s.acked.Load() {
				waits = fmt.Sprintf("producer %d partition %d: read %d of %d acknowledged", producer, p, s.read.Load(), s.acked.Load())
			}
		})
		return waits == "", waits
	})
	l.c.awaitInSync(l.topic)
	for _, cl := range l.clients {
		cl.Close()
	}
	<-l.halted
	l.each(func(producer, p int, s *stream) {
		if s.read.Load() != s.acked.Load() || s.acked.Load() != s.sent.Load() {
			l.c.t.Errorf("producer %d partition %d: %d sent, %d acknowledged, %d read", producer, p, s.sent.Load(), s.acked.Load(), s.read.Load())
		}
	})
	l.c.compareReplicas(l.topic)
	l.c.t.Logf("%d records: all there, none twice, all in order", total)
}

// compareReplicas waits until the topic's logs are the same, byte for byte, at every broker.
func (c *trio) compareReplicas(topic string) {
	c.t.Helper()
	for p := range trioPartitions {
		eventually(c.t, 30*time.Second, "the replicas are equal", func() (bool, string) {
			var sums []string
			for _, b := range c.brokers {
				sum, err := logSum(filepath.Join(b.dir, "data", fmt.Sprintf("%s-%d", topic, p)))
				if err != nil {
					return false, err.Error()
				}
				sums = append(sums, sum)
			}
			return len(slices.Compact(slices.Clone(sums))) == 1, fmt.Sprintf("partition %d: %v", p, sums)
		})
	}
}

// logSum describes all segments of a log, one after the other.
func logSum(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return "", err
	}
	slices.Sort(files)
	sum, bytes := sha256.New(), int64(0)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		n, err := io.Copy(sum, f)
		if err != nil {
			return "", err
		}
		bytes += n
		if err := f.Close(); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d bytes %x", bytes, sum.Sum(nil)[:8]), nil
}
