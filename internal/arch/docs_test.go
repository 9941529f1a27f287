package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	namedTest    = regexp.MustCompile("`(Test\\w+)`")
	namedScript  = regexp.MustCompile("`(\\w+\\.txt)`")
	testFunction = regexp.MustCompile(`(?m)((?:^//[^\n]*\n)*)^func (Test\w+)\([^\n]*(\n?)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// Every file that a page of the documentation links to is there, and every test that it names.
func TestDocumentationLinksAndTestsExist(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := knownTests(t)
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(root, page)
		for _, m := range markdownLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checkLink(t, name, page, m[1])
		}
		for _, m := range append(namedTest.FindAllStringSubmatch(string(text), -1), namedScript.FindAllStringSubmatch(string(text), -1)...) {
			if _, exists := known[m[1]]; !exists && name != othersTests {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
	}
}

// othersTests is the page that speaks of tests of other people's software.
var othersTests = filepath.Join("docs", "compatibility.md")

func checkLink(t *testing.T, name, page, link string) {
	t.Helper()
	file, anchor, _ := strings.Cut(link, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s links to %s, which does not exist", name, link)
		return
	}
	if anchor == "" || !strings.HasSuffix(target, ".md") {
		return
	}
	text, err := os.ReadFile(target)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		if slug(m[1]) == anchor {
			return
		}
	}
	t.Errorf("%s links to %s, which has no such heading", name, link)
}

// slug is the anchor that the usual renderers give a heading.
func slug(heading string) string {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	return strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// knownTests maps the test functions of the repository to their comments with their first lines, and the scripts to their texts.
func knownTests(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	for _, folder := range []string{"internal", "interop", "cmd", "bench"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			isTest, isScript := strings.HasSuffix(path, "_test.go"), strings.HasSuffix(path, ".txt") && filepath.Base(filepath.Dir(path)) == "testdata"
			if !isTest && !isScript {
				return nil
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if isScript {
				known[filepath.Base(path)] += string(src)
			}
			for _, m := range testFunction.FindAllStringSubmatch(string(src), -1) {
				known[m[2]] += m[0]
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return known
}
