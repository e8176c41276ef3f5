// Package instance makes JSON values that satisfy a JSON schema.
//
// The schema library parses a schema, resolves its references and validates
// values. This package proposes values and returns the first one that the
// library accepts, so a returned value always satisfies its schema.
package instance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Limits of one call. Clients choose the schemas, so the work for each of them
// must be bounded.
const (
	maxSchema     = 1 << 20 // length of a schema in bytes
	maxSubschemas = 5000    // objects and booleans in a schema; the library compiles n of them in O(n²)
	maxPointer    = 1024    // length of the JSON pointer to a subschema in bytes
	maxExponent   = 3       // digits of the exponent of a number: the library computes with exact fractions
	maxSteps      = 1 << 19 // steps of making and validating values, of about a microsecond each
)

var (
	errTooComplex = errors.New("the schema is too complex")
	errInfinite   = errors.New("the schema has no value of finite depth")
	errNotJSON    = errors.New("the schema is not JSON")
)

// Make returns a value that satisfies schema. The same arguments give the same
// value. It has the properties that the schema declares, in the same order,
// except where they would recur without end, and its strings are text as far
// as the schema allows. If objectOnly is true, or if the schema allows every
// type, the value is an object.
//
// Make chooses values by type, enum, const, $ref, allOf, anyOf, oneOf,
// properties, required, additionalProperties, items, prefixItems, minItems,
// maxItems, minLength, maxLength, pattern, format, multipleOf and the bounds of
// numbers. It does not know the other keywords, but the library validates
// them. If each value that Make tries is invalid, the error names the keyword
// that rejects the first one.
//
// Make never reads a file or opens a connection. Its time and memory are
// bounded for every schema.
func Make(schema []byte, text string, objectOnly bool) (encoded []byte, err error) {
	m := &maker{
		text:     text,
		steps:    maxSteps,
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
	v, err := m.value(place{root: true}, schemas)
	return v.encoded, err
}

// validationSteps is what validating a value against one schema takes at least.
const validationSteps = 8

// spend uses up n steps. It panics with errTooComplex if fewer are left.
func (m *maker) spend(n int) {
	m.steps -= n
	if m.steps < 0 {
		panic(errTooComplex)
	}
}

// schemaURL is the base of the references in a schema.
const schemaURL = "mem://schema"

func (m *maker) compile(schema []byte) (*jsonschema.Schema, error) {
	if err := m.scan(schema); err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, errNotJSON
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // without a scheme, it loads nothing
	c.UseRegexpEngine(m.compilePattern)
	c.RegisterVocabulary(&jsonschema.Vocabulary{URL: "mem://meter", Compile: m.newMeter})
	c.AssertVocabs()
	if err := c.AddResource(schemaURL, document); err != nil {
		return nil, err
	}
	root, err := c.Compile(schemaURL)
	return root, describeInvalid(err)
}

// scan checks the limits of a schema and records the order of its subschemas.
func (m *maker) scan(schema []byte) error {
	if len(schema) > maxSchema {
		return errTooComplex
	}
	d := jsontext.NewDecoder(bytes.NewReader(schema))
	for {
		token, err := d.ReadToken()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errNotJSON
		}
		switch token.Kind() {
		case '{', 't', 'f':
			pointer := string(d.StackPointer())
			if len(pointer) > maxPointer || len(m.order) == maxSubschemas {
				return errTooComplex
			}
			m.order[pointer] = len(m.order)
		case '0':
			_, exponent, _ := strings.Cut(strings.ToLower(token.String()), "e")
			if len(strings.TrimLeft(exponent, "+-0")) > maxExponent {
				return errTooComplex
			}
		}
	}
}

// A meter counts the steps of validating values against a subschema.
type meter struct {
	m    *maker
	cost int
}

// newMeter returns the meter of a subschema. It refuses the keywords that could
// make the library validate a value exponentially often without being metered.
func (m *maker) newMeter(_ *jsonschema.CompilerContext, keywords map[string]any) (jsonschema.SchemaExt, error) {
	cost := validationSteps
	for keyword, v := range keywords {
		switch keyword {
		case "contains", "dependencies", "dependentSchemas":
			return nil, fmt.Errorf("the keyword %q is not supported", keyword)
		}
		if list, ok := v.([]any); ok {
			cost += len(list)
		}
	}
	return meter{m, cost}, nil
}

// Validate implements [jsonschema.SchemaExt].
func (m meter) Validate(_ *jsonschema.ValidatorContext, v any) {
	size := 0
	switch v := v.(type) {
	case []any:
		size = len(v)
	case map[string]any:
		size = len(v)
	}
	m.m.spend(m.cost + size)
}

// describeInvalid describes an error of the library's compiler to a client. It
// returns nil if err is nil.
func describeInvalid(err error) error {
	var reference string
	if e, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if e, ok := errors.AsType[*jsonschema.ValidationError](e.Err); ok {
			return fmt.Errorf("the schema is invalid at %q", "#/"+strings.Join(leaf(e).InstanceLocation, "/"))
		}
		return err
	} else if e, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		reference = e.URL
	} else if e, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		reference = e.URL
	} else if e, ok := errors.AsType[*jsonschema.AnchorNotFoundError](err); ok {
		reference = e.Reference
	} else {
		return err
	}
	return fmt.Errorf("cannot resolve the reference %q", strings.TrimPrefix(reference, schemaURL))
}

// describeViolation describes an error of the library's validator, or of a value
// that could not be made, to a client. It returns nil if err is nil.
func describeViolation(err error) error {
	violation, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	violation = leaf(violation)
	keyword := strings.Join(violation.ErrorKind.KeywordPath(), "/")
	switch violation.ErrorKind.(type) { // these have no path
	case *kind.Not:
		keyword = "not"
	case *kind.RefCycle:
		keyword = "$ref"
	case *kind.FalseSchema:
		keyword = "false"
	}
	location := strings.TrimPrefix(violation.SchemaURL, schemaURL)
	return fmt.Errorf("found no value that satisfies %q at %q", keyword, location)
}

// leaf returns the innermost first cause of err.
func leaf(err *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(err.Causes) > 0 {
		err = err.Causes[0]
	}
	return err
}
