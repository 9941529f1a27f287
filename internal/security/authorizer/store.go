package authorizer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"klamm/internal/coord"
	"klamm/internal/security/acl"
)

func path(p acl.Pattern) string {
	return coord.ACLResourcePath(p.Kind.String(), p.Type.String(), p.Name)
}

// EnsureRoots creates the parents of rules and notifications where they are missing, as Kafka's authorizer does at start.
func (a *Authorizer) EnsureRoots(ctx context.Context) error {
	paths := []string{coord.ACLPath}
	for _, t := range acl.ResourceTypes() {
		paths = append(paths, coord.ACLPath+"/"+t.String())
	}
	prefixed := coord.ACLExtendedPath + "/" + strings.ToLower(acl.Prefixed.String())
	paths = append(paths, coord.ACLExtendedPath, prefixed)
	for _, t := range acl.ResourceTypes() {
		paths = append(paths, prefixed+"/"+t.String())
	}
	paths = append(paths, coord.ACLChangesPath, coord.ACLExtendedChangesPath)
	ops := make([]coord.Op, len(paths))
	for i, p := range paths {
		ops[i] = coord.Create(p, nil)
	}
	results, err := a.store.Batch(ctx, nil, ops)
	if err != nil {
		return fmt.Errorf("create the nodes of access rules: %w", err)
	}
	for i, r := range results {
		if r.Err != nil && !errors.Is(r.Err, coord.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", paths[i], r.Err)
		}
	}
	return nil
}

// Load reads all rules and drops what is there no more.
func (a *Authorizer) Load(ctx context.Context) error {
	patterns := a.rules.Load().Patterns()
	known := make(map[acl.Pattern]bool, len(patterns))
	for _, p := range patterns {
		known[p] = true
	}
	add := func(kind acl.PatternType, root string) error {
		types, err := a.children(ctx, root)
		if err != nil {
			return err
		}
		for _, typeName := range types {
			t, err := acl.ParseResourceType(typeName)
			if err != nil {
				a.log.Warn("rules of an unknown resource type are not used", "path", root+"/"+typeName)
				continue
			}
			names, err := a.children(ctx, root+"/"+typeName)
			if err != nil {
				return err
			}
			for _, name := range names {
				if p := (acl.Pattern{Type: t, Name: name, Kind: kind}); !known[p] {
					patterns = append(patterns, p)
				}
			}
		}
		return nil
	}
	if err := add(acl.Literal, coord.ACLPath); err != nil {
		return err
	}
	kinds, err := a.children(ctx, coord.ACLExtendedPath)
	if err != nil {
		return err
	}
	for _, name := range kinds {
		kind, err := acl.ParsePatternType(name)
		if err != nil || kind == acl.Literal {
			a.log.Warn("rules of an unknown pattern type are not used", "path", coord.ACLExtendedPath+"/"+name)
			continue
		}
		if err := add(kind, coord.ACLExtendedPath+"/"+name); err != nil {
			return err
		}
	}
	return a.refresh(ctx, patterns)
}

func (a *Authorizer) children(ctx context.Context, path string) ([]string, error) {
	names, err := a.store.Children(ctx, path)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return nil, fmt.Errorf("list access rules: %w", err)
	}
	return names, nil
}

// refresh reads the patterns' nodes and applies them. A node that cannot be read leaves what was known of it.
func (a *Authorizer) refresh(ctx context.Context, patterns []acl.Pattern) error {
	if len(patterns) == 0 {
		return nil
	}
	select {
	case a.refreshing <- struct{}{}:
		defer func() { <-a.refreshing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	paths := make([]string, len(patterns))
	for i, p := range patterns {
		paths[i] = path(p)
	}
	nodes, err := a.store.GetMany(ctx, paths)
	if err != nil {
		return fmt.Errorf("read access rules: %w", err)
	}
	changed := make(map[acl.Pattern][]acl.Entry, len(patterns))
	for i, n := range nodes {
		if errors.Is(n.Err, coord.ErrNoNode) {
			changed[patterns[i]] = nil
			continue
		}
		entries, err := entriesOf(n)
		if err != nil {
			a.log.Error("access rules cannot be read: what was known of them before stays in force", "path", paths[i], "err", err)
			continue
		}
		changed[patterns[i]] = entries
	}
	a.rules.Store(a.rules.Load().With(changed))
	return nil
}

func entriesOf(n coord.ReadResult) ([]acl.Entry, error) {
	if n.Err != nil {
		return nil, n.Err
	}
	return decode(n.Node.Data)
}

func decode(data []byte) ([]acl.Entry, error) {
	stored, err := coord.DecodeACLs(data)
	if err != nil {
		return nil, err
	}
	out := make([]acl.Entry, len(stored))
	for i, e := range stored {
		op, err := acl.ParseOperation(e.Operation)
		if err != nil {
			return nil, err
		}
		permission, err := acl.ParsePermission(e.PermissionType)
		if err != nil {
			return nil, err
		}
		out[i] = acl.Entry{Principal: e.Principal, Host: e.Host, Operation: op, Permission: permission}
	}
	return out, nil
}

func encode(entries []acl.Entry) []byte {
	out := make([]coord.ACLEntry, len(entries))
	for i, e := range entries {
		out[i] = coord.ACLEntry{Principal: e.Principal, PermissionType: e.Permission.String(), Host: e.Host, Operation: e.Operation.String()}
	}
	return coord.EncodeACLs(out)
}

// announcement is the notification that a pattern's rules changed. Literal ones go where every release looks.
func announcement(p acl.Pattern) coord.Op {
	c := coord.ACLChange{ResourceType: p.Type.Enum(), Name: p.Name, PatternType: p.Kind.String()}
	if p.Kind == acl.Literal {
		return coord.CreateSequential(coord.ACLChangePrefix, coord.EncodeACLChange(c))
	}
	return coord.CreateSequential(coord.ACLExtendedChangePrefix, coord.EncodeExtendedACLChange(c))
}
