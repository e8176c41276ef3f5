package llmhttp_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// requestFiles are the files that know the request: its methods, the operations and the bindings
// that it calls, and what a host asks a context for. All other files are parts, or are used by
// parts: see docs/architecture.md.
var requestFiles = []string{
	"request.go", "call.go", "replystream.go", "backendcall.go", "auth.go",
	"handler.go", "serve.go", "routes.go", "notfound.go", "binding.go", "operation.go",
	"chat.go", "completions.go", "counttokens.go", "embeddings.go", "images.go", "models.go", "usage.go", // the operations
	"context.go", "record.go", "members.go", "protocol.go", "log.go", "backend.go", // functions that a host calls with a context
}

// exceptions are functions of parts that may know the request, with the reason.
var exceptions = map[string]string{
	"LogRequests": "is an Observer of the host that removes the key from the path",
	"Observers":   "is a function of the host: it keeps what other Observers have returned if one panics",
}

// Only request knows the parts: they do not refer to it, have no type through which it can be reached,
// and call no function that knows it.
func TestParts_DoNotKnowTheRequest(t *testing.T) {
	pkg := loadRootPackage(t, nil)
	assert.Empty(t, pkg.violations())
}

// The test above finds each of the ways in which a part may get to know the request.
func TestParts_ViolationsAreFound(t *testing.T) {
	for name, test := range map[string]struct{ file, code string }{
		"reference":               {"pipeline.go", `func mutant(q *request) {}`},
		"reference in a new file": {"units.go", `func (q *request) mutant() {}`},
		"field":                   {"limit.go", `type mutant struct{ r *request }`},
		"generic field":           {"limit.go", `type mutant struct{ r Box[*request] }; type Box[T any] struct{ v T }`},
		"struct of another file":  {"limit.go", `type mutant struct{ h *Handler }`},
		"context":                 {"observer.go", `func mutant(ctx context.Context) { requestFrom(ctx) }`},
		"context key":             {"observer.go", `func mutant(ctx context.Context) any { return ctx.Value(requestKey{}) }`},
		"function that asks":      {"observer.go", `func mutant(ctx context.Context) { StartTry(ctx, "") }`},
		"key of the context":      {"quota.go", `func mutant(ctx context.Context) { KeyFrom(ctx) }`},
		"function that calls one": {"requestlog.go", `func mutant(ctx context.Context) { checkUnknownMembers(ctx, nil) }`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pkg := loadRootPackage(t, map[string]string{test.file: test.code})
			assert.NotEmpty(t, pkg.violations())
		})
	}
}

// A rootPackage is the root package with its types.
type rootPackage struct {
	fset  *token.FileSet
	files map[string]*ast.File
	info  *types.Info
	types *types.Package
	// The types of the request, and of the key by which a context has it.
	request, requestKey types.Object
	asking              map[types.Object]bool // the functions and variables that know the request
}

// loadRootPackage checks the types of the root package, with code added to some files.
func loadRootPackage(t *testing.T, added map[string]string) *rootPackage {
	t.Helper()
	p := &rootPackage{
		fset: token.NewFileSet(), files: make(map[string]*ast.File), asking: make(map[types.Object]bool),
		info: &types.Info{
			Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object),
			Uses: make(map[*ast.Ident]types.Object), Selections: make(map[*ast.SelectorExpr]*types.Selection),
		},
	}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var list []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		file, err := parser.ParseFile(p.fset, name, string(source)+added[name], parser.SkipObjectResolution)
		require.NoError(t, err)
		p.files[name] = file
		list = append(list, file)
	}
	config := types.Config{Importer: importer.ForCompiler(p.fset, "gc", openCompiled)}
	p.types, err = config.Check("github.com/llmhttp/llmhttp", p.fset, list, p.info)
	require.NoError(t, err)
	p.request, p.requestKey = p.types.Scope().Lookup("request"), types.Unalias(p.types.Scope().Lookup("requestKey").Type()).(*types.Named).Obj()
	require.NotNil(t, p.request)
	require.NotNil(t, p.requestKey)
	return p
}

