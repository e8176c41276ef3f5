// Move moves declarations of the root package to other packages, by a table: see README.md.
//
//	move DIR TABLE [PUBLIC]
//
// DIR is the root of the module. Without PUBLIC, a file for the exported names that have moved, it only
// tells what Go would forbid.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/llmhttp/llmhttp"

type edit struct {
	start, end int
	text       string
	seq        int
}

type chunk struct {
	start, end int // bytes of the file, with comments before it
	to         place
	moved      bool
	wrap       string // const, var, type: the keyword of the group it was in
	names      []string
}

type file struct {
	name   string
	ast    *ast.File
	src    []byte
	chunks []chunk
	edits  []edit
	test   bool
}

type mover struct {
	t        *table
	dir      string
	p        *packages.Package
	files    []*file
	rename   map[types.Object]string
	funcs    map[types.Object]string
	owner    map[types.Object]types.Object // field or method: its type
	where    map[types.Object]place        // package-level object
	imports  map[string]map[string]string  // output file: path: name
	problems map[string]map[string]bool
	public   map[string]target

	publicFile string // gets the public names that have moved
}

func (m *mover) problem(kind, text string) {
	if m.problems[kind] == nil {
		m.problems[kind] = map[string]bool{}
	}
	m.problems[kind][text] = true
}

func main() {
	dir, tab := os.Args[1], os.Args[2]
	dry := len(os.Args) < 4
	m := &mover{t: readTable(tab), dir: dir, rename: map[types.Object]string{}, funcs: map[types.Object]string{},
		owner: map[types.Object]types.Object{}, where: map[types.Object]place{}, imports: map[string]map[string]string{}, problems: map[string]map[string]bool{}}
	m.load()
	m.index()
	for _, f := range m.files {
		m.place(f)
	}
	m.public = m.publicTable()
	for _, f := range m.files {
		m.editIdents(f)
		m.editComments(f)
	}
	for _, kind := range slices.Sorted(mapKeys(m.problems)) {
		fmt.Printf("== %s: %d\n", kind, len(m.problems[kind]))
		for _, s := range slices.Sorted(mapKeys(m.problems[kind])) {
			fmt.Println("   ", s)
		}
	}
	if dry {
		return
	}
	m.publicFile = os.Args[3]
	m.write()
	m.others()
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (m *mover) load() {
	cfg := &packages.Config{Dir: m.dir, Tests: true, Mode: packages.NeedName | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedFiles | packages.NeedImports | packages.NeedDeps}
	pkgs, err := packages.Load(cfg, ".")
	if err != nil {
		panic(err)
	}
	for _, p := range pkgs {
		if p.Name == "llmhttp" && strings.Contains(p.ID, "[") {
			m.p = p
		}
	}
	if m.p == nil {
		panic("no package with tests")
	}
	for _, e := range m.p.Errors {
		fmt.Println("error:", e)
	}
	for _, f := range m.p.Syntax {
		name := m.p.Fset.Position(f.Pos()).Filename
		src, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		m.files = append(m.files, &file{name: filepath.Base(name), ast: f, src: src, test: strings.HasSuffix(name, "_test.go")})
	}
}

func (m *mover) off(p token.Pos) int { return m.p.Fset.Position(p).Offset }

// base returns the type name of a receiver.
func base(t types.Type) *types.TypeName {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Origin().Obj()
	}
	return nil
}

func (m *mover) index() {
	scope := m.p.Types.Scope()
	seen := map[string]bool{}
	apply := func(name string, o types.Object) {
		if n, ok := m.t.names[name]; ok {
			m.rename[o], seen[name] = n, true
		}
		if n, ok := m.t.funcs[name]; ok {
			m.funcs[o], seen[name] = n, true
		}
	}
	var fields func(owner types.Object, t types.Type)
	fields = func(owner types.Object, t types.Type) {
		switch t := t.(type) {
		case *types.Struct:
			for i := range t.NumFields() {
				f := t.Field(i)
				if m.owner[f] != nil {
					continue
				}
				m.owner[f] = owner
				apply(owner.Name()+"."+f.Name(), f)
				fields(owner, f.Type())
			}
		case *types.Pointer:
			fields(owner, t.Elem())
		case *types.Slice:
			fields(owner, t.Elem())
		case *types.Interface:
			for i := range t.NumExplicitMethods() {
				f := t.ExplicitMethod(i)
				m.owner[f] = owner
				apply(owner.Name()+"."+f.Name(), f)
			}
		}
	}
	for _, n := range scope.Names() {
		o := scope.Lookup(n)
		apply(n, o)
		tn, ok := o.(*types.TypeName)
		if !ok {
			continue
		}
		if named, ok := tn.Type().(*types.Named); ok {
			for i := range named.NumMethods() {
				f := named.Method(i)
				m.owner[f] = tn
				apply(n+"."+f.Name(), f)
			}
			fields(tn, named.Underlying())
		}
	}
	for o := range m.rename {
		if p, ok := m.t.extern[m.key(o)]; ok {
			m.where[o] = p
			if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
				m.funcs[o] = m.rename[o]
				delete(m.rename, o)
			}
		}
	}
	for name := range m.t.names {
		if !seen[name] {
			m.problem("unknown in table", name)
		}
	}
	for name := range m.t.funcs {
		if !seen[name] {
			m.problem("unknown in table", name)
		}
	}
}

