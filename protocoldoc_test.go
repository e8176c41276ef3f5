package llmhttp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/llmhttp/llmhttp"
)

// readNames returns the exported names of the package: those that a host reads, and those that only
// authors of protocols and endpoints need, whose comments refer to a section for them.
var readNames = sync.OnceValues(func() (hosts, authors []string) {
	cmd := exec.Command("go", "run", "./bench/house", "-names", ".")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); f[2] == "author" {
			authors = append(authors, f[1])
		} else {
			hosts = append(hosts, f[1])
		}
	}
	return hosts, authors
})

// forHostsToo are names for authors that hosts use as well: in the types of Options.Protocols and
// Options.Routes, in Options.Limiter and in what probes one, in KeyStores and in agents.
var forHostsToo = []string{"Protocol", "Route", "Limiter", "BucketAmount", "BearerSecret", "SetConversation"}

// The last sections of the package documentation, for authors of endpoints and of protocols, list the
// names that only these need, except functions whose name begins with Bind.
func TestDoc_NamesOfAuthorsAreListed(t *testing.T) {
	hosts, authors := readNames()
	_, sections, ok := strings.Cut(parseFile(t, "doc.go", nil).Doc.Text(), "# Endpoints of hosts\n")
	require.True(t, ok)
	var listed []string
	for _, m := range regexp.MustCompile(`\[(\w+)\]`).FindAllStringSubmatch(sections, -1) {
		listed = append(listed, m[1])
	}
	for _, name := range authors {
		assert.True(t, strings.HasPrefix(name, "Bind") || slices.Contains(listed, name), name)
	}
	for _, name := range hosts {
		forAuthors := strings.HasPrefix(name, "Bind") || slices.Contains(listed, name)
		assert.Equal(t, slices.Contains(forHostsToo, name), forAuthors, `is only for authors, and its comment does not refer to them by 'See "Protocols" in the package documentation.': %s`, name)
	}
	for _, file := range []string{"protocol.go", "binding.go", "sse.go", "call.go", "replystream.go"} {
		for name := range parseFile(t, file, nil).Scope.Objects {
			if ast.IsExported(name) {
				assert.Contains(t, slices.Concat(authors, forHostsToo), name, file)
			}
		}
	}
}

// Hosts need no name that is only for authors: no example uses one, unless it shows how to write an
// endpoint or a protocol.
func TestDoc_HostsUseNoNamesOfAuthors(t *testing.T) {
	files, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	require.NoError(t, filepath.WalkDir("examples", func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" && !strings.HasPrefix(path, filepath.Join("examples", "ownendpoint")) {
			files = append(files, path)
		}
		return err
	}))
	parsed := make(map[string]*ast.File)
	for _, file := range files {
		if !strings.HasPrefix(file, "example_protocol") {
			parsed[file] = parseFile(t, file, nil)
		}
	}
	for _, block := range codeBlocks(t, documents(t)...) {
		if block.language == "go" && !block.isOfExamples(t) {
			code := block.text
			if !strings.HasPrefix(code, "package ") {
				code = docFile(code)
			}
			parsed[block.String()] = parseFile(t, block.file, code)
		}
	}
	hosts, authors := readNames()
	found := 0
	for file, f := range parsed {
		for n := range ast.Preorder(f) {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || !isSelector(s, "llmhttp", s.Sel.Name) {
				continue
			}
			assert.NotContains(t, authors, s.Sel.Name, file)
			if slices.Contains(hosts, s.Sel.Name) {
				found++
			}
		}
	}
	assert.Greater(t, found, 200)
}

// A host can read all of its names, and of its decisions.
func TestDoc_BarsOfTheRoot(t *testing.T) {
	hosts, _ := readNames()
	assert.LessOrEqual(t, len(hosts), 130)
	assert.LessOrEqual(t, reflect.TypeFor[llmhttp.Options]().NumField(), 16)
}

func parseFile(t *testing.T, name string, src any) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
	require.NoError(t, err)
	return f
}
