package authorizer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"klamm/internal/coord"
	"klamm/internal/security/acl"
)

// triesMax ends a read-modify-write that keeps losing against others.
const triesMax = 16

// Create adds rules; those that are there already stay. The result has one error, or nil, per rule. The rules must be
// without Fault.
func (a *Authorizer) Create(ctx context.Context, rules []acl.Binding) []error {
	errs := make([]error, len(rules))
	of := map[acl.Pattern][]int{}
	var patterns []acl.Pattern
	for i, b := range rules {
		if of[b.Pattern] == nil {
			patterns = append(patterns, b.Pattern)
		}
		of[b.Pattern] = append(of[b.Pattern], i)
	}
	for _, p := range patterns {
		err := a.change(ctx, p, func(now []acl.Entry) []acl.Entry {
			next := slices.Clone(now)
			for _, i := range of[p] {
				if !slices.Contains(next, rules[i].Entry) {
					next = append(next, rules[i].Entry)
				}
			}
			return next
		})
		for _, i := range of[p] {
			errs[i] = err
		}
	}
	return errs
}

// Deleted is one rule that Delete removed, or could not.
type Deleted struct {
	acl.Binding
	Err error
}

// Delete removes the rules that the filters match; the result has one list per filter. A rule that several filters match
// is in the list of each.
func (a *Authorizer) Delete(ctx context.Context, filters []acl.Filter) [][]Deleted {
	rules := a.rules.Load()
	matched := make([][]acl.Binding, len(filters))
	going := map[acl.Pattern][]acl.Entry{}
	var patterns []acl.Pattern
	for i, f := range filters {
		matched[i] = rules.Find(f)
		for _, b := range matched[i] {
			if going[b.Pattern] == nil {
				patterns = append(patterns, b.Pattern)
			}
			going[b.Pattern] = append(going[b.Pattern], b.Entry)
		}
	}
	errs := map[acl.Pattern]error{}
	for _, p := range patterns {
		errs[p] = a.change(ctx, p, func(now []acl.Entry) []acl.Entry {
			return slices.DeleteFunc(slices.Clone(now), func(e acl.Entry) bool { return slices.Contains(going[p], e) })
		})
	}
	out := make([][]Deleted, len(filters))
	for i := range filters {
		for _, b := range matched[i] {
			out[i] = append(out[i], Deleted{b, errs[b.Pattern]})
		}
	}
	return out
}

// change rewrites the rules of one pattern on condition that they are as they were read, announces the change with the
// same write, and applies it here. Rules that come out as they were are not written.
func (a *Authorizer) change(ctx context.Context, p acl.Pattern, alter func([]acl.Entry) []acl.Entry) error {
	for try := 0; ; try++ {
		now, version, err := a.read(ctx, p)
		if err != nil {
			return err
		}
		next := alter(now)
		if slices.Equal(now, next) {
			return nil
		}
		_, err = a.store.Multi(ctx, write(p, next, version), announcement(p))
		if errors.Is(err, coord.ErrNoNode) && version == absent {
			// Someone removed the type's node: Kafka creates parents as needed, too.
			if err = coord.EnsurePath(ctx, a.store, coord.ParentPath(path(p)), nil); err == nil {
				err = a.EnsureRoots(ctx)
			}
			if err == nil {
				err = coord.ErrBadVersion // again
			}
		}
		lost := errors.Is(err, coord.ErrBadVersion) || errors.Is(err, coord.ErrNodeExists) || errors.Is(err, coord.ErrNoNode)
		switch {
		case err == nil:
			return a.refresh(ctx, []acl.Pattern{p})
		case !lost || try >= triesMax:
			return fmt.Errorf("write the access rules of %v: %w", p, err)
		}
	}
}

// absent stands for the version of a node that does not exist.
const absent = -2

func write(p acl.Pattern, next []acl.Entry, version int32) coord.Op {
	switch {
	case version == absent:
		return coord.Create(path(p), encode(next))
	case len(next) == 0:
		return coord.Delete(path(p), version)
	}
	return coord.Set(path(p), encode(next), version)
}

func (a *Authorizer) read(ctx context.Context, p acl.Pattern) (entries []acl.Entry, version int32, err error) {
	n, err := a.store.Get(ctx, path(p))
	if errors.Is(err, coord.ErrNoNode) {
		return nil, absent, nil
	}
	if err == nil {
		entries, err = decode(n.Data)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the access rules of %v: %w", p, err)
	}
	return entries, n.Stat.Version, nil
}
