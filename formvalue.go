package llmhttp

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmhttp/llmhttp/internal/invalid"
	"github.com/llmhttp/llmhttp/internal/jsonwire"
	"github.com/llmhttp/llmhttp/internal/membername"
	"github.com/llmhttp/llmhttp/llm"
)

// formFields are the fields of a form from which a request is decoded.
type formFields[Req any] struct {
	single   map[string]func(r *Req, value string) error
	lists    map[string]func(r *Req) *[]string // whose names may have "[]" at the end, and may come several times
	files    []string                          // the names of those that are files, without "[]"
	addExtra func(r *Req, name string, values []string)
}

// decode decodes the values of a form into r, which is zero. Fields that are empty are missing.
func (f *formFields[Req]) decode(r *Req, fields map[string][]string) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		values, base := fields[name], strings.TrimSuffix(name, "[]")
		set, list := f.single[base], f.lists[base]
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
			elements, err := parseFormList(base, values)
			if err != nil {
				return err
			}
			*list(r) = append(*list(r), elements...)
		default:
			if known := f.knownName(name); known != "" {
				return invalid.JSON(&jsonwire.Error{Kind: jsonwire.WrongCase, Path: name, Want: known})
			}
			f.addExtra(r, name, values)
		}
	}
	return nil
}

// knownName returns the name of the field that servers may take a field called name for, or "".
func (f *formFields[Req]) knownName(name string) string {
	known := membername.Lower(strings.TrimSuffix(name, "[]"))
	if f.single[known] != nil || f.lists[known] != nil || slices.Contains(f.files, known) {
		return known
	}
	return ""
}

// file returns the file in the field name, or nil if there is none.
func (f *Form) file(name string) (*llm.File, error) {
	switch files := f.Files[name]; len(files) {
	case 0:
		return nil, nil
	case 1:
		return files[0], nil
	}
	return nil, invalid.JSON(&jsonwire.Error{Kind: jsonwire.Duplicate, Path: name})
}

// The values of the fields of a form are texts. These functions parse those of other types.

// parseFormInt returns the integer in the field param.
func parseFormInt(param, value string) (*int, error) {
	n, err := strconv.Atoi(value)
	if err != nil {
		return nil, invalid.Form(param, value, "an integer")
	}
	return &n, nil
}

// parseFormBool returns the boolean in the field param. Python writes True.
func parseFormBool(param, value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, invalid.Value(param, value, "true", "false")
}

// parseFormList returns the elements of the list param, of which each value is one, or a JSON array
// of some.
func parseFormList(param string, values []string) ([]string, error) {
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
	if len(list) > maxFormParts {
		return nil, invalid.LongArray(param, maxFormParts, len(list))
	}
	return list, nil
}
