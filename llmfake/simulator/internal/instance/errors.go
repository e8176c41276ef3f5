package instance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

var (
	errTooComplex = errors.New("the schema is too complex")
	errInfinite   = errors.New("the schema has no value of finite depth")
	errNotJSON    = errors.New("the schema is not JSON")
)

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
