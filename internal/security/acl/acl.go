// Package acl is the pure core of authorization: rules on resource patterns, filters over them, and the decision whether
// a client may do an operation (Kafka: AclAuthorizer.scala, AclEntry, ResourcePatternFilter.java; KIP-11, KIP-290).
//
// It does no IO. Rules is immutable: a change makes a new one, so readers need no lock. Numbers of types and operations
// are the protocol's.
package acl

import (
	"fmt"
	"net/netip"
	"strings"
)

// ResourceType is the kind of a resource, by its number in the protocol.
type ResourceType int8

// The resource types. AnyResource is for filters only.
const (
	AnyResource     ResourceType = 1
	Topic           ResourceType = 2
	Group           ResourceType = 3
	Cluster         ResourceType = 4
	TransactionalID ResourceType = 5
	DelegationToken ResourceType = 6
	User            ResourceType = 7

	resourceTypesEnd = 8
)

// ClusterName is the name of the one resource of type Cluster.
const ClusterName = "kafka-cluster"

// Wildcard as the name of a literal pattern stands for every resource of the type, as a host for every host.
const Wildcard = "*"

// EveryUser is the principal that stands for all.
const EveryUser = "User:*"

// PatternType says how a pattern's name is compared with a resource's.
type PatternType int8

// The pattern types. AnyPattern and Match are for filters only.
const (
	AnyPattern PatternType = 1
	Match      PatternType = 2 // in filters: all patterns that apply to the resource of the given name
	Literal    PatternType = 3
	Prefixed   PatternType = 4
)

// Operation is what a client does to a resource, by its number in the protocol.
type Operation int8

// The operations. AnyOperation is for filters only, All in rules only.
const (
	AnyOperation    Operation = 1
	All             Operation = 2
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
	IdempotentWrite Operation = 12
	CreateTokens    Operation = 13
	DescribeTokens  Operation = 14

	operationsEnd = 15
)

// Permission says whether a rule allows or denies.
type Permission int8

// The permissions. AnyPermission is for filters only.
const (
	AnyPermission Permission = 1
	Deny          Permission = 2
	Allow         Permission = 3
)

// Pattern names the resources that a rule is about.
type Pattern struct {
	Type ResourceType
	Name string
	Kind PatternType // Literal or Prefixed
}

// Entry is one rule of a pattern.
type Entry struct {
	Principal  string // "Type:name"
	Host       string // an address, or Wildcard
	Operation  Operation
	Permission Permission
}

// Binding is a rule with its pattern.
type Binding struct {
	Pattern
	Entry
}

// Names as znodes and messages have them: CamelCase.
var (
	resourceNames = [resourceTypesEnd]string{"Unknown", "Any", "Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"}
	patternNames  = [5]string{"UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"}
	opNames       = [operationsEnd]string{"Unknown", "Any", "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction",
		"DescribeConfigs", "AlterConfigs", "IdempotentWrite", "CreateTokens", "DescribeTokens"}
	permissionNames = [4]string{"Unknown", "Any", "Deny", "Allow"}
	// resourceEnums is how notifications spell the types.
	resourceEnums = [resourceTypesEnd]string{"UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"}
)

func nameOf[T ~int8](names []string, v T) string {
	if v < 0 || int(v) >= len(names) {
		return names[0]
	}
	return names[v]
}

func parseName[T ~int8](names []string, what, s string) (T, error) {
	for i := 2; i < len(names); i++ { // neither unknown nor any
		if strings.EqualFold(names[i], s) {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("%q is no %s", s, what)
}

// String gives the name that znodes have.
func (t ResourceType) String() string { return nameOf(resourceNames[:], t) }

// Enum gives the name that change notifications have.
func (t ResourceType) Enum() string { return nameOf(resourceEnums[:], t) }

// String gives the name in capitals.
func (k PatternType) String() string { return nameOf(patternNames[:], k) }

// String gives the name that znodes have.
func (o Operation) String() string { return nameOf(opNames[:], o) }

// String gives the name that znodes have.
func (p Permission) String() string { return nameOf(permissionNames[:], p) }

// String gives "Topic:LITERAL:name", as Kafka's log does.
func (p Pattern) String() string { return p.Type.String() + ":" + p.Kind.String() + ":" + p.Name }

// ParseResourceType reads either spelling of a type.
func ParseResourceType(s string) (ResourceType, error) {
	if t, err := parseName[ResourceType](resourceEnums[:], "resource type", s); err == nil {
		return t, nil
	}
	return parseName[ResourceType](resourceNames[:], "resource type", s)
}

// ParsePatternType reads the name of a pattern type that rules can have.
func ParsePatternType(s string) (PatternType, error) {
	k, err := parseName[PatternType](patternNames[:], "pattern type", s)
	if err == nil && k == Match {
		err = fmt.Errorf("%q is no pattern type of a rule", s)
	}
	return k, err
}

// ParseOperation reads an operation's name.
func ParseOperation(s string) (Operation, error) {
	return parseName[Operation](opNames[:], "operation", s)
}

// ParsePermission reads a permission's name.
func ParsePermission(s string) (Permission, error) {
	return parseName[Permission](permissionNames[:], "permission", s)
}

// ResourceTypes lists the types in the order in which Kafka's authorizer makes their nodes.
func ResourceTypes() []ResourceType {
	return []ResourceType{User, TransactionalID, DelegationToken, Cluster, Topic, Group}
}

// Fault says what is wrong with a rule to create, "" when nothing is (Kafka: AclApis.handleCreateAcls,
// AclAuthorizer.createAcls, CreateAclsRequest.validate).
func (b *Binding) Fault() string {
	switch {
	case b.Type < Topic || b.Type > User:
		return fmt.Sprintf("resource type %d is none that a rule can have", b.Type)
	case b.Kind != Literal && b.Kind != Prefixed:
		return fmt.Sprintf("pattern type %s is none that a rule can have: it must be LITERAL or PREFIXED", b.Kind)
	case b.Operation < All || b.Operation > DescribeTokens:
		return fmt.Sprintf("operation %d is none that a rule can have", b.Operation)
	case b.Permission != Allow && b.Permission != Deny:
		return fmt.Sprintf("permission type %d is none that a rule can have", b.Permission)
	case b.Type == Cluster && b.Name != ClusterName:
		return "The only valid name for the CLUSTER resource is " + ClusterName
	case b.Name == "":
		return "Invalid empty resource name"
	case strings.Contains(b.Name, "/") && b.Name != Wildcard:
		return fmt.Sprintf("resource name %q must not have a slash: its rules would be kept at a path of that name, and Kafka in ZooKeeper mode refuses it too. A prefixed rule for what stands before the slash covers it", b.Name)
	case b.Host == "":
		return "host must be an address or *"
	}
	kind, name, ok := strings.Cut(b.Principal, ":")
	if !ok || kind == "" || name == "" {
		return fmt.Sprintf("Could not parse principal from `%s` (no colon is present separating the principal type from the principal name)", b.Principal)
	}
	return ""
}

// canonicalHost makes spellings of one address equal; what is no address stays.
func canonicalHost(host string) string {
	if host == Wildcard {
		return host
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone("").String()
	}
	return host
}
