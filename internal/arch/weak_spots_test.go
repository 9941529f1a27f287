package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of weak spots has a row for each; every test that it names exists, and says in its comment or its text which weak spot it
// shows.
func TestWeakSpotsNameTestsThatNameThem(t *testing.T) {
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
		says := regexp.MustCompile(fmt.Sprintf(`\bW%d\b`, i+1))
		for _, m := range tests {
			switch text, exists := known[m[1]]; {
			case !exists:
				t.Errorf("W%d names %s, which does not exist", i+1, m[1])
			case !says.MatchString(text):
				t.Errorf("W%d names %s, which does not name it", i+1, m[1])
			}
		}
	}
}