// key returns the name of an object in the table.
func (m *mover) key(o types.Object) string {
	if owner := m.owner[o]; owner != nil {
		return owner.Name() + "." + o.Name()
	}
	return o.Name()
}

// declNames returns the names that a spec or a function declares, and their objects.
func (m *mover) placeOf(f *file, names []string, recv string) place {
	for _, n := range names {
		if p, ok := m.t.decls[n]; ok {
			return p
		}
	}
	if recv != "" {
		tn := m.p.Types.Scope().Lookup(recv)
		tp := m.typePlace(tn)
		if p, ok := m.t.files[f.name]; ok && p.pkg == tp.pkg {
			return p
		}
		if tp.pkg == "." {
			return place{".", f.name}
		}
		return tp
	}
	if p, ok := m.t.files[f.name]; ok {
		return p
	}
	return place{".", f.name}
}

func (m *mover) typePlace(tn types.Object) place {
	if p, ok := m.t.decls[tn.Name()]; ok {
		return p
	}
	name := filepath.Base(m.p.Fset.Position(tn.Pos()).Filename)
	if p, ok := m.t.files[name]; ok {
		return p
	}
	return place{".", name}
}

func recvName(fd *ast.FuncDecl) string {
	if fd.Recv == nil {
		return ""
	}
	t := fd.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			panic("receiver")
		}
	}
}

// lineEnd returns the offset behind the end of the line, with a comment that stands on it.
func lineEnd(src []byte, i int) int {
	for i < len(src) && src[i] != '\n' {
		i++
	}
	return min(i+1, len(src))
}

func (m *mover) place(f *file) {
	var last int
	for i, d := range f.ast.Decls {
		_ = i
		end := lineEnd(f.src, m.off(d.End()))
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			last = end
			continue
		}
		start := last
		if start == 0 {
			start = lineEnd(f.src, m.off(f.ast.Name.End()))
		}
		last = end
		add := func(c chunk) {
			c.moved = c.to.pkg != "." || c.to.file != f.name
			for _, n := range c.names {
				if m.t.drop[n] {
					c.moved, c.to = true, place{}
				}
			}
			f.chunks = append(f.chunks, c)
		}
		switch d := d.(type) {
		case *ast.FuncDecl:
			recv := recvName(d)
			names := []string{d.Name.Name}
			if recv != "" {
				names = []string{recv + "." + d.Name.Name}
			}
			o := m.p.TypesInfo.Defs[d.Name]
			if to, ok := m.funcs[o]; ok {
				recv = ""
				names = []string{to, names[0]}
			}
			if d.Name.Name == "init" || d.Name.Name == "_" {
				names = nil
			}
			to := m.placeOf(f, names, recv)
			if _, ok := m.t.extern[m.key(o)]; recv == "" && !ok {
				m.where[o] = to
			}
			add(chunk{start: start, end: end, to: to, names: names})
		case *ast.GenDecl:
			places := map[place]bool{}
			type one struct {
				start, end int
				to         place
				names      []string
			}
			var all []one
			from := 0
			if d.Lparen.IsValid() {
				from = m.off(d.Lparen) + 1
			}
			for _, s := range d.Specs {
				var names []string
				var objs []types.Object
				switch s := s.(type) {
				case *ast.TypeSpec:
					names, objs = []string{s.Name.Name}, []types.Object{m.p.TypesInfo.Defs[s.Name]}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.Name == "_" {
							// var _ I = T{}: with the type of the value
							if t := m.typeOfBlank(s); t != nil {
								to := m.typePlace(t)
								if to.pkg != "." {
									to.file = cmpOr(m.t.files[f.name], to).file
									all = append(all, one{from, lineEnd(f.src, m.off(s.End())), to, nil})
									places[to] = true
									from = lineEnd(f.src, m.off(s.End()))
									names = nil
									objs = []types.Object{nil}
								}
							}
							continue
						}
						names = append(names, n.Name)
						objs = append(objs, m.p.TypesInfo.Defs[n])
					}
				}
				if len(objs) == 1 && objs[0] == nil && names == nil {
					continue
				}
				to := m.placeOf(f, names, "")
				for _, o := range objs {
					if _, ok := m.t.extern[o.Name()]; !ok {
						m.where[o] = to
					}
				}
				e := lineEnd(f.src, m.off(s.End()))
				all = append(all, one{from, e, to, names})
				from = e
				places[to] = true
			}
			dropped := 0
			for _, o := range all {
				for _, n := range o.names {
					if m.t.drop[n] {
						dropped++
						break
					}
				}
			}
			if len(places) == 1 && (dropped == 0 || dropped == len(all)) {
				c := chunk{start: start, end: end, to: all[0].to}
				for _, o := range all {
					c.names = append(c.names, o.names...)
				}
				add(c)
				continue
			}
			if bytes.Contains(f.src[start:end], []byte("iota")) {
				m.problem("split of iota", fmt.Sprint(f.name, " ", all[0].names))
			}
			for _, o := range all {
				add(chunk{start: o.start, end: o.end, to: o.to, wrap: d.Tok.String(), names: o.names})
			}
		}
	}
}

