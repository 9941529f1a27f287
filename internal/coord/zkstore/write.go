package zkstore

import (
	"context"
	"errors"
	"fmt"

	"klamm/internal/coord"
)

// Multi implements coord.Store.
func (s *Store) Multi(ctx context.Context, ops ...coord.Op) ([]coord.OpResult, error) {
	if len(ops) == 0 {
		return nil, s.usable(ctx)
	}
	if i, err := validateMulti(ops); err != nil {
		return refused(ops, i, err)
	}
	l, z, err := s.route(ops)
	if err != nil {
		return refused(ops, firstWithSession(ops), err)
	}
	results := make([]coord.OpResult, len(ops))
	err = l.run(ctx, 1, func(c *call, _ int) *request {
		return &request{frame: s.multiFrame(nil, ops), write: true, session: z, finish: c.expect(func(r *reply) error {
			return s.decodeMulti(r, ops, results)
		})}
	})
	switch {
	case err == nil:
	case z != nil && errors.Is(err, coord.ErrSessionExpired):
		return refused(ops, firstWithSession(ops), err)
	default:
		return nil, fmt.Errorf("transaction of %d operations: %w", len(ops), err)
	}
	for i, r := range results {
		if r.Err != nil && !errors.Is(r.Err, coord.ErrAborted) {
			return refused(ops, i, r.Err)
		}
	}
	return results, nil
}

func (s *Store) usable(ctx context.Context) error {
	if s.main.ctx.Err() != nil {
		return coord.ErrClosed
	}
	return ctx.Err()
}

// validateMulti finds what the server would not refuse as the port says.
func validateMulti(ops []coord.Op) (int, error) {
	deleted := map[string]bool{}
	for i, op := range ops {
		switch {
		case !coord.ValidPath(op.Path) || op.Path == "/" && op.Kind != coord.OpCheck:
			return i, coord.ErrInvalidPath
		case op.Kind == coord.OpDelete:
			deleted[op.Path] = true
		case op.Kind == coord.OpCreate && deleted[op.Path]:
			return i, coord.ErrRecreated
		}
	}
	return 0, nil
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

// route gives the connection that a transaction must run on: that of the session which owns its ephemeral nodes.
func (s *Store) route(ops []coord.Op) (*link, *zkSession, error) {
	var owner coord.Session
	for _, op := range ops {
		switch {
		case op.Session == nil:
		case owner != nil && owner.ID() != op.Session.ID():
			return nil, nil, errors.New("ephemeral nodes of two sessions in one transaction")
		default:
			owner = op.Session
		}
	}
	if owner == nil {
		return s.main, nil, nil
	}
	o, ok := owner.(*session)
	if !ok {
		o = s.sessionOf(owner.ID()) // the caller has wrapped it
	}
	if o == nil || o.isDone() {
		return nil, nil, coord.ErrSessionExpired
	}
	return o.link, o.zk, nil
}

// sessionOf finds an open session of this store by its id.
func (s *Store) sessionOf(id int64) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.claimed != nil && s.mu.claimed.ID() == id {
		return s.mu.claimed
	}
	for e := range s.mu.extra {
		if e.ID() == id {
			return e
		}
	}
	return nil
}

func (s *Store) multiFrame(guard *coord.Guard, ops []coord.Op) []byte {
	size := 9
	paths := make([]string, len(ops))
	acls := make([][]byte, len(ops))
	for i, op := range ops {
		paths[i] = s.full(op.Path)
		if op.Kind == coord.OpCreate {
			acls[i] = s.acl(op.Path)
		}
		size += writeSize(op, paths[i], acls[i])
	}
	var check coord.Op
	if guard != nil {
		check = coord.Check(guard.Path, guard.Version)
		size += writeSize(check, s.full(guard.Path), nil)
	}
	b := newFrame(opMulti, size)
	if guard != nil {
		b = appendWrite(b, check, s.full(guard.Path), nil)
	}
	for i, op := range ops {
		b = appendWrite(b, op, paths[i], acls[i])
	}
	return appendMultiHeader(b, opError, true)
}

// decodeMulti fills the results of a transaction's operations.
func (s *Store) decodeMulti(r *reply, ops []coord.Op, results []coord.OpResult) error {
	if err := r.failure(); err != nil {
		return err
	}
	answers, err := r.body.multiResults(len(ops), r.zxid)
	if err != nil {
		return fmt.Errorf("%w: %w", coord.ErrUnknownOutcome, err)
	}
	for i, a := range answers {
		results[i] = s.result(ops[i], a)
	}
	return nil
}

func (s *Store) result(op coord.Op, a multiResult) coord.OpResult {
	r := coord.OpResult{Path: op.Path, Err: codeError(a.code), Stat: a.stat}
	if a.op == opCreate || a.op == opCreate2 {
		r.Path = s.local(a.path)
	}
	if a.op == opCreate && op.Session != nil {
		r.Stat.EphemeralOwner = op.Session.ID()
	}
	if a.op == opError && a.code == codeOK {
		r.Err = coord.ErrAborted // an operation before the one that failed
	}
	return r
}

