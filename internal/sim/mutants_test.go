package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var mutantsFlag = flag.Bool("sim.mutants", false, "build the core with each mutation, demand that the tests find it, and write the table (make mutants; ten minutes)")

const (
	mutantsDir   = "mutants"
	mutantsTable = "../../docs/mutants.md"
)

// mutant is one small fault in the source of the core: a file mutants/NAME.patch, which says in its first line what it breaks.
type mutant struct {
	name, breaks string
	file         string // of internal/controller
	hunks        []hunk
}

// hunk is one piece of a unified diff. Its text must be in the file once; line numbers are not looked at.
type hunk struct{ from, to string }

// TestEveryMutantApplies keeps the patches, and the table of what kills them, in step with the source.
func TestEveryMutantApplies(t *testing.T) {
	all := readMutants(t)
	if len(all) < 30 {
		t.Errorf("%d mutants", len(all))
	}
	table := readTable(t)
	for _, m := range all {
		m.mutate(t)
		if table[m.name] == "" {
			t.Errorf("%s names nothing that kills %s; run make mutants", mutantsTable, m.name)
		}
	}
	if len(table) != len(all) {
		t.Errorf("%s has %d mutants, there are %d", mutantsTable, len(table), len(all))
	}
}

// TestEveryMutantOfTheCoreIsKilled builds the core with one fault at a time and runs the tests of controller and sim.
func TestEveryMutantOfTheCoreIsKilled(t *testing.T) {
	if !*mutantsFlag {
		return // TestEveryMutantApplies is what runs always
	}
	all, table := readMutants(t), readTable(t)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			table[m.name] = m.killer(t)
			fmt.Printf("%s: %s\n  killed by %s\n", m.name, m.breaks, table[m.name])
			writeTable(t, all, table)
		})
	}
}

// killer is the first test that fails with the mutant.
func (m mutant) killer(t *testing.T) string {
	overlay := m.overlay(t)
	for _, pkg := range []string{"controller", "sim"} {
		cmd := exec.Command("go", "test", "-vet=off", "-failfast", "-overlay", overlay, "-timeout", "100s", "-skip", "EveryMutant", "klamm/internal/"+pkg)
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		if strings.Contains(string(out), "build failed") {
			t.Fatalf("it does not build:\n%s", out)
		}
		if failed := failedTest.FindAllStringSubmatch(string(out), -1); failed != nil {
			return pkg + "." + deepest(failed)
		}
		if strings.Contains(string(out), "panic:") {
			return pkg + ": " + regexp.MustCompile(`panic: [^\n]*`).FindString(string(out))
		}
		t.Fatalf("the tests of %s fail without naming a test:\n%s", pkg, out)
	}
	t.Error("it survives")
	return ""
}

var failedTest = regexp.MustCompile(`--- FAIL: (\S+)`)

// deepest is the first test that failed, by its innermost subtest.
func deepest(failed [][]string) string {
	name := failed[0][1]
	for _, f := range failed {
		if strings.HasPrefix(f[1], name) {
			name = f[1]
		}
	}
	return name
}

// overlay is a file for go test -overlay that puts the mutated source in the place of the real one.
func (m mutant) overlay(t *testing.T) string {
	dir := t.TempDir()
	mutated := filepath.Join(dir, m.file)
	if err := os.WriteFile(mutated, []byte(m.mutate(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(filepath.Join("..", "controller", m.file))
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// mutate applies the patch to the source as it is now.
func (m mutant) mutate(t *testing.T) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("..", "controller", m.file))
	if err != nil {
		t.Fatal(err)
	}
	text := string(src)
	for _, h := range m.hunks {
		if n := strings.Count(text, h.from); n != 1 {
			t.Errorf("%s.patch: its text is %d times in %s:\n%s", m.name, n, m.file, h.from)
			continue
		}
		text = strings.Replace(text, h.from, h.to, 1)
	}
	return text
}

func readMutants(t *testing.T) []mutant {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(mutantsDir, "*.patch"))
	if err != nil {
		t.Fatal(err)
	}
	var out []mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, parseMutant(t, strings.TrimSuffix(filepath.Base(path), ".patch"), string(text)))
	}
	return out
}

func parseMutant(t *testing.T, name, text string) mutant {
	t.Helper()
	m := mutant{name: name}
	m.breaks, _, _ = strings.Cut(text, "\n")
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "+++ b/internal/controller/"):
			m.file = strings.TrimSpace(strings.TrimPrefix(line, "+++ b/internal/controller/"))
		case strings.HasPrefix(line, "@@"):
			m.hunks = append(m.hunks, hunk{})
		case len(m.hunks) > 0:
			h := &m.hunks[len(m.hunks)-1]
			if line[0] != '+' {
				h.from += line[1:]
			}
			if line[0] != '-' {
				h.to += line[1:]
			}
		}
	}
	if m.file == "" || m.breaks == "" || len(m.hunks) == 0 {
		t.Fatalf("%s.patch is not a unified diff of a file of internal/controller below a line that says what it breaks", name)
	}
	return m
}

// readTable reads what killed each mutant the last time.
func readTable(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(mutantsTable)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	table := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*\\| `([^`]+)` \\|$").FindAllStringSubmatch(string(text), -1) {
		table[row[1]] = row[2]
	}
	return table
}

func writeTable(t *testing.T, all []mutant, table map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Mutants: small faults in the core, and what finds them

Each is a patch in [internal/sim/mutants](../internal/sim/mutants): one line or two of [internal/controller](../internal/controller) changed to something wrong. "make mutants"
builds the core with one at a time, runs the tests of the core and the simulator, and writes this table. A mutant that no test finds
would show what the tests lack. That every patch still applies is checked with all other tests.

| mutant | what it breaks | first killed by |
|---|---|---|
`)
	slices.SortFunc(all, func(a, b mutant) int { return strings.Compare(a.name, b.name) })
	for _, m := range all {
		if table[m.name] != "" {
			fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", m.name, strings.TrimSuffix(m.breaks, "."), table[m.name])
		}
	}
	if err := os.WriteFile(mutantsTable, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
