package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// Severity ranks findings.
type Severity string

// The severities. An error keeps something from working, a warning weakens it, info only explains what can be seen.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

func (s Severity) rank() int { return slices.Index([]Severity{Info, Warning, Error}, s) }

// Finding is one thing that is wrong, or worth to know.
type Finding struct {
	// Code names the kind of the finding; docs/doctor.md lists all.
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	// Subject is what it is about: "topic t", "broker 3", "controller", or a path. Code and Subject identify a finding.
	Subject  string     `json:"subject"`
	What     string     `json:"what"`
	Evidence []Evidence `json:"evidence,omitempty"`
	Why      string     `json:"why"`
	Next     string     `json:"next"`
	// Repair are the writes that `klamm doctor repair` would make; none for what it leaves alone.
	Repair []Repair `json:"repair,omitempty"`
}

// Evidence is something that was seen: a path of the store or a broker's answer, and what it held.
type Evidence struct {
	Where string `json:"where"`
	Value string `json:"value"`
}

func (f Finding) key() string { return f.Code + "\x00" + f.Subject }

// sortFindings puts the worst first and keeps kinds together.
func sortFindings(fs []Finding) {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(b.Severity.rank()-a.Severity.rank(), strings.Compare(a.Code, b.Code), strings.Compare(a.Subject, b.Subject))
	})
}

// Worst gives the highest severity among the findings; "" when there are none.
func Worst(fs []Finding) Severity {
	var worst Severity
	for _, f := range fs {
		if f.Severity.rank() > worst.rank() {
			worst = f.Severity
		}
	}
	return worst
}
