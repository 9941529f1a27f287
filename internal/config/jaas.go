package config

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	jaasEntry = regexp.MustCompile(`^\s*([A-Za-z0-9_.$]+)\s+(?i:required|requisite|sufficient|optional)((?:\s+[^\s=;"]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;"]+))*)\s*;\s*$`)
	jaasPair  = regexp.MustCompile(`([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))`)
)

// parseJAAS reads an entry with one login module, which must be the given class. The error does not repeat the text, which
// has passwords.
func parseJAAS(text, module string) (Login, error) {
	m := jaasEntry.FindStringSubmatch(text)
	if m == nil {
		return Login{}, fmt.Errorf(`must be one entry: %s required username="name" password="secret";`, module)
	}
	if m[1] != module {
		return Login{}, fmt.Errorf("names login module %s, where %s is needed", m[1], module)
	}
	l := Login{Users: map[string]string{}}
	for _, o := range jaasPair.FindAllStringSubmatch(m[2], -1) {
		v := jaasEscape.ReplaceAllString(o[2], "$1") + o[3]
		switch name, isUser := strings.CutPrefix(o[1], "user_"); {
		case isUser:
			l.Users[name] = v
		case o[1] == "username":
			l.Username = v
		case o[1] == "password":
			l.Password = v
		}
	}
	return l, nil
}
