package llmhttp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The section "Protocols" of the package documentation lists the exported names of
// protocol.go, binding.go and sse.go, and the comment of each of the names refers to it. So does
// that of each function whose name begins with Bind.
func TestDoc_ProtocolsAreListed(t *testing.T) {
	_, section, ok := strings.Cut(fileDoc(t, "doc.go"), "# Protocols\n")
	require.True(t, ok)
	var listed []string
	for _, m := range regexp.MustCompile(`\[(\w+)\]`).FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	comments := make(map[string]string)
	for _, file := range []string{"protocol.go", "binding.go", "sse.go"} {
		for name, comment := range exportedNames(t, file) {
			assert.Contains(t, listed, name, file)
			comments[name] = comment
		}
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		for name, comment := range exportedNames(t, file) {
			isBind := strings.HasPrefix(name, "Bind") && name != "Binding" && !strings.HasSuffix(file, "_test.go")
			if isBind || slices.Contains(listed, name) {
				comments[name] = comment
			}
		}
	}
	require.Contains(t, comments, "BindEmbeddings")
	for _, name := range append(slices.Collect(maps.Keys(comments)), listed...) {
		assert.Contains(t, strings.Join(strings.Fields(comments[name]), " "), `See "Protocols" in the package documentation.`, name)
	}
}

func parseFile(t *testing.T, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	require.NoError(t, err)
	return f
}

func fileDoc(t *testing.T, name string) string { return parseFile(t, name).Doc.Text() }

// exportedNames returns the exported names of a file except methods, with their comments.
func exportedNames(t *testing.T, file string) map[string]string {
	t.Helper()
	names := make(map[string]string)
	for _, decl := range parseFile(t, file).Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.IsExported() {
				names[d.Name.Name] = d.Doc.Text()
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						names[s.Name.Name] = d.Doc.Text()
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() {
						names[s.Names[0].Name] = d.Doc.Text()
					}
				}
			}
		}
	}
	return names
}
