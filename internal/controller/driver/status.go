package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

const (
	// recentEvents is how many events Status shows.
	recentEvents = 100
	// gaugeAge is how old the core's gauges may grow while events follow each other without a gap.
	gaugeAge = 100 * time.Millisecond
)

// EventRecord is one event that the controller handled.
type EventRecord struct {
	Name       string        `json:"name"`
	Detail     string        `json:"detail,omitempty"` // topic or broker it speaks of
	State      string        `json:"state"`            // the ControllerState while it was handled
	Enqueued   time.Time     `json:"enqueued"`
	QueueTime  time.Duration `json:"queueTimeNs"`
	Duration   time.Duration `json:"durationNs"`
	Operations int           `json:"storeOperations"`
}

// Status is the controller module at one moment.
type Status struct {
	Broker     cluster.BrokerID        `json:"broker"`
	Active     bool                    `json:"active"`
	Controller cluster.BrokerID        `json:"controller"` // -1 when none is known
	Epoch      cluster.ControllerEpoch `json:"epoch"`      // 0 when not active
	State      string                  `json:"state"`      // of the event in hand, or Idle
	QueueSize  int                     `json:"eventQueueSize"`
	Brokers    []BrokerQueue           `json:"brokers"` // by id; empty when not active
	Events     []EventRecord           `json:"events"`  // the last ones, newest first
	CorePanics int64                   `json:"corePanics"`
}

// BrokerQueue is the queue of requests to one broker.
type BrokerQueue struct {
	Broker    cluster.BrokerID `json:"broker"`
	QueueSize int              `json:"queueSize"`
	Connected bool             `json:"connected"`
	Resends   int64            `json:"resends"` // since the broker came
	// RequestRateAndQueueTime is the time that requests waited in the queue.
	RequestRateAndQueueTime Timings `json:"-"`
}

// Metrics are the values of Kafka's controller MBeans.
type Metrics struct {
	ActiveControllerCount int
	ControllerState       int // value of the ControllerState of the event in hand, 0 = idle
	// Core holds the gauges that follow from the controller's context; all zero when inactive.
	Core           controller.Metrics
	EventQueueSize int
	EventQueueTime Timings
	StateTimes     map[string]Timings // by the metric's name without RateAndTimeMs, e.g. "LeaderElection"
	StoreTime      Timings            // of the core's store operations
	TotalQueueSize int                // requests waiting for all brokers
	Brokers        []BrokerQueue      // by id
	CorePanics     int64
	QueueOverflows int64 // terms given up because a broker was too far behind
	EventsRefused  int64 // requests answered at once because the event queue was full
}

// status collects what Status and Metrics show. Written by the owner, read by anybody.
type status struct {
	state     atomic.Uint32 // controller.ControllerState of the event in hand
	core      atomic.Pointer[controller.Metrics]
	coreAt    time.Time // owner only
	queueTime timings
	storeTime timings
	states    map[string]*timings // fixed set of keys
	panics    atomic.Int64
	overflows atomic.Int64
	refused   atomic.Int64
	mu        struct {
		sync.Mutex
		recent []EventRecord // ring once it is full
		next   int
	}
}

func newStatus() *status {
	s := &status{states: map[string]*timings{}}
	for state := range controller.ControllerState(controller.ControllerStates) {
		if name := timerOf(state); name != "" {
			s.states[name] = &timings{}
		}
	}
	s.core.Store(&controller.Metrics{})
	return s
}

// timerOf is the name of a state's timer without RateAndTimeMs; empty where it has none.
func timerOf(state controller.ControllerState) string {
	return strings.TrimSuffix(state.RateAndTimeMetric(), "RateAndTimeMs")
}

func (s *status) inHand() controller.ControllerState {
	return controller.ControllerState(s.state.Load())
}

func (s *status) begin(ev controller.Event, waited time.Duration) {
	s.state.Store(uint32(controller.StateOf(ev)))
	s.queueTime.observe(waited)
}

func (s *status) end(ev controller.Event, began time.Time, operations int, enqueued time.Time) {
	state := controller.ControllerState(s.state.Swap(uint32(controller.StateIdle)))
	took := time.Since(began)
	if t := s.states[timerOf(state)]; t != nil {
		t.observe(took)
	}
	record := EventRecord{
		Name: eventName(ev), Detail: eventDetail(ev), State: state.String(),
		Enqueued: enqueued, QueueTime: began.Sub(enqueued), Duration: took, Operations: operations,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.recent) < recentEvents {
		s.mu.recent = append(s.mu.recent, record)
		return
	}
	s.mu.recent[s.mu.next] = record
	s.mu.next = (s.mu.next + 1) % recentEvents
}

