package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"klamm/internal/coord"
)

// copyChunk is how many nodes one batch creates.
const copyChunk = 500

// ConflictError reports that the target holds something else than the source.
type ConflictError struct {
	// Paths are nodes that the source has not, or has with other data; the first few.
	Paths []string
	Count int
}

// Error names some of the nodes.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("the target holds %d nodes that the source has not or has otherwise, such as %v", e.Count, e.Paths)
}

const conflictsNamed = 3

// Missing compares a target with the source: what of the source it lacks, in order of paths. A *ConflictError when the
// target holds anything that the source does not. So a copy that broke off can go on.
func Missing(source, target Tree) ([]coord.Node, error) {
	want := make(map[string]coord.Node, len(source.Nodes))
	for _, n := range source.Nodes {
		want[n.Path] = n
	}
	conflict := &ConflictError{}
	have := map[string]bool{}
	for _, n := range target.Nodes {
		w, ok := want[n.Path]
		if !ok || !bytes.Equal(w.Data, n.Data) || n.Path == coord.BrokerSequencePath && n.Stat.Version > w.Stat.Version {
			if conflict.Count++; conflict.Count <= conflictsNamed {
				conflict.Paths = append(conflict.Paths, n.Path)
			}
		}
		have[n.Path] = true
	}
	if conflict.Count > 0 {
		return nil, conflict
	}
	return slices.DeleteFunc(slices.Clone(source.Nodes), func(n coord.Node) bool { return have[n.Path] }), nil
}

// Copy makes the target hold what the source tree does, and checks that it does. It may be called again after a failure.
// progress is told the nodes that are written.
func Copy(ctx context.Context, source Tree, to coord.Store, progress func(nodes int)) (written int, err error) {
	before, err := Read(ctx, to, nil)
	if err != nil {
		return 0, fmt.Errorf("target: %w", err)
	}
	missing, err := Missing(source, before)
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(missing, copyChunk) {
		if err := create(ctx, to, chunk); err != nil {
			return written, err
		}
		if written += len(chunk); progress != nil {
			progress(written)
		}
	}
	if err := carrySequence(ctx, source, to); err != nil {
		return written, fmt.Errorf("carry the version of %s over: %w", coord.BrokerSequencePath, err)
	}
	after, err := Read(ctx, to, nil)
	if err != nil {
		return written, fmt.Errorf("read the target back: %w", err)
	}
	return written, Same(source, after)
}

func create(ctx context.Context, to coord.Store, nodes []coord.Node) error {
	ops := make([]coord.Op, len(nodes))
	for i, n := range nodes {
		ops[i] = coord.Create(n.Path, n.Data)
	}
	results, err := to.Batch(ctx, nil, ops)
	if err != nil {
		return err
	}
	for i, r := range results {
		if r.Err != nil && !errors.Is(r.Err, coord.ErrNodeExists) { // a retry of the engine; Same looks at its data
			return fmt.Errorf("create %s: %w", nodes[i].Path, r.Err)
		}
	}
	return nil
}

// carrySequence writes /brokers/seqid until its version is that of the source: ids that were handed out are not again.
func carrySequence(ctx context.Context, source Tree, to coord.Store) error {
	at := slices.IndexFunc(source.Nodes, func(n coord.Node) bool { return n.Path == coord.BrokerSequencePath })
	if at < 0 {
		return nil
	}
	want := source.Nodes[at]
	now, err := to.Get(ctx, want.Path)
	if err != nil {
		return err
	}
	for v := now.Stat.Version; v < want.Stat.Version; v++ {
		if _, err := to.Multi(ctx, coord.Set(want.Path, want.Data, v)); err != nil {
			return err
		}
	}
	return nil
}

// Same compares two trees by their checksums, and says what differs.
func Same(source, target Tree) error {
	if source.Checksum() == target.Checksum() {
		return nil
	}
	missing, err := Missing(source, target)
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		return fmt.Errorf("the target lacks %d nodes, such as %s", len(missing), missing[0].Path)
	}
	return fmt.Errorf("the version of %s differs", coord.BrokerSequencePath)
}
