package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"klamm/internal/coord"
)

// Multi implements coord.Store.
func (s *Store) Multi(ctx context.Context, ops ...coord.Op) ([]coord.OpResult, error) {
	return s.multi(ctx, nil, ops)
}

func (s *Store) multi(ctx context.Context, guard *coord.Guard, ops []coord.Op) ([]coord.OpResult, error) {
	for i, op := range ops {
		if err := validate(op, false); err != nil {
			return refused(ops, i, err)
		}
	}
	for {
		counters, numbered, err := s.numberSequentials(ctx, ops)
		if err != nil {
			return nil, err
		}
		p := makePlan(numbered, time.Now())
		p.guard(guard)
		for _, c := range counters {
			c.addTo(p)
		}
		resp, err := s.write(ctx, p.txn())
		switch {
		case errors.Is(err, coord.ErrSessionExpired):
			return refused(ops, firstWithSession(ops), err)
		case err != nil:
			return nil, fmt.Errorf("transaction of %d operations: %w", len(ops), err)
		case resp.Succeeded && !p.doomed:
			return p.results(resp.Responses, resp.Header.Revision), nil
		}
		seen := p.snapshot(resp.Responses)
		if !seen.holds(guard) {
			return nil, coord.ErrFenced
		}
		if seen.countersMoved {
			continue // another client took the number of a sequential node
		}
		if i, err := p.failure(seen); err != nil {
			return refused(ops, i, err)
		}
		return nil, fmt.Errorf("etcd refused a transaction of %d operations that it should have applied", len(ops))
	}
}

// refused is the outcome of a Multi of which one operation failed.
func refused(ops []coord.Op, failed int, err error) ([]coord.OpResult, error) {
	results := make([]coord.OpResult, len(ops))
	for i, op := range ops {
		results[i] = coord.OpResult{Path: op.Path, Err: coord.ErrAborted}
	}
	results[failed].Err = err
	return results, fmt.Errorf("%s %s: %w", ops[failed].Kind, ops[failed].Path, err)
}

func firstWithSession(ops []coord.Op) int {
	for i, op := range ops {
		if op.Session != nil {
			return i
		}
	}
	return 0
}

// counter is the state of a parent's counter that a transaction relies on, and what it moves it to.
type counter struct {
	key        string
	read       string // its value, the next number; "" when there is none yet
	afterwards int64
}

func (c counter) addTo(p *plan) {
	if c.read == "" {
		p.compares = append(p.compares, clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0))
	} else {
		p.compares = append(p.compares, clientv3.Compare(clientv3.Value(c.key), "=", c.read))
	}
	p.write(nil, clientv3.OpPut(c.key, strconv.FormatInt(c.afterwards, 10)))
	p.readOps(clientv3.OpGet(c.key), func(s *snapshot, r *etcdserverpb.RangeResponse) {
		now := ""
		if len(r.Kvs) > 0 {
			now = string(r.Kvs[0].Value)
		}
		s.countersMoved = s.countersMoved || now != c.read
	})
}

// numberSequentials gives sequential nodes the next numbers of their parents. The transaction that creates them
// demands that the counters have not moved.
func (s *Store) numberSequentials(ctx context.Context, ops []coord.Op) ([]counter, []coord.Op, error) {
	byParent := map[string]*counter{}
	var numbered []coord.Op
	for i, op := range ops {
		if !op.Sequential {
			continue
		}
		if numbered == nil {
			numbered = append([]coord.Op(nil), ops...)
		}
		parent := coord.ParentPath(op.Path)
		c := byParent[parent]
		if c == nil {
			var err error
			if c, err = s.readCounter(ctx, parent); err != nil {
				return nil, nil, err
			}
			byParent[parent] = c
		}
		numbered[i].Path = coord.SequentialPath(op.Path, c.afterwards)
		c.afterwards++
	}
	if numbered == nil {
		return nil, ops, nil
	}
	var counters []counter
	for _, c := range byParent {
		counters = append(counters, *c)
	}
	return counters, numbered, nil
}

func (s *Store) readCounter(ctx context.Context, parent string) (*counter, error) {
	c := &counter{key: counterKey(parent)}
	resp, err := s.read(ctx, clientv3.OpGet(c.key))
	if err != nil {
		return nil, fmt.Errorf("read sequence of %s: %w", parent, err)
	}
	if kvs := resp.Get().Kvs; len(kvs) > 0 {
		c.read = string(kvs[0].Value)
		if c.afterwards, err = strconv.ParseInt(c.read, 10, 64); err != nil {
			return nil, fmt.Errorf("read sequence of %s: %w", parent, err)
		}
	}
	return c, nil
}

