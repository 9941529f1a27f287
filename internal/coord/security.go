package coord

import (
	"fmt"
	"strings"
)

// ACLEntry is one rule of a resource. Types and operations have their CamelCase names ("Allow", "IdempotentWrite").
type ACLEntry struct {
	Principal      string `json:"principal"`
	PermissionType string `json:"permissionType"`
	Host           string `json:"host"`
	Operation      string `json:"operation"`
}

// EncodeACLs writes the node of a resource (Kafka: AclEntry.toJsonCompatibleMap).
func EncodeACLs(entries []ACLEntry) []byte {
	b := []byte(`{"acls":[`)
	for i, e := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = appendString(appendKey(b, "principal"), e.Principal)
		b = appendString(appendKey(b, "permissionType"), e.PermissionType)
		b = appendString(appendKey(b, "host"), e.Host)
		b = appendString(appendKey(b, "operation"), e.Operation)
		b = append(b, '}')
	}
	return append(b, `],"version":1}`...)
}

// DecodeACLs reads the node of a resource; an empty node has no rules.
func DecodeACLs(data []byte) ([]ACLEntry, error) {
	if len(data) == 0 {
		return nil, nil
	}
	var j struct {
		Version int32      `json:"version"`
		ACLs    []ACLEntry `json:"acls"`
	}
	if err := decodeJSON("acls", data, &j); err != nil {
		return nil, err
	}
	if j.Version != 1 {
		return nil, fmt.Errorf("decode acls: unsupported version %d", j.Version)
	}
	return j.ACLs, nil
}

// ACLChange names the resource whose rules changed. The type has its enum spelling ("TOPIC"); PatternType is
// "LITERAL" for changes under the classic root.
type ACLChange struct{ ResourceType, Name, PatternType string }

// EncodeACLChange writes a notification for the classic root, as text.
func EncodeACLChange(c ACLChange) []byte { return []byte(c.ResourceType + ":" + c.Name) }

// DecodeACLChange reads a notification of the classic root.
func DecodeACLChange(data []byte) (ACLChange, error) {
	t, name, ok := strings.Cut(string(data), ":")
	if !ok || t == "" || name == "" {
		return ACLChange{}, fmt.Errorf("decode acl change: want TYPE:name, not %q", data)
	}
	return ACLChange{strings.ToUpper(t), name, "LITERAL"}, nil
}

// EncodeExtendedACLChange writes a notification for the root of non-literal patterns.
func EncodeExtendedACLChange(c ACLChange) []byte {
	b := appendString([]byte(`{"version":1,"resourceType":`), c.ResourceType)
	b = appendString(append(b, `,"name":`...), c.Name)
	b = appendString(append(b, `,"patternType":`...), c.PatternType)
	return append(b, '}')
}

// DecodeExtendedACLChange reads a notification of the root of non-literal patterns.
func DecodeExtendedACLChange(data []byte) (ACLChange, error) {
	var j struct {
		Version      int32  `json:"version"`
		ResourceType string `json:"resourceType"`
		Name         string `json:"name"`
		PatternType  string `json:"patternType"`
	}
	if err := decodeJSON("acl change", data, &j); err != nil {
		return ACLChange{}, err
	}
	if j.Version != 1 || j.ResourceType == "" || j.Name == "" || j.PatternType == "" {
		return ACLChange{}, fmt.Errorf("decode acl change: want version 1, resourceType, name and patternType in %q", data)
	}
	return ACLChange{strings.ToUpper(j.ResourceType), j.Name, strings.ToUpper(j.PatternType)}, nil
}

// DelegationToken is what a token's node holds. Principals are "Type:name"; times are milliseconds since 1970.
// The HMAC is never stored.
type DelegationToken struct {
	TokenID           string
	Owner             string
	Requester         string // the owner in nodes before version 3
	Renewers          []string
	IssueTimestampMs  int64
	MaxTimestampMs    int64
	ExpiryTimestampMs int64
}

// EncodeDelegationToken writes a token's node, version 3.
func EncodeDelegationToken(t DelegationToken) []byte {
	renewers := make([]string, len(t.Renewers))
	for i, r := range t.Renewers {
		renewers[i] = SanitizeEntity(r)
	}
	b := appendInt([]byte(`{"issueTimestamp":`), t.IssueTimestampMs)
	b = appendStrings(append(b, `,"renewers":`...), renewers)
	b = appendString(append(b, `,"tokenRequester":`...), SanitizeEntity(t.Requester))
	b = appendString(append(b, `,"tokenId":`...), t.TokenID)
	b = appendString(append(b, `,"owner":`...), SanitizeEntity(t.Owner))
	b = appendInt(append(b, `,"expiryTimestamp":`...), t.ExpiryTimestampMs)
	b = appendInt(append(b, `,"maxTimestamp":`...), t.MaxTimestampMs)
	return append(b, `,"version":3}`...)
}

// DecodeDelegationToken reads a token's node of version 1 to 3.
func DecodeDelegationToken(data []byte) (DelegationToken, error) {
	var j struct {
		Version   int32    `json:"version"`
		Owner     string   `json:"owner"`
		Requester string   `json:"tokenRequester"`
		Renewers  []string `json:"renewers"`
		Issue     int64    `json:"issueTimestamp"`
		Max       int64    `json:"maxTimestamp"`
		Expiry    int64    `json:"expiryTimestamp"`
		TokenID   string   `json:"tokenId"`
	}
	if err := decodeJSON("delegation token", data, &j); err != nil {
		return DelegationToken{}, err
	}
	if j.Version < 1 || j.Version > 3 || j.Owner == "" || j.TokenID == "" {
		return DelegationToken{}, fmt.Errorf("decode delegation token: want version 1 to 3, owner and tokenId in %q", data)
	}
	if j.Requester == "" {
		j.Requester = j.Owner
	}
	t := DelegationToken{TokenID: j.TokenID, IssueTimestampMs: j.Issue, MaxTimestampMs: j.Max, ExpiryTimestampMs: j.Expiry}
	names := append([]string{j.Owner, j.Requester}, j.Renewers...)
	for i, s := range names {
		var err error
		if names[i], err = DesanitizeEntity(s); err != nil {
			return DelegationToken{}, fmt.Errorf("decode delegation token: %w", err)
		}
	}
	t.Owner, t.Requester, t.Renewers = names[0], names[1], names[2:]
	return t, nil
}
