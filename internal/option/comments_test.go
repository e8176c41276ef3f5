package option_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// configurations matches the names of structs that configure something.
var configurations = regexp.MustCompile(`^(\w*Options|Bounds|TokenEstimates|SignIn|Limits|Rate|Quota|Observation|Target|\w+Store|(Key|Report)Query)$`)

// notConfigured are structs of requests, whose fields are those of a wire format.
var notConfigured = []string{"StreamOptions"}

// The comment of each number in the configuration of a package tells what zero and negative
// values mean.
func TestComments(t *testing.T) {
	root := filepath.Join("..", "..")
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"internal", "bench", "clients", "soak", "testdata", "node_modules", ".git"}, d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok || !configurations.MatchString(spec.Name.Name) || slices.Contains(notConfigured, spec.Name.Name) {
				return true
			}
			for _, field := range s.Fields.List {
				if !isNumber(field.Type) || !field.Names[0].IsExported() {
					continue
				}
				found++
				comment := strings.ToLower(field.Doc.Text() + field.Comment.Text())
				for _, word := range []string{"zero", "negative"} {
					assert.Contains(t, comment, word, "%s: %s.%s", path, spec.Name.Name, field.Names[0].Name)
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, found, 40)
}

// isNumber reports whether e is a type of sizes, counts, amounts or durations.
func isNumber(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"int", "int64", "float64"}, e.Name)
	case *ast.SelectorExpr:
		return e.Sel.Name == "Duration"
	}
	return false
}
