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
	steps    *budget                    // what is left of maxSteps
	order    map[string]int             // position of each subschema in the document, by JSON pointer
	active   map[*jsonschema.Schema]int // number of enclosing values that each subschema applies to
	examples map[string]bool            // examples of formats that were proposed
}

// validationSteps is the least number of steps for validating a value against a schema.
const validationSteps = 8

// A value is a JSON value: decoded, as the library takes it, and encoded, with
// members in the order of the schema.
type value struct {
	decoded any
	encoded []byte
}

// A location is the location of a value in the instance.
type location struct {
	isRoot   bool
	property string // the innermost property that contains the value
	variant  int    // counts the items of an array, so that they differ
}

// A requirement is what one value must satisfy: all schemas, and one schema of each list
// of alternatives.
type requirement struct {
	declared     []*jsonschema.Schema // the schemas of the value's location
	schemas      []*jsonschema.Schema // these and the schemas that they refer to
	alternatives [][]*jsonschema.Schema
}

// valueFor returns a value for l that satisfies all schemas.
func (m *maker) valueFor(l location, schemas []*jsonschema.Schema) (value, error) {
	r := requirement{declared: schemas}
	for _, s := range schemas {
		m.add(&r, s)
	}
	return m.choose(l, r)
}

// add adds s and the schemas that s refers to.
func (m *maker) add(r *requirement, s *jsonschema.Schema) {
	m.steps.spend(1 + len(r.schemas)/16)
	if slices.Contains(r.schemas, s) {
		return
	}
	r.schemas = append(r.schemas, s)
	if s.Ref != nil {
		m.add(r, s.Ref)
	}
	for _, all := range s.AllOf {
		m.add(r, all)
	}
	for _, list := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if list != nil {
			r.alternatives = append(r.alternatives, list)
		}
	}
}

// choose tries the alternatives of each list until it finds a value. The error is that
// of the first alternative.
func (m *maker) choose(l location, r requirement) (v value, err error) {
	if len(r.alternatives) == 0 {
		return m.propose(l, r)
	}
	list := r.alternatives[0]
	for i := range list {
		m.steps.spend(1 + (len(r.schemas)+len(r.alternatives))/16)
		next := requirement{r.declared, slices.Clip(r.schemas), slices.Clip(r.alternatives[1:])}
		m.add(&next, list[(i+l.variant)%len(list)])
		found, e := m.choose(l, next)
		if e == nil {
			return found, nil
		}
		err = cmp.Or(err, e)
	}
	return value{}, err
}

// propose returns the first candidate that satisfies r, which has no alternatives. The
// error is that of the first candidate.
func (m *maker) propose(l location, r requirement) (v value, err error) {
	// A recursive schema applies to at most two values within each other, so that recursion ends
	// and clients still see some.
	limit := 2
	if m.steps.isLow() {
		limit = 1
	}
	for _, s := range r.schemas {
		if m.active[s] >= limit {
			return value{}, errInfinite
		}
	}
	for _, s := range r.schemas {
		m.active[s]++
	}
	defer func() {
		for _, s := range r.schemas {
			m.active[s]--
		}
	}()
	for candidate, e := range m.candidates(l, r.schemas) {
		if e == nil {
			e = m.validate(candidate, r.declared)
		}
		if e == nil {
			return candidate, nil
		}
		err = cmp.Or(err, e)
	}
	return value{}, err
}

// validate returns an error for the first of schemas that v does not satisfy.
func (m *maker) validate(v value, schemas []*jsonschema.Schema) error {
	for _, s := range schemas {
		m.steps.spend(validationSteps)
		if err := s.Validate(v.decoded); err != nil {
			return describeViolation(err)
		}
	}
	return nil
}

// candidates returns values for l that may satisfy schemas, or errors for values that
// cannot be made.
func (m *maker) candidates(l location, schemas []*jsonschema.Schema) iter.Seq2[value, error] {
	variants := []int{l.variant}
	if l.variant > 0 {
		variants = append(variants, 0) // there may be only one value
	}
	return func(yield func(value, error) bool) {
		for _, t := range typesFor(l, schemas) {
			if t == "object" || t == "array" {
				v, err := m.container(t, l, schemas, true)
				if !yield(v, err) {
					return
				}
				if err == nil && !yield(m.container(t, l, schemas, false)) {
					return
				}
				continue
			}
			for _, variant := range variants {
				for _, v := range m.scalarsFor(t, l.property, variant, schemas) {
					if !yield(m.encode(v)) {
						return
					}
				}
			}
		}
	}
}

// scalarsFor returns values of type t, or of an enumeration, that may satisfy
// schemas.
func (m *maker) scalarsFor(t, property string, variant int, schemas []*jsonschema.Schema) []any {
	switch t {
	case "enum":
		list := enumerated(schemas)
		return slices.Concat(list[variant%len(list):], list[:variant%len(list)])
	case "string":
		return m.stringsFor(property, variant, schemas)
	case "number", "integer":
		return m.numbersFor(variant, schemas, t == "integer")
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
	m.steps.spend(1 + b.Len()/8)
	return value{v, bytes.TrimSuffix(b.Bytes(), []byte("\n"))}, err
}

// enumerated returns the values that one of schemas lists by const or enum.
func enumerated(schemas []*jsonschema.Schema) (list []any) {
	for _, s := range schemas {
		if s.Const != nil {
			return []any{*s.Const}
		}
		if s.Enum != nil {
			list = s.Enum.Values
		}
	}
	return list
}

// typesFor returns the types that all schemas allow, the most likely one first, or "enum"
// if schemas list the values. If they allow no type it returns null, so that validation
// fails by the keyword type.
func typesFor(l location, schemas []*jsonschema.Schema) []string {
	if len(enumerated(schemas)) > 0 {
		return []string{"enum"}
	}
	types := []string{"string", "object", "array", "number", "integer", "boolean", "null"}
	i := slices.Index(types, likelyType(l, schemas))
	types[0], types[i] = types[i], types[0]
	for _, s := range schemas {
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

// likelyType returns the type that the keywords of schemas suggest.
func likelyType(l location, schemas []*jsonschema.Schema) string {
	likely := "string"
	if l.isRoot {
		likely = "object"
	}
	for _, s := range schemas {
		switch {
		case s.Properties != nil, s.Required != nil, s.AdditionalProperties != nil:
			likely = "object"
		case s.Items != nil, s.Items2020 != nil, s.PrefixItems != nil:
			likely = "array"
		case s.Minimum != nil, s.Maximum != nil, s.ExclusiveMinimum != nil, s.ExclusiveMaximum != nil, s.MultipleOf != nil:
			likely = "number"
		}
	}
	return likely
}

// deref returns *p, or missing if p is nil.
func deref(p *int, missing int) int {
	if p == nil {
		return missing
	}
	return *p
}
