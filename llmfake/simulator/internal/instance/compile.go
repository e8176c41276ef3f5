package instance

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaURL is the base of the references in a schema.
const schemaURL = "mem://schema"

// compile parses a schema and resolves its references.
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
	steps *budget
	cost  int // steps for a value without elements
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
	return meter{m.steps, cost}, nil
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
	m.steps.spend(m.cost + size)
}