// Batch implements coord.Store. Operations that do not depend on each other go together, in transactions of up to
// options.opsMax of which several are under way at a time; each is an etcd transaction inside one that holds the guard.
func (s *Store) Batch(ctx context.Context, guard *coord.Guard, ops []coord.Op) ([]coord.OpResult, error) {
	results := make([]coord.OpResult, len(ops))
	for i, op := range ops {
		results[i] = coord.OpResult{Path: op.Path, Err: validate(op, true)}
	}
	for _, wave := range waves(ops) {
		calls, waveCtx := errgroup.WithContext(ctx)
		calls.SetLimit(inFlightMax)
		for _, chunk := range chunks(ops, wave, s.options.opsMax) {
			calls.Go(func() error { return s.batchChunk(waveCtx, guard, ops, chunk, results) })
		}
		if err := calls.Wait(); err != nil {
			return results, fmt.Errorf("batch of %d operations: %w", len(ops), err)
		}
	}
	return results, nil
}

// waves groups operations so that each comes after all earlier ones it may depend on: on the same path, on the
// parent of a node to create, on the children of a node to delete. etcd judges all conditions of a transaction
// before its first write, so these cannot share one.
func waves(ops []coord.Op) [][]int {
	var out [][]int
	written := make(map[string]int, len(ops)) // path -> number of the wave after the last that writes it
	below := map[string]int{}                 // parent -> number of the wave after the last that creates or deletes a child
	for i, op := range ops {
		parent := coord.ParentPath(op.Path)
		wave := written[op.Path]
		switch op.Kind {
		case coord.OpCreate:
			wave = max(wave, written[parent])
			if op.Sequential { // in order of their numbers
				wave = max(wave, written[counterKey(parent)])
				written[counterKey(parent)] = wave + 1
			}
		case coord.OpDelete:
			wave = max(wave, below[op.Path])
		}
		written[op.Path] = wave + 1
		if op.Kind != coord.OpSet {
			below[parent] = max(below[parent], wave+1)
		}
		if wave == len(out) {
			out = append(out, nil)
		}
		out[wave] = append(out[wave], i)
	}
	return out
}

// chunks cuts a wave into transactions. Operations that can fail their whole transaction (a lease may be gone, a
// number taken) go alone.
func chunks(ops []coord.Op, wave []int, opsMax int) [][]int {
	var out [][]int
	var chunk []int
	bytes := 0
	for _, i := range wave {
		if ops[i].Session != nil || ops[i].Sequential {
			out = append(out, []int{i})
			continue
		}
		size := len(ops[i].Data) + len(ops[i].Path)
		if len(chunk) == opsMax || len(chunk) > 0 && bytes+size > chunkBytesMax {
			out = append(out, chunk)
			chunk, bytes = nil, 0
		}
		chunk = append(chunk, i)
		bytes += size
	}
	if len(chunk) > 0 {
		out = append(out, chunk)
	}
	return out
}

// batchChunk runs the operations of one transaction and stores their results.
func (s *Store) batchChunk(ctx context.Context, guard *coord.Guard, ops []coord.Op, chunk []int, results []coord.OpResult) error {
	if first := ops[chunk[0]]; first.Session != nil || first.Sequential {
		return s.batchAlone(ctx, guard, first, &results[chunk[0]])
	}
	var plans []*plan
	var inner []clientv3.Op
	var index []int
	now := time.Now()
	for _, i := range chunk {
		if results[i].Err != nil {
			continue // not valid
		}
		p := makePlan(ops[i:i+1], now)
		plans, inner, index = append(plans, p), append(inner, p.txn()), append(index, i)
	}
	resp, err := s.write(ctx, clientv3.OpTxn(guardCompares(guard), inner, nil))
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return coord.ErrFenced
	}
	for n, p := range plans {
		answer := resp.Responses[n].GetResponseTxn()
		if answer.Succeeded {
			results[index[n]] = p.results(answer.Responses, resp.Header.Revision)[0]
			continue
		}
		_, results[index[n]].Err = p.failure(p.snapshot(answer.Responses))
	}
	return nil
}

func (s *Store) batchAlone(ctx context.Context, guard *coord.Guard, op coord.Op, result *coord.OpResult) error {
	if result.Err != nil {
		return nil // not valid
	}
	results, err := s.multi(ctx, guard, []coord.Op{op})
	if results == nil {
		return err
	}
	*result = results[0]
	return nil
}
