package wire

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp"
	"github.com/llmhttp/llmhttp/form"
	"github.com/llmhttp/llmhttp/internal/bounds"
	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

// Files returns the Store of an option Files of package pkg: a new one if it is nil. It panics if that is
// not valid.
func Files(pkg string, files *form.Store) *form.Store {
	if files == nil {
		return new(form.Store)
	}
	if err := files.Validate(); err != nil {
		panic(pkg + ": Options.Files: " + err.Error())
	}
	return files
}

// Fields are the fields of a form from which a request is decoded.
type Fields[Req any] struct {
	Single   map[string]func(r *Req, value string) error
	Lists    map[string]func(r *Req) *[]string // whose names may have "[]" at the end, and may come several times
	Files    []string                          // the names of those that are files, without "[]"
	AddExtra func(r *Req, name string, values []string)
}

// Decode decodes the values of a form into r, which is zero. Fields that are empty are missing.
func (f *Fields[Req]) Decode(r *Req, values map[string][]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		values, base := values[name], strings.TrimSuffix(name, "[]")
		set, list := f.Single[base], f.Lists[base]
		switch {
		case set != nil && len(values) > 1:
			return invalid.JSON(&jsonwire.Error{Kind: jsonwire.Duplicate, Path: base})
		case set != nil && name == base:
			if values[0] == "" {
				continue
			}
			if err := set(r, values[0]); err != nil {
				return err
			}
		case list != nil:
			elements, err := parseList(base, values)
			if err != nil {
				return err
			}
			*list(r) = append(*list(r), elements...)
		default:
			if known := f.KnownName(name); known != "" {
				return invalid.JSON(&jsonwire.Error{Kind: jsonwire.WrongCase, Path: name, Want: known})
			}
			f.AddExtra(r, name, values)
		}
	}
	return nil
}

// KnownName returns the name of the field that servers may take a field called name for, or "".
func (f *Fields[Req]) KnownName(name string) string {
	known := membername.Lower(strings.TrimSuffix(name, "[]"))
	if f.Single[known] != nil || f.Lists[known] != nil || slices.Contains(f.Files, known) {
		return known
	}
	return ""
}

// CheckFields refuses a field of the request of c without a field in its type that
// [llmhttp.AllowsUnknownMember] does not allow.
func CheckFields[V any, F ~map[string]V](c *llmhttp.Call, fields F) error {
	names := make(llm.Extra, len(fields))
	for name := range fields {
		names[strings.TrimSuffix(name, "[]")] = nil
	}
	return invalid.Members(names, func(name string) bool { return llmhttp.AllowsUnknownMember(c.Context(), name) })
}

// The values of the fields of a form are texts. These functions parse those of other types.

// FormNumber returns the number in the field param.
func FormNumber(param, value string) (*float64, error) {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, invalid.Form(param, value, "a number")
	}
	return &f, nil
}

// FormInt returns the integer in the field param.
func FormInt(param, value string) (*int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return nil, invalid.Form(param, value, "an integer")
	}
	return &n, nil
}

// FormBool returns the boolean in the field param. Python writes True.
func FormBool(param, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, invalid.Value(param, value, "true", "false")
}

// parseList returns the elements of the list param, of which each value is one, or a JSON array of
// some.
func parseList(param string, values []string) ([]string, error) {
	var list []string
	for _, v := range values {
		if !strings.HasPrefix(strings.TrimSpace(v), "[") {
			if v != "" {
				list = append(list, v)
			}
			continue
		}
		var elements []string
		if json.Unmarshal([]byte(v), &elements) != nil {
			return nil, invalid.WrongType(param, "an array of strings", "something else")
		}
		list = append(list, elements...)
	}
	if len(list) > bounds.FormParts {
		return nil, invalid.LongArray(param, bounds.FormParts, len(list))
	}
	return list, nil
}