func cmpOr(a, b place) place {
	if a.file != "" {
		return a
	}
	return b
}

// typeOfBlank returns the type of the root whose methods var _ I = T{} checks.
func (m *mover) typeOfBlank(s *ast.ValueSpec) types.Object {
	if len(s.Values) != 1 {
		return nil
	}
	t := m.p.TypesInfo.Types[s.Values[0]].Type
	if t == nil {
		return nil
	}
	if tn := base(t); tn != nil && tn.Pkg() == m.p.Types {
		return tn
	}
	return nil
}

// at returns where the code at an offset of f goes.
func (f *file) at(off int) (place, *chunk) {
	for i := range f.chunks {
		c := &f.chunks[i]
		if off >= c.start && off < c.end {
			if c.to == (place{}) {
				return place{".", f.name}, c
			}
			return c.to, c
		}
	}
	return place{".", f.name}, nil
}

func (f *file) edit(start, end int, text string) {
	f.edits = append(f.edits, edit{start, end, text, len(f.edits)})
}

func (m *mover) addImport(out place, path, name string) {
	key := filepath.Join(out.pkg, out.file)
	if m.imports[key] == nil {
		m.imports[key] = map[string]string{}
	}
	m.imports[key][path] = name
}

func importPath(pkg string) string {
	if pkg == "." {
		return module
	}
	return module + "/" + pkg
}

func (m *mover) floor(pkg string) int {
	n, ok := m.t.floors[pkg]
	if !ok {
		m.problem("no floor", pkg)
	}
	return n
}

// ref returns how the object is named in a place.
func (m *mover) ref(o types.Object, from place, pos token.Pos, use string) string {
	name := o.Name()
	if n, ok := m.rename[o]; ok {
		name = n
	}
	if n, ok := m.funcs[o]; ok {
		name = n
	}
	to, ok := m.where[o]
	if !ok || to.pkg == from.pkg || from.pkg == "." && m.t.alias[o.Name()] {
		return name
	}
	if m.floor(from.pkg) <= m.floor(to.pkg) {
		m.problem("forbidden "+from.pkg+" -> "+to.pkg, use+" -> "+name)
	}
	if !ast.IsExported(name) {
		m.problem("unexported of "+to.pkg, name+" <- "+from.pkg+" "+use)
	}
	m.addImport(from, importPath(to.pkg), "")
	pkgName := to.name()
	if inner := m.p.Types.Scope().Innermost(pos); inner != nil {
		if _, other := inner.LookupParent(pkgName, pos); other != nil {
			if _, isPkg := other.(*types.PkgName); !isPkg {
				m.problem("shadowed", fmt.Sprintf("%s by %s at %s", pkgName, other, m.p.Fset.Position(pos)))
			}
		}
	}
	return pkgName + "." + name
}

