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
// parts: see docs/architecture.md. Package exchange is a part too. A file that declares the
// descriptor of an operation knows the request too, and is not listed.
var requestFiles = []string{
	"handler.go", "serve.go", "routes.go", "notfound.go", "binding.go", "operation.go",
	"request.go", "call.go", "replystream.go", "backendcall.go", "chat.go", "auth.go",
	"completions.go",                                                               // binds paths to operations
	"context.go", "record.go", "members.go", "protocol.go", "log.go", "backend.go", // functions that a host calls with a context
}

// exceptions are functions that may do what the rule forbids, with the reason.
var exceptions = map[string]string{
	"(*requestContext).Value":  "is how a context has the request",
	"requestFrom":              "is how a context is asked for it",
	"ClientLeft":               "is how a context is asked for it",
	"ReportUsage":              "is how a context is asked for it",
	"StartCall":                "is how a context is asked for it",
	"(*ReplyStream).receive":   "calls a function of the endpoint, which has its Call",
	"(*ReplyStream).End":       "calls a function of the endpoint, too",
	"(choiceMaker).sendChoice": "is a Backend, too",
	"LogRequests":              "is an Observer of the host that removes the key from the path",
	"Observers":                "is a function of the host: it keeps what other Observers have returned if one panics",
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
		"reference":                 {"pipeline.go", `func mutant(q *request) {}`},
		"reference in a new file":   {"units.go", `func (q *request) mutant() {}`},
		"field":                     {"limit.go", `type mutant struct{ r *request }`},
		"generic field":             {"limit.go", `type mutant struct{ r Box[*request] }; type Box[T any] struct{ v T }`},
		"struct of another file":    {"limit.go", `type mutant struct{ h *Handler }`},
		"context":                   {"observer.go", `func mutant(ctx context.Context) { requestFrom(ctx) }`},
		"context key":               {"observer.go", `func mutant(ctx context.Context) any { return ctx.Value(requestKey{}) }`},
		"function that asks":        {"observer.go", `func mutant(ctx context.Context) { StartTry(ctx, "") }`},
		"key of the context":        {"quota.go", `func mutant(ctx context.Context) { KeyFrom(ctx) }`},
		"function that calls one":   {"requestlog.go", `func mutant(ctx context.Context) { checkUnknownMembers(ctx, nil) }`},
		"interface":                 {"request.go", `func (q *request) mutant() { mutant2(q) }; func mutant2(interface{ finish() }) {}`},
		"type parameter":            {"request.go", `func (q *request) mutant() { clone(q) }`},
		"any":                       {"request.go", `func (q *request) mutant() { panics.New(q) }`},
		"panic":                     {"request.go", `func (q *request) mutant() { panic(q) }`},
		"closure":                   {"chat.go", `func (q *request) mutant() { q.client.Fail(nil, func() { q.finish() }) }`},
		"closure that asks":         {"chat.go", `func (q *request) mutant() { ctx := q.backendCtx; q.client.Fail(nil, func() { requestFrom(ctx) }) }`},
		"closure around a function": {"chat.go", `func (q *request) mutant() { f := q.finish; q.client.Fail(nil, func() { f() }) }`},
		"method value":              {"chat.go", `func (q *request) mutant() { q.client.Fail(nil, q.finish) }`},
		"closure in a variable":     {"chat.go", `func (q *request) mutant() { f := func() { q.finish() }; q.client.Fail(nil, f) }`},
		"function in a field":       {"chat.go", `func (q *request) mutant() { q.ledger.log, q.ledger.price = nil, func(*UsageRecord) (Cost, error) { q.finish(); return Cost{}, nil } }`},
		"several results":           {"chat.go", `func (q *request) mutant() { q.ledger.slots.give, _ = q.two() }; func (q *request) two() (func(), error) { return q.finish, nil }`},
		"function in a literal":     {"handler.go", `func (q *request) mutant() { q.ledger.slots = slots{give: func() { q.finish() }} }`},
		"literal without names":     {"handler.go", `func (q *request) mutant() { q.ledger.slots = slots{nil, q.finish} }`},
		"nested literal":            {"handler.go", `func (q *request) mutant() { q.ledger.books = &books{price: func(*UsageRecord) (Cost, error) { q.finish(); return Cost{}, nil }} }`},
		"list of functions":         {"handler.go", `func (q *request) mutant(to map[int]func()) { to[0] = q.finish }`},
		"variable of the package":   {"request.go", `var hook func(); func (q *request) mutant() { hook = q.finish }`},
		"interface argument":        {"chat.go", `func (q *request) mutant() { newTranscript(nil, 0, mutantSink{q}) }; type mutantSink struct{ q *request }; func (s mutantSink) Add(*llm.ChatChunk) {}`},
		"interface in a literal":    {"context.go", `func (q *request) mutant() { q.chat = chatPipeline{order: order.Orderer{Sink: mutantSink{q}}} }; type mutantSink struct{ q *request }; func (s mutantSink) Add(*llm.ChatChunk) {}`},
		"interface variable":        {"context.go", `func (q *request) mutant() { var sink order.Sink = mutantSink{q}; q.chat.order.Sink = sink }; type mutantSink struct{ q *request }; func (s mutantSink) Add(*llm.ChatChunk) {}`},
		"interface result":          {"chat.go", `func (q *request) mutant() any { return q }`},
		"function in an interface":  {"chat.go", `func (q *request) mutant() { f := sinkFunc(q.add); q.chat.order.Sink = f }; type sinkFunc func(*llm.ChatChunk); func (f sinkFunc) Add(c *llm.ChatChunk) { f(c) }; func (q *request) add(*llm.ChatChunk) {}`},
		"value of a context":        {"chat.go", `func (q *request) mutant() { q.ledger.readLevels(context.WithValue(q.backendCtx, 1, q)) }`},
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

// knowsRequest reports whether a file knows the request.
func (p *rootPackage) knowsRequest(name string) bool {
	return slices.Contains(requestFiles, name) || slices.ContainsFunc(p.files[name].Decls, p.isDescriptor)
}

// isDescriptor reports whether d declares an operation.
func (p *rootPackage) isDescriptor(d ast.Decl) bool {
	decl, ok := d.(*ast.GenDecl)
	return ok && decl.Tok == token.VAR && slices.ContainsFunc(decl.Specs, func(spec ast.Spec) bool {
		typ := p.info.Defs[spec.(*ast.ValueSpec).Names[0]].Type()
		if pointer, ok := typ.(*types.Pointer); ok {
			typ = pointer.Elem()
		}
		named, ok := typ.(*types.Named)
		return ok && named.Obj().Name() == "operation"
	})
}

// violations returns the places where a part gets to know the request.
func (p *rootPackage) violations() []string {
	var found []string
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, fmt.Sprintf("%s: %s", p.fset.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	p.findAsking()
	for name, file := range p.files {
		check := p.checkPart
		if p.knowsRequest(name) {
			check = p.checkUser
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); !ok || exceptions[p.nameOf(f)] == "" {
				check(d, report)
			}
		}
	}
	slices.Sort(found)
	return found
}

// nameOf returns the name of a function, after that of its receiver.
func (p *rootPackage) nameOf(f *ast.FuncDecl) string {
	return strings.ReplaceAll(p.info.Defs[f.Name].(*types.Func).FullName(), p.types.Path()+".", "")
}

type reporter func(n ast.Node, format string, args ...any)

// findAsking finds the functions and variables of the package that know the request: those that
// mention it, or one of them.
func (p *rootPackage) findAsking() {
	mentions := make(map[types.Object]ast.Node) // the declarations of the functions and variables
	for name, file := range p.files {
		if !p.knowsRequest(name) {
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
				p.checkPart(declaration, func(ast.Node, string, ...any) { p.asking[object], grown = true, true })
			}
		}
	}
}

