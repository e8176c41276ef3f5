package instance

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/llmhttp/llmhttp/memory/internal/grapheme"
)

// candidates returns values of type typ for p that are likely to be valid
// under rules, the best first.
func (g *generator) candidates(p place, rules []*object, typ string) iter.Seq[any] {
	return func(yield func(any) bool) {
		switch typ {
		case typeNull:
			yield(nil)
		case typeBoolean:
			_ = yield(p.variant%2 == 0) && yield(p.variant%2 != 0)
		case typeInteger, typeNumber:
			if n, ok := numberFor(rules, typ == typeInteger, p.variant); ok {
				yield(n)
			}
		case typeString:
			for _, s := range g.stringsFor(p, rules) {
				if !yield(s) {
					return
				}
			}
		case typeArray:
			for _, e := range g.efforts(p) {
				if list, ok := g.array(p, rules, e); ok && !yield(list) {
					return
				}
			}
		case typeObject:
			for _, e := range g.efforts(p) {
				if o, ok := g.object(p, rules, e); ok && !yield(o) {
					return
				}
			}
		}
	}
}

// An effort tells how much is put into an array or object.
type effort int

const (
	full  effort = iota // all that is declared
	spare               // what must be there, and properties that are soon done
	bare                // what must be there
)

// efforts returns those to make at p, the best first.
func (g *generator) efforts(p place) []effort {
	if g.sparing(p) {
		return []effort{spare, bare}
	}
	return []effort{full, spare, bare}
}

// maxText is how many characters of the text a string says.
const maxText = 4096

// stringsFor returns strings for p, the best first.
func (g *generator) stringsFor(p place, rules []*object) []string {
	least, most := 0, maxCount
	var list []string
	for _, o := range rules {
		least = max(least, o.count("minLength", 0))
		most = min(most, o.count("maxLength", maxCount))
	}
	if !g.spend(least / 8) {
		return nil
	}
	for _, o := range rules {
		if s, ok := example(o.string("format"), p.variant, least); ok {
			list = append(list, s)
		}
	}
	text, limit := g.text, maxText
	if text == "" {
		text = p.name
	}
	if text == "" {
		text = "text"
	}
	if g.sparing(p) {
		limit = 64
	}
	list = append(list, fit(text, p.variant, least, most, limit))
	for _, o := range rules {
		if expr, ok := o.members["pattern"].(string); ok {
			if s, ok := g.pattern(expr).example(p.variant, least); ok {
				list = append(list, s)
			}
		}
	}
	for _, s := range list {
		g.spend(len(s) / 8)
	}
	return list
}

// fit returns text with a number that tells variants apart, cut to at most
// most characters, or limit where that is enough for least, and padded to have
// least. Its characters are those of JSON Schema, code points, but it cuts
// nothing in the midst of what readers see as one.
func fit(text string, variant, least, most, limit int) string {
	suffix := ""
	if variant > 0 {
		suffix = " " + strconv.Itoa(variant+1)
	}
	most = min(most, max(limit, least))
	if most <= len(suffix) && variant > 0 {
		short := strconv.FormatInt(int64(variant), 36)
		return short[max(0, len(short)-most):]
	}
	most -= len(suffix)
	n, end := 0, 0
	for end < len(text) {
		size := grapheme.Len(text[end:])
		runes := utf8.RuneCountInString(text[end : end+size])
		if n+runes > most {
			break
		}
		n, end = n+runes, end+size
	}
	b := []byte(text[:end])
	for n += len(suffix); n < least; n++ {
		b = append(b, '.')
	}
	return string(b) + suffix
}

// array returns an array for p.
func (g *generator) array(p place, rules []*object, e effort) (any, bool) {
	least, most, want, unique := 0, maxCount, 1, false
	var first []any // what the first items must contain
	for _, o := range rules {
		least = max(least, o.count("minItems", 0))
		most = min(most, o.count("maxItems", maxCount))
		want = max(want, len(o.prefix()))
		unique = unique || o.members["uniqueItems"] == true
		if s, ok := o.schema("contains"); ok {
			n := o.count("minContains", 1)
			if !g.spend(n) {
				return nil, false
			}
			first = append(first, slices.Repeat([]any{s}, n)...)
		}
	}
	least = max(least, len(first))
	n := min(max(least, want), most)
	if e != full {
		n = least
	}
	list := []any{}
	for i := range n {
		if !g.spend(1) {
			return nil, false
		}
		var schemas []any
		for _, o := range rules {
			if s, ok := o.item(i); ok {
				schemas = append(schemas, s)
			}
		}
		if i < len(first) {
			schemas = append(schemas, first[i])
		}
		if i >= least && slices.ContainsFunc(schemas, g.isEndless) {
			break
		}
		item := p.child(p.name, p.variant+i)
		if unique {
			item.avoid = list
		}
		v, ok := g.value(item, schemas...)
		switch {
		case ok:
			list = append(list, v)
		case i >= least:
			return list, true
		default:
			return nil, false
		}
	}
	return list, true
}