func (c *chunk) String() string {
	if c == nil || len(c.names) == 0 {
		return "?"
	}
	return c.names[0]
}

func (m *mover) editIdents(f *file) {
	info := m.p.TypesInfo
	skip := map[*ast.Ident]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			to, ok := m.funcs[info.Defs[n.Name]]
			if !ok || n.Recv == nil {
				return true
			}
			skip[n.Name] = true
			r := n.Recv.List[0]
			// func (r *T) m(a A) -> func Name(r *T, a A)
			f.edit(m.off(n.Recv.Pos()), m.off(r.Pos()), to+"(")
			if len(r.Names) == 0 {
				f.edit(m.off(r.Pos()), m.off(r.Pos()), "_ ")
			}
			sep := ", "
			if len(n.Type.Params.List) == 0 {
				sep = ""
			}
			f.edit(m.off(r.End()), m.off(n.Type.Params.Opening)+1, sep)
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			sel := info.Selections[s]
			if sel == nil || sel.Kind() != types.MethodVal {
				return true
			}
			fn := sel.Obj().(*types.Func).Origin()
			if _, ok := m.funcs[fn]; !ok {
				return true
			}
			skip[s.Sel] = true
			from, c := f.at(m.off(n.Pos()))
			name := m.ref(fn, from, n.Pos(), c.String())
			_, wantPtr := fn.Signature().Recv().Type().(*types.Pointer)
			_, isPtr := info.TypeOf(s.X).(*types.Pointer)
			if len(sel.Index()) > 1 {
				m.problem("promoted method", m.p.Fset.Position(n.Pos()).String())
			}
			prefix := ""
			switch {
			case wantPtr && !isPtr:
				prefix = "&"
			case !wantPtr && isPtr:
				prefix = "*"
			}
			x := s.X
			if p, ok := x.(*ast.ParenExpr); ok && prefix == "" {
				_ = p
			}
			f.edit(m.off(n.Pos()), m.off(n.Pos()), name+"("+prefix)
			sep := ", "
			if len(n.Args) == 0 {
				sep = ""
			}
			f.edit(m.off(s.X.End()), m.off(n.Lparen)+1, sep)
		case *ast.SelectorExpr:
			sel := info.Selections[n]
			if sel == nil || sel.Kind() == types.FieldVal {
				return true
			}
			fn := sel.Obj().(*types.Func).Origin()
			if _, ok := m.funcs[fn]; !ok || skip[n.Sel] {
				return true
			}
			skip[n.Sel] = true
			if sel.Kind() == types.MethodExpr {
				from, c := f.at(m.off(n.Pos()))
				f.edit(m.off(n.Pos()), m.off(n.End()), m.ref(fn, from, n.Pos(), c.String()))
				ast.Inspect(n.X, func(x ast.Node) bool {
					if id, ok := x.(*ast.Ident); ok {
						skip[id] = true
					}
					return true
				})
				return true
			}
			m.problem("method value", m.p.Fset.Position(n.Pos()).String())
		}
		return true
	})
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		id, ok := n.(*ast.Ident)
		if !ok || skip[id] {
			return true
		}
		o := info.Uses[id]
		def := false
		if o == nil {
			if o = info.Defs[id]; o == nil {
				return true
			}
			def = true
		}
		switch x := o.(type) {
		case *types.Var:
			o = x.Origin()
		case *types.Func:
			o = x.Origin()
		}
		off := m.off(id.Pos())
		from, c := f.at(off)
		if c != nil && c.to == (place{}) {
			return true // goes
		}
		if p, ok := o.(*types.PkgName); ok {
			if def {
				return true
			}
			name := ""
			if p.Name() != p.Imported().Name() {
				name = p.Name()
			}
			m.addImport(from, p.Imported().Path(), name)
			return true
		}
		if o.Pkg() != m.p.Types {
			return true
		}
		if def {
			if n, ok := m.rename[o]; ok {
				f.edit(off, off+len(id.Name), n)
			}
			return true
		}
		if o.Parent() == m.p.Types.Scope() {
			if text := m.ref(o, from, id.Pos(), c.String()); text != id.Name {
				f.edit(off, off+len(id.Name), text)
			}
			return true
		}
		name := id.Name
		if n, ok := m.rename[o]; ok {
			name = n
			f.edit(off, off+len(id.Name), n)
		}
		if owner := m.owner[o]; owner != nil && !ast.IsExported(name) {
			if to, ok := m.where[owner]; ok && to.pkg != from.pkg {
				m.problem("unexported of "+to.pkg, owner.Name()+"."+name+" <- "+from.pkg+" "+c.String())
			}
		}
		return true
	})
}