// checkPart checks that nothing in a part has a type through which the request can be reached,
// or knows the request.
func (p *rootPackage) checkPart(part ast.Node, report reporter) {
	ast.Inspect(part, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		object := p.object(id)
		if object == nil {
			return true
		}
		if p.asking[object] {
			report(id, "%s knows the request", id.Name)
		}
		if p.reaches(object.Type()) {
			report(id, "the request is reached through %s", id.Name)
		}
		return true
	})
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

// checkUser checks a file that knows the request. No value of an interface in it may be what
// knows the request. No function that knows the request may go to a part, to a variable of the
// package, or to an element of a list or a map.
func (p *rootPackage) checkUser(user ast.Node, report reporter) {
	ast.PreorderStack(user, nil, func(n ast.Node, around []ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			p.checkCall(n, report)
		case *ast.ReturnStmt:
			p.checkAssigned(p.resultsOf(around), n.Results, nil, report)
		case *ast.AssignStmt:
			var types []types.Type
			for _, to := range n.Lhs {
				types = append(types, p.info.TypeOf(to))
			}
			p.checkAssigned(types, n.Rhs, n.Lhs, report)
		case *ast.ValueSpec:
			var types []types.Type
			for _, to := range n.Names {
				types = append(types, p.info.TypeOf(to))
			}
			p.checkAssigned(types, n.Values, nil, report)
		case *ast.CompositeLit:
			p.checkLiteral(n, report)
		case *ast.SendStmt:
			p.checkValue(nil, p.info.TypeOf(n.Value), n.Value, true, report)
		}
		return true
	})
}

