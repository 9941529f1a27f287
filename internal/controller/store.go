package controller

import (
	"errors"
	"fmt"
	"slices"

	"klamm/internal/cluster"
)

// The two ways in which a store operation ends a term. Handlers pass them up unwrapped.
var (
	errFenced = errors.New("fenced: another controller has been elected")
	errClosed = errors.New("the session to the coordination store has ended")
)

// maxConflictRounds bounds how often one event decides anew about a partition whose state another party keeps
// writing (W25: Kafka loops without end); after that the partition is left to the retry timer.
const maxConflictRounds = 10

// run suspends the event until the store has answered.
func (c *Core) run(op StoreOp, fenced bool, delayMs int64) StoreResult {
	c.token++
	s := Store{Token: c.token, DelayMs: delayMs, Fenced: fenced, Op: op}
	if fenced {
		s.ZkVersion = c.ctx.zkVersion
	}
	c.emit(s)
	c.awaiting = true
	if !c.yield(struct{}{}) {
		return StoreResult{Outcome: Closed} // Close was called
	}
	return c.result
}

// backoff is the pause before the given attempt; none before the first.
func (c *Core) backoff(attempt int) int64 {
	if attempt == 0 {
		return 0
	}
	return min(c.cfg.RetryBackoffMs<<min(attempt-1, 20), c.cfg.RetryBackoffMaxMs)
}

func (c *Core) noteStoreRetry(op StoreOp, r StoreResult, attempt int) {
	level := Debug
	if attempt == 1 {
		level = Warn
	}
	c.note(level, "coordination store did not answer, trying again", "", fmt.Sprintf("%T: %s", op, r.Err))
}

// query runs a read until it is answered.
func query[T StoreValue](c *Core, op StoreOp) (T, error) {
	for attempt := 0; ; attempt++ {
		r := c.run(op, false, c.backoff(attempt))
		switch r.Outcome {
		case Applied:
			return valueAs[T](r, op), nil
		case UnknownOutcome, Unavailable:
			c.noteStoreRetry(op, r, attempt)
		default:
			return *new(T), outcomeError(r, op)
		}
	}
}

// write runs a fenced write until it was applied or its answer was lost, which is for the caller to resolve: ok is false then.
// attempt counts over the calls that belong together, for the back-off.
func (c *Core) write(op StoreOp, items int, attempt *int) (results []ItemResult, ok bool, err error) {
	for {
		r := c.run(op, true, c.backoff(*attempt))
		*attempt++
		switch r.Outcome {
		case Applied:
			w := valueAs[Written](r, op)
			if len(w.Items) != items {
				panic(fmt.Sprintf("controller: %T has %d results for %d items", op, len(w.Items), items))
			}
			return w.Items, true, nil
		case Unavailable:
			c.noteStoreRetry(op, r, *attempt)
		case UnknownOutcome:
			c.noteStoreRetry(op, r, *attempt)
			return nil, false, nil
		default:
			return nil, false, outcomeError(r, op)
		}
	}
}

// remove runs a delete, or another write that may be repeated, until it was applied.
func (c *Core) remove(op StoreOp, items int) ([]ItemResult, error) {
	attempt := 0
	for {
		results, ok, err := c.write(op, items, &attempt)
		if err != nil || ok {
			return results, err
		}
	}
}

func outcomeError(r StoreResult, op StoreOp) error {
	switch r.Outcome {
	case Fenced:
		return errFenced
	case Closed:
		return errClosed
	}
	panic(fmt.Sprintf("controller: outcome %d of %T", r.Outcome, op))
}

func valueAs[T StoreValue](r StoreResult, op StoreOp) T {
	v, ok := r.Value.(T)
	if !ok {
		panic(fmt.Sprintf("controller: %T was answered with %T", op, r.Value))
	}
	return v
}

// chunks cuts items into effects of bounded size.
func chunks[T any](c *Core, items []T, do func([]T) error) error {
	for chunk := range slices.Chunk(items, c.cfg.StoreBatchMax) {
		if err := do(chunk); err != nil {
			return err
		}
	}
	return nil
}

// readStates reads partition states, one result per partition in order.
func (c *Core) readStates(tps []cluster.TopicPartition) ([]ItemResult, error) {
	out := make([]ItemResult, 0, len(tps))
	err := chunks(c, tps, func(tps []cluster.TopicPartition) error {
		r, err := query[StatesRead](c, ReadPartitionStates{tps})
		if err == nil && len(r.States) != len(tps) {
			panic(fmt.Sprintf("controller: %d states read for %d partitions", len(r.States), len(tps)))
		}
		out = append(out, r.States...)
		return err
	})
	return out, err
}

// readTopics reads topic nodes, one result per name in order.
func (c *Core) readTopics(names []string) ([]TopicRead, error) {
	out := make([]TopicRead, 0, len(names))
	err := chunks(c, names, func(names []string) error {
		r, err := query[TopicsRead](c, ReadTopics{names})
		if err == nil && len(r.Topics) != len(names) {
			panic(fmt.Sprintf("controller: %d topics read for %d names", len(r.Topics), len(names)))
		}
		out = append(out, r.Topics...)
		return err
	})
	return out, err
}