var (
	docLink = regexp.MustCompile(`\[(\*?)([A-Z]\w*)((?:\.[A-Z]\w*)?)\]`)
	word    = regexp.MustCompile(`(?:\b[A-Za-z]\w*\.)?\b[a-zA-Z]\w*\b`)
)

// renamedWords maps words of comments, such as outputCounter and orderer.addChoice.
func (m *mover) renamed(from place, w string) (string, bool) {
	scope := m.p.Types.Scope()
	t, member, isMember := strings.Cut(w, ".")
	if isMember {
		tn := scope.Lookup(t)
		if tn == nil {
			return "", false
		}
		for o, owner := range m.owner {
			if owner == tn && o.Name() == member {
				if n, ok := m.funcs[o]; ok {
					return m.qualified(o, from, n), true
				}
				tname := cmpName(m.rename[tn], t)
				n, ok := m.rename[o]
				if !ok {
					n = member
				}
				if tname == t && n == member {
					return "", false
				}
				return m.qualified(tn, from, tname) + "." + n, true
			}
		}
		return "", false
	}
	o := scope.Lookup(w)
	if o == nil {
		return "", false
	}
	n, ok := m.rename[o]
	if !ok || strings.ToLower(w) == w { // an ordinary word
		return "", false
	}
	return m.qualified(o, from, n), true
}

func (m *mover) qualified(o types.Object, from place, name string) string {
	to, ok := m.where[o]
	if !ok || to.pkg == from.pkg {
		return name
	}
	return to.name() + "." + name
}

func cmpName(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (m *mover) editComments(f *file) {
	scope := m.p.Types.Scope()
	docs := map[*ast.CommentGroup]types.Object{}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			docs[d.Doc] = m.p.TypesInfo.Defs[d.Name]
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					docs[s.Doc] = m.p.TypesInfo.Defs[s.Name]
					if len(d.Specs) == 1 {
						docs[d.Doc] = m.p.TypesInfo.Defs[s.Name]
					}
				case *ast.ValueSpec:
					docs[s.Doc] = m.p.TypesInfo.Defs[s.Names[0]]
					if len(d.Specs) == 1 {
						docs[d.Doc] = m.p.TypesInfo.Defs[s.Names[0]]
					}
				}
			}
		}
	}
	for _, g := range f.ast.Comments {
		from, c := f.at(m.off(g.Pos()))
		if c != nil && c.to == (place{}) {
			continue
		}
		start, end := m.off(g.Pos()), m.off(g.End())
		old := string(f.src[start:end])
		text := docLink.ReplaceAllStringFunc(old, func(s string) string {
			w := docLink.FindStringSubmatch(s)
			o := scope.Lookup(w[2])
			if o == nil {
				return s
			}
			to, ok := m.where[o]
			name := cmpName(m.rename[o], w[2])
			if !ok || to.pkg == from.pkg {
				return "[" + w[1] + name + w[3] + "]"
			}
			if m.floor(from.pkg) > m.floor(to.pkg) {
				return "[" + w[1] + to.name() + "." + name + w[3] + "]"
			}
			return name + w[3]
		})
		if o := docs[g]; o != nil {
			n := cmpName(m.rename[o], m.funcs[o])
			if n != "" {
				if strings.ToLower(o.Name()) != o.Name() {
					text = regexp.MustCompile(`\b`+o.Name()+`\b`).ReplaceAllString(text, n)
				} else if rest, ok := strings.CutPrefix(text, "// "+o.Name()+" "); ok { // an ordinary word
					text = "// " + n + " " + rest
				}
			}
		}
		text = word.ReplaceAllStringFunc(text, func(w string) string {
			if n, ok := m.renamed(from, w); ok {
				return n
			}
			return w
		})
		text = string(renameText([]byte(text), m.public))
		if text != old {
			f.edit(start, end, text)
		}
	}
}

