package node

import (
	"context"
	"fmt"

	"klamm/internal/security/authorizer"
)

// loadAccessRules builds the authorizer, if one is configured, and reads all rules: none of a broker's requests may be
// decided without them.
func (b *broker) loadAccessRules(ctx context.Context) error {
	c := b.cfg.Authorizer
	if !c.Enabled {
		return nil
	}
	b.authorizer = authorizer.New(authorizer.Options{Store: b.store, Log: b.log, SuperUsers: c.SuperUsers, AllowEveryoneIfNoACL: c.AllowEveryoneIfNoACL})
	if err := settle(ctx, func() error { return b.authorizer.EnsureRoots(ctx) }); err != nil {
		return err
	}
	if err := settle(ctx, func() error { return b.authorizer.Load(ctx) }); err != nil {
		return fmt.Errorf("load access rules: %w", err)
	}
	return nil
}
