package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPropertiesFollowJavasRules(t *testing.T) {
	text := "# comment\n! comment\n\n  a=1\nb = 2\nc: 3\nd 4\ne\nf=\n=g\n" +
		"long=one,\\\n    two,\\\n\tthree\n# no continuation \\\nk\\=x\\:y\\ z = v\\=w\n" +
		"esc=\\t\\u0041\\u00e9\\ud83d\\ude00\\q\\\\\nwin=path\r\nmac=1\rlast=end\\"
	got, err := parseProperties(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []property{
		{"a", "1", 4}, {"b", "2", 5}, {"c", "3", 6}, {"d", "4", 7}, {"e", "", 8}, {"f", "", 9}, {"", "g", 10},
		{"long", "one,two,three", 11}, {"k=x:y z", "v=w", 15}, {"esc", "\tAé😀q\\", 16}, {"win", "path", 17}, {"mac", "1", 18}, {"last", "end", 19},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(property{})); d != "" {
		t.Error(d)
	}
}

func TestAMalformedUnicodeEscapeNamesItsLine(t *testing.T) {
	_, err := parseProperties("a=1\nb=\\u12x4\n")
	if err == nil || err.Error() != `line 2: malformed \u escape in "\\u12x4"` {
		t.Error(err)
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("a=1\\\n b:\\u0041")
	f.Fuzz(func(t *testing.T, text string) {
		props, err := parseProperties(text)
		if err != nil {
			return
		}
		set := map[string]string{}
		for _, p := range props {
			set[p.key] = p.value
		}
		_, _, _ = FromProperties(set)
	})
}
