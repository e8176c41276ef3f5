// Package instance makes JSON values that are valid under a JSON schema.
//
// It understands what models are asked to follow: types, properties, items,
// enum, const, bounds, formats, simple patterns, references within the
// document, recursion, and the combination of schemas, in the drafts from 4 to
// 2020-12. For each schema it proposes values, from the fullest to the barest,
// and takes the first that it finds valid, so that what it returns is valid
// even where the keywords contradict a simple reading. What it does not
// understand, such as patterns beyond package regexp, it passes over.
package instance

import (
	"cmp"
	"errors"
	"slices"
)

// Of returns a value valid under schema. It has all properties the schema
// declares, other than where it would recur, and its strings say text as far
// as the schema lets them. A schema that asks for nothing gets an object.
//
// It fails if schema is not JSON, if there is no such value, and if there is
// none that is small or easily found.
func Of(schema []byte, text string) ([]byte, error) {
	return generate(schema, text, &object{})
}

// Object is like [Of], but returns nothing but objects.
func Object(schema []byte, text string) ([]byte, error) {
	return generate(schema, text, only(typeObject))
}

// only returns the schema of one type.
func only(typ string) *object {
	o := &object{}
	o.set("type", typ)
	return o
}

func generate(schema []byte, text string, also *object) ([]byte, error) {
	if len(schema) > maxSchema {
		return nil, errors.New("the schema is too long")
	}
	root, err := parse(schema)
	if err != nil {
		return nil, err
	}
	if !isSchema(root) {
		return nil, errors.New("the schema is neither an object nor a boolean")
	}
	g := &generator{document: newDocument(root), text: text, patterns: make(map[string]*pattern)}
	v, ok := g.value(place{}, root, also)
	switch {
	case ok:
		return appendJSON(nil, v), nil
	case g.err != nil:
		return nil, g.err
	case g.left < 0:
		return nil, errors.New("the schema takes too long to follow")
	}
	return nil, errors.New("no value is valid under the schema")
}

const (
	// budget bounds the work for one value, and so its size, in steps that
	// take some hundred nanoseconds.
	budget = 1 << 17

	maxSchema = 1 << 20 // bytes
)

type generator struct {
	*document
	text     string
	patterns map[string]*pattern
	err      error // the first that tells why there may be no value
}

// A place is where in the instance a value goes.
type place struct {
	name    string // of the property; empty at the root
	variant int    // which of the values that are as good is wanted, to tell items from each other
	avoid   []any  // values that it must not be
	trail   *trail // the schemas the place is in
}

// A trail leads from a place back to the root.
type trail struct {
	up    *trail
	rules []*object
	depth int
	loops int // how often the way came to a schema that it had come to before
}

// enter returns p as the place of a value that follows rules.
func (g *generator) enter(p place, rules []*object) place {
	t := &trail{up: p.trail, rules: rules}
	if t.up != nil {
		t.depth, t.loops = t.up.depth+1, t.up.loops
		if g.recurs(t.up, rules) {
			t.loops++
		}
	}
	p.trail = t
	return p
}

// child returns a place within the value at p, which was entered.
func (p place) child(name string, variant int) place {
	return place{name: name, variant: variant, trail: p.trail}
}

// recurs reports whether one of rules is on t already.
func (g *generator) recurs(t *trail, rules []*object) bool {
	for ; t != nil && g.spend(len(rules)*len(t.rules)/64); t = t.up {
		if slices.ContainsFunc(rules, func(o *object) bool { return slices.Contains(t.rules, o) }) {
			return true
		}
	}
	return false
}

// A conjunction is what a value must follow: all rules, and of each choice one
// of the alternatives.
type conjunction struct {
	rules   []*object
	choices [][]alternative
}

// An alternative is a list of schemas that hold together.
type alternative []any

// value returns a value for p that is valid under all of schemas.
func (g *generator) value(p place, schemas ...any) (any, bool) {
	var c conjunction
	for _, s := range schemas {
		if !g.add(&c, s) {
			return nil, false
		}
	}
	return g.choose(p, c)
}

