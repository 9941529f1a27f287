package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Mapper turns the subject of a client's certificate into a principal by ssl.principal.mapping.rules.
type Mapper struct{ rules []mappingRule }

// mappingRule replaces what it matches; without a pattern it is DEFAULT, the subject as it is.
type mappingRule struct {
	pattern     *regexp.Regexp
	replacement string
	fold        byte // 'L', 'U' or 0
}

var groupReference = regexp.MustCompile(`\$(\d+)`)

// ParseMapper reads the rules: DEFAULT, or RULE:pattern/replacement/ with L or U behind, separated by commas.
func ParseMapper(text string) (*Mapper, error) {
	m := &Mapper{}
	for rest := strings.TrimSpace(text); rest != ""; {
		if after, ok := strings.CutPrefix(rest, "DEFAULT"); ok {
			m.rules, rest = append(m.rules, mappingRule{}), after
		} else if after, ok := strings.CutPrefix(rest, "RULE:"); ok {
			rule, after, err := parseRule(after)
			if err != nil {
				return nil, err
			}
			m.rules, rest = append(m.rules, rule), after
		} else {
			return nil, fmt.Errorf("%q begins with neither RULE: nor DEFAULT", rest)
		}
		rest = strings.TrimSpace(rest)
		if rest != "" && rest[0] != ',' {
			return nil, fmt.Errorf("%q follows a rule without a comma", rest)
		}
		rest = strings.TrimSpace(strings.TrimPrefix(rest, ","))
	}
	return m, nil
}

func parseRule(text string) (rule mappingRule, rest string, err error) {
	pattern, text, ok := cutSlash(text)
	replacement, text, ok2 := cutSlash(text)
	if !ok || !ok2 {
		return rule, "", errors.New("a rule has the form RULE:pattern/replacement/")
	}
	if rule.pattern, err = regexp.Compile(`^(?:` + pattern + `)$`); err != nil {
		return rule, "", fmt.Errorf("rule %q: %w", pattern, err)
	}
	rule.replacement = groupReference.ReplaceAllString(replacement, `$${$1}`)
	if text != "" && (text[0] == 'L' || text[0] == 'U') {
		rule.fold, text = text[0], text[1:]
	}
	return rule, text, nil
}

// cutSlash cuts at the first slash that has no backslash before it.
func cutSlash(s string) (before, after string, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '/':
			return s[:i], s[i+1:], true
		}
	}
	return "", "", false
}

// Name maps a subject; the first rule that fits decides.
func (m *Mapper) Name(subject string) (string, error) {
	for _, r := range m.rules {
		if r.pattern == nil {
			return subject, nil
		}
		if !r.pattern.MatchString(subject) {
			continue
		}
		name := r.pattern.ReplaceAllString(subject, r.replacement)
		switch r.fold {
		case 'L':
			name = strings.ToLower(name)
		case 'U':
			name = strings.ToUpper(name)
		}
		return name, nil
	}
	return "", fmt.Errorf("no rule of ssl.principal.mapping.rules applies to %q", subject)
}

// Principal names the client of a TLS connection; "" for one without a certificate.
func (m *Mapper) Principal(cs tls.ConnectionState) (string, error) {
	if len(cs.PeerCertificates) == 0 {
		return "", nil
	}
	subject, err := Subject(cs.PeerCertificates[0])
	if err != nil {
		return "", err
	}
	name, err := m.Name(subject)
	if err != nil {
		return "", err
	}
	return "User:" + name, nil
}

// keywords are the attributes that Java's RFC 2253 form of a name spells out.
var keywords = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type attributeSET []attribute // the name makes encoding/asn1 read a SET

// Subject is a certificate's subject as Java prints it (X500Principal.getName, RFC 2253): the last attribute first.
func Subject(c *x509.Certificate) (string, error) {
	var rdns []attributeSET
	if _, err := asn1.Unmarshal(c.RawSubject, &rdns); err != nil {
		return "", fmt.Errorf("subject of the certificate: %w", err)
	}
	var parts []string
	for i := len(rdns) - 1; i >= 0; i-- {
		var values []string
		for _, a := range rdns[i] {
			values = append(values, printAttribute(a))
		}
		parts = append(parts, strings.Join(values, "+"))
	}
	return strings.Join(parts, ","), nil
}

func printAttribute(a attribute) string {
	keyword, known := keywords[a.Type.String()]
	var text string
	if _, err := asn1.Unmarshal(a.Value.FullBytes, &text); !known || err != nil {
		if !known {
			keyword = a.Type.String()
		}
		return keyword + "=#" + hex.EncodeToString(a.Value.FullBytes)
	}
	return keyword + "=" + escapeValue(text)
}

func escapeValue(s string) string {
	var b strings.Builder
	for i, r := range s {
		if strings.ContainsRune(`,+"\<>;`, r) || r == '#' && i == 0 || r == ' ' && (i == 0 || i == len(s)-1) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
