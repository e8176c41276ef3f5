// Package membertest has what tests share that change the case of members of requests.
package membertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Variants returns names that equal name under [strings.EqualFold] and are not name, as
// JSON strings. Some have letters outside of ASCII that fold to letters of name.
func Variants(name string) []string {
	upper := strings.ToUpper(name)
	first := strings.ToUpper(name[:1]) + name[1:]
	variants := []string{strconv.Quote(upper), strconv.Quote(first), fmt.Sprintf(`"\u%04x%s"`, first[0], name[1:])}
	for letter, folded := range map[string]string{"k": "\u212a", "s": "\u017f"} {
		if strings.Contains(name, letter) {
			variants = append(variants, `"`+strings.ReplaceAll(name, letter, folded)+`"`)
		}
	}
	return slices.DeleteFunc(variants, func(v string) bool { return v == strconv.Quote(name) })
}

// A Case is a document with one member in another case.
type Case struct {
	Doc    string
	Path   []string // the names and indices that lead to the member
	Member string   // the name without the change
}

// Cases returns cases for each member of each object in the document doc: with the changed
// member in the place of the one with the right name, and behind it. free tells which
// objects may have any members; it gets the names and indices that lead to an object.
func Cases(t testing.TB, doc string, free func(path []string) bool) []Case {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	root, err := parse(d)
	if err != nil {
		t.Fatalf("%v in %s", err, doc)
	}
	var cases []Case
	root.each(nil, func(path []string, object *node) {
		if free(path) {
			return
		}
		for i := range object.members {
			m := object.members[i]
			for _, variant := range Variants(m.name) {
				var name string
				if err := json.Unmarshal([]byte(variant), &name); err != nil {
					t.Fatal(err)
				}
				changed := member{name: name, quoted: variant, value: m.value}
				at := append(slices.Clone(path), name)
				object.members[i] = changed
				cases = append(cases, Case{root.String(), at, m.name})
				object.members[i] = m
				object.members = append(object.members, changed)
				cases = append(cases, Case{root.String(), at, m.name})
				object.members = object.members[:len(object.members)-1]
			}
		}
	})
	return cases
}

// A node is a JSON value: an object if isObject, an array if isArray, or else text.
type node struct {
	isObject, isArray bool
	members           []member // of an object or array
	text              string
}

type member struct {
	name   string // of an object's member, or the index in an array
	quoted string
	value  *node
}

func parse(d *json.Decoder) (*node, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		b, err := json.Marshal(tok)
		return &node{text: string(b)}, err
	}
	n := &node{isObject: delim == '{', isArray: delim == '['}
	for d.More() {
		m := member{name: strconv.Itoa(len(n.members))}
		if n.isObject {
			tok, err := d.Token()
			if err != nil {
				return nil, err
			}
			m.name = tok.(string)
			m.quoted = strconv.Quote(m.name)
		}
		if m.value, err = parse(d); err != nil {
			return nil, err
		}
		n.members = append(n.members, m)
	}
	_, err = d.Token()
	return n, err
}

// each calls f for each object in n.
func (n *node) each(path []string, f func(path []string, object *node)) {
	if n.isObject {
		f(path, n)
	}
	for _, m := range n.members {
		m.value.each(append(slices.Clip(path), m.name), f)
	}
}

func (n *node) String() string {
	if !n.isObject && !n.isArray {
		return n.text
	}
	var b bytes.Buffer
	brackets := "[]"
	if n.isObject {
		brackets = "{}"
	}
	b.WriteByte(brackets[0])
	for i, m := range n.members {
		if i > 0 {
			b.WriteByte(',')
		}
		if n.isObject {
			b.WriteString(m.quoted + ":")
		}
		b.WriteString(m.value.String())
	}
	b.WriteByte(brackets[1])
	return b.String()
}

// Tags returns the names in the json tags of all structs in the Go files of the current
// directory, except for tests. Structs for which skip reports true are left out; it gets
// the name of the declaration that contains the struct.
func Tags(t testing.TB, skip func(decl string) bool) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range tree.Decls {
			if skip(declName(decl)) {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				if f, ok := n.(*ast.Field); ok && f.Tag != nil {
					tag, _ := strconv.Unquote(f.Tag.Value)
					if name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ","); name != "" && name != "-" {
						names = append(names, name)
					}
				}
				return true
			})
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func declName(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if s, ok := s.(*ast.TypeSpec); ok {
				return s.Name.Name
			}
		}
	}
	return ""
}

// Param returns a path as the errors of OpenAI's formats name it.
func Param(path []string) string {
	var b strings.Builder
	for _, step := range path {
		if _, err := strconv.Atoi(step); err == nil {
			b.WriteString("[" + step + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(step)
	}
	return b.String()
}