// resultsOf returns the types of the results of the innermost of the functions around a node.
func (p *rootPackage) resultsOf(around []ast.Node) (list []types.Type) {
	for _, n := range slices.Backward(around) {
		var t types.Type
		switch f := n.(type) {
		case *ast.FuncDecl:
			t = p.info.Defs[f.Name].Type()
		case *ast.FuncLit:
			t = p.info.TypeOf(f)
		default:
			continue
		}
		for v := range t.(*types.Signature).Results().Variables() {
			list = append(list, v.Type())
		}
		return list
	}
	return nil
}

// checkAssigned checks values that become ones of the given types, in variables or fields unless
// these are nil. The values may be the results of one call.
func (p *rootPackage) checkAssigned(to []types.Type, values, variables []ast.Expr, report reporter) {
	for i := range to {
		if len(values) == 0 {
			return
		}
		value := values[min(i, len(values)-1)]
		from := p.info.TypeOf(value)
		if results, ok := from.(*types.Tuple); ok && results.Len() == len(to) {
			from = results.At(i).Type()
		}
		p.checkValue(to[i], from, value, variables != nil && p.leaves(variables[i]), report)
	}
}

// checkCall checks the arguments of a call, or the operand of a conversion.
func (p *rootPackage) checkCall(call *ast.CallExpr, report reporter) {
	f, ok := p.info.TypeOf(call.Fun).Underlying().(*types.Signature)
	if !ok || p.info.Types[call.Fun].IsType() {
		for _, arg := range call.Args {
			p.checkValue(p.info.TypeOf(call), p.info.TypeOf(arg), arg, false, report)
		}
		return
	}
	leaves := p.isOfPart(p.object(call.Fun))
	for i, arg := range call.Args {
		to := f.Params().At(min(i, f.Params().Len()-1)).Type()
		if list, ok := to.(*types.Slice); ok && f.Variadic() && i >= f.Params().Len()-1 && !call.Ellipsis.IsValid() {
			to = list.Elem()
		}
		p.checkValue(to, p.info.TypeOf(arg), arg, leaves, report)
		if leaves && p.reaches(to) && !p.isRequestContext(to) {
			report(arg, "the request leaves its files") // to a function with type parameters
		}
	}
}

// checkLiteral checks the fields or elements of a composite literal.
func (p *rootPackage) checkLiteral(literal *ast.CompositeLit, report reporter) {
	t := p.info.TypeOf(literal).Underlying()
	for i, value := range literal.Elts {
		pair, isPair := value.(*ast.KeyValueExpr)
		if isPair {
			value = pair.Value
		}
		var to types.Type
		leaves := true
		if s, ok := t.(*types.Struct); ok {
			field := types.Object(nil)
			if isPair {
				field = p.object(pair.Key)
			} else {
				field = s.Field(i)
			}
			to, leaves = field.Type(), p.isOfPart(field)
		} else {
			to = t.(interface{ Elem() types.Type }).Elem()
		}
		p.checkValue(to, p.info.TypeOf(value), value, leaves, report)
	}
}

