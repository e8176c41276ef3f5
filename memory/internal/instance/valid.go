package instance

import (
	"encoding/json"
	"math/big"
	"slices"
	"unicode/utf8"
)

// allows reports whether v is valid under all rules.
func (g *generator) allows(rules []*object, v any) bool {
	for _, o := range rules {
		if !g.valid(o, v, nil) {
			return false
		}
	}
	return true
}

// under are the schemas that a value is being checked under.
type under struct {
	schema *object
	up     *under
	depth  int
}

// valid reports whether v is valid under s, as far as this package understands
// s. It is false when the budget is spent.
func (g *generator) valid(s, v any, up *under) bool {
	o, ok := s.(*object)
	if !ok {
		return s == true
	}
	depth := 0
	if up != nil {
		depth = up.depth + 1
	}
	if !g.spend(1 + depth/16) {
		return false
	}
	for u := up; u != nil; u = u.up {
		if u.schema == o {
			return true // a circle of references says nothing more
		}
	}
	return g.validType(o, v) && g.validCombined(o, v, &under{o, up, depth}) && g.validValue(o, v)
}

func (g *generator) validType(o *object, v any) bool {
	if types := o.types(); types != nil && !slices.ContainsFunc(types, func(t string) bool { return isType(t, v) }) {
		return false
	}
	if o.has("const") && !equal(v, o.members["const"]) {
		return false
	}
	list, ok := o.members["enum"].([]any)
	return !ok || g.contains(list, v)
}

// contains reports whether v is in list.
func (g *generator) contains(list []any, v any) bool {
	g.spend(len(list) / 16)
	return slices.ContainsFunc(list, func(other any) bool { return equal(v, other) })
}

func isType(typ string, v any) bool {
	switch v := v.(type) {
	case nil:
		return typ == typeNull
	case bool:
		return typ == typeBoolean
	case json.Number:
		r := rational(v)
		return typ == typeNumber || typ == typeInteger && r != nil && r.IsInt()
	case string:
		return typ == typeString
	case []any:
		return typ == typeArray
	}
	return typ == typeObject
}

// validCombined checks v under the keywords that combine schemas.
func (g *generator) validCombined(o *object, v any, u *under) bool {
	if ref := o.reference(); ref != "" {
		target, err := g.resolve(o, ref)
		if err != nil || !g.valid(target, v, u) {
			return false
		}
	}
	count := func(keyword string) (valid, all int) {
		list := o.array(keyword)
		for _, s := range list {
			if g.valid(s, v, u) {
				valid++
			}
		}
		return valid, len(list)
	}
	if n, all := count("allOf"); n != all {
		return false
	}
	if n, all := count("anyOf"); n == 0 && all > 0 {
		return false
	}
	if n, all := count("oneOf"); n != 1 && all > 0 {
		return false
	}
	if s, ok := o.schema("not"); ok && g.valid(s, v, u) {
		return false
	}
	if condition, ok := o.schema("if"); ok {
		branch := "else"
		if g.valid(condition, v, u) {
			branch = "then"
		}
		if s, ok := o.schema(branch); ok && !g.valid(s, v, u) {
			return false
		}
	}
	if v, ok := v.(*object); ok {
		for _, keyword := range []string{"dependentSchemas", "dependencies"} {
			for _, name := range o.object(keyword).names {
				if s, ok := o.object(keyword).schema(name); ok && v.has(name) && !g.valid(s, v, u) {
					return false
				}
			}
		}
	}
	return g.left >= 0
}

// validValue checks v under the keywords for its type.
func (g *generator) validValue(o *object, v any) bool {
	switch v := v.(type) {
	case json.Number:
		return validNumber(o, v)
	case string:
		return g.validString(o, v)
	case []any:
		return g.validArray(o, v)
	case *object:
		return g.validObject(o, v)
	}
	return true
}

func validNumber(o *object, v json.Number) bool {
	n := rational(v)
	if n == nil {
		return true
	}
	for _, b := range o.bounds() {
		if !b.allows(n) {
			return false
		}
	}
	m := o.number("multipleOf")
	return m == nil || m.Sign() <= 0 || new(big.Rat).Quo(n, m).IsInt()
}

func (g *generator) validString(o *object, v string) bool {
	n := utf8.RuneCountInString(v)
	if n < o.count("minLength", 0) || n > o.count("maxLength", maxCount) {
		return false
	}
	if expr, ok := o.members["pattern"].(string); ok && !g.matches(expr, v) {
		return false
	}
	return isFormat(o.string("format"), v)
}

func (g *generator) validArray(o *object, v []any) bool {
	if len(v) < o.count("minItems", 0) || len(v) > o.count("maxItems", maxCount) {
		return false
	}
	contains, ok := o.schema("contains")
	contained := 0
	for i, item := range v {
		if s, ok := o.item(i); ok && !g.valid(s, item, nil) {
			return false
		}
		if ok && g.valid(contains, item, nil) {
			contained++
		}
	}
	if ok && (contained < o.count("minContains", 1) || contained > o.count("maxContains", maxCount)) {
		return false
	}
	if o.members["uniqueItems"] == true {
		for i, item := range v {
			if g.contains(v[:i], item) {
				return false
			}
		}
	}
	return true
}

func (g *generator) validObject(o *object, v *object) bool {
	if len(v.names) < o.count("minProperties", 0) || len(v.names) > o.count("maxProperties", maxCount) {
		return false
	}
	must := o.strings("required")
	if !g.spend(len(must)/16) || slices.ContainsFunc(must, func(name string) bool { return !v.has(name) }) {
		return false
	}
	for _, keyword := range []string{"dependentRequired", "dependencies"} {
		for _, name := range o.object(keyword).names {
			if v.has(name) && slices.ContainsFunc(o.object(keyword).strings(name), func(more string) bool { return !v.has(more) }) {
				return false
			}
		}
	}
	for _, name := range v.names {
		for _, s := range g.memberOf(o, name) {
			if !g.valid(s, v.members[name], nil) {
				return false
			}
		}
		if s, ok := o.schema("propertyNames"); ok && !g.valid(s, name, nil) {
			return false
		}
	}
	return true
}
