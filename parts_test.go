package llmhttp_test

import (
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

// partFiles are the files of the parts of a request: see docs/architecture.md. Package
// exchange is a part too.
var partFiles = []string{
	"order.go", "join.go", "pipeline.go", "transcript.go", // the pipeline of a chat
	"ledger.go", "settle.go", "quota.go", // the ledger
	"observer.go",
	"replyformat.go", "requestlog.go", "outcome.go", "notes.go", "slots.go", // what the parts share
}

const exchangePackage = "github.com/llmhttp/llmhttp/internal/exchange"

// Only request knows the parts. They neither refer to it nor get it in another way: as an
// interface that it implements, as the receiver of a method value, in a closure, in a struct or
// as the value of a context.
func TestParts_DoNotKnowTheRequest(t *testing.T) {
	pkg := loadRootPackage(t, nil)
	assert.Empty(t, pkg.violations())
}

// The test above finds each of the ways in which a part may get to know the request.
func TestParts_ViolationsAreFound(t *testing.T) {
	for name, test := range map[string]struct{ file, code string }{
		"reference":              {"order.go", `func mutant(q *request) {}`},
		"field":                  {"order.go", `type mutant struct{ r *request }`},
		"struct of another file": {"order.go", `type mutant struct{ h *Handler }`},
		"context":                {"observer.go", `func mutant(ctx context.Context) { requestFrom(ctx) }`},
		"context key":            {"observer.go", `func mutant(ctx context.Context) any { return ctx.Value(requestKey{}) }`},
		"interface":              {"order.go", `type mutant interface{ finish() }`},
		"any":                    {"pipeline.go", `type mutant struct{ v any }`},
		"closure":                {"chatcall.go", `func (q *request) mutant() { q.client.Fail(nil, func() { q.finish() }) }`},
		"method value":           {"chatcall.go", `func (q *request) mutant() { q.client.Fail(nil, q.finish) }`},
		"closure in a variable":  {"chatcall.go", `func (q *request) mutant() { f := func() { q.finish() }; q.client.Fail(nil, f) }`},
		"function in a field":    {"chatcall.go", `func (q *request) mutant() { q.log.logger, q.chat.order.sink = nil, sinkFunc(q.mutantSink) }; type sinkFunc func(*ChatChunk); func (f sinkFunc) Add(c *ChatChunk) { f(c) }; func (q *request) mutantSink(*ChatChunk) {}`},
		"interface argument":     {"chatcall.go", `func (q *request) Done() {}; func (q *request) mutant() { newTranscript(nil, 0, mutantSink{q}) }; type mutantSink struct{ q *request }; func (s mutantSink) Add(*ChatChunk) {}`},
	} {
		t.Run(name, func(t *testing.T) {
			pkg := loadRootPackage(t, map[string]string{test.file: test.code})
			assert.NotEmpty(t, pkg.violations())
		})
	}
}

// A rootPackage is the root package with its types.
type rootPackage struct {
	fset    *token.FileSet
	files   map[string]*ast.File
	info    *types.Info
	types   *types.Package
	request types.Object
}

// loadRootPackage checks the types of the root package, with code added to some files.
func loadRootPackage(t *testing.T, added map[string]string) *rootPackage {
	t.Helper()
	p := &rootPackage{
		fset: token.NewFileSet(), files: make(map[string]*ast.File),
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
	p.request = p.types.Scope().Lookup("request")
	require.NotNil(t, p.request)
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

// violations returns the places where a part gets to know the request.
func (p *rootPackage) violations() []string {
	var found []string
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%s: %s", p.fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	for name, file := range p.files {
		if slices.Contains(partFiles, name) {
			p.checkPart(file, report)
		} else {
			p.checkUser(file, report)
		}
	}
	slices.Sort(found)
	return found
}

type reporter func(n ast.Node, format string, args ...any)

// checkPart checks that nothing in a file of a part has a type through which the request can
// be reached.
func (p *rootPackage) checkPart(file *ast.File, report reporter) {
	ast.Inspect(file, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		object := cmp(p.info.Uses[id], p.info.Defs[id])
		switch object := object.(type) {
		case nil, *types.PkgName:
		case *types.Func:
			if p.reaches(object.Type()) {
				report(id, "%s knows the request", id.Name)
			}
			if object.Name() == "requestFrom" {
				report(id, "a context is asked for the request")
			}
		case *types.TypeName:
			if object.Name() == "requestKey" || p.reaches(object.Type()) || p.isRequestInterface(object.Type()) && !isAny(object.Type()) {
				report(id, "the request is reached through the type %s", id.Name)
			}
		case *types.Var:
			if object.Pkg() == p.types && (p.reaches(object.Type()) || p.isRequestInterface(object.Type()) && (object.IsField() || !isAny(object.Type()))) {
				report(id, "the request is reached through %s", id.Name)
			}
		}
		return true
	})
}

func cmp(a, b types.Object) types.Object {
	if a != nil {
		return a
	}
	return b
}

// reaches reports whether the request can be reached from a value of type t, by fields,
// elements, parameters and results.
func (p *rootPackage) reaches(t types.Type) bool {
	seen := make(map[types.Type]bool)
	var visit func(t types.Type) bool
	visitTuple := func(tuple *types.Tuple) bool {
		for v := range tuple.Variables() {
			if visit(v.Type()) {
				return true
			}
		}
		return false
	}
	visit = func(t types.Type) bool {
		if t == nil || seen[t] {
			return false
		}
		seen[t] = true
		switch t := types.Unalias(t).(type) {
		case *types.Named:
			if t.Obj() == p.request {
				return true
			}
			return t.Obj().Pkg() == p.types && visit(t.Underlying())
		case *types.Pointer:
			return visit(t.Elem())
		case *types.Slice:
			return visit(t.Elem())
		case *types.Array:
			return visit(t.Elem())
		case *types.Map:
			return visit(t.Key()) || visit(t.Elem())
		case *types.Chan:
			return visit(t.Elem())
		case *types.Signature:
			return visitTuple(t.Params()) || visitTuple(t.Results())
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

// isRequestInterface reports whether t is an interface that the request implements. Type
// parameters and constraints are none.
func (p *rootPackage) isRequestInterface(t types.Type) bool {
	i, ok := types.Unalias(t).Underlying().(*types.Interface)
	if !ok || !i.IsMethodSet() {
		return false
	}
	if _, isParam := types.Unalias(t).(*types.TypeParam); isParam {
		return false
	}
	return types.Implements(types.NewPointer(p.request.Type()), i)
}

// isAny reports whether t is the empty interface. Parts get arguments of that type too, such
// as what panics: checkUser sees to it that the request is none of them.
func isAny(t types.Type) bool { return types.Identical(t, types.NewInterfaceType(nil, nil)) }

// checkUser checks that a file which is no part passes to parts neither the request nor a
// function that has it.
func (p *rootPackage) checkUser(file *ast.File, report reporter) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if p.isOfPart(p.calleeOf(n)) {
				for _, arg := range n.Args {
					p.checkValue(arg, report)
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if s, ok := left.(*ast.SelectorExpr); ok && len(n.Rhs) == len(n.Lhs) && p.isOfPart(p.info.Uses[s.Sel]) {
					p.checkValue(n.Rhs[i], report)
				}
			}
		}
		return true
	})
}

// calleeOf returns the function that is called, or nil if it is not known.
func (p *rootPackage) calleeOf(call *ast.CallExpr) types.Object {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return p.info.Uses[f]
	case *ast.SelectorExpr:
		return p.info.Uses[f.Sel]
	}
	return nil
}