// object returns the function or variable that an expression names, or nil.
func (p *rootPackage) object(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		switch object := cmp.Or(p.info.Uses[e], p.info.Defs[e]).(type) {
		case *types.Func:
			return object.Origin()
		case *types.Var:
			return object.Origin()
		default:
			return object
		}
	case *ast.SelectorExpr:
		return p.object(e.Sel)
	case *ast.IndexExpr:
		if f, ok := p.object(e.X).(*types.Func); ok { // with type arguments
			return f
		}
	}
	return nil
}

// isOfPart reports whether a function, field or variable belongs to a part. Nil is unknown.
func (p *rootPackage) isOfPart(object types.Object) bool {
	switch {
	case object == nil:
		return true
	case object.Pkg() == p.types:
		return !p.knowsRequest(p.fset.Position(object.Pos()).Filename)
	}
	return object.Pkg() != nil && object.Pkg().Path() == exchangePackage
}

// leaves reports whether what is assigned to an expression leaves the functions of the request:
// unless it is a local variable or a field of a file that knows the request.
func (p *rootPackage) leaves(to ast.Expr) bool {
	if id, ok := to.(*ast.Ident); ok && id.Name == "_" {
		return false
	}
	object := p.object(to)
	return p.isOfPart(object) || object.Parent() == p.types.Scope()
}

// checkValue checks a value of type from that becomes one of type to. leaves tells whether it
// leaves the functions of the request.
func (p *rootPackage) checkValue(to, from types.Type, value ast.Expr, leaves bool, report reporter) {
	becomesInterface := to != nil && isInterface(to) && !isInterface(from)
	if becomesInterface && p.reaches(from) && !p.isRequestContext(from) {
		report(value, "the request is in an interface")
	}
	if isFunction(from) && (leaves || becomesInterface) {
		p.checkFunction(value, report)
	}
}

// isInterface reports whether t is an interface and no type parameter.
func isInterface(t types.Type) bool {
	_, isParam := types.Unalias(t).(*types.TypeParam)
	return types.IsInterface(t) && !isParam
}

func isFunction(t types.Type) bool {
	_, ok := t.Underlying().(*types.Signature)
	return ok
}

// isRequestContext reports whether t is the context that has the request as a value.
func (p *rootPackage) isRequestContext(t types.Type) bool {
	return types.Identical(t, types.NewPointer(p.types.Scope().Lookup("requestContext").Type()))
}

// checkFunction checks that a function does not know the request. It is a literal, which is
// checked as a part is and uses no function that a variable has; a function or method; one of
// Options; or what a function of a part returns.
func (p *rootPackage) checkFunction(value ast.Expr, report reporter) {
	switch v := ast.Unparen(value).(type) {
	case *ast.FuncLit:
		p.checkPart(v, report)
		p.checkCaptured(v, report)
		return
	case *ast.CallExpr:
		if p.info.Types[v.Fun].IsType() {
			p.checkFunction(v.Args[0], report)
			return
		}
		if f := p.object(v.Fun); f != nil && p.isOfPart(f) {
			return
		}
	case *ast.Ident, *ast.SelectorExpr:
		if f, ok := p.object(v).(*types.Func); ok && !p.asking[f] || p.info.Types[v].IsNil() {
			return
		}
		if s, ok := v.(*ast.SelectorExpr); ok && types.Identical(p.info.TypeOf(s.X), p.types.Scope().Lookup("Options").Type()) {
			return
		}
	}
	report(value, "a function that may have the request leaves its files")
}

// checkCaptured checks that a closure does not use functions that variables around it have,
// except for setting them.
func (p *rootPackage) checkCaptured(f *ast.FuncLit, report reporter) {
	set := make(map[ast.Expr]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				set[to] = true
			}
		case *ast.Ident:
			v, ok := p.object(n).(*types.Var)
			if ok && !v.IsField() && isFunction(v.Type()) && (v.Pos() < f.Pos() || v.Pos() >= f.End()) && !set[n] {
				report(n, "a closure has a function that may have the request")
			}
		}
		return true
	})
}
