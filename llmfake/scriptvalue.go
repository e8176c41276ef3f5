// Values of a file, with errors that name a place.

package llmfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/llmhttp/llmhttp"
)

// A placeError is an error at a place of a script, such as "rules[0].when".
type placeError struct {
	place string
	err   error
}

func (e *placeError) Error() string { return e.place + ": " + e.err.Error() }

func (e *placeError) Unwrap() error { return e.err }

// at returns err with the place where it is. It returns nil if err is nil. place is the name of a
// member, or an index in brackets.
func at(place string, err error) error {
	var inner *placeError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &inner):
		return &placeError{place, err}
	case strings.HasPrefix(inner.place, "["):
		return &placeError{place + inner.place, inner.err}
	}
	return &placeError{place + "." + inner.place, inner.err}
}

// decodeMembers decodes an object into the values that members has for the names of its members.
func decodeMembers(b []byte, members map[string]any) error {
	var object map[string]json.RawMessage
	if err := decodeStrict(b, &object); err != nil {
		return err
	}
	for name, value := range object {
		v, ok := members[name]
		if !ok {
			return fmt.Errorf("there is no member %q", name)
		}
		if err := decodeStrict(value, v); err != nil {
			return at(name, err)
		}
	}
	return nil
}

// An index is how Go 1.27 names an element of a list. Go 1.26 does not tell it.
var index = regexp.MustCompile(`(?:^|\.)(\d+)`)

var unknownField = regexp.MustCompile(`^json: unknown field (".*")$`)

// decodeStrict decodes b into v, without members that v does not have, and without null.
func decodeStrict(b []byte, v any) error {
	if string(bytes.TrimSpace(b)) == "null" {
		return errors.New("there is no value")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return errors.New("there is something after the value")
		}
		return nil
	}
	if mismatch := (*json.UnmarshalTypeError)(nil); errors.As(err, &mismatch) {
		err := fmt.Errorf("the value must be %s, and not %s", kindName(mismatch.Type), mismatch.Value)
		if mismatch.Field != "" {
			return at(index.ReplaceAllString(mismatch.Field, "[$1]"), err)
		}
		return err
	}
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("there is no member %s", m[1])
	}
	return err
}

// kindName returns what a value of type t is in JSON.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "an integer"
}

// A list is a list whose errors have the index of the element.
type list[T any] []T

func (l *list[T]) UnmarshalJSON(b []byte) error {
	var values []json.RawMessage
	if err := decodeStrict(b, &values); err != nil {
		return err
	}
	*l = make([]T, len(values))
	for i, value := range values {
		if err := decodeStrict(value, &(*l)[i]); err != nil {
			return at(fmt.Sprintf("[%d]", i), err)
		}
	}
	return nil
}

type duration time.Duration

func (d *duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a duration is a string such as \"300ms\", and not %s", b)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("a duration is a string such as \"300ms\", and not %q", s)
	}
	*d = duration(parsed)
	return nil
}

type scriptLimits struct {
	RequestsPerMinute int `json:"requests_per_minute"`
	TokensPerMinute   int `json:"tokens_per_minute"`
	Concurrent        int `json:"concurrent"`
}

func (l *scriptLimits) check() error {
	for _, limit := range []struct {
		name string
		n    int
	}{{"requests_per_minute", l.RequestsPerMinute}, {"tokens_per_minute", l.TokensPerMinute}, {"concurrent", l.Concurrent}} {
		if limit.n < 0 {
			return at(limit.name, fmt.Errorf("a limit must not be negative, as %d is", limit.n))
		}
	}
	return nil
}

func (l *scriptLimits) limits() llmhttp.Limits {
	limits := llmhttp.Limits{Concurrent: l.Concurrent}
	if l.RequestsPerMinute > 0 {
		limits.Requests = llmhttp.PerMinute(l.RequestsPerMinute)
	}
	if l.TokensPerMinute > 0 {
		limits.Tokens = llmhttp.PerMinute(l.TokensPerMinute)
	}
	return limits
}

type scriptChaos struct {
	Seed        uint64   `json:"seed"`
	RateLimit   float64  `json:"rate_limit"`
	ServerError float64  `json:"server_error"`
	Overloaded  float64  `json:"overloaded"`
	HTML        float64  `json:"html"`
	Cut         float64  `json:"cut"`
	CutStream   float64  `json:"cut_stream"`
	Malformed   float64  `json:"malformed"`
	Slow        float64  `json:"slow"`
	Delay       duration `json:"delay"`
}

func (c *scriptChaos) chaos() Chaos {
	return Chaos{c.Seed, c.RateLimit, c.ServerError, c.Overloaded, c.HTML, c.Cut, c.CutStream, c.Malformed, c.Slow, time.Duration(c.Delay)}
}

type scriptPace struct {
	Seed            uint64   `json:"seed"`
	FirstToken      duration `json:"first_token"`
	TokensPerSecond float64  `json:"tokens_per_second"`
	Jitter          float64  `json:"jitter"`
}

func (p *scriptPace) pace() Pace {
	return Pace{p.Seed, time.Duration(p.FirstToken), p.TokensPerSecond, p.Jitter}
}

// inScript returns an error of a field with the name that the field has in a script.
func inScript(err error) error {
	wrong, ok := errors.AsType[*placeError](err)
	if !ok {
		return err
	}
	var name strings.Builder
	for i, c := range wrong.place {
		startsWord := i > 0 && unicode.IsUpper(c) && unicode.IsLower(rune(wrong.place[i-1]))
		if startsWord {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(c))
	}
	return &placeError{name.String(), wrong.err}
}
