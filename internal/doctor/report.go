package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// Report is an examination and its result.
type Report struct {
	Version    int       `json:"version"` // of this layout: 1
	Source     string    `json:"source"`
	TakenAt    time.Time `json:"takenAt"`
	Nodes      int       `json:"nodes"`
	Topics     int       `json:"topics"`
	Brokers    []int32   `json:"brokers"`
	Controller string    `json:"controller"`
	Asked      bool      `json:"brokersAsked"`
	Findings   []Finding `json:"findings"`
}

// NewReport analyses an observation.
func NewReport(source string, o Observation) Report {
	last := o.First
	if o.Second != nil {
		last = o.Second
	}
	v := newView(last)
	r := Report{
		Version: 1, Source: source, TakenAt: last.Taken.UTC(), Nodes: len(last.Nodes), Asked: o.Brokers != nil,
		Brokers: []int32{}, Findings: Analyse(o), Topics: len(v.names[coord.TopicsPath]), Controller: "none",
	}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	for _, id := range v.live {
		r.Brokers = append(r.Brokers, int32(id))
	}
	if id := v.officeHolderID(); id != cluster.NoBroker {
		r.Controller = brokerName(id)
	}
	if e, err := epochOf(v); err == nil {
		r.Controller += fmt.Sprintf(", epoch %d", e)
	}
	return r
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

const (
	lineWidth     = 100
	valueWidthMax = 160 // in the text; JSON has all
	evidenceMax   = 6
	sameKindMax   = 5
)

// WriteText writes the report for people.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s registered, controller: %s\n", r.Source, count(r.Topics, "topic"), count(len(r.Brokers), "broker"), r.Controller)
	counts, kinds := map[Severity]int{}, map[string]int{}
	for i, f := range r.Findings {
		counts[f.Severity]++
		if kinds[f.Code]++; kinds[f.Code] <= sameKindMax {
			b.WriteByte('\n')
			f.writeText(&b, i > 0 && r.Findings[i-1].Code == f.Code && r.Findings[i-1].Why == f.Why)
		}
		if last := i+1 == len(r.Findings) || r.Findings[i+1].Code != f.Code; last && kinds[f.Code] > sameKindMax {
			fmt.Fprintf(&b, "\n%-8s %s: %d more; -o json lists all\n", strings.ToUpper(string(f.Severity)), f.Code, kinds[f.Code]-sameKindMax)
		}
	}
	if len(r.Findings) == 0 {
		b.WriteString("\nNothing found.\n")
	} else {
		fmt.Fprintf(&b, "\n%s, %s, %d for information\n", count(counts[Error], "error"), count(counts[Warning], "warning"), counts[Info])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeText writes a finding, without the reason if the one before has the same.
func (f Finding) writeText(b *strings.Builder, sameWhy bool) {
	fmt.Fprintf(b, "%-8s %s [%s]\n", strings.ToUpper(string(f.Severity)), f.Code, f.Subject)
	wrap(b, "", f.What)
	for i, e := range f.Evidence {
		if i == evidenceMax && len(f.Evidence) > evidenceMax+1 {
			fmt.Fprintf(b, "           ... and %d more; -o json lists all\n", len(f.Evidence)-i)
			break
		}
		value := printable(e.Value)
		if len(value) > valueWidthMax {
			value = strings.ToValidUTF8(value[:valueWidthMax], "") + "..."
		}
		fmt.Fprintf(b, "         | %s: %s\n", e.Where, value)
	}
	if !sameWhy {
		wrap(b, "why:  ", f.Why)
	}
	wrap(b, "next: ", f.Next)
}

// printable keeps bytes of foreign nodes from changing the terminal.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
}

// wrap writes text in lines, indented, the label before the first.
func wrap(b *strings.Builder, label, text string) {
	const indent = "         "
	line := indent + label
	empty := true
	for _, word := range strings.Fields(printable(text)) {
		if !empty && len(line)+1+len(word) > lineWidth {
			b.WriteString(line + "\n")
			line, empty = indent+strings.Repeat(" ", len(label)), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	b.WriteString(line + "\n")
}

// WritePlan writes repairs for people, each with what undoes it.
func WritePlan(w io.Writer, plan []Repair) {
	for i, r := range plan {
		fmt.Fprintf(w, "%3d. %s\n", i+1, printable(r.What))
		if was := printable(string(r.Was)); was != "" {
			fmt.Fprintf(w, "     was  %s\n", was)
		}
		if r.Data != nil {
			fmt.Fprintf(w, "     now  %s\n", printable(string(r.Data)))
		}
		if r.Absent != "" {
			fmt.Fprintf(w, "     only while %s is absent\n", printable(r.Absent))
		}
	}
}
