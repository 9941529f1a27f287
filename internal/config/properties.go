package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// property is one entry of a properties file.
type property struct {
	key, value string
	line       int // where the entry begins, counted from 1
}

// parseProperties reads Java's properties format: # and ! comments, key and value parted by =, : or white space, lines continued by
// an odd number of backslashes at their end, and the escapes \t \n \r \f \uXXXX. The bytes are taken as UTF-8.
func parseProperties(text string) ([]property, error) {
	var out []property
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	for i := 0; i < len(lines); i++ {
		start := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(lines[i], " \t\f")
		}
		if continued(line) {
			line = line[:len(line)-1]
		}
		p, err := parseProperty(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", start, err)
		}
		p.line = start
		out = append(out, p)
	}
	return out, nil
}

func continued(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// parseProperty parts a logical line at the first separator that is not escaped.
func parseProperty(line string) (property, error) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	key, err := unescape(line[:end])
	if err != nil {
		return property{}, err
	}
	value, err := unescape(rest)
	return property{key: key, value: value}, err
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var units []uint16 // of \u escapes not written yet: two may form one character
	var b strings.Builder
	flush := func() {
		b.WriteString(string(utf16.Decode(units)))
		units = units[:0]
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			flush()
			b.WriteByte(s[i])
			continue
		}
		i++
		if s[i] == 'u' {
			if i+5 > len(s) {
				return "", fmt.Errorf(`malformed \u escape in %q`, s)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`malformed \u escape in %q`, s)
			}
			units = append(units, uint16(n))
			i += 4
			continue
		}
		flush()
		if j := strings.IndexByte("tnrf", s[i]); j >= 0 {
			b.WriteByte("\t\n\r\f"[j])
		} else {
			b.WriteByte(s[i])
		}
	}
	flush()
	return b.String(), nil
}

// ParseProperties reads text in Java's properties format; a key that is set twice has its last value.
func ParseProperties(text string) (map[string]string, error) {
	list, err := parseProperties(text)
	if err != nil {
		return nil, err
	}
	m := make(map[string]string, len(list))
	for _, p := range list {
		m[p.key] = p.value
	}
	return m, nil
}