// isOfPart reports whether a function or field is declared in a part.
func (p *rootPackage) isOfPart(object types.Object) bool {
	if object == nil || object.Pkg() == nil {
		return false
	}
	return object.Pkg().Path() == exchangePackage ||
		object.Pkg() == p.types && slices.Contains(partFiles, p.fset.Position(object.Pos()).Filename)
}

// checkValue checks a value that is passed to a part.
func (p *rootPackage) checkValue(value ast.Expr, report reporter) {
	t := p.info.TypeOf(value)
	if p.reaches(t) && !p.isRequestContext(t) {
		report(value, "a part gets the request")
	}
	if _, ok := t.Underlying().(*types.Signature); ok && !p.isKnownFunction(value) {
		report(value, "a part gets a function that may have the request")
	}
	ast.Inspect(value, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			p.checkClosure(n, report)
			return false
		case *ast.SelectorExpr:
			if s := p.info.Selections[n]; s != nil && s.Kind() == types.MethodVal && p.reaches(s.Recv()) && !p.isCalled(value, n) {
				report(n, "a part gets a method value of what knows the request")
			}
		}
		return true
	})
}

// isCalled reports whether f is called within value, so that it is no method value.
func (p *rootPackage) isCalled(value ast.Expr, f *ast.SelectorExpr) (called bool) {
	ast.Inspect(value, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && call.Fun == f {
			called = true
		}
		return !called
	})
	return called
}

// isRequestContext reports whether t is the context that has the request as a value.
func (p *rootPackage) isRequestContext(t types.Type) bool {
	return types.Identical(t, types.NewPointer(p.types.Scope().Lookup("requestContext").Type()))
}

// isKnownFunction reports whether a function value is nil, a literal, a method value, one of
// Options, or what a function of a part returns: the request cannot hide in it.
func (p *rootPackage) isKnownFunction(value ast.Expr) bool {
	switch v := ast.Unparen(value).(type) {
	case *ast.FuncLit:
		return true
	case *ast.SelectorExpr:
		s := p.info.Selections[v]
		return s != nil && (s.Kind() == types.MethodVal || types.Identical(s.Recv(), p.types.Scope().Lookup("Options").Type()))
	case *ast.CallExpr:
		return p.isOfPart(p.calleeOf(v))
	case *ast.Ident:
		return p.info.Types[v].IsNil()
	}
	return false
}

// checkClosure checks that a closure does not capture what knows the request.
func (p *rootPackage) checkClosure(f *ast.FuncLit, report reporter) {
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if v, ok := p.info.Uses[id].(*types.Var); ok && !v.IsField() && (v.Pos() < f.Pos() || v.Pos() >= f.End()) && p.reaches(v.Type()) {
				report(id, "a part gets a closure with %s", id.Name)
			}
		}
		return true
	})
}
