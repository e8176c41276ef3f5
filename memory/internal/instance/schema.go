package instance

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A document is a schema, what its references may refer to, and how much work
// may still be spent on it.
type document struct {
	left      int // of budget
	root      any
	resources map[string]*resource  // by their absolute $id
	homes     map[*object]*resource // what resource each object is in
	targets   map[*object]any       // what objects refer to, as far as resolve has been asked
	heights   map[*object]int       // what height has found out
	within    map[steps]bool        // what fits has found out
}

// A resource is a schema with an $id of its own, or the whole document.
// References within it are relative to it.
type resource struct {
	base    *url.URL
	root    any
	anchors map[string]*object
}

type steps struct {
	schema *object
	n      int
}

func newDocument(root any) *document {
	d := &document{
		left:      budget,
		root:      root,
		resources: make(map[string]*resource),
		homes:     make(map[*object]*resource),
		targets:   make(map[*object]any),
		heights:   make(map[*object]int),
		within:    make(map[steps]bool),
	}
	d.index(root, &resource{&url.URL{}, root, make(map[string]*object)})
	return d
}

// index finds the resources and anchors in v, which is in r.
func (d *document) index(v any, r *resource) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			d.index(e, r)
		}
	case *object:
		id, anchor, _ := strings.Cut(v.string("$id"), "#") // before 2019-09, an $id may be an anchor
		if u, ok := r.absolute(id); ok {
			r = &resource{u, v, make(map[string]*object)}
			d.resources[u.String()] = r
		}
		d.homes[v] = r
		for _, anchor := range []string{anchor, v.string("$anchor"), v.string("$dynamicAnchor")} {
			if anchor != "" {
				r.anchors[anchor] = v
			}
		}
		for _, name := range v.names {
			d.index(v.members[name], r)
		}
	}
}

// absolute resolves an $id or reference in r.
func (r *resource) absolute(id string) (*url.URL, bool) {
	u, err := url.Parse(id)
	if err != nil || id == "" {
		return nil, false
	}
	return r.base.ResolveReference(u), true
}

// spend reports whether there is still budget for n more steps.
func (d *document) spend(n int) bool {
	d.left -= n
	return d.left >= 0
}

// resolve returns the schema that o refers to by ref. It looks nowhere but in
// the document.
func (d *document) resolve(o *object, ref string) (any, error) {
	if v, ok := d.targets[o]; ok {
		return v, nil
	}
	r := d.homes[o]
	id, fragment, _ := strings.Cut(ref, "#")
	if u, ok := r.absolute(id); ok {
		r = d.resources[u.String()]
	}
	var v any
	switch {
	case r == nil:
	case fragment != "" && fragment[0] != '/':
		if anchored := r.anchors[fragment]; anchored != nil {
			v = anchored
		}
	default:
		v = pointer(r.root, fragment)
	}
	if !isSchema(v) {
		return nil, fmt.Errorf("cannot resolve the reference %q", ref)
	}
	d.targets[o] = v
	return v, nil
}

// pointer returns what a JSON pointer points to in v, or nil.
func pointer(v any, path string) any {
	if path == "" {
		return v
	}
	for step := range strings.SplitSeq(path[1:], "/") {
		if unescaped, err := url.PathUnescape(step); err == nil {
			step = unescaped
		}
		switch at := v.(type) {
		case *object:
			v = at.members[unescape.Replace(step)]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			v = at[i]
		default:
			return nil
		}
	}
	return v
}

// unescape undoes what pointers do to slashes.
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// reference returns what o refers to, or "".
func (o *object) reference() string {
	if ref := o.string("$ref"); ref != "" {
		return ref
	}
	return o.string("$dynamicRef")
}

// maxHeight bounds the search of height.
const maxHeight = 48