// isEndless reports whether there is no end to an instance of s.
func (g *generator) isEndless(s any) bool { return g.height(s) > maxHeight }

// object returns an object for p.
func (g *generator) object(p place, rules []*object, e effort) (any, bool) {
	names, required, least, most := g.properties(rules, e)
	o := &object{}
	for _, name := range names {
		if !required[name] && len(o.names)+len(required) >= most {
			continue
		}
		v, ok := g.value(p.child(name, p.variant), g.membersOf(rules, name)...)
		if ok {
			o.set(name, v)
			delete(required, name)
		} else if required[name] {
			return nil, false
		}
		if g.left < 0 {
			return nil, false
		}
	}
	for i := 0; len(o.names) < least; i++ {
		if !g.spend(1) || i > 2*least+16 {
			return nil, false
		}
		names := g.newNames(rules, i)
		g.spend(len(names) / 16)
		for _, name := range names {
			schemas := g.membersOf(rules, name)
			if o.has(name) || !g.allowsName(rules, name) {
				continue
			}
			if v, ok := g.value(p.child(name, p.variant), schemas...); ok {
				o.set(name, v)
				break
			}
		}
	}
	return o, true
}

// properties returns the names an object is to have, in their order, which of
// them it must have, and how many it may have.
func (g *generator) properties(rules []*object, e effort) (names []string, required map[string]bool, least, most int) {
	most = maxCount
	required = make(map[string]bool)
	declared := make(map[string]bool)
	for _, o := range rules {
		least = max(least, o.count("minProperties", 0))
		most = min(most, o.count("maxProperties", maxCount))
		must, properties := o.strings("required"), o.object("properties")
		g.spend((len(must) + len(properties.names)) / 16)
		for _, name := range must {
			required[name] = true
		}
		for _, name := range properties.names {
			if !declared[name] {
				declared[name] = true
				names = append(names, name)
			}
		}
	}
	optional := func(name string) bool {
		worst := 0
		for _, o := range rules {
			if s, ok := o.object("properties").schema(name); ok {
				worst = max(worst, g.height(s))
			}
		}
		switch e {
		case full:
			return worst <= maxHeight
		case spare:
			return worst <= 1 && g.left > budget/4
		}
		return false
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !required[name] && !optional(name) })
	present := maps.Clone(required)
	for _, name := range names {
		present[name] = true
	}
	g.require(rules, required, present)
	for _, name := range names {
		delete(present, name)
	}
	return append(names, slices.Sorted(maps.Keys(present))...), required, least, most
}

// require adds to required and present what the presence of others requires.
func (g *generator) require(rules []*object, required, present map[string]bool) {
	for grown := true; grown; {
		grown = false
		for _, o := range rules {
			for _, keyword := range []string{"dependentRequired", "dependencies"} {
				dependent := o.object(keyword)
				for _, name := range dependent.names {
					if !present[name] || !g.spend(1) {
						continue
					}
					for _, more := range dependent.strings(name) {
						grown = grown || !present[more]
						present[more], required[more] = true, true
					}
				}
			}
		}
	}
}

// membersOf returns the schemas that the property of that name follows.
func (g *generator) membersOf(rules []*object, name string) []any {
	var schemas []any
	for _, o := range rules {
		schemas = append(schemas, g.memberOf(o, name)...)
	}
	return schemas
}

// memberOf returns the schemas that o has for the property of that name.
func (g *generator) memberOf(o *object, name string) []any {
	var schemas []any
	if s, ok := o.object("properties").schema(name); ok {
		schemas = append(schemas, s)
	}
	for _, expr := range o.object("patternProperties").names {
		if s, ok := o.object("patternProperties").schema(expr); ok && g.matches(expr, name) {
			schemas = append(schemas, s)
		}
	}
	if s, ok := o.schema("additionalProperties"); ok && schemas == nil {
		schemas = append(schemas, s)
	}
	return schemas
}

// aString is the schema of strings.
var aString = only(typeString)

// newNames returns names for a property that no schema declares.
func (g *generator) newNames(rules []*object, i int) []string {
	var names []string
	for _, o := range rules {
		for _, expr := range o.object("patternProperties").names {
			if s, ok := g.pattern(expr).example(i, 1); ok {
				names = append(names, s)
			}
		}
		if s, ok := o.schema("propertyNames"); ok {
			if name, ok := g.value(place{name: "property", variant: i}, aString, s); ok {
				names = append(names, name.(string))
			}
		}
		names = append(names, o.object("properties").names...)
	}
	return append(names, "property"+strconv.Itoa(i+1))
}

// allowsName reports whether rules allow a property of that name.
func (g *generator) allowsName(rules []*object, name string) bool {
	for _, o := range rules {
		if s, ok := o.schema("propertyNames"); ok && !g.valid(s, name, nil) {
			return false
		}
	}
	return true
}
