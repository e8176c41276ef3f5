package llmhttp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without ReadTimeout, a client that declares a body and sends none keeps its
// connection open. Examples are copied, so each of them sets it.
func TestExamples_ServersHaveReadTimeout(t *testing.T) {
	files, err := filepath.Glob("examples/*/*.go")
	require.NoError(t, err)
	servers := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for n := range ast.Preorder(parsed) {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || !isSelector(literal.Type, "http", "Server") {
				continue
			}
			servers++
			assert.Subset(t, fieldNames(literal), []string{"ReadHeaderTimeout", "ReadTimeout", "WriteTimeout"}, file)
		}
	}
	assert.GreaterOrEqual(t, servers, 8)
}

// isSelector reports whether e is pkg.name.
func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// fieldNames returns the names of the fields that a struct literal sets.
func fieldNames(literal *ast.CompositeLit) []string {
	var names []string
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if field, ok := pair.Key.(*ast.Ident); ok {
				names = append(names, field.Name)
			}
		}
	}
	return names
}
