package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	// treeReaders bounds the listings that are under way; engines pipeline them.
	treeReaders = 64
	// treeChunk is how many nodes one GetMany of ReadTree asks for.
	treeChunk = 500
)

// TreeReading says what of a tree is read. Each function may be nil.
type TreeReading struct {
	// Skip keeps nodes out with all that is below them.
	Skip func(path string) bool
	// Progress is told the number of nodes so far.
	Progress func(nodes int)
	// Refused is told of nodes that the engine does not show, as for lack of rights; they and what is below them are left
	// out. Without it they end the reading. It is called on one goroutine at a time.
	Refused func(path string, err error)
}

// ReadTree reads every node of a tree but the root, sorted by path, so that parents come before their children. It is
// no snapshot: what others write meanwhile may be seen in part, and nodes that go meanwhile are left out.
func ReadTree(ctx context.Context, s Store, r TreeReading) ([]Node, error) {
	var all []Node
	level := []string{"/"}
	for len(level) > 0 {
		paths, err := r.listAll(ctx, s, level)
		if err != nil {
			return nil, err
		}
		level = level[:0]
		for chunk := range slices.Chunk(paths, treeChunk) {
			nodes, err := r.readAll(ctx, s, chunk)
			if err != nil {
				return nil, err
			}
			for _, n := range nodes {
				if n.Stat.EphemeralOwner == 0 { // others have no children
					level = append(level, n.Path)
				}
			}
			all = append(all, nodes...)
			if r.Progress != nil {
				r.Progress(len(all))
			}
		}
	}
	slices.SortFunc(all, func(a, b Node) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// listAll gives the paths of the children of many nodes, in the order of these.
func (r TreeReading) listAll(ctx context.Context, s Store, parents []string) ([]string, error) {
	lists, errs := make([][]string, len(parents)), make([]error, len(parents))
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(treeReaders)
	for i, parent := range parents {
		calls.Go(func() error {
			var err error
			lists[i], err = s.Children(callCtx, parent)
			if err != nil && r.ends(err) {
				return fmt.Errorf("list %s: %w", parent, err)
			}
			errs[i] = err
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	var paths []string
	for i, names := range lists {
		r.refuse(parents[i], errs[i])
		for _, name := range names {
			path := strings.TrimSuffix(parents[i], "/") + "/" + name
			if r.Skip == nil || !r.Skip(path) {
				paths = append(paths, path)
			}
		}
	}
	return paths, nil
}

// readAll reads the nodes that are there.
func (r TreeReading) readAll(ctx context.Context, s Store, paths []string) ([]Node, error) {
	reads, err := s.GetMany(ctx, paths)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, read := range reads {
		switch {
		case read.Err == nil:
			nodes = append(nodes, read.Node)
		case r.ends(read.Err):
			return nil, fmt.Errorf("read %s: %w", read.Node.Path, read.Err)
		default:
			r.refuse(read.Node.Path, read.Err)
		}
	}
	return nodes, nil
}

// ends reports whether an error about one node ends the reading.
func (r TreeReading) ends(err error) bool {
	if errors.Is(err, ErrNoNode) {
		return false
	}
	for _, general := range []error{ErrUnavailable, ErrSessionExpired, ErrClosed, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, general) {
			return true
		}
	}
	return r.Refused == nil
}

func (r TreeReading) refuse(path string, err error) {
	if err != nil && !errors.Is(err, ErrNoNode) {
		r.Refused(path, err)
	}
}
