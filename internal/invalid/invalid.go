// Package invalid makes the errors that clients get: of what package param finds wrong in a request,
// and of a reply that is too large.
package invalid

import (
	"net/http"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/param"
	"github.com/llmhttp/llmhttp/llm"
)

// Of returns the Error that a client gets for e.
func Of(e *param.Error) *llm.Error {
	return &llm.Error{Status: e.Status, Code: e.Code, Param: e.Param, Message: e.Message}
}

// JSON is [param.FromJSON].
func JSON(e *jsonwire.Error) *llm.Error { return Of(param.FromJSON(e)) }

// Param is [param.Invalid].
func Param(code, name, format string, args ...any) *llm.Error {
	return Of(param.Invalid(code, name, format, args...))
}

// Missing is [param.Missing].
func Missing(name string) *llm.Error { return Of(param.Missing(name)) }

// Unknown is [param.Unknown].
func Unknown(name string) *llm.Error { return Of(param.Unknown(name)) }

// EmptyArray is [param.EmptyArray].
func EmptyArray(name string) *llm.Error { return Of(param.EmptyArray(name)) }

// LongArray is [param.LongArray].
func LongArray(name string, limit, got int) *llm.Error {
	return Of(param.LongArray(name, limit, got))
}

// LongString is [param.LongString].
func LongString(name string, limit, got int) *llm.Error {
	return Of(param.LongString(name, limit, got))
}

// WrongType is [param.WrongType].
func WrongType(name, want, got string) *llm.Error {
	return Of(param.WrongType(name, want, got))
}

// Value is [param.Value].
func Value(name, got string, supported ...string) *llm.Error {
	return Of(param.Value(name, got, supported...))
}

// Form is [param.Form].
func Form(name, got, want string) *llm.Error { return Of(param.Form(name, got, want)) }

// BodyTooLarge returns the error of a request whose body has more than limit bytes.
func BodyTooLarge(limit int64) *llm.Error {
	return llm.Errorf(http.StatusRequestEntityTooLarge, "request_too_large",
		"The request body is too large. The limit is %d bytes.", limit)
}

// ReplyTooLarge returns the error of a reply with more than limit bytes.
func ReplyTooLarge(limit int64) *llm.Error {
	e := llm.Errorf(http.StatusBadGateway, "", "The reply of the model is too large. The limit is %d bytes.", limit)
	e.NoRetry = true
	return e
}

// Members returns the [llm.Error] for the first of the members, by name, that allows refuses, or nil.
func Members(members llm.Extra, allows func(name string) bool) error {
	refused := ""
	for name := range members {
		if (refused == "" || name < refused) && !allows(name) {
			refused = name
		}
	}
	if refused == "" {
		return nil
	}
	return Unknown(param.Echo(refused))
}
