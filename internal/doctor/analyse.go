// Package doctor examines a Kafka cluster in ZooKeeper mode, or one of klamm, from outside: a pure analyser over snapshots of
// the coordination tree, and over what brokers say, whose result are findings, each with evidence and the safe next step.
//
// What is wrong for a moment only, such as a topic that is just being created or deleted, is no finding: the tree is
// read twice, and only what holds both times counts. Nothing here writes but Apply, which carries out a plan of repairs.
package doctor

import (
	"cmp"
	"slices"
	"time"
)

// Observation is what the analyser judges.
type Observation struct {
	First *Snapshot
	// Second was taken a while after First; nil for one look only, which also reports what may be passing.
	Second *Snapshot
	// Brokers are the answers of the brokers; nil when they were not asked.
	Brokers *Answers
	// LogDirs are what lies in the log dirs that this examination reads itself.
	LogDirs []LogDir
	// DeletionGrace is how long a deletion without a visible obstacle may take before it counts as stuck, DefaultDeletionGrace if 0.
	DeletionGrace time.Duration
}

// DefaultDeletionGrace is enough for large topics on slow disks.
const DefaultDeletionGrace = time.Minute

// Analyse gives the findings, the worst first.
func Analyse(o Observation) []Finding {
	v := o.view(o.First)
	findings := append(v.examine(), v.disks(o.LogDirs)...)
	if o.Second != nil {
		before := map[string]bool{}
		for _, f := range findings {
			before[f.key()] = true
		}
		earlier := v
		v = o.view(o.Second)
		findings = slices.DeleteFunc(append(v.examine(), v.disks(o.LogDirs)...), func(f Finding) bool { return !before[f.key()] })
		findings = withMoves(findings, v.controllerMoves(earlier))
	}
	sortFindings(findings)
	return findings
}

// view decodes one of the looks.
func (o Observation) view(s *Snapshot) *view {
	v := newView(s)
	v.grace, v.answers = cmp.Or(o.DeletionGrace, DefaultDeletionGrace), o.Brokers
	return v
}

// withMoves adds what the two looks tell of the office together. While elections follow each other a look sees /controller
// and its epoch of different terms: what it says of the holder means nothing then.
func withMoves(findings, moves []Finding) []Finding {
	if len(moves) > 0 {
		findings = slices.DeleteFunc(findings, func(f Finding) bool {
			return f.Subject == "controller" && f.Code != "epoch-from-the-future" && f.Code != "kraft-migration"
		})
	}
	return append(findings, moves...)
}

// examine gives the findings of one look.
func (v *view) examine() []Finding {
	out := slices.Clone(v.broken)
	out = append(out, v.controller()...)
	out = append(out, v.registrations()...)
	for _, name := range v.order {
		out = append(out, v.examineTopic(v.topics[name])...)
	}
	out = append(out, v.requests()...)
	out = append(out, v.notifications()...)
	out = append(out, v.ownNodes()...)
	if v.answers != nil {
		out = append(out, v.compare()...)
	}
	return out
}

// examineTopic judges one name.
func (v *view) examineTopic(t *topic) []Finding {
	switch {
	case t.node == nil && t.marker != nil:
		return v.orphanMarker(t)
	case t.node == nil:
		return v.orphanConfig(t)
	case !t.decoded:
		return nil // reported as unreadable
	case t.marker != nil:
		return v.deletion(t)
	}
	var out []Finding
	out = append(out, v.initialisation(t)...)
	out = append(out, v.leadership(t)...)
	out = append(out, v.consistency(t)...)
	return append(out, v.reassignment(t)...)
}