// add adds s to c, or reports that nothing is valid under both.
func (g *generator) add(c *conjunction, s any) bool {
	if !g.spend(1 + len(c.rules)/64) {
		return false
	}
	o, ok := s.(*object)
	if !ok {
		return s == true
	}
	if slices.Contains(c.rules, o) {
		return true // a schema and itself: also where references run in circles
	}
	c.rules = append(c.rules, o)
	if ref := o.reference(); ref != "" {
		target, err := g.resolve(o, ref)
		if err != nil {
			g.err = cmp.Or(g.err, err)
			return false
		}
		if !g.add(c, target) {
			return false
		}
	}
	for _, s := range o.array("allOf") {
		if !g.add(c, s) {
			return false
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if list := o.array(keyword); list != nil {
			choice := make([]alternative, len(list))
			for i, s := range list {
				choice[i] = alternative{s}
			}
			c.choices = append(c.choices, choice)
		}
	}
	if condition, ok := o.schema("if"); ok {
		c.choices = append(c.choices, conditional(o, condition))
	}
	for _, keyword := range []string{"dependentSchemas", "dependencies"} {
		for _, name := range o.object(keyword).names {
			if s, ok := o.object(keyword).schema(name); ok {
				c.choices = append(c.choices, []alternative{{s}, {}})
			}
		}
	}
	return true
}

// conditional returns the ways to follow the keywords if, then and else of o.
func conditional(o *object, condition any) []alternative {
	yes, no := alternative{condition}, alternative{}
	if s, ok := o.schema("then"); ok {
		yes = append(yes, s)
	}
	unless := &object{}
	unless.set("not", condition)
	no = append(no, unless)
	if s, ok := o.schema("else"); ok {
		no = append(no, s)
	}
	return []alternative{yes, no}
}

// choose tries the alternatives of the first choice of c, in their order, and
// so on with the next.
func (g *generator) choose(p place, c conjunction) (any, bool) {
	if len(c.choices) == 0 {
		return g.propose(p, c.rules)
	}
	for _, alt := range g.ranked(c.choices[0], g.sparing(g.enter(p, c.rules))) {
		if !g.spend(1 + (len(c.rules)+len(c.choices))/16) {
			break
		}
		next := conjunction{rules: slices.Clip(c.rules), choices: slices.Clip(c.choices[1:])}
		if !slices.ContainsFunc(alt, func(s any) bool { return !g.add(&next, s) }) {
			if v, ok := g.choose(p, next); ok {
				return v, true
			}
		}
	}
	return nil, false
}

// ranked returns the alternatives of choice in the order to try them in: those
// that cannot be done come last and, for a sparing value, those that are soon
// done first.
func (g *generator) ranked(choice []alternative, sparing bool) []alternative {
	rank := func(alt alternative) int {
		worst := 0
		for _, s := range alt {
			worst = max(worst, g.height(s))
		}
		if sparing || worst > maxHeight {
			return worst
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(choice), func(a, b alternative) int { return rank(a) - rank(b) })
}

// sparing reports whether there should not be more at p, and below it, than
// there must: where schemas recur, where it is deep, and where the budget runs
// out.
func (g *generator) sparing(p place) bool {
	return p.trail.loops > 0 || p.trail.depth > 24 || g.left < budget/2
}

// propose returns the first value valid under rules of those that are likely.
func (g *generator) propose(p place, rules []*object) (any, bool) {
	at := g.enter(p, rules)
	if at.trail.depth > maxDepth/2 {
		return nil, false
	}
	try := func(v any) bool {
		return !g.contains(at.avoid, v) && g.allows(rules, v)
	}
	if list, ok := enumerated(rules); ok {
		for i := range list {
			if v := list[(i+p.variant)%len(list)]; try(v) {
				return v, true
			}
		}
		return nil, false
	}
	types := g.typesOf(at, rules)
	for i := range len(at.avoid) + 2 {
		at.variant = p.variant + i
		if i > len(at.avoid) {
			at.variant = 0 // where there are but a few variants, the first is there
		}
		for _, t := range types {
			for v := range g.candidates(at, rules, t) {
				if g.left < 0 {
					return nil, false
				}
				if try(v) {
					return v, true
				}
			}
		}
		if i == len(at.avoid) && p.variant == 0 {
			break
		}
	}
	for _, o := range rules { // what its author thinks is valid
		for _, v := range append(slices.Clone(o.array("examples")), o.members["default"], o.members["example"]) {
			if try(v) {
				return v, true
			}
		}
	}
	return nil, false
}

// enumerated returns the values that rules enumerate, if they do.
func enumerated(rules []*object) ([]any, bool) {
	for _, o := range rules {
		if o.has("const") {
			return []any{o.members["const"]}, true
		}
	}
	for _, o := range rules {
		if list, ok := o.members["enum"].([]any); ok {
			return list, true
		}
	}
	return nil, false
}

// typesOf returns the types that rules allow in the order to try them in.
func (g *generator) typesOf(p place, rules []*object) []string {
	var types []string
	for _, o := range rules {
		own := o.types()
		switch {
		case own == nil:
		case types == nil:
			types = slices.Clone(own)
		default:
			types = intersect(types, own)
		}
	}
	if types == nil {
		types = guess(p, rules)
	}
	order := map[string]int{typeNull: 1}
	if g.sparing(p) {
		order = map[string]int{typeArray: 1, typeObject: 2}
	}
	slices.SortStableFunc(types, func(a, b string) int { return order[a] - order[b] })
	return types
}

func intersect(a, b []string) []string {
	var both []string
	for _, t := range a {
		switch {
		case slices.Contains(b, t), t == typeInteger && slices.Contains(b, typeNumber):
			both = append(both, t)
		case t == typeNumber && slices.Contains(b, typeInteger):
			both = append(both, typeInteger)
		}
	}
	return append(make([]string, 0, len(both)), both...)
}

// guess returns all types, beginning with those that rules seem to be about.
func guess(p place, rules []*object) []string {
	var types []string
	for _, o := range rules {
		types = append(types, o.hints()...)
	}
	if p.trail.depth == 0 {
		types = append(types, typeObject)
	}
	types = append(types, typeString, typeNumber, typeBoolean, typeObject, typeArray, typeNull)
	var unique []string
	for _, t := range types {
		if !slices.Contains(unique, t) {
			unique = append(unique, t)
		}
	}
	return unique
}
