package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
)

// forAuthors matches the comment of a name that only authors of protocols, endpoints and Limiters need: it refers
// to the section of the package documentation for them. All other names are those of a host.
var forAuthors = regexp.MustCompile(`See "(Protocols|Endpoints of hosts|Limiters)" in the package documentation\.`)

// A name is exported by a package, and is no method.
type name struct {
	name   string
	author bool // see forAuthors
}

// exportedNames returns the names that a file exports.
func exportedNames(file *ast.File) (names []name) {
	add := func(id *ast.Ident, comments ...*ast.CommentGroup) {
		if !id.IsExported() {
			return
		}
		text := ""
		for _, c := range comments {
			text += c.Text()
		}
		names = append(names, name{id.Name, forAuthors.MatchString(strings.Join(strings.Fields(text), " "))})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name, d.Doc, spec.Doc)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						add(id, d.Doc, spec.Doc)
					}
				}
			}
		}
	}
	return names
}

// printNames prints a line for each name that the packages export: the package, the name, and for whom
// it is.
func (h *house) printNames(patterns []string) error {
	packages, _, err := h.list(patterns)
	if err != nil {
		return err
	}
	for _, p := range packages {
		for _, file := range p.sources() {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, n := range exportedNames(parsed) {
				reader := "host"
				if n.author {
					reader = "author"
				}
				fmt.Fprintln(h.out, p.ImportPath, n.name, reader)
			}
		}
	}
	return nil
}
