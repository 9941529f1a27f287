package coord

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The encoders write what Kafka 3.9 writes, byte for byte, so that a tree can be compared with a recorded one.
// Kafka leaves the order of keys to its maps; where the keys are fixed, the encoders spell that order out, and
// where they are data, scalaMapOrder, scalaTrieOrder and propertiesOrder reproduce it.

// appendString writes a JSON string as Jackson does: only quote, backslash and control characters are escaped.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c < 0x20:
			b = append(b, `\u00`...)
			b = append(b, hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func appendInt[T ~int | ~int8 | ~int32 | ~int64](b []byte, n T) []byte {
	return strconv.AppendInt(b, int64(n), 10)
}

// appendKey writes `"key":`, with a comma before it unless it is the first of its object.
func appendKey(b []byte, key string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = appendString(b, key)
	return append(b, ':')
}

func appendInts[T ~int32](b []byte, list []T) []byte {
	b = append(b, '[')
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, n)
	}
	return append(b, ']')
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

// javaHash is String.hashCode: it works on UTF-16 units.
func javaHash(s string) int32 {
	var h int32
	for _, r := range s {
		if r > 0xffff {
			r -= 0x10000
			h = 31*h + 0xd800 + r>>10
			h = 31*h + 0xdc00 + r&0x3ff
			continue
		}
		h = 31*h + r
	}
	return h
}

// spreadHash is what Java and Scala hash tables do to a hash before they take its low bits.
func spreadHash(h int32) int32 { return h ^ int32(uint32(h)>>16) }

// scalaMapOrder sorts keys as scala.collection.mutable.HashMap iterates over them: by table slot, then by hash.
// The table has 16 slots at first and doubles when the entries reach three quarters of it.
func scalaMapOrder(keys []string) {
	slots := int32(16)
	for int32(len(keys)) >= slots/4*3 {
		slots *= 2
	}
	sortByHash(keys, func(k string) (int32, int32) {
		h := spreadHash(javaHash(k))
		return h & (slots - 1), h
	})
}

// propertiesOrder sorts keys as java.util.Properties iterates over them (a ConcurrentHashMap of 16 slots at first);
// keys of one slot, which Java keeps in order of insertion, are sorted by name.
func propertiesOrder(keys []string) {
	slots := int32(16)
	for int32(len(keys)) >= slots/4*3 {
		slots *= 2
	}
	sortByHash(keys, func(k string) (int32, int32) { return spreadHash(javaHash(k)) & 0x7fffffff & (slots - 1), 0 })
}

func sortByHash(keys []string, rank func(string) (slot, hash int32)) {
	slices.SortFunc(keys, func(a, b string) int {
		slotA, hashA := rank(a)
		slotB, hashB := rank(b)
		switch {
		case slotA != slotB:
			return int(slotA) - int(slotB)
		case hashA < hashB:
			return -1
		case hashA > hashB:
			return 1
		}
		return bytes.Compare([]byte(a), []byte(b))
	})
}

// scalaTrieOrder sorts keys as scala.collection.immutable.Map iterates over them: up to four keep their order,
// more are a hash trie of 32-way nodes, whose own entries come before those of its subtrees.
func scalaTrieOrder(keys []string) []string {
	if len(keys) <= 4 {
		return keys
	}
	return appendTrie(nil, keys, 0)
}

func appendTrie(out, keys []string, shift uint) []string {
	if shift >= 32 {
		return append(out, keys...) // equal hashes
	}
	var slots [32][]string
	for _, k := range keys {
		i := uint32(improveHash(javaHash(k))) >> shift & 31
		slots[i] = append(slots[i], k)
	}
	for _, s := range slots {
		if len(s) == 1 {
			out = append(out, s[0])
		}
	}
	for _, s := range slots {
		if len(s) > 1 {
			out = appendTrie(out, s, shift+5)
		}
	}
	return out
}

// improveHash is scala.collection.Hashing.improve.
func improveHash(h int32) int32 {
	h += ^(h << 9)
	h ^= int32(uint32(h) >> 14)
	h += h << 4
	return h ^ int32(uint32(h)>>10)
}

// decodeJSON reads an object into v. Unknown keys are ignored; what follows the object is an error.
func decodeJSON(what string, data []byte, v any) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("decode %s: not UTF-8", what)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("decode %s: %w", what, err)
	}
	return nil
}

// looseInt is a number that old writers put in quotes.
type looseInt int64

// UnmarshalJSON accepts 12 and "12".
func (n *looseInt) UnmarshalJSON(b []byte) error {
	s := string(b)
	if len(s) >= 2 && s[0] == '"' {
		s = s[1 : len(s)-1]
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	*n = looseInt(v)
	return nil
}
