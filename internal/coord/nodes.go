package coord

import (
	"context"
	"errors"
	"fmt"

	"klamm/internal/cluster"
)

// CreateRecursive creates a persistent node and those of its parents that are missing, which get no data.
// ErrNodeExists when the node itself exists. Parents stay when the creation fails.
func CreateRecursive(ctx context.Context, s Store, path string, data []byte) error {
	_, err := s.Multi(ctx, Create(path, data))
	if !errors.Is(err, ErrNoNode) {
		return err
	}
	// Independent creations: those of existing parents fail alone.
	var ops []Op
	for p := ParentPath(path); p != "/"; p = ParentPath(p) {
		ops = append(ops, Create(p, nil))
	}
	for i, j := 0, len(ops)-1; i < j; i, j = i+1, j-1 {
		ops[i], ops[j] = ops[j], ops[i]
	}
	ops = append(ops, Create(path, data))
	results, err := s.Batch(ctx, nil, ops)
	if err != nil {
		return err
	}
	return results[len(results)-1].Err
}

// EnsurePath creates a persistent node with its parents. An existing node stays as it is.
func EnsurePath(ctx context.Context, s Store, path string, data []byte) error {
	if err := CreateRecursive(ctx, s, path, data); err != nil && !errors.Is(err, ErrNodeExists) {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// EnsurePersistentPaths creates PersistentPaths and OwnPaths where they are missing, in one batch.
func EnsurePersistentPaths(ctx context.Context, s Store) error {
	paths := append(PersistentPaths(), OwnPaths()...)
	ops := make([]Op, len(paths))
	for i, p := range paths {
		ops[i] = Create(p, nil)
	}
	results, err := s.Batch(ctx, nil, ops)
	if err != nil {
		return fmt.Errorf("create persistent nodes: %w", err)
	}
	for i, r := range results {
		if r.Err != nil && !errors.Is(r.Err, ErrNodeExists) {
			return fmt.Errorf("create %s: %w", paths[i], r.Err)
		}
	}
	return nil
}

// ClusterID reads the cluster's id. The first broker of a cluster creates it.
func ClusterID(ctx context.Context, s Store) (string, error) {
	for {
		node, err := s.Get(ctx, ClusterIDPath)
		if err == nil {
			return DecodeClusterID(node.Data)
		}
		if errors.Is(err, ErrNoNode) {
			err = CreateRecursive(ctx, s, ClusterIDPath, EncodeClusterID(cluster.NewTopicID().String()))
		}
		// What was created is read back: it may be another broker's, or of a try whose answer was lost.
		if err != nil && !errors.Is(err, ErrNodeExists) && !errors.Is(err, ErrUnknownOutcome) {
			return "", fmt.Errorf("cluster id: %w", err)
		}
	}
}
