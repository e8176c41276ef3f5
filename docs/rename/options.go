package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
)

// A place is the field of llmhttp.Options in which others are now, and its type.
type place struct{ field, typ string }

var (
	bounds    = place{"Bounds", "Bounds"}
	estimates = place{"Estimates", "TokenEstimates"}
	accept    = place{"Accept", "AcceptOptions"}
)

// places tells where former fields of llmhttp.Options are.
var places = map[string]place{
	"MaxBody": bounds, "MaxReply": bounds, "Timeout": bounds, "KeepAlive": bounds, "ReadTimeout": bounds, "WriteTimeout": bounds,
	"TextTokens": estimates, "ReserveCompletion": estimates,
	"UnknownMembers": accept, "TrustedOrigins": accept,
}

// separator is what ends an element of a literal.
var separator = regexp.MustCompile(`^\s*,[ \t]*\n?`)

// groupOptions puts the former fields in literals of Options into those that have them now. local is the
// name of package llmhttp in the file.
func groupOptions(name string, src []byte, local string) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, 0)
	if err != nil {
		return nil, err
	}
	var edits []edit
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if s, ok := literal.Type.(*ast.SelectorExpr); !ok || s.Sel.Name != "Options" || !isPackage(s.X, local) {
			return true
		}
		first := make(map[place]int) // of the edits that put a field into another
		for _, e := range literal.Elts {
			pair, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			to, moved := places[pair.Key.(*ast.Ident).Name]
			if !moved {
				continue
			}
			start, end := fset.Position(pair.Pos()).Offset, fset.Position(pair.End()).Offset
			text := string(src[start:end])
			if i, ok := first[to]; ok {
				edits[i].text += ", " + text
				edits = append(edits, edit{start, end + len(separator.Find(src[end:])), ""})
				continue
			}
			first[to] = len(edits)
			edits = append(edits, edit{start, end, to.field + ": " + local + "." + to.typ + "{" + text})
		}
		for _, i := range first {
			edits[i].text += "}"
		}
		return true
	})
	return apply(src, edits), nil
}
