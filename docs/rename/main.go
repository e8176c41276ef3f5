// Rename gives Go programs the names that parts of package llmhttp have since their move to other
// packages, and literals of its Options the structs that some fields are in. It changes the files in the
// directories that it gets, and in those below them. In a clone of the repository:
//
//	go run ./docs/rename ../host
//
// It knows no types, only names: renames.txt has them, and what is left to do by hand. It tells where a
// variable has the name of a package that the file needs.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/llmhttp/llmhttp"

//go:embed renames.txt
var renames string

// A target is where a name is now.
type target struct{ pkg, name string }

// parseTable parses lines such as "ChatRequest llm.ChatRequest". Those that begin with # are comments.
func parseTable(text string) map[string]target {
	table := make(map[string]target)
	for line := range strings.Lines(text) {
		if old, now, ok := strings.Cut(strings.TrimSpace(line), " "); ok && old != "#" {
			pkg, name, _ := strings.Cut(now, ".")
			table[old] = target{path.Join(module, pkg), name}
		}
	}
	return table
}

func main() {
	table := parseTable(renames)
	for _, root := range os.Args[1:] {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(name) != ".go" {
				return err
			}
			return renameFile(name, table)
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "rename:", err)
			os.Exit(1)
		}
	}
}

// renameFile renames in a file, unless nothing in it has another name.
func renameFile(name string, table map[string]target) error {
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	renamed, warnings, err := rename(name, src, table)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "rename:", w)
	}
	if bytes.Equal(src, renamed) {
		return nil
	}
	return os.WriteFile(name, renamed, 0o644)
}

// An edit replaces bytes of a file.
type edit struct {
	start, end int
	text       string
}

// rename returns the Go file src with the names of the table. The warnings tell what hides a package
// that the file needs.
func rename(name string, src []byte, table map[string]target) (renamed []byte, warnings []string, err error) {
	imported, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
	if err != nil {
		return nil, nil, err
	}
	spec := findImport(imported)
	if spec == nil {
		return src, nil, nil
	}
	local := "llmhttp"
	if spec.Name != nil {
		local = spec.Name.Name
	}
	original := src
	if src, err = groupOptions(name, src, local); err != nil {
		return nil, nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	spec = findImport(f)
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var edits []edit
	used, stays := make(map[string]bool), false
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if !isPackage(s.X, local) {
			return true
		}
		to, moved := table[s.Sel.Name]
		if !moved {
			stays = true
			return true
		}
		if to.pkg == module {
			stays = true
			edits = append(edits, edit{offset(s.Sel.Pos()), offset(s.Sel.End()), to.name})
			return true
		}
		used[to.pkg] = true
		edits = append(edits, edit{offset(s.Pos()), offset(s.End()), path.Base(to.pkg) + "." + to.name})
		return true
	})
	if len(edits) == 0 && bytes.Equal(src, original) {
		return src, nil, nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Obj != nil {
			for pkg := range used {
				if path.Base(pkg) == id.Name {
					warnings = append(warnings, fmt.Sprintf("%s: %s may hide package %s", fset.Position(id.Pos()), id.Name, pkg))
				}
			}
		}
		return true
	})
	for _, s := range f.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil && s.Name == nil {
			delete(used, p)
		}
	}
	edits = append(edits, edit{offset(spec.Pos()), offset(spec.End()), imports(src[offset(spec.Pos()):offset(spec.End())], used, stays, isAlone(f, spec))})
	renamed, err = format.Source(apply(src, edits))
	return renamed, warnings, err
}

// isPackage reports whether e is the name of a package.
func isPackage(e ast.Expr, name string) bool {
	x, ok := e.(*ast.Ident)
	return ok && x.Name == name && x.Obj == nil // Obj is set for a variable
}

// apply returns src with the edits, which do not overlap.
func apply(src []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return a.start - b.start })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(src[at:e.start])
		out.WriteString(e.text)
		at = e.end
	}
	out.Write(src[at:])
	return out.Bytes()
}

// findImport returns the import of the root package, or nil.
func findImport(f *ast.File) *ast.ImportSpec {
	for _, s := range f.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err == nil && p == module {
			return s
		}
	}
	return nil
}

// isAlone reports whether the declaration of an import has no parentheses.
func isAlone(f *ast.File, spec *ast.ImportSpec) bool {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Pos() < spec.Pos() && spec.End() <= g.End() {
			return !g.Lparen.IsValid()
		}
	}
	return false
}

// imports returns the import of the root package, if it stays, and those of the packages. alone tells that
// the declaration has no parentheses.
func imports(root []byte, packages map[string]bool, stays, alone bool) string {
	var lines []string
	if stays {
		lines = append(lines, string(root))
	}
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		lines = append(lines, strconv.Quote(pkg))
	}
	text := strings.Join(lines, "\n\t")
	if alone && len(lines) != 1 {
		text = "(\n\t" + text + "\n)"
	}
	return text
}
