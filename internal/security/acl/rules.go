package acl

import (
	"cmp"
	"maps"
	"slices"
)

// Rules is every rule of a cluster, indexed for decisions. It is immutable; the zero value has none.
type Rules struct {
	entries map[Pattern][]Entry
	index   map[ruleKey][]rule
	// lengths are the distinct lengths, in bytes, of the prefixed patterns' names of each type, ascending.
	lengths [resourceTypesEnd][]int
}

type ruleKey struct {
	pattern   Pattern
	principal string
}

// rule is an Entry as decisions need it.
type rule struct {
	host string // canonical
	op   Operation
	deny bool
}

// With gives rules in which the patterns have just the given entries; a pattern without entries is dropped.
func (r *Rules) With(changed map[Pattern][]Entry) *Rules {
	next := &Rules{entries: maps.Clone(r.entries), index: maps.Clone(r.index), lengths: r.lengths}
	if next.entries == nil {
		next.entries, next.index = map[Pattern][]Entry{}, map[ruleKey][]rule{}
	}
	prefixesChanged := false
	for p, entries := range changed {
		for _, e := range next.entries[p] {
			delete(next.index, ruleKey{p, e.Principal})
		}
		prefixesChanged = prefixesChanged || p.Kind == Prefixed
		if len(entries) == 0 {
			delete(next.entries, p)
			continue
		}
		next.entries[p] = slices.Clone(entries)
		for _, e := range entries {
			k := ruleKey{p, e.Principal}
			next.index[k] = append(next.index[k], rule{canonicalHost(e.Host), e.Operation, e.Permission == Deny})
		}
	}
	if prefixesChanged {
		next.indexPrefixes()
	}
	return next
}

func (r *Rules) indexPrefixes() {
	r.lengths = [resourceTypesEnd][]int{}
	for p := range r.entries {
		if p.Kind == Prefixed {
			r.lengths[p.Type] = append(r.lengths[p.Type], len(p.Name))
		}
	}
	for t := range r.lengths {
		slices.Sort(r.lengths[t])
		r.lengths[t] = slices.Compact(r.lengths[t])
	}
}

// Entries are the rules of one pattern; the caller must not change them.
func (r *Rules) Entries(p Pattern) []Entry { return r.entries[p] }

// Patterns lists the patterns that have rules, in no order.
func (r *Rules) Patterns() []Pattern { return slices.Collect(maps.Keys(r.entries)) }

// Len counts the patterns that have rules.
func (r *Rules) Len() int { return len(r.entries) }

// Verdict is what the rules say of an operation.
type Verdict uint8

// The verdicts. NoRules means that no pattern applies to the resource at all.
const (
	NoRules Verdict = iota
	Denied
	Allowed
)

// Decide says whether a principal at a host may do an operation to a resource. A rule that denies wins over all that
// allow; DESCRIBE and DESCRIBE_CONFIGS are implied by what needs them. It allocates nothing.
func (r *Rules) Decide(principal, host string, op Operation, t ResourceType, name string) Verdict {
	d := decision{rules: r, principal: principal, host: host, op: op}
	d.look(Pattern{t, name, Literal})
	if name != Wildcard {
		d.look(Pattern{t, Wildcard, Literal})
	}
	for _, n := range r.lengths[t] {
		if n > len(name) {
			break
		}
		d.look(Pattern{t, name[:n], Prefixed})
	}
	switch {
	case d.denied:
		return Denied
	case d.allowed:
		return Allowed
	case d.found:
		return Denied
	}
	return NoRules
}

type decision struct {
	rules                  *Rules
	principal, host        string
	op                     Operation
	found, allowed, denied bool
}

func (d *decision) look(p Pattern) {
	if _, ok := d.rules.entries[p]; !ok {
		return
	}
	d.found = true
	d.apply(d.rules.index[ruleKey{p, d.principal}])
	if d.principal != EveryUser {
		d.apply(d.rules.index[ruleKey{p, EveryUser}])
	}
}

func (d *decision) apply(rules []rule) {
	for i := range rules {
		switch x := &rules[i]; {
		case x.host != Wildcard && x.host != d.host:
		case x.deny:
			d.denied = d.denied || x.op == d.op || x.op == All
		default:
			d.allowed = d.allowed || implies(x.op, d.op)
		}
	}
}

// implies tells whether a rule that allows one operation allows another (Kafka: AclAuthorizer.matchingAclExists; KIP-11).
func implies(allowed, asked Operation) bool {
	if allowed == asked || allowed == All {
		return true
	}
	switch asked {
	case Describe:
		return allowed == Read || allowed == Write || allowed == Delete || allowed == Alter
	case DescribeConfigs:
		return allowed == AlterConfigs
	}
	return false
}

// DecideAny says whether a principal may do an operation to at least one resource of a type, whatever its name (Kafka:
// AclAuthorizer.authorizeByResourceType; KIP-679). NoRules means that no rule allows or denies it altogether.
func (r *Rules) DecideAny(principal, host string, op Operation, t ResourceType) Verdict {
	applies := func(p Pattern, permission Permission) bool {
		for _, who := range [...]string{principal, EveryUser} {
			for _, x := range r.index[ruleKey{p, who}] {
				if (x.host == Wildcard || x.host == host) && (x.op == op || x.op == All) && x.deny == (permission == Deny) {
					return true
				}
			}
		}
		return false
	}
	if applies(Pattern{t, Wildcard, Literal}, Deny) {
		return Denied
	}
	for p := range r.entries {
		if p.Type == t && applies(p, Allow) && !r.dominated(p, applies) {
			return Allowed
		}
	}
	return NoRules
}

// dominated reports whether a pattern that allows is covered by one that denies.
func (r *Rules) dominated(p Pattern, applies func(Pattern, Permission) bool) bool {
	if p.Kind == Literal && applies(p, Deny) {
		return true
	}
	if p == (Pattern{p.Type, Wildcard, Literal}) {
		return false // only the same wildcard covers it
	}
	for _, n := range r.lengths[p.Type] {
		if n > len(p.Name) {
			break
		}
		if applies(Pattern{p.Type, p.Name[:n], Prefixed}, Deny) {
			return true
		}
	}
	return false
}

// Find lists the rules that a filter matches, in order of pattern and as they stand within it.
func (r *Rules) Find(f Filter) []Binding {
	var patterns []Pattern
	for p := range r.entries {
		if f.matchesPattern(p) {
			patterns = append(patterns, p)
		}
	}
	slices.SortFunc(patterns, comparePatterns)
	var out []Binding
	for _, p := range patterns {
		for _, e := range r.entries[p] {
			if f.matchesEntry(e) {
				out = append(out, Binding{p, e})
			}
		}
	}
	return out
}

func comparePatterns(a, b Pattern) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}
