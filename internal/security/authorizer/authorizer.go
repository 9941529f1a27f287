// Package authorizer keeps the access rules of a cluster in the coordination store and in memory, and decides by them
// (Kafka: AclAuthorizer.scala). Nodes and change notifications are Kafka's, byte for byte, on every engine.
//
// Decisions read an immutable picture behind an atomic pointer: no lock, no allocation. A change made here counts here
// as soon as it was acknowledged, elsewhere when the notification has arrived.
package authorizer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"klamm/internal/coord"
	"klamm/internal/coord/notify"
	"klamm/internal/security/acl"
)

// Options is what an Authorizer is built of.
type Options struct {
	Store                coord.Store
	Log                  *slog.Logger
	SuperUsers           []string // principals that may do everything, whatever the rules say
	AllowEveryoneIfNoACL bool     // allow.everyone.if.no.acl.found: what no pattern applies to is open
}

// Authorizer decides what clients may do. It is safe for concurrent use.
type Authorizer struct {
	store      coord.Store
	log        *slog.Logger
	superUsers map[string]bool
	openElse   bool
	rules      atomic.Pointer[acl.Rules]
	// refreshing holds a token while nodes are read and applied, so that what was read earlier never replaces what was
	// read later. It is a channel because it is held during IO.
	refreshing chan struct{}
}

// New builds an authorizer that knows no rules yet: Load reads them.
func New(o Options) *Authorizer {
	a := &Authorizer{store: o.Store, log: o.Log, superUsers: map[string]bool{}, openElse: o.AllowEveryoneIfNoACL, refreshing: make(chan struct{}, 1)}
	for _, u := range o.SuperUsers {
		a.superUsers[u] = true
	}
	a.rules.Store(&acl.Rules{})
	return a
}

// Allows decides whether a principal at a host may do an operation to a resource. It allocates nothing.
func (a *Authorizer) Allows(principal, host string, op acl.Operation, t acl.ResourceType, name string) bool {
	if a.superUsers[principal] {
		return true
	}
	verdict := a.rules.Load().Decide(principal, host, op, t, name)
	return verdict == acl.Allowed || verdict == acl.NoRules && a.openElse
}

// AllowsAny decides whether a principal may do an operation to at least one resource of a type.
func (a *Authorizer) AllowsAny(principal, host string, op acl.Operation, t acl.ResourceType) bool {
	if a.superUsers[principal] {
		return true
	}
	verdict := a.rules.Load().DecideAny(principal, host, op, t)
	return verdict == acl.Allowed || verdict == acl.NoRules && a.openElse
}

// Find lists the rules that a filter matches.
func (a *Authorizer) Find(f acl.Filter) []acl.Binding { return a.rules.Load().Find(f) }

// PatternsNaming counts the rules that name a resource literally.
func (a *Authorizer) PatternsNaming(t acl.ResourceType, name string) int {
	return len(a.rules.Load().Entries(acl.Pattern{Type: t, Name: name, Kind: acl.Literal}))
}

// Run follows the changes that others make until the context ends, which is no error, or the store is closed.
func (a *Authorizer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	roots := map[string]func([]byte) (coord.ACLChange, error){
		coord.ACLChangesPath: coord.DecodeACLChange, coord.ACLExtendedChangesPath: coord.DecodeExtendedACLChange,
	}
	ended := make(chan error, len(roots))
	for root, decode := range roots {
		c := &notify.Consumer{Root: root, Log: a.log, OnStart: a.Load,
			Handle: func(ctx context.Context, data []byte) error {
				change, err := decode(data)
				if err != nil {
					return err
				}
				return a.follow(ctx, change)
			}}
		go func() { ended <- c.Run(ctx, a.store) }()
	}
	var errs []error
	for range roots {
		errs = append(errs, <-ended)
		cancel() // one that ends takes the other along
	}
	return errors.Join(errs...)
}

func (a *Authorizer) follow(ctx context.Context, change coord.ACLChange) error {
	t, err := acl.ParseResourceType(change.ResourceType)
	if err != nil {
		return fmt.Errorf("acl change: %w", err)
	}
	kind, err := acl.ParsePatternType(change.PatternType)
	if err != nil {
		return fmt.Errorf("acl change: %w", err)
	}
	return a.refresh(ctx, []acl.Pattern{{Type: t, Name: change.Name, Kind: kind}})
}
