// Package instance makes JSON values that satisfy a JSON schema.
//
// The schema library parses a schema, resolves its references and validates values. This package
// proposes values and returns the first one that the library accepts, so a returned value always
// satisfies its schema.
package instance

import "github.com/santhosh-tekuri/jsonschema/v6"

// Limits of one call. Clients choose the schemas, so the work for each of them
// must be bounded.
const (
	maxSchema     = 1 << 20 // length of a schema in bytes
	maxSubschemas = 5000    // objects and booleans in a schema; the library compiles n of them in O(n²)
	maxPointer    = 1024    // length of the JSON pointer to a subschema in bytes
	maxExponent   = 3       // digits of the exponent of a number: the library computes with exact fractions
	maxSteps      = 1 << 19 // steps of making and validating values, of about a microsecond each
)

// Make returns a value that satisfies schema. The same arguments give the same value. It has the
// properties that the schema declares, in the same order, except where they would recur without
// end, and its strings are text as far as the schema allows. If objectOnly is true, or if the
// schema allows every type, the value is an object.
//
// Make chooses values by type, enum, const, $ref, allOf, anyOf, oneOf, properties, required,
// additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength, pattern,
// format, multipleOf and the bounds of numbers. It does not know the other keywords, but the
// library validates them. If each value that Make tries is invalid, the error names the keyword
// that rejects the first one.
//
// Make never reads a file or opens a connection. Its time and memory are bounded for every schema.
func Make(schema []byte, text string, objectOnly bool) (encoded []byte, err error) {
	m := &maker{
		text:     text,
		steps:    &budget{maxSteps},
		order:    make(map[string]int),
		active:   make(map[*jsonschema.Schema]int),
		examples: make(map[string]bool),
	}
	defer func() {
		// spend panics because the library has no other way to stop a validation.
		if p := recover(); p == errTooComplex {
			err = errTooComplex
		} else if p != nil {
			panic(p)
		}
	}()
	root, err := m.compile(schema)
	if err != nil {
		return nil, err
	}
	schemas := []*jsonschema.Schema{root}
	if objectOnly {
		var types jsonschema.Types
		types.Add("object")
		schemas = append(schemas, &jsonschema.Schema{Types: &types})
	}
	v, err := m.valueFor(location{isRoot: true}, schemas)
	return v.encoded, err
}
