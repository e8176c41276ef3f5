package llmhttp

import (
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
)

// invalidOf returns the Error that a client gets for e.
func invalidOf(e *param.Error) *Error {
	return &Error{Status: e.Status, Code: e.Code, Param: e.Param, Message: e.Message}
}

// paramError is [param.FromJSON].
func paramError(e *jsonwire.Error) *Error { return invalidOf(param.FromJSON(e)) }

// errBadRequest is [param.Invalid].
func errBadRequest(code, name, format string, args ...any) *Error {
	return invalidOf(param.Invalid(code, name, format, args...))
}

// errMissing is [param.Missing].
func errMissing(name string) *Error { return invalidOf(param.Missing(name)) }

// errUnknown is [param.Unknown].
func errUnknown(name string) *Error { return invalidOf(param.Unknown(name)) }

// errEmptyArray is [param.EmptyArray].
func errEmptyArray(name string) *Error { return invalidOf(param.EmptyArray(name)) }

// errLongArray is [param.LongArray].
func errLongArray(name string, limit, got int) *Error {
	return invalidOf(param.LongArray(name, limit, got))
}

// errLongString is [param.LongString].
func errLongString(name string, limit, got int) *Error {
	return invalidOf(param.LongString(name, limit, got))
}

// errInvalidType is [param.WrongType].
func errInvalidType(name, want, got string) *Error {
	return invalidOf(param.WrongType(name, want, got))
}

// errInvalidValue is [param.Value].
func errInvalidValue(name, got string, supported ...string) *Error {
	return invalidOf(param.Value(name, got, supported...))
}

// errInvalidText is [param.Form].
func errInvalidText(name, got, want string) *Error { return invalidOf(param.Form(name, got, want)) }

// echo is [param.Echo].
func echo(s string) string { return param.Echo(s) }

// elementPath is [param.Path].
func elementPath(list string, index int, member string) string {
	return param.Path(list, index, member)
}

// decodeRequest decodes the body of a request into v, which points to a zero value. Its error is an
// *Error for the client that names the parameter at fault.
func decodeRequest[T any](body []byte, t jsonwire.Type[T], v *T) error {
	if err := jsonwire.Unmarshal(body, t, v); err != nil {
		return paramError(err)
	}
	return nil
}
