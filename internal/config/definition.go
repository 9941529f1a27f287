// Package config knows Kafka 3.9's broker and topic configuration under Kafka's own key names, and klamm's few own keys.
//
// It reads server.properties, environment and overrides into a typed, immutable Broker, naming every fault at once; merges topic settings over
// broker settings into a LogConfig; describes both the way DescribeConfigs does, with the chain of synonyms; judges AlterConfigs with
// Kafka's texts; and holds what changes at run time in a Dynamic, whose reads take no lock.
//
// Names, types, defaults and ranges are Kafka's and are compared with its classes by interop/config; the descriptions are our own.
package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Type is the type of a key by its number in DescribeConfigs.
type Type int8

// The types of keys.
const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

var typeNames = map[Type]string{Boolean: "BOOLEAN", String: "STRING", Int: "INT", Short: "SHORT", Long: "LONG", Double: "DOUBLE", List: "LIST", Class: "CLASS", Password: "PASSWORD"}

// String gives Kafka's name of the type.
func (t Type) String() string { return typeNames[t] }

// Importance tells how likely a key needs thought.
type Importance int8

// The importances.
const (
	Low Importance = iota
	Medium
	High
)

// String gives Kafka's name of the importance.
func (i Importance) String() string { return [...]string{"LOW", "MEDIUM", "HIGH"}[i] }

// UpdateMode tells where a broker key can be set while brokers run.
type UpdateMode int8

// The update modes.
const (
	ReadOnly    UpdateMode = iota // in the file only
	PerBroker                     // for one broker
	ClusterWide                   // for one broker or for all
)

// String gives the word Kafka's documentation uses.
func (u UpdateMode) String() string { return [...]string{"read-only", "per-broker", "cluster-wide"}[u] }

// Definition describes one key.
type Definition struct {
	Name       string
	Type       Type
	Default    string // as it would stand in a file
	HasDefault bool   // false: null unless set
	Importance Importance
	Update     UpdateMode // of broker keys
	Internal   bool       // not described to clients
	Own        bool       // klamm's own key, or one whose default differs from Kafka's
	Doc        string

	check validator
}

// validator judges a parsed value. It returns the offending value as Kafka would print it and what is allowed, or two empty strings.
type validator func(name string, v any) (bad, allowed string)

// ValueError says that a value does not fit its key.
type ValueError struct {
	Key     string
	Value   string
	Allowed string // what would be right, in Kafka's words
}

// Error is Kafka's text.
func (e *ValueError) Error() string {
	return "Invalid value " + e.Value + " for configuration " + e.Key + ": " + e.Allowed
}

// parse turns the text of a value into a bool, string, int64 (all whole numbers), float64 or []string and validates it.
func (d *Definition) parse(text string) (any, *ValueError) {
	v, allowed := parseValue(d.Type, text)
	if allowed != "" {
		return nil, &ValueError{d.Name, text, allowed}
	}
	if d.check != nil {
		if bad, allowed := d.check(d.Name, v); allowed != "" {
			return nil, &ValueError{d.Name, bad, allowed}
		}
	}
	return v, nil
}

// parseValue follows Kafka's ConfigDef.parseType.
func parseValue(t Type, text string) (v any, allowed string) {
	s := strings.TrimSpace(text)
	switch t {
	case Boolean:
		switch strings.ToLower(s) {
		case "true":
			return true, ""
		case "false":
			return false, ""
		}
		return nil, "Expected value to be either true or false"
	case Int, Short, Long:
		bits := map[Type]int{Int: 32, Short: 16, Long: 64}[t]
		n, err := strconv.ParseInt(s, 10, bits)
		if err != nil {
			return nil, "Not a number of type " + t.String()
		}
		return n, ""
	case Double:
		f, ok := parseJavaDouble(s)
		if !ok {
			return nil, "Not a number of type DOUBLE"
		}
		return f, ""
	case List:
		return splitList(s), ""
	default:
		return s, ""
	}
}

// splitList splits at commas and trims; an empty text is an empty list.
func splitList(s string) []string {
	s = strings.TrimSpace(s)
	if s == "" {
		return []string{}
	}
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// parseJavaDouble reads what Java's Double.parseDouble does, hexadecimal aside.
func parseJavaDouble(s string) (float64, bool) {
	switch strings.TrimLeft(s, "+-") {
	case "NaN":
		return math.NaN(), true
	case "Infinity":
		return math.Inf(1 - 2*strings.Count(s, "-")), len(s)-len("Infinity") <= 1
	}
	s = strings.TrimRight(s, "fFdD")
	if strings.ContainsAny(s, "xXnN_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// render writes a parsed value as Kafka's ConfigDef.convertToString does.
func render(v any) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return javaDouble(v)
	case []string:
		return strings.Join(v, ",")
	case string:
		return v
	}
	panic(fmt.Sprintf("config: value of type %T", v))
}

// RenderDouble writes a number with a fraction as Kafka stores it in a config.
func RenderDouble(f float64) string { return javaDouble(f) }

// javaDouble prints as Java's Double.toString: plain between 10^-3 and 10^7, else with an exponent, always with a fraction.
func javaDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}
