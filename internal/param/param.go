// Package param has the errors for parameters of requests, as plain values: what they say and which
// parameter is at fault. It knows no type of requests and no server, so that every package may use it;
// package llm makes an *llm.Error of an [Error]. The texts and codes are those that OpenAI's API was
// recorded to send.
package param

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/jsonwire"
)

// An Error says why a request is refused.
type Error struct {
	Status  int    // HTTP status
	Code    string // may be empty
	Param   string // the path of the parameter at fault; may be empty
	Message string // for the client
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Invalid returns an error of status 400 with a formatted message.
func Invalid(code, param, format string, args ...any) *Error {
	e := &Error{Status: http.StatusBadRequest, Code: code, Param: param, Message: format}
	if len(args) > 0 {
		e.Message = fmt.Sprintf(format, args...)
	}
	return e
}

// FromJSON returns the error for a request that cannot be decoded, or for one of its members. It is
// the Error with which a decoder has failed, if it has failed with one.
func FromJSON(e *jsonwire.Error) *Error {
	if refused, ok := errors.AsType[*Error](e.Err); ok {
		return refused
	}
	code, message := e.APIText()
	return &Error{Status: http.StatusBadRequest, Code: code, Param: e.Path, Message: message}
}

// Missing says that a parameter is missing.
func Missing(param string) *Error {
	return FromJSON(&jsonwire.Error{Kind: jsonwire.Missing, Path: param})
}

// Unknown says that a parameter does not exist, or is not allowed.
func Unknown(param string) *Error {
	return FromJSON(&jsonwire.Error{Kind: jsonwire.Unknown, Path: param})
}

// Duplicate says that a parameter is there twice.
func Duplicate(param string) *Error {
	return FromJSON(&jsonwire.Error{Kind: jsonwire.Duplicate, Path: param})
}

// WrongCase says that a parameter differs from a known one only in case.
func WrongCase(param, known string) *Error {
	return FromJSON(&jsonwire.Error{Kind: jsonwire.WrongCase, Path: param, Want: known})
}

// EmptyArray says that an array must not be empty.
func EmptyArray(param string) *Error {
	return Invalid(
		"empty_array",
		param,
		"Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.",
		param,
	)
}

// EmptyString says that a string must not be empty.
func EmptyString(param string) *Error {
	return Invalid("empty_string", param,
		"Invalid '%s': empty string. Expected a string with minimum length 1, but got an empty string instead.", param)
}

// LongArray says that an array has more than limit elements.
func LongArray(param string, limit, got int) *Error {
	return FromJSON(&jsonwire.Error{Kind: jsonwire.TooLong, Path: param, Limit: float64(limit), Length: got})
}

// LongString says that a string has more than limit characters.
func LongString(param string, limit, got int) *Error {
	return Invalid(
		"string_above_max_length",
		param,
		"Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.",
		param,
		limit,
		got,
	)
}

// WrongType says that a value is of another type than the wanted one. Both are given with their
// articles, as in "a string".
func WrongType(param, want, got string) *Error {
	return FromJSON(&jsonwire.Error{Kind: jsonwire.WrongType, Path: param, Want: want, Got: got})
}

// Value says that a value is none of the supported ones.
func Value(param, got string, supported ...string) *Error {
	return Invalid("invalid_value", param, "%s", jsonwire.ValueText(Echo(got), supported))
}

// Form is like Value, for parameters whose values cannot be listed. want describes them.
func Form(param, got, want string) *Error {
	return Invalid("invalid_value", param, "Invalid '%s': '%s'. Expected %s.", param, Echo(got), want)
}

// Echo returns text of a client for use in an error message: shortened, printable, and without
// anything that looks like an API key.
func Echo(s string) string {
	s = jsonwire.Clip(s, 64)
	if i := strings.Index(s, "sk-"); i >= 0 && len(s)-i > len("sk-")+8 {
		s = s[:i] + "sk-***"
	}
	return s
}

// Path names an element of a list by its index and member, as in "messages[1].role". The member may
// be empty.
func Path(list string, index int, member string) string {
	p := list + "[" + strconv.Itoa(index) + "]"
	if member != "" {
		p += "." + member
	}
	return p
}

// EndUserNames are the parameters that may name the end user, the first one first.
var EndUserNames = [...]string{"safety_identifier", "user"}

// EndUser returns the end user whom parameters of a request name, or "".
func EndUser(members map[string]json.RawMessage) string {
	for _, name := range EndUserNames {
		if raw := members[name]; raw != nil {
			var user string
			if json.Unmarshal(raw, &user) == nil && user != "" {
				return user
			}
		}
	}
	return ""
}

// UnmarshalRequest decodes data strictly and replaces *v, unless there is an error. As is usual, null
// changes nothing.
func UnmarshalRequest[T any](data []byte, t jsonwire.Type[T], v *T) error {
	return jsonwire.Replace(data, v, func() error {
		if err := jsonwire.Unmarshal(data, t, v); err != nil {
			return FromJSON(err)
		}
		return nil
	})
}

// UnmarshalReply decodes data leniently and replaces *v, unless there is an error. As is usual, null
// changes nothing.
func UnmarshalReply[T any](data []byte, t jsonwire.Type[T], v *T) error {
	return jsonwire.Replace(data, v, func() error {
		if err := jsonwire.UnmarshalLenient(data, t, v); err != nil {
			return err
		}
		return nil
	})
}