// height tells how far an instance of s is from being done, in steps from
// schema to schema: 1 for one that needs no other schema, and maxHeight+1 for
// one that cannot be done, or is too far.
func (d *document) height(s any) int {
	o, ok := s.(*object)
	if !ok {
		if s == true {
			return 0
		}
		return maxHeight + 1
	}
	n, ok := d.heights[o]
	if !ok {
		for n <= maxHeight && !d.fits(s, n) {
			n++
		}
		d.heights[o] = n
	}
	return n
}

// fits reports whether there is an instance of s within so many steps, as far
// as types and required members tell.
func (d *document) fits(s any, n int) bool {
	o, ok := s.(*object)
	if !ok {
		return s == true
	}
	if n == 0 || !d.spend(1) {
		return false
	}
	key := steps{o, n}
	if fits, ok := d.within[key]; ok {
		return fits
	}
	fits := d.fitsAll(o, n-1)
	d.within[key] = fits
	return fits
}

func (d *document) fitsAll(o *object, n int) bool {
	below := func(s any) bool { return d.fits(s, n) }
	if ref := o.reference(); ref != "" {
		target, err := d.resolve(o, ref)
		if err != nil || !below(target) {
			return false
		}
	}
	for _, s := range o.array("allOf") {
		if !below(s) {
			return false
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if list := o.array(keyword); list != nil && !slices.ContainsFunc(list, below) {
			return false
		}
	}
	if o.has("const") || o.has("enum") {
		return true
	}
	types := o.types()
	if types == nil {
		types = o.hints()
	}
	if types == nil {
		return true
	}
	for _, t := range types {
		switch t {
		case typeObject:
			if d.fitsRequired(o, below) {
				return true
			}
		case typeArray:
			least := o.count("minItems", 0)
			list := o.prefix()
			fits := !slices.ContainsFunc(list[:min(least, len(list))], func(s any) bool { return !below(s) })
			if rest, ok := o.rest(); ok && least > len(list) {
				fits = fits && below(rest)
			}
			if fits {
				return true
			}
		default:
			return true
		}
	}
	return false
}

func (d *document) fitsRequired(o *object, below func(any) bool) bool {
	properties := o.object("properties")
	must := o.strings("required")
	d.spend(len(must) / 16)
	for _, name := range must {
		if s, ok := properties.schema(name); ok && !below(s) {
			return false
		}
	}
	return true
}

// The types of JSON Schema.
const (
	typeNull    = "null"
	typeBoolean = "boolean"
	typeInteger = "integer"
	typeNumber  = "number"
	typeString  = "string"
	typeArray   = "array"
	typeObject  = "object"
)

// types returns the types o allows, or nil if it does not say.
func (o *object) types() []string {
	types := o.strings("type")
	if types != nil && o.members["nullable"] == true && !slices.Contains(types, typeNull) {
		types = append(slices.Clip(types), typeNull) // as OpenAPI 3.0 has it
	}
	return types
}

// hints returns the type that the other keywords of o are about, or nil.
func (o *object) hints() []string {
	for _, hint := range []struct {
		typ      string
		keywords []string
	}{
		{typeObject, []string{"properties", "required", "additionalProperties", "patternProperties", "minProperties", "propertyNames"}},
		{typeArray, []string{"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"}},
		{typeString, []string{"minLength", "maxLength", "pattern", "format"}},
		{typeNumber, []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
	} {
		if slices.ContainsFunc(hint.keywords, o.has) {
			return []string{hint.typ}
		}
	}
	return nil
}

// prefix returns the schemas of the first items, which drafts before 2020-12
// put in items.
func (o *object) prefix() []any {
	if list := o.array("prefixItems"); list != nil {
		return list
	}
	return o.array("items")
}

// rest returns the schema of the items after those of prefix.
func (o *object) rest() (any, bool) {
	if o.array("items") != nil {
		return o.schema("additionalItems")
	}
	return o.schema("items")
}

// item returns the schema of the item at index i.
func (o *object) item(i int) (any, bool) {
	if list := o.prefix(); i < len(list) {
		return list[i], true
	}
	return o.rest()
}
