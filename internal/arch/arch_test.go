// Package arch holds the house rules of the source tree as tests: who may import whom,
// what every package must document, what may lie in the root folder.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "klamm"
	root   = "../.."
)

// allowedImports lists, per package below internal/, the klamm packages its non-test files may import.
// A package that is not listed here fails the test, so a new package states its place.
var allowedImports = map[string][]string{
	"cluster":           {},
	"record":            {"cluster"},
	"vfs":               {},
	"wire":              {"cluster"},
	"wire/wiretest":     {},
	"config":            {"cluster", "record"},
	"metadata":          {"cluster", "wire"},
	"quota":             {},
	"loglevel":          {},
	"controller":        {"cluster"},
	"coord":             {"cluster"},
	"coord/coordtest":   {"cluster", "coord"},
	"coord/memstore":    {"cluster", "coord"},
	"coord/etcdstore":   {"cluster", "coord"},
	"coord/notify":      {"cluster", "coord"},
	"coord/zkstore":     {"cluster", "coord"},
	"commitlog":         {"cluster", "record", "vfs", "config"},
	"controller/driver": {"cluster", "controller", "coord", "metadata", "wire"},
	"group":             {"cluster"},
	"group/coordinator": {"cluster", "record", "config", "metadata", "commitlog", "replica", "group"},
	"admin":             {"cluster", "config", "security/certs"},
	"admin/console":     {"admin", "cluster"},
	"doctor":            {"cluster", "coord"},
	"migrate":           {"coord"},
	"replica":           {"cluster", "record", "wire", "metadata", "commitlog", "config", "quota"},
	"api":               {"cluster", "record", "wire", "config", "metadata", "coord", "commitlog", "replica", "group", "admin", "quota", "loglevel", "security/acl", "security/authorizer", "security/scram", "security/token", "security/users"},
	"node":              {"*"},
	"sim":               {"cluster", "controller"},

	"security/acl":        {},
	"security/certs":      {"config"},
	"security/sasl":       {"cluster", "wire", "security/scram"},
	"security/scram":      {},
	"security/users":      {"security/scram"},
	"security/token":      {"coord", "coord/notify", "security/sasl", "security/scram"},
	"security/authorizer": {"coord", "coord/notify", "security/acl"},
}

// forbiddenStd lists standard packages that pure packages must not touch.
var forbiddenStd = map[string][]string{
	"controller": {"net", "os", "time", "sync", "math/rand", "math/rand/v2", "context", "log/slog", "log", "io", "crypto/rand"},
	"group":      {"net", "os", "time", "sync", "math/rand", "math/rand/v2", "context", "log/slog", "log", "crypto/rand"},
	"cluster":    {"net", "os", "time", "sync", "context", "log/slog", "log"},
	"quota":      {"net", "os", "context", "log/slog", "log"},
	"record":     {"net", "os", "context", "log/slog", "log"},
	"api":        {"net"},

	"security/scram": {"net", "os", "time", "sync", "context", "log/slog", "log"},
	"security/acl":   {"net", "os", "time", "sync", "context", "log/slog", "log"},
}

// rootEntries are the only names allowed in the root folder.
var rootEntries = []string{".ci", ".dockerignore", ".git", ".gitignore", "Dockerfile", "LICENSE", "Makefile", "README.md", "bench", "bin", "cmd", "compose.yaml", "docs", "go.mod", "go.sum", "internal", "interop", "klamm-data"}

func TestImportsOnlyPointDown(t *testing.T) {
	for pkg, files := range packages(t) {
		allowed, known := allowedImports[pkg]
		if !known {
			t.Errorf("internal/%s is not in the table of allowed imports", pkg)
			continue
		}
		for path, f := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, imp := range f.Imports {
				name, _ := strconv.Unquote(imp.Path.Value)
				if slices.Contains(forbiddenStd[pkg], name) {
					t.Errorf("%s imports %q, which internal/%s must not", path, name, pkg)
				}
				inner, isOurs := strings.CutPrefix(name, module+"/internal/")
				if isOurs && !slices.Contains(allowed, inner) && !slices.Contains(allowed, "*") {
					t.Errorf("%s imports internal/%s; internal/%s may import %v", path, inner, pkg, allowed)
				}
			}
		}
	}
}

func TestEveryPackageHasADocComment(t *testing.T) {
	for pkg, files := range packages(t) {
		documented := false
		for _, f := range files {
			documented = documented || f.Doc != nil && strings.HasPrefix(f.Doc.Text(), "Package ")
		}
		if !documented {
			t.Errorf("internal/%s has no package comment", pkg)
		}
	}
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for pkg, files := range packages(t) {
		for path, f := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, d := range f.Decls {
				if name := undocumented(d); name != "" {
					t.Errorf("%s: exported %s of internal/%s has no doc comment", path, name, pkg)
				}
			}
		}
	}
}

func TestRootFolderHoldsOnlyKnownEntries(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(rootEntries, e.Name()) {
			t.Errorf("%s lies in the root folder and is not in the list of what may", e.Name())
		}
	}
}

// undocumented returns the first exported name of the declaration that lacks a comment, or "".
func undocumented(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || receiverExported(d.Recv)) {
			return d.Name.Name
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT || d.Doc != nil {
			return ""
		}
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil {
					return s.Name.Name
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && s.Doc == nil && s.Comment == nil {
					return s.Names[0].Name
				}
			}
		}
	}
	return ""
}

func receiverExported(r *ast.FieldList) bool {
	t := r.List[0].Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
	}
	if x, ok := t.(*ast.IndexExpr); ok {
		t = x.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}

// packages parses every package below internal/, keyed by its folder.
func packages(t *testing.T) map[string]map[string]*ast.File {
	t.Helper()
	fset := token.NewFileSet()
	out := map[string]map[string]*ast.File{}
	base := filepath.Join(root, "internal")
	err := filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		pkg, _ := filepath.Rel(base, filepath.Dir(path))
		if pkg == "arch" {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if out[pkg] == nil {
			out[pkg] = map[string]*ast.File{}
		}
		out[pkg][path] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Settings with a field are told to have an effect; a field that nobody reads tells a lie.
func TestEverySettingWithAFieldIsRead(t *testing.T) {
	const configs = "config"
	fields, read := map[string]bool{}, map[string]int{}
	for dir, files := range packages(t) {
		for path, f := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok && dir == configs && n.Name.Name == "Broker" {
						for _, field := range s.Fields.List {
							for _, name := range field.Names {
								fields[name.Name] = true
							}
						}
					}
				case *ast.SelectorExpr:
					read[n.Sel.Name]++
					if dir == configs {
						read[n.Sel.Name+" in config"]++
					}
				}
				return true
			})
		}
	}
	if len(fields) == 0 {
		t.Fatal("config.Broker has no fields")
	}
	for name := range fields {
		// Once is where it is set.
		if ast.IsExported(name) && read[name] == read[name+" in config"] && read[name] < 2 {
			t.Errorf("nobody reads config.Broker.%s: its key has no effect, and is to be told so", name)
		}
	}
}
