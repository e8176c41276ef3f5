package llmhttp_test

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sourceTree is what the documents for maintainers can name: the Go files of all modules, and
// their types, methods, fields, functions and constants.
type sourceTree struct {
	files      []string
	names      map[string]bool // such as "orderer", "orderer.add" and "llm.Errorf"
	testGroups map[string]bool // the names of tests until the underscore
}

func readSourceTree(t *testing.T) *sourceTree {
	t.Helper()
	tree := &sourceTree{names: make(map[string]bool), testGroups: make(map[string]bool)}
	require.NoError(t, filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && file != "." && (name == "node_modules" || name == "testdata" || name[0] == '.') {
			return filepath.SkipDir
		}
		if path.Ext(file) != ".go" {
			return nil
		}
		tree.files = append(tree.files, filepath.ToSlash(file))
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err == nil {
			tree.add(f)
		}
		return err
	}))
	return tree
}

func (s *sourceTree) add(f *ast.File) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			owner := f.Name.Name
			if d.Recv != nil {
				owner = typeName(d.Recv.List[0].Type)
			}
			s.addName(owner, d.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						s.addName(f.Name.Name, name)
					}
				case *ast.TypeSpec:
					s.addName(f.Name.Name, spec.Name)
					var members *ast.FieldList
					switch t := spec.Type.(type) {
					case *ast.StructType:
						members = t.Fields
					case *ast.InterfaceType:
						members = t.Methods
					default:
						continue
					}
					for _, m := range members.List {
						for _, name := range m.Names {
							s.addName(spec.Name.Name, name)
						}
					}
				}
			}
		}
	}
}

func (s *sourceTree) addName(owner string, name *ast.Ident) {
	s.names[name.Name] = true
	if group, _, ok := strings.Cut(name.Name, "_"); ok && strings.HasPrefix(group, "Test") {
		s.testGroups[group] = true
	}
	s.names[owner+"."+name.Name] = true
}

// typeName returns the name of the type of a receiver.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	}
	return e.(*ast.Ident).Name
}

// The documentation of each package that programs import begins with what it is for and an example, and one
// stands in a file example_test.go that compiles alone and is run. Kits, whose functions get a *testing.T, and soak have none.
func TestDocs_PackagesBeginWithAnExample(t *testing.T) {
	t.Parallel()
	list, err := exec.Command("go", "list", "-f", `{{if ne .Name "main"}}{{.Dir}}{{end}}`,
		"./...", "./sqlstore/...", "./redislimit/...", "./otelllm/...", "./console/...", "./llmfake/...", "./responsesws/...").Output()
	require.NoError(t, err)
	packages := 0
	for dir := range strings.FieldsSeq(string(list)) {
		if strings.Contains(dir, "/internal/") || strings.Contains(dir, "/clients/") || strings.Contains(dir, "/examples/") {
			continue
		}
		packages++
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		begins := false
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
			require.NoError(t, err)
			blocks := new(comment.Parser).Parse(f.Doc.Text()).Content
			begins = begins || slices.ContainsFunc(blocks[:min(len(blocks), 4)], func(b comment.Block) bool { _, ok := b.(*comment.Code); return ok })
		}
		assert.True(t, begins, "the package documentation in %s has no example within its first paragraphs", dir)
		if !strings.Contains(dir, "llmhttptest") && filepath.Base(dir) != "soak" {
			assert.NotEmpty(t, examplesThatRun(t, filepath.Join(dir, "example*_test.go")), "no Example in %s has an Output", dir)
		}
	}
	assert.Greater(t, packages, 30)
}

// examplesThatRun returns the names of the Examples with an output in files.
func examplesThatRun(t *testing.T, pattern string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, e := range doc.Examples(f) {
			if e.Output != "" || e.EmptyOutput {
				names = append(names, e.Name)
			}
		}
	}
	return names
}

// filesWithFirstLines are the packages of which each file begins with what it is about.
var filesWithFirstLines = []string{
	".", "route", "textfilter", "usagebuffer", "pricing", "messages", "responses", "memory",
	"upstream", "upstream/anthropic", "upstream/internal/client", "upstream/internal/failure", "upstream/internal/payload", "upstream/internal/reply",
	"llmhttptest", "llmhttptest/storetest", "llmhttptest/limitertest", "llmhttptest/internal/kit",
}

// Each file says in its first lines what it is about: in the package documentation, or in a comment
// that a blank line separates from the package clause.
func TestDocs_FilesSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, dir := range filesWithFirstLines {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			checked++
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, name, nil, parser.PackageClauseOnly|parser.ParseComments)
			require.NoError(t, err)
			begins := len(f.Comments) > 0 && fset.Position(f.Comments[0].Pos()).Line == 1 && f.Comments[0].Text() != ""
			assert.True(t, begins, "%s does not begin with a comment that says what it is about, such as \"// Rates and their headers.\" and a blank line", name)
			if begins && f.Doc != nil && !strings.HasPrefix(f.Doc.Text(), "Package ") {
				t.Errorf("%s: a blank line must separate the comment from the package clause", name)
			}
		}
	}
	assert.Greater(t, checked, 200)
}

// The documents that people read first stay short: what belongs to a name is in its comment.
func TestDocs_Sizes(t *testing.T) {
	t.Parallel()
	for doc, limit := range map[string]int{
		"CONTRIBUTING.md": 8192, "docs/architecture.md": 10240, "docs/rough_edges.md": 8192, "CHANGELOG.md": 1024,
	} {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(text), limit, doc)
	}
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(string(text), "\n"), 90, "lines of doc.go")
}

// notInTree are names in the documents for maintainers that are not in the tree: what a recipe
// adds, and names that only look like those of Go.
var notInTree = []string{
	"Makefile", "go.mod", "go.work", "response.completed", "http.Server",
}

// The documents for maintainers name files and identifiers that exist. A name of a test may end
// before an underscore.
func TestDocs_NamesExist(t *testing.T) {
	t.Parallel()
	tree := readSourceTree(t)
	file := regexp.MustCompile(`[*\w./]*\w\.go\b`)
	identifier := regexp.MustCompile("`(\\w+\\.\\w+|Test\\w+|[A-Z]\\w*[a-z]\\w*|[a-z]+[A-Z]\\w*)`")
	for _, doc := range []string{"CONTRIBUTING.md", "docs/architecture.md", "docs/hosts.md", "docs/rough_edges.md"} {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, name := range file.FindAllString(string(text), -1) {
			name = strings.TrimPrefix(name, "../") // a link of a file in docs
			exists := func(f string) bool { return f == name || strings.HasSuffix(f, "/"+name) }
			if strings.Contains(name, "*") || slices.Contains(notInTree, name) {
				continue
			}
			assert.True(t, slices.ContainsFunc(tree.files, exists), "%s names the file %s", doc, name)
		}
		for _, m := range identifier.FindAllStringSubmatch(string(text), -1) {
			name := m[1]
			if file.MatchString(name) || slices.Contains(notInTree, name) {
				continue
			}
			assert.True(t, tree.names[name] || tree.testGroups[name], "%s names %s", doc, name)
		}
	}
}
