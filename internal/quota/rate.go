package quota

import "time"

// rate sums amounts over windows (Kafka: SampledStat and Rate of the client library's metrics). Times are offsets from a
// common start. Kafka keeps one sample more than it is told, so that no window is cut while it still counts.
type rate struct {
	samples []sample
	current int
}

type sample struct {
	start, last time.Duration
	sum         float64
	events      int64
}

// record adds an amount, which may be negative to take one back.
func (r *rate) record(w Windows, amount float64, now time.Duration) {
	if len(r.samples) == 0 {
		r.samples = append(r.samples, sample{start: now, last: now})
	}
	s := &r.samples[r.current]
	if now-s.start >= w.Length {
		s = r.advance(w, now)
	}
	s.sum += amount
	s.events++
	s.last = now
}

func (r *rate) advance(w Windows, now time.Duration) *sample {
	r.current = (r.current + 1) % (w.Samples + 1)
	if r.current >= len(r.samples) {
		r.samples = append(r.samples, sample{})
		r.current = len(r.samples) - 1
	}
	r.samples[r.current] = sample{start: now, last: now}
	return &r.samples[r.current]
}

// total sums the samples that still count and gives the start of the oldest one. Those that do not are emptied.
func (r *rate) total(w Windows, now time.Duration) (sum float64, events int64, oldest time.Duration) {
	oldest = now
	for i := range r.samples {
		s := &r.samples[i]
		if now-s.last >= w.total() {
			*s = sample{start: now, last: now}
		}
		sum += s.sum
		events += s.events
		oldest = min(oldest, s.start)
	}
	return sum, events, oldest
}

// perSecond is the rate over the window, and the window's length. A young rate is taken over all whole windows but one, so
// that a first burst does not look like a rate (Kafka: Rate.windowSize).
func (r *rate) perSecond(w Windows, now time.Duration) (float64, time.Duration) {
	sum, _, oldest := r.total(w, now)
	elapsed := now - oldest
	if full, least := int(elapsed/w.Length), w.Samples-1; full < least {
		elapsed += time.Duration(least-full) * w.Length
	}
	elapsed = max(elapsed, w.Length)
	return sum / elapsed.Seconds(), elapsed
}

// perSecondSimple is the rate over the time since the oldest sample, at least one window (Kafka: SimpleRate).
func (r *rate) perSecondSimple(w Windows, now time.Duration) float64 {
	sum, _, oldest := r.total(w, now)
	return sum / max(now-oldest, w.Length).Seconds()
}

// average is the mean amount of one record; 0 without any.
func (r *rate) average(w Windows, now time.Duration) float64 {
	sum, events, _ := r.total(w, now)
	if events == 0 {
		return 0
	}
	return sum / float64(events)
}
