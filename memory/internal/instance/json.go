package instance

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"strconv"
	"strings"
)

// JSON values are nil, bool, json.Number, string, []any and *object.

// An object keeps the order of its members, so that an instance has its
// properties in the order in which the schema declares them.
type object struct {
	names   []string
	members map[string]any
}

func (o *object) set(name string, v any) {
	if o.members == nil {
		o.members = make(map[string]any)
	}
	if _, ok := o.members[name]; !ok {
		o.names = append(o.names, name)
	}
	o.members[name] = v
}

func (o *object) has(name string) bool {
	_, ok := o.members[name]
	return ok
}

// string returns the member of that name, or "" if it is not a string.
func (o *object) string(name string) string {
	s, _ := o.members[name].(string)
	return s
}

// object returns the member of that name, or an empty one if it is not an
// object.
func (o *object) object(name string) *object {
	if m, ok := o.members[name].(*object); ok {
		return m
	}
	return &object{}
}

func (o *object) array(name string) []any {
	a, _ := o.members[name].([]any)
	return a
}

// schema returns the member of that name, and whether it is a schema.
func (o *object) schema(name string) (any, bool) {
	v := o.members[name]
	return v, isSchema(v)
}

func isSchema(v any) bool {
	switch v.(type) {
	case bool, *object:
		return true
	}
	return false
}

// number returns the member of that name, or nil if it is not a number.
func (o *object) number(name string) *big.Rat { return rational(o.members[name]) }

// count returns the member of that name as a size, or missing if it is none.
func (o *object) count(name string, missing int) int {
	r := o.number(name)
	if r == nil || !r.IsInt() || r.Sign() < 0 {
		return missing
	}
	if !r.Num().IsInt64() || r.Num().Int64() > maxCount {
		return maxCount
	}
	return int(r.Num().Int64())
}

// maxCount is a size that no instance reaches.
const maxCount = 1 << 30

// strings returns the strings in the member of that name, which may be one
// string or an array.
func (o *object) strings(name string) []string {
	switch v := o.members[name].(type) {
	case string:
		return []string{v}
	case []any:
		list := make([]string, 0, len(v))
		for _, e := range v {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
		return list
	}
	return nil
}

// rational returns the exact value of a JSON number, or nil if v is none, or
// so long or far from zero that to compute with it would cost much.
func rational(v any) *big.Rat {
	n, ok := v.(json.Number)
	if !ok || len(n) > 64 {
		return nil
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(string(n)), "e"); ok {
		if e, err := strconv.Atoi(exponent); err != nil || e < -400 || e > 400 {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return nil
	}
	return r
}

// decimal returns r as a JSON number. It reports whether r has one.
func decimal(r *big.Rat) (json.Number, bool) {
	n, exact := r.FloatPrec()
	if !exact {
		return "", false
	}
	return json.Number(r.FloatString(n)), true
}

// equal reports whether a and b are the same JSON value.
func equal(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case *object:
		b, ok := b.(*object)
		if !ok || len(a.names) != len(b.names) {
			return false
		}
		for _, name := range a.names {
			if !b.has(name) || !equal(a.members[name], b.members[name]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		if a == b || isPlain(a) && isPlain(b) {
			return a == b
		}
		x, y := rational(a), rational(b)
		return x != nil && y != nil && x.Cmp(y) == 0
	}
	return a == b
}

// isPlain reports whether n is an integer as it is usually written.
func isPlain(n json.Number) bool { return n != "-0" && !strings.ContainsAny(string(n), ".eE") }

// maxDepth is how deep schemas and instances may nest.
const maxDepth = 512

var errSyntax = errors.New("the schema is not JSON")

func parse(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, maxDepth)
	if err != nil || d.More() {
		return nil, errSyntax
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil || depth == 0 {
		return nil, errSyntax
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := parseValue(d, depth-1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, errSyntax
			}
			v, err := parseValue(d, depth-1)
			if err != nil {
				return nil, err
			}
			o.set(name.(string), v) // the Decoder sees to it that it is one
		}
		_, err = d.Token()
		return o, err
	}
	return t, nil
}

func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return append(b, v...)
	case string:
		return appendString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, e)
		}
		return append(b, ']')
	case *object:
		b = append(b, '{')
		for i, name := range v.names {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(append(appendString(b, name), ':'), v.members[name])
		}
		return append(b, '}')
	}
	panic("instance: not a JSON value")
}

// appendString leaves <, > and & as they are, unlike [json.Marshal].
func appendString(b []byte, s string) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string never fails
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
