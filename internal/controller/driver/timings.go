package driver

import (
	"slices"
	"sync"
	"time"
)

// timingWindow is how many of the newest observations the quantiles of a Timings look at.
const timingWindow = 1024

// timings collects durations: count and sum for ever, the newest timingWindow of them for quantiles (Kafka: a Yammer
// histogram, whose reservoir also holds 1,028 values and favours the newest). Safe for concurrent use.
type timings struct {
	mu struct {
		sync.Mutex
		count  uint64
		sum    time.Duration
		max    time.Duration
		recent []time.Duration // ring once it is full
		next   int
	}
}

func (t *timings) observe(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.count++
	t.mu.sum += d
	t.mu.max = max(t.mu.max, d)
	if len(t.mu.recent) < timingWindow {
		t.mu.recent = append(t.mu.recent, d)
		return
	}
	t.mu.recent[t.mu.next] = d
	t.mu.next = (t.mu.next + 1) % timingWindow
}

// Timer collects durations of others than the driver, for metrics. The zero value is ready; it is safe for concurrent use.
type Timer struct{ t timings }

// Observe adds a duration.
func (t *Timer) Observe(d time.Duration) { t.t.observe(d) }

// Snapshot gives what was observed so far.
func (t *Timer) Snapshot() Timings { return t.t.snapshot() }

// Timings is a snapshot of durations.
type Timings struct {
	Count  uint64
	Sum    time.Duration
	Max    time.Duration   // of all
	Recent []time.Duration // the newest up to 1,024, ascending
}

// Quantile returns the q-quantile (0 to 1) of the newest observations, 0 without any.
func (t Timings) Quantile(q float64) time.Duration {
	if len(t.Recent) == 0 {
		return 0
	}
	return t.Recent[min(len(t.Recent)-1, max(0, int(q*float64(len(t.Recent)))))]
}

func (t *timings) snapshot() Timings {
	t.mu.Lock()
	out := Timings{Count: t.mu.count, Sum: t.mu.sum, Max: t.mu.max, Recent: slices.Clone(t.mu.recent)}
	t.mu.Unlock()
	slices.Sort(out.Recent)
	return out
}
