package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of weak spots has a row for each, and every test that it names exists.
func TestWeakSpotsNameTestsThatExist(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, "docs", "weak-spots.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := knownTests(t)
	rows := strings.Split(string(doc), "\n| W")
	if len(rows) != 30 {
		t.Errorf("%d rows", len(rows)-1)
	}
	named := regexp.MustCompile("`(Test\\w+|\\w+\\.txt)`")
	for i, row := range rows[1:] {
		if !strings.HasPrefix(row, fmt.Sprintf("%d |", i+1)) {
			t.Errorf("row %d begins with %.10q", i+1, row)
		}
		cells := strings.Split(row, " | ")
		tests := named.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(tests) == 0 {
			t.Errorf("W%d names no test", i+1)
		}
		for _, m := range tests {
			if !known[m[1]] {
				t.Errorf("W%d names %s, which does not exist", i+1, m[1])
			}
		}
	}
}

// knownTests lists the test functions below internal and the scripts of the core.
func knownTests(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch {
		case strings.HasSuffix(path, "_test.go"):
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range function.FindAllStringSubmatch(string(src), -1) {
				known[m[1]] = true
			}
		case strings.HasSuffix(path, ".txt") && filepath.Base(filepath.Dir(path)) == "testdata":
			known[filepath.Base(path)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return known
}
