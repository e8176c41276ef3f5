package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A target is the new name of an exported name of the root.
type target struct{ pkg, name string }

// publicTable returns the exported names of the root that have moved or were renamed.
func (m *mover) publicTable() map[string]target {
	all := map[string]target{}
	scope := m.p.Types.Scope()
	for _, n := range scope.Names() {
		o := scope.Lookup(n)
		to, ok := m.where[o]
		if !ok || !ast.IsExported(n) || strings.HasSuffix(m.p.Fset.Position(o.Pos()).Filename, "_test.go") {
			continue
		}
		name := cmpName(m.rename[o], n)
		if to.pkg != "." || name != n {
			all[n] = target{to.pkg, name}
		}
	}
	return all
}

// others rewrites the files of other packages by their syntax, and documents by their text.
func (m *mover) others() {
	table := m.publicTable()
	var lines []string
	for n, t := range table {
		lines = append(lines, fmt.Sprintf("%s %s.%s\n", n, t.pkg, t.name))
	}
	slices.Sort(lines)
	if err := os.WriteFile(m.publicFile, []byte(strings.Join(lines, "")), 0o644); err != nil {
		panic(err)
	}
	own := map[string]bool{}
	for _, f := range m.files {
		own[f.name] = true
	}
	out, err := exec.Command("git", "-C", m.dir, "ls-files", "*.go", "*.md").Output()
	if err != nil {
		panic(err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if own[name] || name == "CHANGELOG.md" {
			continue
		}
		path := filepath.Join(m.dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			continue // moved
		}
		var text []byte
		if strings.HasSuffix(name, ".md") {
			text = renameText(src, table)
		} else if text, err = renameFile(path, src, table); err != nil {
			fmt.Println(name, err)
			continue
		}
		if !bytes.Equal(text, src) {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				panic(err)
			}
		}
	}
	_ = types.Universe
}

var qualified = regexp.MustCompile(`\bllmhttp\.([A-Z]\w*)`)

func renameText(src []byte, table map[string]target) []byte {
	return qualified.ReplaceAllFunc(src, func(s []byte) []byte {
		if t, ok := table[string(s[len("llmhttp."):])]; ok {
			return []byte(filepath.Base(t.pkg) + "." + t.name)
		}
		return s
	})
}

// renameFile returns a Go file with the new names.
func renameFile(path string, src []byte, table map[string]target) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	local := ""
	var spec *ast.ImportSpec
	for _, s := range f.Imports {
		if strings.Trim(s.Path.Value, `"`) == module {
			spec, local = s, "llmhttp"
			if s.Name != nil {
				local = s.Name.Name
			}
		}
	}
	type edit struct {
		start, end int
		text       string
	}
	var edits []edit
	off := func(p token.Pos) int { return fset.Position(p).Offset }
	for _, g := range f.Comments {
		old := src[off(g.Pos()):off(g.End())]
		if text := renameText(old, table); !bytes.Equal(text, old) {
			edits = append(edits, edit{off(g.Pos()), off(g.End()), string(text)})
		}
	}
	used := map[string]bool{}
	rest := false
	if spec != nil {
		ast.Inspect(f, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if !ok || x.Name != local || x.Obj != nil {
				return true
			}
			t, ok := table[s.Sel.Name]
			if !ok {
				rest = true
				return true
			}
			used[t.pkg] = true
			edits = append(edits, edit{off(s.Pos()), off(s.End()), filepath.Base(t.pkg) + "." + t.name})
			return true
		})
		for pkg := range used {
			name := filepath.Base(pkg)
			ast.Inspect(f, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && id.Name == name && id.Obj != nil {
					fmt.Println("shadowed", name, fset.Position(id.Pos()))
				}
				return true
			})
		}
		if len(used) > 0 {
			text := ""
			if rest || spec.Name != nil && spec.Name.Name == "_" {
				text = string(src[off(spec.Pos()):off(spec.End())])
			}
			for _, pkg := range slices.Sorted(mapKeys(used)) {
				if text != "" {
					text += "\n\t"
				}
				text += `"` + importPath(pkg) + `"`
			}
			var decl *ast.GenDecl
			for _, d := range f.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT && g.Pos() <= spec.Pos() && spec.End() <= g.End() {
					decl = g
				}
			}
			if !decl.Lparen.IsValid() && strings.Contains(text, "\n") {
				text = "(\n\t" + text + "\n)"
			}
			edits = append(edits, edit{off(spec.Pos()), off(spec.End()), text})
		}
	}
	if len(edits) == 0 {
		return src, nil
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.start - b.start })
	var b bytes.Buffer
	at := 0
	for _, e := range edits {
		b.Write(src[at:e.start])
		b.WriteString(e.text)
		at = e.end
	}
	b.Write(src[at:])
	return format.Source(b.Bytes())
}
