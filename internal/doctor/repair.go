package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"klamm/internal/coord"
)

// Repair is one write that mends something. It is only made while everything is as it was seen.
type Repair struct {
	// Path is the node to remove, or to replace by Data.
	Path string `json:"path"`
	// Version is the node's data version and Czxid its creation, as they were seen.
	Version int32 `json:"version"`
	Czxid   int64 `json:"czxid"`
	// Absent is a node that must not exist; "" for none.
	Absent string `json:"absent,omitempty"`
	// Data replaces the node's data; nil removes the node.
	Data []byte `json:"data,omitempty"`
	// What says what changes, for people.
	What string `json:"what"`
	// Was is the node's data, to undo it.
	Was []byte `json:"was"`
}

// remove plans the removal of a node that is of no use as long as another is absent.
func (v *view) remove(path, absent string) Repair {
	n := v.nodes[path]
	return Repair{Path: path, Version: n.Stat.Version, Czxid: n.Stat.Czxid, Absent: absent, Was: n.Data, What: "remove " + path}
}

// reduce plans to take entries out of a request, or the request away when none is left.
func (v *view) reduce(n *coord.Node, some bool, rest []byte, how string) Repair {
	r := Repair{Path: n.Path, Version: n.Stat.Version, Czxid: n.Stat.Czxid, Was: n.Data, What: "remove " + n.Path}
	if some {
		r.Data, r.What = rest, "rewrite "+n.Path+" "+how
	}
	return r
}

// ErrNotGuarded reports that nothing can be repaired since there is no controller epoch to check writes against.
var ErrNotGuarded = errors.New("/controller_epoch is absent: no write could be checked against it")

// Plan collects the repairs of findings.
func Plan(findings []Finding) []Repair {
	var out []Repair
	for _, f := range findings {
		out = append(out, f.Repair...)
	}
	return out
}

// guardTries is how often a repair is tried while elections come between: in a crash loop they follow each other within
// some 40 ms.
const guardTries = 50

// Apply makes the writes of a plan in order and tells of each. Each is made only if what it is about is as it was
// examined and no controller was elected between that look and the write. One that does not apply any more is passed over.
func Apply(ctx context.Context, s coord.Store, plan []Repair, log *slog.Logger) (done int, err error) {
	for _, r := range plan {
		reason, err := r.apply(ctx, s)
		switch {
		case err != nil:
			return done, fmt.Errorf("%s: %w", r.What, err)
		case reason != "":
			log.Warn("passed over", "repair", r.What, "reason", reason)
		default:
			done++
			log.Info("repaired", "repair", r.What, "was", string(r.Was), "now", string(r.Data), "version", r.Version)
		}
	}
	return done, nil
}

// apply tells why the repair was passed over; "" when it was made.
func (r Repair) apply(ctx context.Context, s coord.Store) (reason string, err error) {
	for range guardTries {
		epoch, err := s.Get(ctx, coord.ControllerEpochPath)
		if errors.Is(err, coord.ErrNoNode) {
			return "", ErrNotGuarded
		}
		if err != nil {
			return "", err
		}
		reason, err := r.passed(ctx, s)
		if err != nil || reason != "" {
			return reason, err
		}
		reason, err = r.write(ctx, s, coord.Guard{Path: epoch.Path, Version: epoch.Stat.Version})
		if !errors.Is(err, coord.ErrFenced) {
			return reason, err
		}
	}
	return "", fmt.Errorf("a controller was elected between each look and the write, %d times: %w", guardTries, coord.ErrFenced)
}

// passed tells why a repair is no longer wanted; "" when it is.
func (r Repair) passed(ctx context.Context, s coord.Store) (string, error) {
	if r.Absent != "" {
		_, err := s.Get(ctx, r.Absent)
		switch {
		case err == nil:
			return r.Absent + " exists now", nil
		case !errors.Is(err, coord.ErrNoNode):
			return "", err
		}
	}
	n, err := s.Get(ctx, r.Path)
	switch {
	case errors.Is(err, coord.ErrNoNode):
		return "it is gone already", nil
	case err != nil:
		return "", err
	case n.Stat.Czxid != r.Czxid || n.Stat.Version != r.Version || !bytes.Equal(n.Data, r.Was):
		return "it has changed since it was examined", nil
	}
	return "", nil
}

func (r Repair) write(ctx context.Context, s coord.Store, guard coord.Guard) (string, error) {
	op := coord.Delete(r.Path, r.Version)
	if r.Data != nil {
		op = coord.Set(r.Path, r.Data, r.Version)
	}
	results, err := s.Batch(ctx, &guard, []coord.Op{op})
	if err != nil {
		return "", err
	}
	switch err := results[0].Err; {
	case errors.Is(err, coord.ErrNoNode), errors.Is(err, coord.ErrBadVersion):
		return "it has changed since it was examined", nil
	case errors.Is(err, coord.ErrNotEmpty):
		return "there are nodes below it", nil
	default:
		return "", err
	}
}
