package instance

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A maker makes the value for one schema.
type maker struct {
	text     string                     // of strings
	steps    int                        // how many of maxSteps are left
	order    map[string]int             // position of each subschema in the document, by JSON pointer
	active   map[*jsonschema.Schema]int // number of enclosing values that each subschema applies to
	examples map[string]bool            // examples of formats that were proposed
}

// validationSteps is the least number of steps for validating a value against a schema.
const validationSteps = 8

// spend uses up n steps. It panics with errTooComplex if fewer are left.
func (m *maker) spend(n int) {
	m.steps -= n
	if m.steps < 0 {
		panic(errTooComplex)
	}
}

// A value is a JSON value: decoded, as the library takes it, and encoded, with
// members in the order of the schema.
type value struct {
	decoded any
	encoded []byte
}

// A place is a position in the instance.
type place struct {
	root    bool
	name    string // of the innermost property that contains the place
	variant int    // distinguishes the items of an array
}

// A conjunction is what one value must satisfy: all rules and one alternative
// of each choice.
type conjunction struct {
	rules   []*jsonschema.Schema
	choices [][]*jsonschema.Schema
}

// value returns a value for p that satisfies all schemas.
func (m *maker) value(p place, schemas []*jsonschema.Schema) (value, error) {
	var c conjunction
	for _, s := range schemas {
		m.add(&c, s)
	}
	return m.choose(p, schemas, c)
}

// add adds s and the schemas that s refers to.
func (m *maker) add(c *conjunction, s *jsonschema.Schema) {
	m.spend(1 + len(c.rules)/16)
	if slices.Contains(c.rules, s) {
		return
	}
	c.rules = append(c.rules, s)
	if s.Ref != nil {
		m.add(c, s.Ref)
	}
	for _, all := range s.AllOf {
		m.add(c, all)
	}
	for _, choice := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if choice != nil {
			c.choices = append(c.choices, choice)
		}
	}
}

// choose tries the alternatives of each choice until it finds a value. The
// error is that of the first alternative.
func (m *maker) choose(p place, schemas []*jsonschema.Schema, c conjunction) (v value, err error) {
	if len(c.choices) == 0 {
		return m.propose(p, schemas, c.rules)
	}
	alternatives := c.choices[0]
	for i := range alternatives {
		m.spend(1 + (len(c.rules)+len(c.choices))/16)
		next := conjunction{slices.Clip(c.rules), slices.Clip(c.choices[1:])}
		m.add(&next, alternatives[(i+p.variant)%len(alternatives)])
		found, e := m.choose(p, schemas, next)
		if e == nil {
			return found, nil
		}
		err = cmp.Or(err, e)
	}
	return value{}, err
}

// propose returns the first candidate that satisfies schemas. rules are these
// schemas and what they refer to. The error is that of the first candidate.
func (m *maker) propose(p place, schemas, rules []*jsonschema.Schema) (v value, err error) {
	// A recursive schema applies to at most two values within each other, so
	// that recursion ends and clients still see some.
	limit := 2
	if m.isSparing() {
		limit = 1
	}
	for _, s := range rules {
		if m.active[s] >= limit {
			return value{}, errInfinite
		}
	}
	for _, s := range rules {
		m.active[s]++
		defer func() { m.active[s]-- }()
	}
	for candidate, e := range m.candidates(p, rules) {
		for i := 0; i < len(schemas) && e == nil; i++ {
			m.spend(validationSteps)
			e = describeViolation(schemas[i].Validate(candidate.decoded))
		}
		if e == nil {
			return candidate, nil
		}
		err = cmp.Or(err, e)
	}
	return value{}, err
}

// isSparing reports whether to leave out what the schema does not require,
// because many steps are used up.
func (m *maker) isSparing() bool { return m.steps < maxSteps/2 }

// candidates returns values for p that may satisfy rules, or errors for values
// that cannot be made.
func (m *maker) candidates(p place, rules []*jsonschema.Schema) iter.Seq2[value, error] {
	variants := []int{p.variant}
	if p.variant > 0 {
		variants = append(variants, 0) // there may be only one value
	}
	return func(yield func(value, error) bool) {
		for _, t := range typesFor(p, rules) {
			if t == "object" || t == "array" {
				v, err := m.container(t, p, rules, true)
				if !yield(v, err) || err == nil && !yield(m.container(t, p, rules, false)) {
					return
				}
				continue
			}
			for _, variant := range variants {
				for _, v := range m.scalarsFor(t, p.name, variant, rules) {
					if !yield(m.encode(v)) {
						return
					}
				}
			}
		}
	}
}

// scalarsFor returns values of type t, or of an enumeration, that may satisfy
// rules.
func (m *maker) scalarsFor(t, name string, variant int, rules []*jsonschema.Schema) []any {
	switch t {
	case "enum":
		list := enumerated(rules)
		return slices.Concat(list[variant%len(list):], list[:variant%len(list)])
	case "string":
		return m.stringsFor(name, variant, rules)
	case "number", "integer":
		return m.numbersFor(variant, rules, t == "integer")
	case "boolean":
		return []any{variant%2 == 0, variant%2 != 0}
	}
	return []any{nil}
}

func (m *maker) encode(v any) (value, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	m.spend(1 + b.Len()/8)
	return value{v, bytes.TrimSuffix(b.Bytes(), []byte("\n"))}, err
}

// enumerated returns the values that one of rules lists by const or enum.
func enumerated(rules []*jsonschema.Schema) (list []any) {
	for _, s := range rules {
		if s.Const != nil {
			return []any{*s.Const}
		}
		if s.Enum != nil {
			list = s.Enum.Values
		}
	}
	return list
}

// typesFor returns the types that all rules allow, the most likely first, or
// enum if rules list the values. If they allow no type it returns null, so that
// validation fails by the keyword type.
func typesFor(p place, rules []*jsonschema.Schema) []string {
	if len(enumerated(rules)) > 0 {
		return []string{"enum"}
	}
	likely := "string"
	if p.root {
		likely = "object"
	}
	for _, s := range rules {
		switch {
		case s.Properties != nil, s.Required != nil, s.AdditionalProperties != nil:
			likely = "object"
		case s.Items != nil, s.Items2020 != nil, s.PrefixItems != nil:
			likely = "array"
		case s.Minimum != nil, s.Maximum != nil, s.ExclusiveMinimum != nil, s.ExclusiveMaximum != nil, s.MultipleOf != nil:
			likely = "number"
		}
	}
	types := []string{"string", "object", "array", "number", "integer", "boolean", "null"}
	i := slices.Index(types, likely)
	types[0], types[i] = types[i], types[0]
	for _, s := range rules {
		if s.Types != nil {
			allowed := s.Types.ToStrings()
			types = slices.DeleteFunc(types, func(t string) bool {
				return !slices.Contains(allowed, t) && !(t == "integer" && slices.Contains(allowed, "number"))
			})
		}
	}
	if len(types) == 0 {
		return []string{"null"}
	}
	return types
}

// deref returns *p, or missing if p is nil.
func deref(p *int, missing int) int {
	if p == nil {
		return missing
	}
	return *p
}