// apply returns src[start:end] with the edits in it.
func (f *file) apply(start, end int) string {
	var in []edit
	for _, e := range f.edits {
		if e.start >= start && e.end <= end {
			in = append(in, e)
		}
	}
	sort.SliceStable(in, func(i, j int) bool {
		if in[i].start != in[j].start {
			return in[i].start < in[j].start
		}
		// Insertions come before what replaces text at the same place.
		return in[i].end == in[i].start && in[j].end != in[j].start
	})
	var b strings.Builder
	at := start
	for _, e := range in {
		if e.start < at {
			panic(fmt.Sprintf("%s: overlapping edits: %q at %d", f.name, e.text, e.start))
		}
		b.Write(f.src[at:e.start])
		b.WriteString(e.text)
		at = e.end
	}
	b.Write(f.src[at:end])
	return b.String()
}

func (m *mover) write() {
	out := map[place]*strings.Builder{}
	var order []place
	for _, f := range m.files {
		for i := range f.chunks {
			c := &f.chunks[i]
			if !c.moved || c.to == (place{}) {
				continue
			}
			b := out[c.to]
			if b == nil {
				b = new(strings.Builder)
				out[c.to] = b
				order = append(order, c.to)
			}
			text := f.apply(c.start, c.end)
			if c.wrap != "" {
				text = "\n" + c.wrap + " (\n" + text + "\n)\n"
			}
			b.WriteString("\n" + text)
		}
	}
	for _, f := range m.files {
		self := place{".", f.name}
		var b strings.Builder
		header := lineEnd(f.src, m.off(f.ast.Name.End()))
		at := header
		for _, d := range f.ast.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				at = lineEnd(f.src, m.off(d.End()))
			}
		}
		empty := true
		for _, c := range f.chunks {
			if c.moved {
				b.WriteString(f.apply(at, max(at, c.start)))
				at = c.end
			} else {
				empty = false
			}
		}
		name := filepath.Join(m.dir, f.name)
		if empty && len(f.chunks) > 0 && out[self] == nil {
			if err := os.Remove(name); err != nil {
				panic(err)
			}
			continue
		}
		if at < len(f.src) {
			b.WriteString(f.apply(at, len(f.src)))
		}
		body := b.String()
		if o := out[self]; o != nil {
			body += o.String()
			delete(out, self)
		}
		for _, d := range f.ast.Imports { // blank imports stay
			if d.Name != nil && d.Name.Name == "_" {
				m.addImport(self, strings.Trim(d.Path.Value, `"`), "_")
			}
		}
		m.save(name, f.apply(0, header), m.imports[filepath.Join(".", f.name)], body)
	}
	for _, p := range order {
		o := out[p]
		if o == nil {
			continue
		}
		name := filepath.Join(m.dir, p.pkg, p.file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			panic(err)
		}
		if old, err := os.ReadFile(name); err == nil {
			panic("exists: " + name + " " + string(old[:20]))
		}
		m.save(name, "package "+p.name()+"\n", m.imports[filepath.Join(p.pkg, p.file)], o.String())
	}
}

func (m *mover) save(name, header string, imports map[string]string, body string) {
	var b strings.Builder
	b.WriteString(header)
	b.WriteString(importBlock(imports))
	b.WriteString(body)
	text, err := format.Source([]byte(b.String()))
	if err != nil {
		fmt.Println("format", name, err)
		text = []byte(b.String())
	}
	text = bytes.ReplaceAll(text, []byte("\n\n\n"), []byte("\n\n"))
	if err := os.WriteFile(name, text, 0o644); err != nil {
		panic(err)
	}
}

func importBlock(imports map[string]string) string {
	var std, other []string
	for path, name := range imports {
		line := "\t"
		if name != "" {
			line += name + " "
		}
		line += `"` + path + "\"\n"
		first, _, _ := strings.Cut(path, "/")
		if strings.Contains(first, ".") {
			other = append(other, line)
		} else {
			std = append(std, line)
		}
	}
	byPath := func(a, b string) int {
		return strings.Compare(a[strings.IndexByte(a, '"'):], b[strings.IndexByte(b, '"'):])
	}
	slices.SortFunc(std, byPath)
	slices.SortFunc(other, byPath)
	all := append(slices.Clip(std), other...)
	switch {
	case len(all) == 0:
		return ""
	case len(all) == 1:
		return "\nimport " + strings.TrimSpace(all[0]) + "\n"
	}
	s := "\nimport (\n" + strings.Join(std, "")
	if len(std) > 0 && len(other) > 0 {
		s += "\n"
	}
	return s + strings.Join(other, "") + ")\n"
}
