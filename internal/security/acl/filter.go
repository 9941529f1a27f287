package acl

import "fmt"

// Filter selects rules. Empty strings stand for anything.
type Filter struct {
	Type       ResourceType // AnyResource for all
	Name       string
	Kind       PatternType // AnyPattern for all, Match for the patterns that apply to the resource Name
	Principal  string
	Host       string
	Operation  Operation  // AnyOperation for all
	Permission Permission // AnyPermission for all
}

// Fault says what is wrong with a filter, "" when nothing is.
func (f *Filter) Fault() string {
	switch {
	case f.Type < AnyResource || f.Type > User:
		return fmt.Sprintf("resource type %d is unknown", f.Type)
	case f.Kind < AnyPattern || f.Kind > Prefixed:
		return fmt.Sprintf("pattern type %d is unknown", f.Kind)
	case f.Operation < AnyOperation || f.Operation > DescribeTokens:
		return fmt.Sprintf("operation %d is unknown", f.Operation)
	case f.Permission < AnyPermission || f.Permission > Allow:
		return fmt.Sprintf("permission type %d is unknown", f.Permission)
	}
	return ""
}

// Matches reports whether the filter selects a rule.
func (f *Filter) Matches(b Binding) bool {
	return f.matchesPattern(b.Pattern) && f.matchesEntry(b.Entry)
}

// matchesPattern follows Kafka's ResourcePatternFilter.matches.
func (f *Filter) matchesPattern(p Pattern) bool {
	switch {
	case f.Type != AnyResource && f.Type != p.Type:
		return false
	case f.Kind != AnyPattern && f.Kind != Match && f.Kind != p.Kind:
		return false
	case f.Name == "":
		return true
	case f.Kind == AnyPattern || f.Kind == p.Kind:
		return f.Name == p.Name
	case p.Kind == Literal:
		return f.Name == p.Name || p.Name == Wildcard
	}
	return len(f.Name) >= len(p.Name) && f.Name[:len(p.Name)] == p.Name
}

func (f *Filter) matchesEntry(e Entry) bool {
	return (f.Principal == "" || f.Principal == e.Principal) && (f.Host == "" || f.Host == e.Host) &&
		(f.Operation == AnyOperation || f.Operation == e.Operation) && (f.Permission == AnyPermission || f.Permission == e.Permission)
}