// setStates writes partition states at their expected partition epochs. A lost answer is resolved by reading: our
// value one version further is our write; the expected version means it was not applied; anything else is a conflict.
// Results with ItemOK carry the whole new state, those with ItemConflict the fresh one.
func (c *Core) setStates(writes []PartitionStateWrite) ([]ItemResult, error) {
	out := make([]ItemResult, 0, len(writes))
	err := chunks(c, writes, func(writes []PartitionStateWrite) error {
		results, err := c.setStatesChunk(writes)
		out = append(out, results...)
		return err
	})
	return out, err
}

func (c *Core) setStatesChunk(writes []PartitionStateWrite) ([]ItemResult, error) {
	out := make([]ItemResult, len(writes))
	attempt := 0
	for todo := seq(len(writes)); len(todo) > 0; {
		items, applied, err := c.write(SetPartitionStates{pick(writes, todo)}, len(todo), &attempt)
		if err != nil {
			return nil, err
		}
		if !applied {
			if items, err = c.readStates(partitionsOf(pick(writes, todo))); err != nil {
				return nil, err
			}
		}
		again := []int(nil)
		for k, i := range todo {
			want := writes[i].State
			item := items[k]
			if !applied {
				item = resolveSet(item, want)
			}
			switch {
			case item.Status == 0:
				again = append(again, i)
			case item.Status == ItemOK:
				want.PartitionEpoch = item.State.PartitionEpoch
				item.State, item.HasState = want, true
			}
			out[i] = item
		}
		todo = again
	}
	if err := c.fillConflicts(writes, out); err != nil {
		return nil, err
	}
	return out, c.mustStillReign(out)
}

// mustStillReign ends the term if a state that was found instead of the one written is a later controller's. After a lost
// answer the store has not said so by itself. A state with an epoch that nobody has reached was written by hand, and ends nothing.
func (c *Core) mustStillReign(results []ItemResult) error {
	later := func(r ItemResult) bool { return r.HasState && r.State.ControllerEpoch > c.ctx.epoch }
	if !slices.ContainsFunc(results, later) {
		return nil
	}
	e, err := query[ControllerEpochRead](c, ReadControllerEpoch{})
	if err == nil && e.Epoch > c.ctx.epoch {
		return errFenced
	}
	return err
}

// resolveSet judges a write whose answer was lost by the state read after it. The zero status means: not applied.
func resolveSet(read ItemResult, want cluster.LeaderAndISR) ItemResult {
	if read.Status != ItemOK {
		return read
	}
	if read.State.PartitionEpoch == want.PartitionEpoch {
		return ItemResult{}
	}
	landed := want
	landed.PartitionEpoch++
	if read.State.Equal(landed) {
		return read
	}
	read.Status, read.HasState = ItemConflict, true
	return read
}

// createStates writes the first states of partitions. A lost answer is resolved by creating again; a state found in
// place that is exactly ours is ours (W5). Other states found come back as ItemExists with the state.
func (c *Core) createStates(writes []PartitionStateWrite) ([]ItemResult, error) {
	out := make([]ItemResult, 0, len(writes))
	err := chunks(c, writes, func(writes []PartitionStateWrite) error {
		results, err := c.remove(CreatePartitionStates{writes}, len(writes))
		if err != nil {
			return err
		}
		if err := c.fillConflicts(writes, results); err != nil {
			return err
		}
		for i, r := range results {
			if r.Status == ItemOK || r.Status == ItemExists && r.State.Equal(writes[i].State) {
				results[i] = ItemResult{Status: ItemOK, State: writes[i].State, HasState: true}
			}
		}
		out = append(out, results...)
		return nil
	})
	return out, err
}

// fillConflicts reads the states that the driver reported as differing without saying how.
func (c *Core) fillConflicts(writes []PartitionStateWrite, results []ItemResult) error {
	var at []int
	for i, r := range results {
		if (r.Status == ItemConflict || r.Status == ItemExists) && !r.HasState {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	fresh, err := c.readStates(partitionsOf(pick(writes, at)))
	if err != nil {
		return err
	}
	for k, i := range at {
		status := results[i].Status
		results[i] = fresh[k]
		if fresh[k].Status == ItemOK {
			results[i].Status, results[i].HasState = status, true
		}
	}
	return nil
}

func partitionsOf(writes []PartitionStateWrite) []cluster.TopicPartition {
	tps := make([]cluster.TopicPartition, len(writes))
	for i, w := range writes {
		tps[i] = w.TopicPartition
	}
	return tps
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func pick[T any](from []T, at []int) []T {
	if len(at) == len(from) {
		return from
	}
	out := make([]T, len(at))
	for k, i := range at {
		out[k] = from[i]
	}
	return out
}
