package main

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A size is what was measured of a package, without its tests.
type size struct {
	files, lines, code, comment int
	names, hostNames            int // exported, the latter without those that only authors need
	methods, fields             int // exported, of exported types
	references                  int // pairs of a file and another that it uses a declaration of
	mutual                      int // pairs of files that use each other
	knot, knotLines             int // files of the largest strongly connected set, and their lines
}

// measure measures a package, for which exports has the files with the types of its imports.
func measure(p *listed, exports map[string]string) (*size, error) {
	fset := token.NewFileSet()
	s := new(size)
	lines := make(map[string]int)
	var files []*ast.File
	for _, name := range p.sources() {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		lines[path] = bytes.Count(text, []byte("\n"))
		s.files++
		s.lines += lines[path]
		s.countLines(fset, file, text)
		s.countExports(file)
		if slices.Contains(p.GoFiles, name) { // others have declarations for other platforms
			files = append(files, file)
		}
	}
	uses, err := fileUses(fset, p, files, exports)
	if err != nil {
		return nil, err
	}
	s.countUses(uses, lines)
	return s, nil
}

// countLines counts the lines with code and those that have nothing but a comment.
func (s *size) countLines(fset *token.FileSet, file *ast.File, text []byte) {
	comments := make(map[int]bool)
	for _, group := range file.Comments {
		for _, c := range group.List {
			for n := fset.Position(c.Pos()).Line; n <= fset.Position(c.End()).Line; n++ {
				comments[n] = true
			}
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "":
		case comments[n] && (strings.HasPrefix(line, "//") || strings.HasPrefix(line, "/*") || !strings.Contains(line, "//")):
			s.comment++
		default:
			s.code++
		}
	}
}

// countExports counts what a file declares for users of the package.
func (s *size) countExports(file *ast.File) {
	for _, n := range exportedNames(file) {
		s.names++
		if !n.author {
			s.hostNames++
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil && d.Name.IsExported() && ast.IsExported(receiver(d)) {
				s.methods++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.IsExported() {
					s.countMembers(spec.Type)
				}
			}
		}
	}
}

// countMembers counts the fields and methods of an exported type.
func (s *size) countMembers(t ast.Expr) {
	switch t := t.(type) {
	case *ast.StructType:
		for _, f := range t.Fields.List {
			if len(f.Names) == 0 {
				s.fields++ // embedded
			}
			s.fields += exported(f.Names)
		}
	case *ast.InterfaceType:
		for _, m := range t.Methods.List {
			s.methods += exported(m.Names)
		}
	}
}

func exported(names []*ast.Ident) (n int) {
	for _, name := range names {
		if name.IsExported() {
			n++
		}
	}
	return n
}

// receiver returns the name of the type of a method.
func receiver(d *ast.FuncDecl) string {
	for t := d.Recv.List[0].Type; ; {
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
			return ""
		}
	}
}

// fileUses returns for each file the others of the package that have a declaration which it uses: a
// name of the package, a field or a method. Assertions do not count.
func fileUses(fset *token.FileSet, p *listed, files []*ast.File, exports map[string]string) (map[string]map[string]bool, error) {
	lookup := func(path string) (io.ReadCloser, error) {
		if mapped, ok := p.ImportMap[path]; ok {
			path = mapped
		}
		return os.Open(exports[path])
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object)}
	pkg, err := config.Check(p.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		forgetAssertions(info, file)
	}
	uses := make(map[string]map[string]bool)
	for id, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(object.Pos()).Filename
		if from == to || to == "" {
			continue
		}
		if uses[from] == nil {
			uses[from] = make(map[string]bool)
		}
		uses[from][to] = true
	}
	return uses, nil
}

// forgetAssertions removes the uses in declarations such as var _ Backend = (*Swap)(nil), by which no
// code depends on another.
func forgetAssertions(info *types.Info, file *ast.File) {
	for _, d := range file.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			spec, ok := spec.(*ast.ValueSpec)
			if !ok || slices.ContainsFunc(spec.Names, func(name *ast.Ident) bool { return name.Name != "_" }) {
				continue
			}
			ast.Inspect(spec, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					delete(info.Uses, id)
				}
				return true
			})
		}
	}
}

// countUses counts how the files use each other.
func (s *size) countUses(uses map[string]map[string]bool, lines map[string]int) {
	for from, all := range uses {
		s.references += len(all)
		for to := range all {
			if from < to && uses[to][from] {
				s.mutual++
			}
		}
	}
	reachable := make(map[string]map[string]bool)
	for file := range lines {
		reachable[file] = reach(uses, file)
	}
	for file := range lines {
		files, n := 1, lines[file]
		for other := range reachable[file] {
			if other != file && reachable[other][file] {
				files++
				n += lines[other]
			}
		}
		if files > s.knot || files == s.knot && n > s.knotLines {
			s.knot, s.knotLines = files, n
		}
	}
}

// reach returns the files that a file uses, directly or through others.
func reach(uses map[string]map[string]bool, file string) map[string]bool {
	seen := make(map[string]bool)
	for todo := []string{file}; len(todo) > 0; {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for next := range uses[last] {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return seen
}

// importsBelow reports whether a file imports a package or one below it.
func importsBelow(text []byte, parent string) (bool, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	if err != nil {
		return false, err
	}
	for _, i := range file.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return false, err
		}
		if path == parent || strings.HasPrefix(path, parent+"/") {
			return true, nil
		}
	}
	return false, nil
}
