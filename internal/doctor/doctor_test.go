package doctor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"klamm/internal/coord"
)

var rewrite = flag.Bool("rewrite", false, "write the findings to the golden files; read what changed")

// looked is the time of the first look in every test; the second comes two seconds later unless it says otherwise.
var looked = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestFindings examines every tree in testdata, recorded from Kafka 3.9.1 (kafka-*) or made by hand, and compares the whole
// report. A .tree file has a node a line: path, options (v= data version, c= and m= change ids, o= owning session, age=),
// data. "base FILE" begins with another tree, "-PATH" takes a node with all below it away; "== second" begins the
// second look, which starts from the first ("== second 1m": that much later), "== brokers" the answers of the brokers, "== disks" their log dirs, as JSON.
func TestFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/*.tree")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".tree")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := NewReport(name, readObservation(t, file)).WriteText(&out); err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(file, ".tree") + ".want"
			if *rewrite {
				if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if out.String() != string(want) {
				t.Errorf("the findings are\n%s\nwant\n%s", out.String(), want)
			}
		})
	}
}

func readObservation(t *testing.T, file string) Observation {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var o Observation
	text, disks, _ := bytes.Cut(text, []byte("== disks\n"))
	if len(disks) > 0 {
		if err := json.Unmarshal(disks, &o.LogDirs); err != nil {
			t.Fatal(err)
		}
	}
	first, rest, second := strings.Cut(string(text), "== second")
	if !second {
		first, rest, _ = strings.Cut(string(text), "== brokers\n")
	}
	tree := map[string]coord.Node{}
	applyTree(t, tree, first, looked)
	o.First = snapshot(tree, looked)
	if second {
		pause, rest2, _ := strings.Cut(rest, "\n")
		changes, brokers, _ := strings.Cut(rest2, "== brokers\n")
		after, err := time.ParseDuration(cmp.Or(strings.TrimSpace(pause), "2s"))
		if err != nil {
			t.Fatal(err)
		}
		later := looked.Add(after)
		applyTree(t, tree, changes, later)
		o.Second, rest = snapshot(tree, later), brokers
	}
	if rest != "" {
		if err := json.Unmarshal([]byte(rest), &o.Brokers); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func snapshot(tree map[string]coord.Node, taken time.Time) *Snapshot {
	s := &Snapshot{Taken: taken}
	for _, path := range slices.Sorted(maps.Keys(tree)) {
		s.Nodes = append(s.Nodes, tree[path])
	}
	return s
}

func applyTree(t *testing.T, tree map[string]coord.Node, text string, taken time.Time) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "base "):
			base, err := os.ReadFile(filepath.Join("testdata", strings.TrimPrefix(line, "base ")))
			if err != nil {
				t.Fatal(err)
			}
			applyTree(t, tree, string(base), taken)
		case strings.HasPrefix(line, "-"):
			maps.DeleteFunc(tree, func(path string, _ coord.Node) bool {
				return path == line[1:] || strings.HasPrefix(path, line[1:]+"/")
			})
		default:
			n, err := parseNode(line, taken)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			for p := coord.ParentPath(n.Path); p != "/"; p = coord.ParentPath(p) {
				if _, ok := tree[p]; !ok {
					tree[p] = coord.Node{Path: p}
				}
			}
			tree[n.Path] = n
		}
	}
}

func parseNode(line string, taken time.Time) (n coord.Node, err error) {
	path, rest, _ := strings.Cut(line, " ")
	n.Path = path
	for {
		word, after, _ := strings.Cut(rest, " ")
		key, value, ok := strings.Cut(word, "=")
		if !ok || !slices.Contains([]string{"v", "c", "m", "o", "age"}, key) {
			n.Data = []byte(rest)
			if n.Stat.Mzxid == 0 {
				n.Stat.Mzxid = n.Stat.Czxid
			}
			return n, nil
		}
		rest = after
		if key == "age" {
			d, err := time.ParseDuration(value)
			if err != nil {
				return n, err
			}
			n.Stat.Ctime = taken.Add(-d)
			continue
		}
		i, err := strconv.ParseInt(value, 0, 64)
		if err != nil {
			return n, fmt.Errorf("option %s: %w", word, err)
		}
		switch key {
		case "v":
			n.Stat.Version = int32(i)
		case "c":
			n.Stat.Czxid = i
		case "m":
			n.Stat.Mzxid = i
		case "o":
			n.Stat.EphemeralOwner = i
		}
	}
}