// Batch implements coord.Store: a transaction of its own per operation, all pipelined.
func (s *Store) Batch(ctx context.Context, guard *coord.Guard, ops []coord.Op) ([]coord.OpResult, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	results := make([]coord.OpResult, len(ops))
	for begin := 0; begin < len(ops); {
		end := begin + 1
		for end < len(ops) && ops[end].Session == ops[begin].Session {
			end++
		}
		// Operations on another connection wait, so that each sees those before it.
		if err := s.batchRun(ctx, guard, ops[begin:end], results[begin:end]); err != nil {
			return results, fmt.Errorf("batch of %d operations: %w", len(ops), err)
		}
		begin = end
	}
	return results, nil
}

// batchRun runs operations that share a connection.
func (s *Store) batchRun(ctx context.Context, guard *coord.Guard, ops []coord.Op, results []coord.OpResult) error {
	l, z, err := s.route(ops[:1])
	if err != nil {
		for i, op := range ops {
			results[i] = coord.OpResult{Path: op.Path, Err: err}
		}
		return nil
	}
	return l.run(ctx, len(ops), func(c *call, i int) *request {
		results[i].Path = ops[i].Path
		if results[i].Err = validateSingle(ops[i]); results[i].Err != nil {
			return nil
		}
		return &request{frame: s.multiFrame(guard, ops[i:i+1]), write: true, session: z, finish: c.expect(func(r *reply) error {
			return s.decodeSingle(r, guard, ops[i], &results[i])
		})}
	})
}

func validateSingle(op coord.Op) error {
	if op.Kind == coord.OpCheck {
		return errors.New("check is not for batches")
	}
	_, err := validateMulti([]coord.Op{op})
	return err
}

// decodeSingle fills the result of one operation of a batch. An error ends the batch.
func (s *Store) decodeSingle(r *reply, guard *coord.Guard, op coord.Op, result *coord.OpResult) error {
	var tooLarge *tooLargeError
	err := r.failure()
	switch {
	case errors.As(err, &tooLarge), op.Session != nil && errors.Is(err, coord.ErrSessionExpired):
		result.Err = err
		return nil
	case err != nil:
		return err
	}
	want := 1
	if guard != nil {
		want = 2
	}
	answers, err := r.body.multiResults(want, r.zxid)
	if err != nil {
		return fmt.Errorf("%w: %w", coord.ErrUnknownOutcome, err)
	}
	if guard != nil && answers[0].code != codeOK {
		return guardError(answers[0].code)
	}
	*result = s.result(op, answers[want-1])
	return nil
}

func guardError(code int32) error {
	if code == codeBadVersion || code == codeNoNode {
		return coord.ErrFenced
	}
	return codeError(code)
}

// DeleteTree implements coord.Store: the tree is listed level by level, then deleted from its leaves up in one pipeline.
func (s *Store) DeleteTree(ctx context.Context, guard *coord.Guard, path string) error {
	if path == "/" || !coord.ValidPath(path) {
		return coord.ErrInvalidPath
	}
	for {
		paths, err := s.list(ctx, path)
		if err != nil {
			return fmt.Errorf("delete tree %s: %w", path, err)
		}
		ops := make([]coord.Op, len(paths))
		for i, p := range paths {
			ops[len(paths)-1-i] = coord.Delete(p, coord.AnyVersion)
		}
		results, err := s.Batch(ctx, guard, ops)
		if err != nil {
			return fmt.Errorf("delete tree %s: %w", path, err)
		}
		grown, err := deleted(results)
		if err != nil || !grown {
			return err
		}
	}
}

// deleted judges the deletions of a tree; grown means that somebody added nodes meanwhile.
func deleted(results []coord.OpResult) (grown bool, err error) {
	for _, r := range results {
		switch {
		case r.Err == nil, errors.Is(r.Err, coord.ErrNoNode):
		case errors.Is(r.Err, coord.ErrNotEmpty):
			grown = true
		default:
			return false, fmt.Errorf("delete %s: %w", r.Path, r.Err)
		}
	}
	return grown, nil
}

// list gives the paths of a tree, each before those below it.
func (s *Store) list(ctx context.Context, root string) ([]string, error) {
	all, level := []string{root}, []string{root}
	for len(level) > 0 {
		lists, err := s.childrenMany(ctx, level)
		if err != nil {
			return nil, err
		}
		var next []string
		for i, l := range lists {
			if l.err != nil && !errors.Is(l.err, coord.ErrNoNode) {
				return nil, fmt.Errorf("list children of %s: %w", level[i], l.err)
			}
			for _, name := range l.names {
				next = append(next, level[i]+"/"+name)
			}
		}
		all, level = append(all, next...), next
	}
	return all, nil
}