// compiledImports returns the files of the compiled packages which the root package imports,
// by path.
var compiledImports = sync.OnceValues(func() (map[string]string, error) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return files, err
})

// openCompiled opens the compiled package of a path.
func openCompiled(path string) (io.ReadCloser, error) {
	files, err := compiledImports()
	if err != nil {
		return nil, err
	}
	return os.Open(files[path])
}

// violations returns the places where a part knows the request.
func (p *rootPackage) violations() []string {
	var found []string
	report := func(id *ast.Ident, why string) {
		found = append(found, fmt.Sprintf("%s: %s: %s", p.fset.Position(id.Pos()), id.Name, why))
	}
	p.findAsking()
	for name, file := range p.files {
		if slices.Contains(requestFiles, name) {
			continue
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); !ok || exceptions[f.Name.Name] == "" {
				p.checkPart(d, report)
			}
		}
	}
	slices.Sort(found)
	return found
}

// findAsking finds the functions and variables of the package that know the request: those that
// mention it, or one of them.
func (p *rootPackage) findAsking() {
	mentions := make(map[types.Object]ast.Node) // the declarations of the functions and variables
	for name, file := range p.files {
		if !slices.Contains(requestFiles, name) {
			continue
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				mentions[p.info.Defs[d.Name]] = d
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, id := range v.Names {
							mentions[p.info.Defs[id]] = v
						}
					}
				}
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for object, declaration := range mentions {
			if !p.asking[object] {
				p.checkPart(declaration, func(*ast.Ident, string) { p.asking[object], grown = true, true })
			}
		}
	}
}

// checkPart reports what in a part knows the request, or has a type through which it can be reached.
func (p *rootPackage) checkPart(part ast.Node, report func(id *ast.Ident, why string)) {
	ast.Inspect(part, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		switch object := p.object(id); {
		case object == nil:
		case p.asking[object]:
			report(id, "knows the request")
		case p.reaches(object.Type()):
			report(id, "the request is reached through it")
		}
		return true
	})
}

// object returns what an identifier names, as it is without type arguments, or nil.
func (p *rootPackage) object(id *ast.Ident) types.Object {
	switch object := cmp.Or(p.info.Uses[id], p.info.Defs[id]).(type) {
	case *types.Func:
		return object.Origin()
	case *types.Var:
		return object.Origin()
	default:
		return object
	}
}

// reaches reports whether the request can be reached from a value of type t, by fields,
// elements, parameters and results.
func (p *rootPackage) reaches(t types.Type) bool {
	seen := make(map[types.Type]bool)
	var visit func(t types.Type) bool
	visit = func(t types.Type) bool {
		if t == nil || seen[t] {
			return false
		}
		seen[t] = true
		switch t := types.Unalias(t).(type) {
		case *types.Named:
			if t.Obj() == p.request || t.Obj() == p.requestKey {
				return true
			}
			if t.Obj() == p.types.Scope().Lookup("Binding") { // Options have it, and only the Handler calls it, with its request
				return false
			}
			for argument := range t.TypeArgs().Types() {
				if visit(argument) {
					return true
				}
			}
			return t.Obj().Pkg() == p.types && visit(t.Underlying())
		case *types.Map:
			return visit(t.Key()) || visit(t.Elem())
		case interface{ Elem() types.Type }: // a pointer, slice, array or channel
			return visit(t.Elem())
		case *types.Signature:
			return visit(t.Params()) || visit(t.Results())
		case *types.Tuple:
			for v := range t.Variables() {
				if visit(v.Type()) {
					return true
				}
			}
		case *types.Struct:
			for field := range t.Fields() {
				if visit(field.Type()) {
					return true
				}
			}
		}
		return false
	}
	return visit(t)
}