// setCore takes over the core's gauges. Counting them can cost a walk over the context, so within a burst of events
// that is done every gaugeAge only; with nothing waiting they are exact.
func (s *status) setCore(c *controller.Core, busy bool) {
	now := time.Now()
	if busy && now.Sub(s.coreAt) < gaugeAge {
		return
	}
	s.coreAt = now
	m := c.Metrics()
	s.core.Store(&m)
}

func (s *status) clearCore() { s.core.Store(&controller.Metrics{}) }

// recentRecords lists the last events, newest first.
func (s *status) recentRecords() []EventRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]EventRecord, 0, len(s.mu.recent))
	out = append(append(out, s.mu.recent[s.mu.next:]...), s.mu.recent[:s.mu.next]...)
	slices.Reverse(out)
	return out
}

// Status describes the controller module now.
func (d *Driver) Status() Status {
	v := d.view.Load()
	return Status{
		Broker: d.cfg.BrokerID, Active: v.active, Controller: v.controller, Epoch: v.epoch,
		State: d.status.inHand().String(), QueueSize: d.queue.size(), Brokers: d.brokerQueues(),
		Events: d.status.recentRecords(), CorePanics: d.status.panics.Load(),
	}
}

func (d *Driver) brokerQueues() []BrokerQueue {
	set := *d.senders.Load()
	out := make([]BrokerQueue, 0, len(set))
	for _, id := range slices.Sorted(maps.Keys(set)) {
		s := set[id]
		out = append(out, BrokerQueue{Broker: id, QueueSize: s.queueSize(), Connected: s.connected.Load(),
			Resends: s.resends.Load(), RequestRateAndQueueTime: s.waits.snapshot()})
	}
	return out
}

// Metrics reads all metrics now.
func (d *Driver) Metrics() Metrics {
	m := Metrics{
		ControllerState: int(d.status.inHand()), Core: *d.status.core.Load(),
		EventQueueSize: d.queue.size(), EventQueueTime: d.status.queueTime.snapshot(), StoreTime: d.status.storeTime.snapshot(),
		StateTimes: make(map[string]Timings, len(d.status.states)), Brokers: d.brokerQueues(),
		CorePanics: d.status.panics.Load(), QueueOverflows: d.status.overflows.Load(), EventsRefused: d.status.refused.Load(),
	}
	if d.IsActive() {
		m.ActiveControllerCount = 1
	}
	for name, t := range d.status.states {
		m.StateTimes[name] = t.snapshot()
	}
	for _, b := range m.Brokers {
		m.TotalQueueSize += b.QueueSize
	}
	return m
}

// Deletions explains every topic queued for deletion. It waits for the event in hand. ErrNotController when this broker
// is not the active controller.
func (d *Driver) Deletions(ctx context.Context) ([]controller.DeletionExplanation, error) {
	if !d.IsActive() {
		return nil, ErrNotController
	}
	var out []controller.DeletionExplanation
	if err := d.query(ctx, func(c *controller.Core) { out = c.Deletions() }); err != nil {
		return nil, fmt.Errorf("explain deletions: %w", err)
	}
	return out, nil
}

// DeletionBlocked reports whether the active controller's deletion of a topic waits for what need not come by itself; see
// [controller.Core.DeletionBlocked]. It waits for the event in hand. True when this broker is not the controller, or ctx ends: nobody here can
// say that waiting helps.
func (d *Driver) DeletionBlocked(ctx context.Context, topic string) bool {
	var blocked bool
	if d.query(ctx, func(c *controller.Core) { blocked = c.DeletionBlocked(topic) }) != nil {
		return true
	}
	return blocked
}

// query looks into the core of the active controller, on its goroutine. What look writes may be read once query has returned nil.
func (d *Driver) query(ctx context.Context, look func(*controller.Core)) error {
	err := ErrNotController
	it := &item{processed: make(chan struct{})}
	it.query = func() {
		if c := d.own.core; c != nil && c.IsActive() {
			look(c)
			err = nil
		}
	}
	if !d.queue.putOwn(it) {
		return ErrNotController
	}
	select {
	case <-it.processed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
